"""Named shared memory (a file in /dev/shm): one process makes it, other processes of the host open it by name.

A file lock makes each step atomic. Another one belongs to the maker for as long as it lives, so that nobody waits for
a process that is gone. `HostWait` is a bounded wait for such a process, which need not be a rank of the job.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import mmap
import os
import re
import stat
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from softmesh.arguments import checked
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waits import Group, HangError, Wait


class HostWait(Wait):
    """`remedy` says what the other process has to do.

    To the launcher it is a call of this process alone, so it is never taken for a part of a deadlock.
    """

    def __init__(self, op: str, what: str, remedy: str, nbytes: int = 0) -> None:
        group = Group(f"{what} in process {os.getpid()}", ())
        super().__init__(op, WaitKind.COLLECTIVE, group, None, 0, None, remedy, nbytes)

    def until(self, done: Callable[[], object]) -> None:
        try:
            super().until(done)
        except HangError as hang:
            report = hang.report
            raise HangError(
                f"{report.op} timed out after {report.seconds:.0f} s at {report.site}: {report.fingerprint}",
                report,
            ) from None


_FOLDER = "/dev/shm"
_OTHERS = 0o077  # permissions that the user alone does not need
_YOUNG_SECONDS = 10.0
_LOOK_EVERY = 0.002
_LOCK = struct.Struct("hhqqi4x")  # of the C library: type, whence, start, length, process
_NAME = re.compile(r"/?(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,200}")  # a folder's own name and that above it are no names


def checked_name(where: str, argument: str, name: object) -> str:
    text = checked(where, argument, name, str, "a string")
    if not _NAME.fullmatch(text):
        raise ArgumentValueError(
            f"{argument} {text[:80]!r}: use letters, digits, '_', '-' and '.', at most 200, perhaps after a '/'"
        )
    return text


def path_of(kind: str, name: str) -> str:
    return os.path.join(_FOLDER, f"softmesh_{kind}_{name.lstrip('/')}")


def remove(path: str) -> bool:
    """Whether a file was left behind there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def sweep(kind: str) -> None:
    """Take away what processes left behind that were killed; a young file may be one that is being made."""
    for path in glob.glob(path_of(kind, "*")):
        with suppress(OSError):
            if time.time() - os.stat(path).st_mtime > _YOUNG_SECONDS and _is_abandoned(path):
                os.unlink(path)


def _is_abandoned(path: str) -> bool:
    handle = _opened(path)
    try:
        return not _is_held(handle)
    finally:
        os.close(handle)


def _opened(path: str) -> int:
    """Open a file that this user made as `SharedFile.make` does; an OSError says what another one is."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(handle)
    wrong = ""
    if not stat.S_ISREG(found.st_mode):
        wrong = "it is not a plain file"
    elif found.st_uid != os.geteuid():
        wrong = "it was made by another user"
    elif found.st_mode & _OTHERS:
        wrong = f"other users may open it (mode {stat.S_IMODE(found.st_mode):o})"
    if wrong:
        os.close(handle)
        raise PermissionError(errno.EPERM, wrong)
    return handle


class SharedFile:
    """`memory` is all of it. `close` may be called twice; the maker takes the file away with it."""

    def __init__(self, handle: int, path: str, *, mine: bool) -> None:
        self.path = path
        self._handle, self._mine = handle, mine
        self._threads = threading.RLock()  # a lock on a file does not keep threads of one process apart
        self.memory = mmap.mmap(handle, 0)
        self._end = weakref.finalize(self, _end, handle, self.memory, path if mine else None, os.getpid())

    @classmethod
    def make(cls, path: str, size: int) -> SharedFile:
        """New and full of zeros; FileExistsError where there is one."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        _mark(handle, fcntl.F_WRLCK)
        os.ftruncate(handle, size)
        return cls(handle, path, mine=True)

    @classmethod
    def open(cls, path: str, smallest: int) -> SharedFile | None:
        """None while there is none, or its maker is not so far."""
        try:
            handle = _opened(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MeshError(
                f"{path} cannot be shared: {error.strerror}. A file that another user of this host can reach might "
                "give away what is written, or be fed by a stranger: choose another name, or remove it."
            ) from None
        if os.fstat(handle).st_size >= smallest:
            return cls(handle, path, mine=False)
        os.close(handle)
        return None

    @classmethod
    def wait_for(
        cls, path: str, smallest: int, deadline: float, is_ready: Callable[[SharedFile], bool]
    ) -> SharedFile | None:
        """Opened once it is complete; None where nobody made it until then."""
        while True:
            file = cls.open(path, smallest)
            if file is not None:
                if is_ready(file):
                    return file
                file.close()
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_EVERY)

    @property
    def is_open(self) -> bool:
        return self._end.alive

    def maker_is_gone(self) -> bool:
        """Whether it ended, or took the file away."""
        if self._mine:
            return False
        return not _is_at(self._handle, self.path) or not _is_held(self._handle)

    @contextmanager
    def locked(self, op: str) -> Iterator[None]:
        """Others hold it for microseconds; one that was stopped while it held it is waited for as for any."""
        with self._threads:
            if not _locks(self._handle):
                with HostWait(op, self.path, "another process holds its lock; is it stopped?") as wait:
                    wait.until(lambda: _locks(self._handle))
            try:
                yield
            finally:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        self._end()


def _locks(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _mark(handle: int, kind: int) -> None:
    """The maker's lock: of this opening of the file, whatever else the process opens; it ends with it."""
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, 0, 0, 0))


def _is_held(handle: int) -> bool:
    """Whether the maker has its lock still."""
    try:
        _mark(handle, fcntl.F_WRLCK)
    except (BlockingIOError, PermissionError):
        return True
    _mark(handle, fcntl.F_UNLCK)
    return False


def _is_at(handle: int, path: str) -> bool:
    """Whether the name still stands for this file, and not for one that somebody made since."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)


def _end(handle: int, memory: mmap.mmap, path: str | None, maker: int) -> None:
    memory.close()
    if path is not None and os.getpid() == maker and _is_at(handle, path):
        os.unlink(path)
    os.close(handle)
