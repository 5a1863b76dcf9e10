"""A counter that processes of one host share: one adds, another takes all there is.

It lies in a file of the shared memory; a lock on the file makes each step whole.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from softmesh.arguments import checked, checked_int
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.processes.waiting import waiting

_FOLDER = "/dev/shm"
_PREFIX = "softmesh_counter_"
_NAME = re.compile(r"/?[A-Za-z0-9_.-]{1,200}")
_LAYOUT = struct.Struct("<QQ")  # what it counts, and whether it is ready
_READY = 0x6D657368
_MOST = 2**64 - 1
_LOOK_EVERY = 0.002


class InterProcessCounterChannel:
    """Made by one process, joined by others with `connect`. The maker takes it away again."""

    def __init__(self, shm_name: str) -> None:
        self._name = _checked_name(shm_name)
        path = _path(self._name)
        self._clean = not _removed(path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(handle, _LAYOUT.size)
        self._join(handle)
        self._write(0)  # from here on others may join
        self._take_away = weakref.finalize(self, _end, handle, self._memory, path)

    def _join(self, handle: int) -> None:
        self._handle, self._memory = handle, mmap.mmap(handle, _LAYOUT.size)

    @classmethod
    def connect(cls, shm_name: str, connect_timeout_ms: int = 30000) -> InterProcessCounterChannel:
        """Waits until somebody has made it."""
        name = _checked_name(shm_name)
        seconds = checked_int("connect", "connect_timeout_ms", connect_timeout_ms) / 1000
        handle = _opened(name, time.monotonic() + seconds)
        if handle is None:
            raise MeshError(
                f"InterProcessCounterChannel.connect: nobody made {name!r} within {connect_timeout_ms} ms."
            )
        channel = cls.__new__(cls)
        channel._name, channel._clean = name, True
        channel._join(handle)
        channel._take_away = weakref.finalize(channel, _end, handle, channel._memory, None)
        return channel

    @property
    def shm_name(self) -> str:
        return self._name

    def inject(self, n: int) -> None:
        number = checked_int("inject", "n", n)
        if number < 0:
            raise ArgumentValueError(f"inject adds 0 or more, got {number}")
        with self._locked():
            self._write(min(self._read() + number, _MOST))

    def pending(self) -> int:
        with self._locked():
            return self._read()

    def try_consume_all(self) -> int:
        """What was there, and nothing is left; 0 where nothing was."""
        with self._locked():
            count = self._read()
            self._write(0)
        return count

    def had_clean_prior_shutdown(self) -> bool:
        """Whether the last one of this name was shut down, or there was none."""
        return self._clean

    def shutdown(self) -> None:
        """Twice is harmless."""
        self._take_away()

    def _read(self) -> int:
        return int(_LAYOUT.unpack(self._memory[: _LAYOUT.size])[0])

    def _write(self, count: int) -> None:
        self._memory[: _LAYOUT.size] = _LAYOUT.pack(count, _READY)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._take_away.alive:
            raise MeshError(f"InterProcessCounterChannel {self._name!r} was shut down.")
        with _file_lock(self._handle):
            yield


@contextmanager
def _file_lock(handle: int) -> Iterator[None]:
    """Others hold it for microseconds; one that was stopped while it held it is waited for no longer than any."""
    if not _locks(handle):
        with waiting("InterProcessCounterChannel") as wait:
            wait.until(lambda: _locks(handle))
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _locks(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _checked_name(name: object) -> str:
    text = checked("InterProcessCounterChannel", "shm_name", name, str, "a string")
    if not _NAME.fullmatch(text):
        raise ArgumentValueError(
            f"shm_name {text[:80]!r}: use letters, digits, '_', '-' and '.', at most 200, perhaps after a '/'"
        )
    return text


def _path(name: str) -> str:
    return os.path.join(_FOLDER, _PREFIX + name.lstrip("/"))


def _removed(path: str) -> bool:
    """Whether a channel was left behind there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _opened(name: str, deadline: float) -> int | None:
    """Opened once it is complete: made, sized and marked as ready."""
    while True:
        with suppress(FileNotFoundError):
            handle = os.open(_path(name), os.O_RDWR | os.O_CLOEXEC)
            data = os.pread(handle, _LAYOUT.size, 0)
            if len(data) == _LAYOUT.size and _LAYOUT.unpack(data)[1] == _READY:
                return handle
            os.close(handle)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK_EVERY)


def _end(handle: int, memory: mmap.mmap, path: str | None) -> None:
    memory.close()
    if path is not None and _is_at(handle, path):
        os.unlink(path)
    os.close(handle)


def _is_at(handle: int, path: str) -> bool:
    """Whether the name still stands for this file, and not for one that somebody made since."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)
