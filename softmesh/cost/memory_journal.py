"""What the memories of a mesh held, command by command: allocations and frees as the allocator made them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from softmesh.callsite import CallSite, RawSite
from softmesh.cost.timeline import MemoryRegion
from softmesh.runtime.commands import Command
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
    """Of one mesh. The allocator forgets what it held when the mesh is closed: so does this, in the same moment."""

    def __init__(self, mesh: int, device: MeshDevice, at: int) -> None:
        self.mesh = mesh
        self.entries: list[Entry] = []
        self._pools: dict[Any, Pool] = {}
        self._notes: list[tuple[Pool, list[tuple[Claim, bool]]]] = []
        self._live: dict[int, Entry] = {}
        self._tensors: dict[int, int] = {}
        self._watch(device, at)

    def _watch(self, device: MeshDevice, at: int) -> None:
        self._pools = device.memory.pools
        self._notes = []
        for pool in self._pools.values():
            for claim in pool.claims():
                self._begin(pool, claim, at)
            notes: list[tuple[Claim, bool]] = []
            pool.journals = (*pool.journals, notes)
            self._notes.append((pool, notes))

    def note(self, command: Command, device: MeshDevice, at: int) -> None:
        """Work in what has happened since the last command."""
        if device.memory.pools is not self._pools:
            self._forget(at)
            self._watch(device, at)
        for tensor in command.outputs:
            claim: Claim | None = getattr(tensor.storage, "claim", None)
            if claim is not None and claim.number not in self._tensors:
                self._tensors[claim.number] = tensor.tensor_id
        self.settle(at)

    def settle(self, at: int) -> None:
        for pool, notes in self._notes:
            if pool.pending:
                pool.apply_pending()
            if notes:
                for claim, begins in notes:
                    if begins:
                        self._begin(pool, claim, at)
                    else:
                        self._end(claim.number, at)
                notes.clear()

    def stop(self, at: int) -> None:
        """The end of what is watched: by now it is known which tensors lie where."""
        self.settle(at)
        self.entries = [entry._replace(tensor_id=self._tensors.get(entry.number)) for entry in self.entries]
        for pool, notes in self._notes:
            pool.journals = tuple(journal for journal in pool.journals if journal is not notes)

    def _begin(self, pool: Pool, claim: Claim, at: int) -> None:
        address = claim.resolved_address
        is_inside = address is not None and 0 <= address < OVERFLOW_BASE
        owner = claim.owner()
        label = claim.label or getattr(owner, "spec", None) or (None if owner is None else str(owner))
        entry = Entry(
            at,
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
        self.entries.append(entry)

    def _end(self, number: int, at: int) -> None:
        begun = self._live.pop(number, None)
        if begun is not None:
            self.entries.append(begun._replace(command=at, bytes_per_bank=-begun.bytes_per_bank))

    def _forget(self, at: int) -> None:
        for number in list(self._live):
            self._end(number, at)


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


def all_entries(journals: Iterable[MeshJournal]) -> list[Entry]:
    """Of all meshes, in the order of commands."""
    return sorted((entry for journal in journals for entry in journal.entries), key=lambda entry: entry.command)
