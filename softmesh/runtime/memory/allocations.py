"""Records of the allocator: the claim of an owner, a live allocation, its address span, and statistics of a memory.

A `Claim` is the handle of one allocation and a weak reference to its owner; its callback frees the memory. Its states:

    pending    `resolved_address` is None: it waits in the queue of a DeferredPool, and asking for `address` applies it
    live       `resolved_address` is an address, and the pool's table of live allocations has the claim there
    refused    `resolved_address` is NO_ADDRESS: there was no room, which only `allocate` itself gets to see
    over       its owners are gone or released it; it waits in `pool.pending` until its bytes are free again
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from softmesh.callsite import CallSite, RawSite
from softmesh.hardware.enums import BufferType

if TYPE_CHECKING:
    from softmesh.cores import CoreCoord
    from softmesh.mesh import MeshCoordinate
    from softmesh.runtime.memory.pool import Pool


class Statistics(NamedTuple):
    """Of one bank."""

    total_allocatable_size_bytes: int
    total_allocated_bytes: int
    total_free_bytes: int
    largest_free_block_bytes: int


@dataclass(frozen=True)
class Allocation:
    """A buffer or tensor as memory sees it: these bytes, in every bank of every chip."""

    address: int
    bytes_per_bank: int
    buffer_type: BufferType
    label: str
    site: CallSite | None  # the line that allocated it
    number: int  # counts up through the life of the process
    _find_owner: Callable[[], object | None]

    @property
    def owner(self) -> object | None:
        """Whose it is, for as long as that lives; None for what an installed state occupies."""
        return self._find_owner()

    @property
    def end(self) -> int:
        return self.address + self.bytes_per_bank

    def __str__(self) -> str:
        where = f", allocated at {self.site}" if self.site else ""
        return f"{self.label}: {self.bytes_per_bank} B per bank at {self.address}{where}"


@dataclass(frozen=True)
class AllocatorState:
    """The occupied ranges of each memory, (first address, end), in address order."""

    occupied: dict[BufferType, tuple[tuple[int, int], ...]]


class Span(NamedTuple):
    """From `start` to `end` in every bank of a pool. The owner is not kept alive."""

    pool: Pool | None  # None: memory of the host, which has no addresses
    start: int
    end: int
    number: int  # of the allocation; 0 where nothing was allocated
    what: Any  # a tensor's spec, or the layout of a buffer's pages
    owner: weakref.ref[Any]

    @property
    def place(self) -> str:
        return "on the host" if self.pool is None else f"at {self.start} in {self.pool.region.buffer_type.name}"


class Claim(ref[object]):
    """Of `size` bytes in each bank of a pool.

    It is a weak reference to its owner: one object for each tensor, which the interpreter itself hands over when the
    tensor dies.
    """

    __slots__ = ("holder", "label", "number", "pool", "requested", "resolved_address", "site", "size")

    pool: Pool
    size: int
    requested: int  # counts all banks
    number: int  # of all allocations of the process
    site: RawSite | None  # who asked for it
    label: str | None  # None: the owner knows
    holder: Callable[[], object | None] | None  # gives one of several owners that still lives
    resolved_address: int | None

    @property
    def address(self) -> int:
        """Where it begins, in every bank."""
        if self.resolved_address is None:
            self.pool.apply_pending()
        assert self.resolved_address is not None
        return self.resolved_address

    def has_other_owner(self) -> bool:
        """Whether somebody else still has it when its first owner is gone."""
        return self.holder is not None and self.holder() is not None

    def owner(self) -> object | None:
        """None once nobody has it."""
        return self() if self.holder is None else self.holder()


class PerCoreClaim(Claim):
    """Of `size` bytes in some banks, at an address of its own in each: (chip, core) -> address."""

    __slots__ = ("addresses",)

    addresses: dict[tuple[MeshCoordinate, CoreCoord], int]
