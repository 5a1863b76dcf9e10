"""Tensors allocated per core: the shards of each core of each chip lie at an address of their own."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from softmesh.callsite import RawSite, raw_call_site
from softmesh.cores import CoreCoord
from softmesh.runtime.memory.allocations import Claim, PerCoreClaim
from softmesh.runtime.memory.pool import Pool

if TYPE_CHECKING:
    from softmesh.tensor.storage import Storage


class PerCoreRoom:
    """Stands for a pool where a tensor wants memory in these cores of the chips that hold it."""

    __slots__ = ("_cores", "_pool")

    def __init__(self, pool: Pool, cores: list[CoreCoord]) -> None:
        self._pool, self._cores = pool, cores

    @property
    def pending(self) -> deque[Claim]:
        return self._pool.pending

    def allocate(self, size: int, requested: int, owner: Storage, site: RawSite | None = None) -> Claim:
        claim = PerCoreClaim(owner, self._pool.pending.append)
        claim.pool, claim.size, claim.requested, claim.site = self._pool, size, requested, site or raw_call_site()
        claim.label = claim.holder = claim.resolved_address = None
        claim.addresses = {(chip, core): 0 for chip in owner.dist.coordinates() for core in self._cores}
        self._pool.allocate_per_core(claim)
        return claim
