"""Blocks of single banks: what one core of one chip holds for itself, beside the buffers that are alike on all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softmesh.cores import CoreCoord
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.memory.allocations import PerCoreClaim
from softmesh.runtime.memory.free_list import FreeList
from softmesh.runtime.memory.memory_map import Region

Bank = tuple[MeshCoordinate, CoreCoord]
Extent = tuple[int, int]  # first address, end


class PerCoreBlocks:
    """They belong to a pool, which calls under its lock and keeps its own buffers out of all of them.

    >>> coord = MeshCoordinate(0, 0)
    >>> blocks = PerCoreBlocks()
    >>> blocks.union()
    []
    """

    def __init__(self) -> None:
        self._held: dict[Bank, dict[int, int]] = {}  # starts and sizes

    def place(self, claim: PerCoreClaim, region: Region, alike: Iterable[Extent]) -> bool:
        """Give the claim the highest address that is free in each of its banks; False where one has no room."""
        common, found = list(alike), dict[tuple[Extent, ...], int | None]()
        addresses: dict[Bank, int] = {}
        for bank in claim.addresses:
            own = tuple((start, start + size) for start, size in sorted(self._held.get(bank, {}).items()))
            if own not in found:
                found[own] = _highest(region, [*common, *own], claim.size)
            address = found[own]
            if address is None:
                return False
            addresses[bank] = address
        claim.addresses.update(addresses)
        for bank, address in claim.addresses.items():
            self._held.setdefault(bank, {})[address] = claim.size
        return True

    def end(self, claim: PerCoreClaim) -> list[Extent]:
        """What no bank holds any more."""
        before = self.union()
        for bank, address in claim.addresses.items():
            if self._held.get(bank, {}).get(address) == claim.size:
                del self._held[bank][address]
        claim.addresses.clear()
        return [part for extent in before for part in _without(extent, self.union())]

    def union(self) -> list[Extent]:
        """What at least one bank holds, in address order, without overlaps."""
        joined: list[Extent] = []
        for start, end in sorted({(a, a + size) for blocks in self._held.values() for a, size in blocks.items()}):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        return joined


def _highest(region: Region, taken: Sequence[Extent], size: int) -> int | None:
    holes = FreeList(region.base, region.size)
    for start, end in sorted(taken):
        holes.take_at(start, end - start)
    return holes.take_high(size)


def _without(extent: Extent, holes: Iterable[Extent]) -> Iterable[Extent]:
    """The parts of an extent that lie in none of these, which are in order."""
    start, end = extent
    for first, last in holes:
        if first < end and last > start:
            if first > start:
                yield start, first
            start = last
    if start < end:
        yield start, end
