"""Memory that an owner was promised: its size at once, its address when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from softmesh.callsite import RawSite

if TYPE_CHECKING:
    from softmesh.runtime.memory.pool import Pool

FindOwner = Callable[[], "object | None"]


class Claim:
    """Of `size` bytes in each bank of a pool; `requested` counts all banks."""

    __slots__ = ("_pool", "find_owner", "label", "number", "requested", "settled_at", "site", "size")

    def __init__(
        self,
        pool: Pool,
        size: int,
        requested: int,
        find_owner: FindOwner,
        label: str | None,
        site: RawSite | None,
        number: int,
    ) -> None:
        self._pool, self.size, self.requested = pool, size, requested
        self.find_owner = find_owner  # gives None once it has died
        self.label = label  # None where the owner knows what it is
        self.site = site  # who asked for it
        self.number = number  # of all allocations of the process
        self.settled_at: int | None = None

    @property
    def address(self) -> int:
        """Where it begins, in every bank."""
        if self.settled_at is None:
            self._pool.settle()
        assert self.settled_at is not None
        return self.settled_at
