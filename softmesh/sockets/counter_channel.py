"""InterProcessCounterChannel: a counter in shared memory of one host; one process adds, another takes all there is."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from softmesh.arguments import checked_int
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.sockets.named_shared_memory import SharedFile, checked_name

_LAYOUT = struct.Struct("<QQQ")  # what it counts, whether it is ready, whether the last connector shut down
_READY = 0x6D657368
_MOST = 2**64 - 1
_WHERE = "InterProcessCounterChannel"
_FOLDER = "/dev/shm"


def _is_ready(file: SharedFile) -> bool:
    return bool(_LAYOUT.unpack_from(file.memory)[1] == _READY)


class InterProcessCounterChannel:
    """Its owner makes it, adds, and takes it away again; a connector, joined by `connect`, takes what was added."""

    def __init__(self, shm_name: str) -> None:
        self._name = checked_name(_WHERE, "shm_name", shm_name)
        self._is_owner, self._clean = True, True
        try:
            self._file = SharedFile.make(_path(self._name), _LAYOUT.size)
        except FileExistsError:
            raise MeshError(
                f"shm_open(O_CREAT|O_EXCL) failed ({self._name}): File exists. Another owner has it, or one ended "
                f"without shutdown(); then remove {_path(self._name)}."
            ) from None
        self._write(0, clean=True)  # from here on others may join

    def __repr__(self) -> str:
        return f"InterProcessCounterChannel({self._name!r}, {'owner' if self._is_owner else 'connector'})"

    @classmethod
    def connect(cls, shm_name: str, connect_timeout_ms: int = 30000) -> InterProcessCounterChannel:
        """Waits until somebody has made it."""
        name = checked_name(_WHERE, "shm_name", shm_name)
        seconds = checked_int("connect", "connect_timeout_ms", connect_timeout_ms) / 1000
        deadline = time.monotonic() + seconds
        file = SharedFile.wait_for(_path(name), _LAYOUT.size, deadline, _is_ready)
        if file is None:
            raise MeshError(f"InterProcessCounterChannel.connect: nobody made {name!r} within {connect_timeout_ms} ms.")
        channel = cls.__new__(cls)
        channel._name, channel._file, channel._is_owner = name, file, False
        with channel._locked():
            count, clean = channel._read()
            channel._clean = clean
            channel._write(count, clean=False)
        return channel

    @property
    def shm_name(self) -> str:
        return self._name

    def inject(self, n: int) -> None:
        self._require("inject", owner=True)
        number = checked_int("inject", "n", n)
        if number < 0:
            raise ArgumentValueError(f"inject adds 0 or more, got {number}")
        with self._locked():
            count, clean = self._read()
            self._write(min(count + number, _MOST), clean=clean)

    def pending(self) -> int:
        self._require("pending", owner=False)
        with self._locked():
            return self._read()[0]

    def try_consume_all(self) -> int:
        """What was there, and nothing is left; 0 where nothing was."""
        self._require("try_consume_all", owner=False)
        with self._locked():
            count, clean = self._read()
            self._write(0, clean=clean)
        return count

    def had_clean_prior_shutdown(self) -> bool:
        """Whether the connector before this one was shut down, or there was none."""
        self._require("had_clean_prior_shutdown", owner=False)
        return self._clean

    def shutdown(self) -> None:
        """Twice is harmless."""
        if self._file.is_open and not self._is_owner:
            with self._locked():
                self._write(self._read()[0], clean=True)
        self._file.close()

    def _require(self, method: str, *, owner: bool) -> None:
        if self._is_owner is not owner:
            is_one, wanted = ("owner", "connector") if self._is_owner else ("connector", "owner")
            said = f"called on a {is_one} instance but requires a {wanted} instance"
            raise MeshError(
                f"InterProcessCounterChannel::{method}: {said}. "
                "An owner is InterProcessCounterChannel(name), a connector InterProcessCounterChannel.connect(name)."
            )

    def _read(self) -> tuple[int, bool]:
        count, _, clean = _LAYOUT.unpack_from(self._file.memory)
        return count, bool(clean)

    def _write(self, count: int, *, clean: bool) -> None:
        _LAYOUT.pack_into(self._file.memory, 0, count, _READY, clean)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._file.is_open:
            raise MeshError(f"InterProcessCounterChannel {self._name!r} was shut down.")
        with self._file.locked(_WHERE):
            yield


def _path(name: str) -> str:
    """Where programs look for what an owner that crashed left behind."""
    return os.path.join(_FOLDER, name.lstrip("/"))
