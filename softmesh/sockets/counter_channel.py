"""InterProcessCounterChannel: a counter in shared memory of one host; one process adds, another takes all there is."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from softmesh.arguments import checked_int
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.sockets.named_shared_memory import SharedFile, checked_name, path_of, remove

_LAYOUT = struct.Struct("<QQ")  # what it counts, and whether it is ready
_READY = 0x6D657368
_MOST = 2**64 - 1
_WHERE = "InterProcessCounterChannel"


def _is_ready(file: SharedFile) -> bool:
    return bool(_LAYOUT.unpack_from(file.memory)[1] == _READY)


class InterProcessCounterChannel:
    """Made by one process, joined by others with `connect`. The maker takes it away again."""

    def __init__(self, shm_name: str) -> None:
        self._name = checked_name(_WHERE, "shm_name", shm_name)
        path = path_of("counter", self._name)
        self._clean = not remove(path)
        self._file = SharedFile.make(path, _LAYOUT.size)
        self._write(0)  # from here on others may join

    @classmethod
    def connect(cls, shm_name: str, connect_timeout_ms: int = 30000) -> InterProcessCounterChannel:
        """Waits until somebody has made it."""
        name = checked_name(_WHERE, "shm_name", shm_name)
        seconds = checked_int("connect", "connect_timeout_ms", connect_timeout_ms) / 1000
        path, deadline = path_of("counter", name), time.monotonic() + seconds
        file = SharedFile.wait_for(path, _LAYOUT.size, deadline, _is_ready)
        if file is None:
            raise MeshError(
                f"InterProcessCounterChannel.connect: nobody made {name!r} within {connect_timeout_ms} ms."
            )
        channel = cls.__new__(cls)
        channel._name, channel._clean, channel._file = name, True, file
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
        self._file.close()

    def _read(self) -> int:
        return int(_LAYOUT.unpack_from(self._file.memory)[0])

    def _write(self, count: int) -> None:
        _LAYOUT.pack_into(self._file.memory, 0, count, _READY)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._file.is_open:
            raise MeshError(f"InterProcessCounterChannel {self._name!r} was shut down.")
        with self._file.locked(_WHERE):
            yield
