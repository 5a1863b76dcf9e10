"""Skew between chips: a collective writes into a neighbour that may still be busy with an earlier command.

Chips of a mesh run the same commands, but not at the same time. One that is ahead begins an asynchronous collective and
writes into the buffers, and counts on the semaphores, of one that still reads or counts in them for an earlier call. A
barrier semaphore, any other collective along that axis in between, or a host that waits keeps them together.

Counts commands of each mesh, and remembers of each buffer and semaphore the last one that used it. What happens inside
of a trace is not looked at.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from softmesh.callsite import RawSite, resolved
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from softmesh.runtime.sanitizer.findings import FindingKind, Report, described

if TYPE_CHECKING:
    from softmesh.runtime.command_tensor import CommandTensor
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice

_EXCHANGES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "all_broadcast")  # all hear of all
_WAITS = ("execute_trace", "event_synchronize", "event_query")  # and whatever blocks
_BUFFERS = ("persistent", "intermediate", "buffer_tensor")


class Use(NamedTuple):
    """The last command that read a buffer or counted on a semaphore, as the one of this number on its mesh."""

    number: int
    name: str
    site: RawSite


class _Mesh:
    def __init__(self) -> None:
        self.count = 0
        self.together: dict[int | None, int] = {}  # by axis, the last command after which all were in step
        self.buffers: dict[int, Use | None] = {}  # by the number of their allocation
        self.semaphores: dict[int, Use] = {}  # by the identity of their memory

    def in_step_since(self, axis: object) -> int:
        of_axis = self.together.get(axis, 0) if isinstance(axis, int) else 0
        return max(of_axis, self.together.get(None, 0))


class ChipSkew:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._meshes: weakref.WeakKeyDictionary[MeshDevice, _Mesh] = weakref.WeakKeyDictionary()

    def note(self, command: Command, device: MeshDevice) -> None:
        is_exchange = _is_exchange(command.name)
        mesh = self._meshes.get(device)
        if mesh is None:
            if not is_exchange or "async" not in command.name:
                return  # nothing to remember yet
            mesh = self._meshes[device] = _Mesh()
        mesh.count += 1
        if command.blocking or command.name in _WAITS:
            mesh.together[None] = mesh.count
        for access in command.writes:
            last = mesh.semaphores.get(id(access.memory))
            if last is not None and last.number <= mesh.together.get(None, 0):
                del mesh.semaphores[id(access.memory)]  # it is set by the host, which has waited
        if is_exchange:
            self._exchange(command, mesh)
        else:
            _note_reads(command, mesh)

    def _exchange(self, command: Command, mesh: _Mesh) -> None:
        arguments = command.arguments
        axis = arguments.get("cluster_axis")
        _note_reads(command, mesh)
        has_barrier = any("barrier" in name for name in arguments)
        before = mesh.in_step_since(axis)
        for label, semaphore in _semaphores(arguments):
            last = mesh.semaphores.get(id(semaphore.buffer.memory))
            if last is not None and last.number >= before and not has_barrier:
                words = partial(_counted_on, label, last, command.name, command.raw_site)
                self._report.tell(FindingKind.RACE, (last.site, command.raw_site), words)
            mesh.semaphores[id(semaphore.buffer.memory)] = Use(mesh.count, command.name, command.raw_site)
        for tensor, is_scratch in _buffers(command):
            span = tensor.storage.span()
            if span is None:
                continue
            last = mesh.buffers.get(span.number)
            if last is not None and last.number >= before and not has_barrier:
                words = partial(_written_to, tensor, last, command.name, command.raw_site)
                self._report.tell(FindingKind.RACE, (last.site, command.raw_site), words)
            # What passes through scratch memory is read by the same call.
            mesh.buffers[span.number] = Use(mesh.count, command.name, command.raw_site) if is_scratch else None
        mesh.together[axis if isinstance(axis, int) else None] = mesh.count


@cache
def _is_exchange(name: str) -> bool:
    return any(kind in name for kind in _EXCHANGES)


def _note_reads(command: Command, mesh: _Mesh) -> None:
    """Of buffers that collectives write into."""
    if mesh.buffers:
        for tensor in command.inputs:
            span = tensor.storage.span()
            if span is not None and span.number in mesh.buffers:
                mesh.buffers[span.number] = Use(mesh.count, command.name, command.raw_site)


def _semaphores(arguments: Any) -> Iterator[tuple[str, GlobalSemaphore]]:
    """Those that count what has come; barriers keep themselves in step."""
    for name, value in arguments.items():
        if "barrier" not in name:
            items = value if isinstance(value, list | tuple) else [value]
            yield from ((name, item) for item in items if isinstance(item, GlobalSemaphore))


def _buffers(command: Command) -> Iterator[tuple[CommandTensor, bool]]:
    """Memory that is written from other chips and was there before, and whether it is scratch."""
    results = {id(tensor.storage) for tensor in command.outputs}
    for name, value in command.arguments.items():
        if any(kind in name for kind in _BUFFERS):
            items: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
            yield from ((item, id(item.storage) not in results) for item in items if hasattr(item, "storage"))


def _counted_on(label: str, last: Use, name: str, site: RawSite) -> str:
    return (
        f"a chip that is ahead counts on a semaphore that others still count on: {label}.\n"
        f"  {last.name} ({resolved(last.site)}) waits for it\n"
        f"  {name} ({resolved(site)}) is given the same one; chips run it as soon as they are done with the first\n"
        "Nothing keeps the chips in step between the two. Take two sets of semaphores in turn, give a "
        "barrier_semaphore, or wait (ttnn.synchronize_device(mesh_device)) and reset it "
        "(ttnn.reset_global_semaphore_value(semaphore, 0))."
    )


def _written_to(tensor: CommandTensor, last: Use, name: str, site: RawSite) -> str:
    return (
        f"a chip that is ahead writes into a buffer that others still use: {described(tensor.spec)}.\n"
        f"  {last.name} ({resolved(last.site)}) reads it\n"
        f"  {name} ({resolved(site)}) writes into it on all chips of its axis, as soon as one of them gets there\n"
        "Nothing keeps the chips in step between the two. Give a barrier_semaphore, take two persistent buffers in "
        "turn, or let the host wait in between (ttnn.synchronize_device(mesh_device))."
    )
