"""The bytes between a core and a host process that is not the one which has the mesh: a ring in shared memory.

Three counters say how far the stream is: bytes written, bytes read, and bytes whose place is free again.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import torch

from softmesh.errors import MeshError
from softmesh.processes.buffers import byte_view
from softmesh.sockets.shared_file import SharedFile, path_of, remove, sweep

_READY = 0x6D65736873747265
_HEAD = struct.Struct("<QQQQQ")  # ready, page size, written, read, freed
_LENGTH = struct.Struct("<I")
_TEXT = _HEAD.size + _LENGTH.size
_RING = 2048  # where it begins; the description is before it
_LOOK_EVERY = 0.002
_KIND = "socket"


class SharedStream:
    """`description` is what a process that connects must know of the socket."""

    def __init__(self, file: SharedFile, description: dict[str, Any]) -> None:
        self._file, self.description = file, description
        self.name = str(description["name"])
        self.size = len(file.memory) - _RING

    @classmethod
    def make(cls, description: dict[str, Any], fifo_size: int) -> SharedStream:
        sweep(_KIND)
        path = path_of(_KIND, description["name"])
        _make_way(path, description["name"])
        file = SharedFile.make(path, _RING + fifo_size)
        text = json.dumps(description).encode()
        assert _TEXT + len(text) <= _RING
        _LENGTH.pack_into(file.memory, _HEAD.size, len(text))
        file.memory[_TEXT : _TEXT + len(text)] = text
        _HEAD.pack_into(file.memory, 0, _READY, 0, 0, 0, 0)  # from here on others may connect
        return cls(file, description)

    @classmethod
    def open(cls, name: str, deadline: float) -> SharedStream | None:
        """None where nobody made it until then."""
        while (found := cls._opened(name)) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        return found

    @classmethod
    def _opened(cls, name: str) -> SharedStream | None:
        file = SharedFile.open(path_of(_KIND, name), _RING)
        if file is None:
            return None
        if _HEAD.unpack_from(file.memory)[0] == _READY and not file.maker_is_gone():
            return cls(file, _description(file))
        file.close()
        return None

    # -- how far it is -----------------------------------------------------------------------------

    def _counters(self) -> tuple[int, int, int, int]:
        _, page, written, read, freed = _HEAD.unpack_from(self._file.memory)
        return page, written, read, freed

    def _count(self, page: int, written: int, read: int, freed: int) -> None:
        _HEAD.pack_into(self._file.memory, 0, _READY, page, written, read, freed)

    @property
    def page_size(self) -> int:
        with self._file.locked("get_page_size"):
            return self._counters()[0]

    @page_size.setter
    def page_size(self, size: int) -> None:
        with self._file.locked("set_page_size"):
            self._count(size, *self._counters()[1:])

    @property
    def held(self) -> int:
        with self._file.locked("has_data"):
            _, written, read, _ = self._counters()
        return written - read

    # -- bytes -------------------------------------------------------------------------------------

    def put(self, data: torch.Tensor) -> Generator[None, None, None]:
        """As room appears."""
        source, done = byte_view(data), 0
        while True:
            done += self._put_some(source[done:])
            if done == len(source):
                return
            self._check_alive()
            yield

    def take(self, count: int, *, frees: bool = True) -> Generator[None, None, torch.Tensor]:
        """As bytes come."""
        taken, done = torch.empty(count, dtype=torch.uint8), 0
        target = byte_view(taken, written=True)
        while True:
            done += self._take_some(target[done:], frees)
            if done == count:
                return taken
            self._check_alive()
            yield

    def _put_some(self, source: memoryview) -> int:
        with self._file.locked("write"):
            page, written, read, freed = self._counters()
            count = min(len(source), self.size - (written - freed))
            for here, there in self._spans(written, count):
                self._file.memory[there] = source[here]
            self._count(page, written + count, read, freed)
        return count

    def _take_some(self, target: memoryview, frees: bool) -> int:
        with self._file.locked("read"):
            page, written, read, freed = self._counters()
            count = min(len(target), written - read)
            for here, there in self._spans(read, count):
                target[here] = self._file.memory[there]
            self._count(page, written, read + count, read + count if frees else freed)
        return count

    def _spans(self, position: int, count: int) -> list[tuple[slice, slice]]:
        """Where `count` bytes from this position of the stream lie: at most two pieces of the ring."""
        start = position % self.size
        first = min(count, self.size - start)
        pieces = [(slice(0, first), slice(_RING + start, _RING + start + first))]
        if first < count:
            pieces.append((slice(first, count), slice(_RING, _RING + count - first)))
        return pieces

    def _check_alive(self) -> None:
        if self._file.maker_is_gone():
            raise MeshError(
                f"{self.description['kind']} {self.name!r}: the process that made it has ended, or has let go of it. "
                "Let it call barrier() before it ends."
            )


def _make_way(path: str, name: str) -> None:
    """Take away what a process left behind that has ended; one that lives keeps its name."""
    with suppress(ValueError):  # an empty file, of one that got no further
        old = SharedFile.open(path, 1)
        if old is not None:
            lives = not old.maker_is_gone()
            old.close()
            if lives:
                raise MeshError(
                    f"export_descriptor: {name!r} is exported already, here or in another process. Choose another id."
                )
    remove(path)


def _description(file: SharedFile) -> dict[str, Any]:
    (length,) = _LENGTH.unpack_from(file.memory, _HEAD.size)
    try:
        if length > _RING - _TEXT:
            raise ValueError(f"a description of {length} bytes")
        found = json.loads(file.memory[_TEXT : _TEXT + length])
        return {**found, "name": found["name"], "kind": found["kind"]}
    except (ValueError, KeyError, TypeError) as error:
        file.close()
        raise MeshError(f"connect: {file.path} is nothing that softmesh exported: {error}") from None
