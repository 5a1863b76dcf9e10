"""A journal of a mesh's memories, command by command: allocations and frees as the allocator made them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from softmesh.callsite import CallSite, RawSite
from softmesh.cost.timeline import MemoryRegion
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.allocations import Claim
from softmesh.runtime.memory.pool import OVERFLOW_BASE, Pool


class Entry(NamedTuple):
    """A change of memory after the command of this number; `bytes_per_bank` < 0 gives back. Texts come later."""

    command: int
    mesh: int
    buffer_type: str
    address: int | None
    bytes_per_bank: int
    number: int
    label: Any  # a text, or what knows one
    tensor_id: int | None
    raw_site: RawSite | CallSite | None


class MeshJournal:
    """Of one mesh: what its allocator noted, in its order. The command of each change is worked out at the end.

    The allocator forgets what it held when the mesh is closed: so does this, in the same moment.
    """

    def __init__(self, mesh: int, device: MeshDevice) -> None:
        self.mesh = mesh
        self._device = weakref.ref(device)
        self._entries: list[Entry] = []
        self._pools: dict[Any, Pool] = {}
        self._notes: list[tuple[Pool, list[tuple[Claim, bool]]]] = []
        self._live: dict[int, Entry] = {}
        self._watch(device)

    def _watch(self, device: MeshDevice) -> None:
        self._pools = device.memory.pools
        self._notes = []
        for pool in self._pools.values():
            for claim in pool.claims():
                self._begin(pool, claim)
            notes: list[tuple[Claim, bool]] = []
            pool.journals = (*pool.journals, notes)
            self._notes.append((pool, notes))

    def follow(self, device: MeshDevice) -> None:
        """The allocator may have begun anew."""
        if device.memory.pools is not self._pools:
            self._end_all()
            self._watch(device)

    def end_where_closed(self) -> None:
        """A closed mesh holds nothing: others may be opened on its chips."""
        device = self._device()
        if device is None or device.closed:
            self._end_all()

    def _end_all(self) -> None:
        self.settle()
        for number in list(self._live):
            self._end(number)

    def settle(self) -> None:
        """Work in what has been noted, while the owners of memory are still there to tell what they are."""
        for pool, notes in self._notes:
            if pool.pending:
                pool.apply_pending()
            if notes:
                for claim, begins in notes:
                    if begins:
                        self._begin(pool, claim)
                    else:
                        self._end(claim.number)
                notes.clear()

    def stop(self, command_of: Callable[[int], int], known: Mapping[int, tuple[int, Any]]) -> list[Entry]:
        """All changes. `command_of` an allocation's number, `known` the tensors that lay in allocations."""
        self.settle()
        for pool, notes in self._notes:
            pool.journals = tuple(journal for journal in pool.journals if journal is not notes)
        at, found = 0, []
        for entry in self._entries:
            if entry.bytes_per_bank > 0:
                at = max(at, command_of(entry.number))
            tensor, spec = known.get(entry.number, (None, None))
            found.append(entry._replace(command=at, tensor_id=tensor, label=entry.label or spec))
        return found

    def _begin(self, pool: Pool, claim: Claim) -> None:
        address = claim.resolved_address
        is_inside = address is not None and 0 <= address < OVERFLOW_BASE
        owner = claim.owner()
        label = claim.label or getattr(owner, "spec", None) or (None if owner is None else str(owner))
        entry = Entry(
            0,
            self.mesh,
            pool.region.buffer_type.name,
            address if is_inside else None,
            claim.size,
            claim.number,
            label,
            None,
            claim.site,
        )
        self._live[claim.number] = entry
        self._entries.append(entry)

    def _end(self, number: int) -> None:
        begun = self._live.pop(number, None)
        if begun is not None:
            self._entries.append(begun._replace(bytes_per_bank=-begun.bytes_per_bank))


def regions_of(device: MeshDevice) -> tuple[MemoryRegion, ...]:
    regions = (pool.region for pool in device.memory.pools.values())
    return tuple(
        MemoryRegion(region.buffer_type.name, region.banks, region.base, region.size, region.page_alignment)
        for region in regions
    )


def label_of(known: Any) -> str:
    """What lies there: the form of a tensor, or what a buffer was called."""
    if known is None:
        return "tensor"
    if isinstance(known, str):
        return known
    return f"{'x'.join(map(str, known.shape)) or 'scalar'} {known.dtype.name} {known.layout.name}"
