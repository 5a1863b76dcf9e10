"""Skew between chips: a collective writes into a neighbour that may still be busy with an earlier command.

Chips of a mesh run the same commands, but not at the same time. One that is ahead begins an asynchronous collective and
writes into the buffers, and counts on the semaphores, of one that still reads or counts in them for an earlier call. A
barrier semaphore, any other collective along that axis in between, or a host that waits keeps them together.

Counts commands of each mesh, and remembers of each buffer and semaphore the last one that used it. A replay does what
was recorded once more: nothing but what is in the trace keeps chips together between two of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from softmesh.callsite import RawSite, resolved
from softmesh.kinds import Kind
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from softmesh.runtime.sanitizer.findings import FindingKind, Report, described

if TYPE_CHECKING:
    from softmesh.runtime.command_tensor import CommandTensor
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice

_EXCHANGES = frozenset(  # every chip hears of every other
    {Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL, Kind.ALL_BROADCAST}
)
_WAITS = frozenset({Kind.CAPTURE_END, Kind.SYNCHRONIZE_EVENT, Kind.QUERY_EVENT})  # and whatever blocks


class Written(NamedTuple):
    """Memory that an exchange writes into from other chips and that was there before."""

    number: int  # of its allocation
    spec: object
    is_scratch: bool  # what passes through is read by the same call


class Work(NamedTuple):
    """Of a command, what may meet chips that are elsewhere; it holds no tensor."""

    name: str
    site: RawSite
    reads: Sequence[int]  # numbers of allocations that some exchange writes into
    is_exchange: bool = False
    axis: int | None = None
    has_barrier: bool = False
    semaphores: Sequence[tuple[str, int]] = ()  # the argument, and the identity of its memory
    writes: Sequence[Written] = ()
    replayed: RawSite | None = None  # by whom, where it is part of a trace

    def __str__(self) -> str:
        replayed = "" if self.replayed is None else f", replayed at {resolved(self.replayed)}"
        return f"{self.name} ({resolved(self.site)}{replayed})"


class Use(NamedTuple):
    """The last work that read a buffer or counted on a semaphore, as the one of this number on its mesh."""

    number: int
    work: Work


class _Mesh:
    def __init__(self) -> None:
        self.count = 0
        self.together: dict[int | None, int] = {}  # by axis, the last command after which all were in step
        self.buffers: dict[int, Use | None] = {}  # by the number of their allocation
        self.semaphores: dict[int, Use] = {}  # by the identity of their memory
        self.recorded: dict[int, list[Work]] = {}  # by queue: of the capture that is under way
        self.traces: dict[int, list[Work]] = {}

    def in_step_since(self, axis: int | None) -> int:
        return max(self.together.get(axis, 0), self.together.get(None, 0))

    def keep_trace(self, command: Command) -> None:
        works = self.recorded.pop(command.queue, [])
        if command.trace is not None and any(work.is_exchange for work in works):
            self.traces[command.trace] = works


class ChipSkew:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._meshes: weakref.WeakKeyDictionary[MeshDevice, _Mesh] = weakref.WeakKeyDictionary()

    def record(self, command: Command, device: MeshDevice) -> None:
        """It is part of a trace."""
        mesh = self._meshes.get(device)
        if mesh is None:
            return
        if command.kind is Kind.CAPTURE_BEGIN:
            mesh.recorded.pop(command.queue, None)  # of a capture that failed at its end
        else:
            mesh.recorded.setdefault(command.queue, []).append(_work_of(command, mesh))

    def note(self, command: Command, device: MeshDevice) -> None:
        mesh = self._meshes.get(device)
        if mesh is None:
            if command.kind not in _EXCHANGES or not _meets_others(command):
                return  # nothing to remember yet
            mesh = self._meshes[device] = _Mesh()
        mesh.count += 1
        if command.kind is Kind.CAPTURE_END:
            mesh.keep_trace(command)
        elif command.kind is Kind.RELEASE_TRACE:
            mesh.traces.pop(command.trace or 0, None)
        elif command.kind is Kind.REPLAY:
            for work in mesh.traces.get(command.trace or 0, ()):
                mesh.count += 1
                self._do(work._replace(replayed=command.raw_site), mesh)
        if mesh.buffers or command.kind in _EXCHANGES:
            self._do(_work_of(command, mesh), mesh)
        if command.blocking or command.kind in _WAITS:
            mesh.count += 1
            mesh.together[None] = mesh.count
        for access in command.writes:
            last = mesh.semaphores.get(id(access.memory))
            if last is not None and last.number <= mesh.together.get(None, 0):
                del mesh.semaphores[id(access.memory)]  # it is set by the host, which has waited

    def _do(self, work: Work, mesh: _Mesh) -> None:
        for number in work.reads:
            mesh.buffers[number] = Use(mesh.count, work)
        if not work.is_exchange:
            return
        before = mesh.in_step_since(work.axis)
        for label, semaphore in work.semaphores:
            last = mesh.semaphores.get(semaphore)
            if last is not None and last.number >= before and not work.has_barrier:
                words = partial(_counted_on, label, last.work, work)
                self._report.tell(FindingKind.RACE, (last.work.site, work.site), words)
            mesh.semaphores[semaphore] = Use(mesh.count, work)
        for written in work.writes:
            last = mesh.buffers.get(written.number)
            if last is not None and last.number >= before and not work.has_barrier:
                words = partial(_written_to, written, last.work, work)
                self._report.tell(FindingKind.RACE, (last.work.site, work.site), words)
            mesh.buffers[written.number] = Use(mesh.count, work) if written.is_scratch else None
        mesh.together[work.axis] = mesh.count


def _meets_others(command: Command) -> bool:
    """True if it is given semaphores or buffers that another call may use too."""
    return any(True for _ in _semaphores(command.arguments)) or any(True for _ in _buffers(command))


def _work_of(command: Command, mesh: _Mesh) -> Work:
    spans = [tensor.storage.span() for tensor in command.inputs] if mesh.buffers else []
    reads = [span.number for span in spans if span is not None and span.number in mesh.buffers]
    if command.kind not in _EXCHANGES:
        return Work(command.name, command.raw_site, reads)
    arguments = command.arguments
    axis = arguments.get("cluster_axis")
    return Work(
        command.name,
        command.raw_site,
        reads,
        True,
        axis if isinstance(axis, int) else None,
        any("barrier" in name and value is not None for name, value in arguments.items()),
        [(label, id(semaphore.buffer.memory)) for label, semaphore in _semaphores(arguments)],
        [
            Written(span.number, tensor.spec, is_scratch)
            for tensor, is_scratch in _buffers(command)
            if (span := tensor.storage.span()) is not None
        ],
    )


def _semaphores(arguments: Any) -> Iterator[tuple[str, GlobalSemaphore]]:
    """Those that count what has come; barriers keep themselves in step."""
    for name, value in arguments.items():
        if "barrier" not in name:
            items = value if isinstance(value, list | tuple) else [value]
            yield from ((name, item) for item in items if isinstance(item, GlobalSemaphore))


def _buffers(command: Command) -> Iterator[tuple[CommandTensor, bool]]:
    """Memory that is written from other chips and was there before, and whether it is scratch."""
    results = {id(tensor.storage) for tensor in command.outputs}
    for name in command.written_remotely:
        value = command.arguments.get(name)
        items: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        yield from ((item, id(item.storage) not in results) for item in items if hasattr(item, "storage"))


def _counted_on(label: str, last: Work, work: Work) -> str:
    return (
        f"a chip that is ahead counts on a semaphore that others still count on: {label}.\n"
        f"  {last} waits for it\n"
        f"  {work} is given the same one; chips run it as soon as they are done with the first\n"
        "Nothing keeps the chips in step between the two. Take two sets of semaphores in turn, give a "
        "barrier_semaphore, or wait (ttnn.synchronize_device(mesh_device)) and reset it "
        "(ttnn.reset_global_semaphore_value(semaphore, 0))."
    )


def _written_to(written: Written, last: Work, work: Work) -> str:
    return (
        f"a chip that is ahead writes into a buffer that others still use: {described(written.spec)}.\n"
        f"  {last} reads it\n"
        f"  {work} writes into it on all chips of its axis, as soon as one of them gets there\n"
        "Nothing keeps the chips in step between the two. Give a barrier_semaphore, take two persistent buffers in "
        "turn, or let the host wait in between (ttnn.synchronize_device(mesh_device))."
    )
