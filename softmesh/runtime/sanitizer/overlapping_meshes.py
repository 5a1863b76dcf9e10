"""Overlapping meshes: a mesh and its submeshes allocate on the same chips, and none knows what the others have there.

Each has an allocator of its own, so that a tensor of one may lie at the address of another's: who writes last wins.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import RawSite, resolved
from softmesh.runtime.sanitizer.findings import FindingKind, Report, described

if TYPE_CHECKING:
    from softmesh.runtime.command_tensor import CommandTensor
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.allocations import Span

_MOST = 4096  # writes that are remembered of a family; the latest


class Write(NamedTuple):
    order: int
    device: int
    chips: frozenset[int]
    span: Span
    name: str
    site: RawSite


class OverlappingMeshes:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._order = itertools.count()
        self._writes: weakref.WeakKeyDictionary[MeshDevice, dict[tuple[int, int], Write]] = weakref.WeakKeyDictionary()

    def note(self, command: Command, device: MeshDevice) -> None:
        if device.get_parent_mesh() is None and not device.get_submeshes():
            return
        writes = self._writes.setdefault(_oldest(device), {})
        for tensor in command.inputs:
            if any(tensor is made for made in command.outputs):
                continue
            for span, lost in self._overwritten(tensor, device, writes):
                words = partial(_overwritten, tensor, span, lost, command.name, command.raw_site)
                self._report.tell(FindingKind.REUSED_MEMORY, (lost.site, command.raw_site), words)
        chips = frozenset(device.get_device_ids())
        for tensor in command.outputs:
            place = tensor.storage.span()
            if place is not None:
                key = device.id(), place.number
                writes.pop(key, None)
                writes[key] = Write(next(self._order), device.id(), chips, place, command.name, command.raw_site)
        if len(writes) > _MOST:
            self._writes[_oldest(device)] = dict(itertools.islice(writes.items(), _MOST // 2, None))

    def _overwritten(
        self, tensor: CommandTensor, device: MeshDevice, writes: dict[tuple[int, int], Write]
    ) -> Iterator[tuple[Span, Write]]:
        span = tensor.storage.span()
        if span is None:
            return
        own = writes.get((device.id(), span.number))
        written = -1 if own is None else own.order  # before there was a second mesh
        chips = frozenset(device.get_device_ids())
        for other in writes.values():
            is_later = other.device != device.id() and other.order > written
            if is_later and other.chips & chips and _same_bytes(span, other.span):
                yield span, other


def _oldest(device: MeshDevice) -> MeshDevice:
    parent = device.get_parent_mesh()
    return device if parent is None else _oldest(parent)


def _same_bytes(one: Span, other: Span) -> bool:
    if one.pool is None or other.pool is None or one.pool.region.buffer_type is not other.pool.region.buffer_type:
        return False
    return one.start < other.end and other.start < one.end


def _overwritten(tensor: CommandTensor, span: Span, lost: Write, name: str, site: RawSite) -> str:
    return (
        f"{name} ({resolved(site)}) reads {described(tensor.spec)}, {span.place}, which a tensor of another mesh on "
        f"the same chips has overwritten.\n"
        f"  {lost.name} ({resolved(lost.site)}) wrote {described(lost.span.what)} there, on mesh {lost.device}\n"
        "A mesh and its submeshes allocate each for itself. Keep tensors on one of them at a time: bring what is still "
        "needed over with ttnn.to_device(ttnn.from_device(tensor), submesh), and deallocate it before."
    )
