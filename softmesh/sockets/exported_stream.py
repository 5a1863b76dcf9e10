"""Byte streams exported to other processes of the host: a ring buffer in named shared memory, found by name.

Three counters say how far the stream is: bytes written, bytes read, and bytes whose place is free again. `Exportable`
is the base of sockets and services that one process exports under a name and another connects to.
"""

from __future__ import annotations

import json
import struct
import time
import weakref
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeVar

import torch

from softmesh.arguments import checked_int
from softmesh.errors import MeshError
from softmesh.processes.context import byte_view
from softmesh.processes.waits import timeout
from softmesh.sockets.byte_stream import ByteStream
from softmesh.sockets.named_shared_memory import HostWait, SharedFile, checked_name, path_of, remove, sweep
from softmesh.sockets.transfer_queue import TRANSFERS

_READY = 0x6D65736873747265
_HEAD = struct.Struct("<QQQQQ")  # ready, page size, written, read, freed
_LENGTH = struct.Struct("<I")
_TEXT = _HEAD.size + _LENGTH.size
_RING = 2048  # where it begins; the description is before it
_KIND = "socket"


def _is_ready(file: SharedFile) -> bool:
    return _HEAD.unpack_from(file.memory)[0] == _READY and not file.maker_is_gone()


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
        file = SharedFile.wait_for(path_of(_KIND, name), _RING, deadline, _is_ready)
        return None if file is None else cls(file, _description(file))

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
    def buffered(self) -> int:
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
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        file.close()
        raise MeshError(f"connect: {file.path} is nothing that softmesh exported: {error}") from None


# Exporting by name: one process makes a socket or service, others of the host connect to it.


_Result = TypeVar("_Result")
_Exportable = TypeVar("_Exportable", bound="Exportable")


class Exportable:
    """`stream` is local to this process until it is exported; `is_owner` where the mesh is."""

    stream: ByteStream | SharedStream
    is_owner: bool
    _known: weakref.WeakValueDictionary[tuple[type, str], Exportable] = weakref.WeakValueDictionary()

    def _describe(self) -> dict[str, Any]:
        """What the other process must know, as JSON can hold it."""
        raise NotImplementedError

    def _join(self, known: dict[str, Any]) -> None:
        """Become the other end of what `_describe` told."""
        raise NotImplementedError

    def _export(self, argument: str, given: str) -> str:
        name = checked_name("export_descriptor", argument, given)
        if not isinstance(self.stream, ByteStream) or not self.stream.is_untouched:
            is_shared = isinstance(self.stream, SharedStream)
            raise MeshError(
                f"export_descriptor: it was {'connected or exported before' if is_shared else 'used in this process'}. "
                f"Export a {type(self).__name__} once, in the process that made it, before anything goes through it."
            )
        old, known = self.stream, {"name": name, "kind": type(self).__name__, **self._describe()}
        self.stream = SharedStream.make(known, old.size)
        self.stream.page_size = old.page_size
        self._known[type(self), name] = self
        return name

    @classmethod
    def _connected(cls: type[_Exportable], argument: str, given: str, timeout_ms: int | None) -> _Exportable:
        name, seconds = checked_name("connect", argument, given), seconds_of("connect", timeout_ms)
        end = cls.__new__(cls)
        if (own := Exportable._known.get((cls, name))) is not None:
            end.__dict__.update(own.__dict__, is_owner=False)
            return end
        stream = SharedStream.open(name, time.monotonic() + seconds)
        if stream is None:
            raise MeshError(
                f"{cls.__name__}.connect: nothing was exported as {name!r} on this host within {seconds:g} s. Let the "
                f"process that has the mesh call export_descriptor({argument}), and keep what it exported."
            )
        kind = stream.description["kind"]
        if kind != cls.__name__:
            raise MeshError(f"{cls.__name__}.connect: {name!r} is an exported {kind}.")
        end.stream, end.is_owner = stream, False
        try:
            end._join(stream.description)
        except (KeyError, TypeError, ValueError) as error:
            raise MeshError(f"{cls.__name__}.connect: {name!r} does not describe itself: {error!r}") from None
        return end

    def waiting(self, op: str, remedy: str, nbytes: int = 0) -> HostWait:
        name = self.stream.name if isinstance(self.stream, SharedStream) else "of this process"
        return HostWait(op, f"{type(self).__name__} {name}", remedy, nbytes)

    def _drain(self, remedy: str, timeout_ms: int | None) -> None:
        """Until the other side has taken everything."""
        op, seconds = f"{type(self).__name__}.barrier", seconds_of("barrier", timeout_ms)
        end = time.monotonic() + seconds

        def empty() -> bool:
            TRANSFERS.advance()
            if (held := self.stream.buffered) and time.monotonic() >= end:
                raise MeshError(f"{op}: {held} bytes are still there after {seconds:g} s: {remedy}")
            return not held

        with self.waiting(op, remedy) as wait:
            wait.until(empty)


def seconds_of(where: str, timeout_ms: int | None) -> float:
    return timeout() if timeout_ms is None else checked_int(where, "timeout_ms", timeout_ms) / 1000


def run_to_end(steps: Generator[None, None, _Result], wait: HostWait) -> _Result:
    """Take the steps to their end, moving what devices of this process do meanwhile."""
    results: list[_Result] = []

    def is_over() -> bool:
        TRANSFERS.advance()
        try:
            next(steps)
        except StopIteration as end:
            results.append(end.value)
        return bool(results)

    with wait:
        wait.until(is_over)
    TRANSFERS.advance()
    return results[0]
