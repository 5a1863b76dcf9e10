"""What one process makes and others of the host connect to, by a name; a `SharedStream` is between them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator
from typing import Any, TypeVar

from softmesh.arguments import checked_int
from softmesh.errors import MeshError
from softmesh.processes.waiting import timeout
from softmesh.sockets.byte_stream import ByteStream
from softmesh.sockets.host_waiting import HostWait
from softmesh.sockets.shared_file import checked_name
from softmesh.sockets.shared_stream import SharedStream
from softmesh.sockets.transfers import TRANSFERS

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
            if (held := self.stream.held) and time.monotonic() >= end:
                raise MeshError(f"{op}: {held} bytes are still there after {seconds:g} s: {remedy}")
            return not held

        with self.waiting(op, remedy) as wait:
            wait.until(empty)


def seconds_of(where: str, timeout_ms: int | None) -> float:
    return timeout() if timeout_ms is None else checked_int(where, "timeout_ms", timeout_ms) / 1000


def finished(steps: Generator[None, None, _Result], wait: HostWait) -> _Result:
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
