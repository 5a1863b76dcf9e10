"""A pool of memory that nobody counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from softmesh.callsite import RawSite
from softmesh.runtime.memory.allocations import Claim, PerCoreClaim
from softmesh.runtime.memory.memory_map import Region
from softmesh.runtime.memory.pool import Pool


class UntrackedPool(Pool):
    """All of it stays free, and `addresses` are numbers to tell buffers apart."""

    def __init__(self, region: Region, addresses: Iterator[int]) -> None:
        super().__init__(region)
        self.pending = deque(maxlen=0)
        self._addresses = addresses

    def allocate(self, size: int, requested: int, owner: object, site: RawSite | None = None) -> Claim:
        address = next(self._addresses)
        claim = Claim(owner)
        claim.pool, claim.size, claim.requested = self, self.region.grain, requested
        claim.site = claim.label = claim.holder = None
        claim.number = claim.resolved_address = address
        return claim

    def allocate_labelled(
        self, size: int, requested: int, owner: object, label: str, bottom_up: bool | None = None
    ) -> int:
        return next(self._addresses)

    def free(self, address: int) -> bool:
        return True

    def extent(self, address: int) -> tuple[int, int]:
        return address + self.region.grain, address

    def allocate_per_core(self, claim: PerCoreClaim) -> None:
        claim.resolved_address = next(self._addresses)
        claim.addresses = dict.fromkeys(claim.addresses, claim.resolved_address)
