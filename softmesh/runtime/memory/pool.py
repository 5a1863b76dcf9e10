"""A memory pool: the free list and the live allocations of one memory of a mesh.

Garbage collection can end an owner at any moment, also while this code runs and holds the lock. So the weak-reference
callback of a claim only appends the claim to `pending` (atomic, without the lock); its bytes are free from the next
allocation or question on, when `_apply_pending` runs under the lock.

Ctrl-C can end any of it at any line too. What is live is the truth: a change that was begun and not finished
(`_is_changing`) makes the next one start with a free list made anew, and no record leaves `pending` before what it says
is done.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from softmesh.callsite import RawSite, raw_call_site, resolved
from softmesh.errors import DeviceMemoryWarning, MeshError, OutOfDeviceMemory
from softmesh.runtime.memory.allocations import Allocation, Claim, PerCoreClaim, Statistics
from softmesh.runtime.memory.free_list import FreeList
from softmesh.runtime.memory.memory_map import Region
from softmesh.runtime.memory.out_of_memory import Request, described_exhaustion
from softmesh.runtime.memory.per_core_blocks import PerCoreBlocks
from softmesh.strictness import warn_or_raise

OVERFLOW_BASE = 1 << 40  # where the addresses of an over-full memory begin: no chip has this much
_Answer = TypeVar("_Answer")
NO_ADDRESS = -1  # the address of a claim that found no room
NUMBERS = itertools.count(1)


def next_number() -> int:
    """Allocations are numbered through the life of the process: later ones of any memory have higher numbers."""
    return next(NUMBERS)


class Pool:
    """Sizes are bytes of one bank, in whole grains, and never 0."""

    def __init__(self, region: Region, is_enforced: bool = True) -> None:
        self.region = region
        self.reserved = 0  # bytes at the bottom that belong to sub-devices
        self.pending: deque[Claim] = deque()  # claims that are over
        self._is_enforced = is_enforced
        self._has_warned = False
        self._beyond = OVERFLOW_BASE
        self._holes = FreeList(region.base, region.size)
        self._take = self._holes.take_low if region.bottom_up else self._holes.take_high
        self._live: dict[int, Claim] = {}
        self._of_cores = PerCoreBlocks()
        self._in_order: list[int] | None = None  # starts of what is live, and of some that is no more
        self._ends = self.pending.append
        self._lock = threading.Lock()
        self._is_changing = False
        # Claims as they begin (True) and end, in the order of addresses given: for whoever keeps account of them.
        self.journals: tuple[list[tuple[Claim, bool]], ...] = ()

    def allocate(self, size: int, requested: int, owner: object, site: RawSite | None = None) -> Claim:
        """Memory for a tensor, which knows its label; `requested` counts all banks. The site is known to some callers.

        It is given back when the owner dies, or earlier by whoever puts the claim among the pending.
        """
        claim = Claim(owner, self._ends)
        claim.pool, claim.size, claim.requested, claim.site = self, size, requested, site or raw_call_site()
        claim.label, claim.holder, claim.resolved_address = None, None, NO_ADDRESS
        with self._lock:
            if self._is_changing:
                self._rebuild()
            self._is_changing = True
            if self.pending:
                self._apply_pending()
            claim.number = next(NUMBERS)
            address = self._take(size)
            if address is None:
                address = self._when_full(claim)
            claim.resolved_address = address
            self._live[address] = claim
            self._in_order = None
            for journal in self.journals:
                journal.append((claim, True))
            self._is_changing = False
        return claim

    def _begin_change(self) -> None:
        """Under the lock; `_is_changing = False` ends it. After an error it stays, which costs a rebuild."""
        if self._is_changing:
            self._rebuild()
        self._is_changing = True
        self._apply_pending()

    def _rebuild(self) -> None:
        """Whole again after a change that was cut short."""
        pending = self.pending
        for address, claim in list(self._live.items()):
            if claim.resolved_address is None:  # it had its place, and was not told
                if pending and pending[0] is claim:
                    pending.popleft()
                claim.resolved_address = address
            if claim() is None and not claim.has_other_owner():
                del self._live[address]  # its end was being worked in
        self._holes = FreeList(self.region.base, self.region.size)
        for address in sorted(self._live):
            if address < OVERFLOW_BASE:
                self._holes.take_at(address, self._live[address].size)
        for start, end in self._of_cores.union():
            self._holes.take_at(start, end - start)
        self._take = self._holes.take_low if self.region.bottom_up else self._holes.take_high
        self._in_order = None

    def _settled(self, read: Callable[[], _Answer]) -> _Answer:
        """What `read` finds once all that was noted is worked in."""
        with self._lock:
            self._begin_change()
            found = read()
            self._is_changing = False
            return found

    def guarantees_room(self, size: int) -> bool:
        """Whether buffers of so many bytes together fit in now, wherever they begin."""
        return self._holes.guaranteed_room() >= size

    def allocate_labelled(
        self, size: int, requested: int, owner: object, label: str, bottom_up: bool | None = None
    ) -> int:
        """The address."""
        site = raw_call_site()
        with self._lock:
            self._begin_change()
            claim = self._labelled(owner, size, label)
            claim.requested, claim.site = requested, site
            from_below = self.region.bottom_up if bottom_up is None else bottom_up
            address = self._holes.take_low(size) if from_below else self._holes.take_high(size)
            found = self._hold(claim, address)
            self._is_changing = False
            return found

    def _hold(self, claim: Claim, address: int | None) -> int:
        """Give the claim this address; none is there where the memory is full."""
        found = self._when_full(claim) if address is None else address
        claim.resolved_address = found
        self._live[found] = claim
        self._in_order = None
        for journal in self.journals:
            journal.append((claim, True))
        self._note_room()
        return found

    def _labelled(self, owner: object, size: int, label: str) -> Claim:
        claim = Claim(owner, self._ends)  # where Ctrl-C keeps the owner from freeing it
        claim.pool, claim.size, claim.requested, claim.label = self, size, size, label
        claim.number, claim.site, claim.holder, claim.resolved_address = next(NUMBERS), None, None, None
        return claim

    def allocate_per_core(self, claim: PerCoreClaim) -> None:
        """An address for each of its banks."""
        with self._lock:
            self._begin_change()
            claim.number = next(NUMBERS)
            alike = [(start, start + held.size) for start, held in self._live.items() if start < OVERFLOW_BASE]
            if not self._of_cores.place(claim, self.region, alike):
                claim.addresses = dict.fromkeys(claim.addresses, self._when_full(claim))
            claim.resolved_address = next(iter(claim.addresses.values()))
            self._rebuild()
            self._note_room()
            self._is_changing = False

    def _end_per_core(self, claim: PerCoreClaim) -> None:
        if not claim.has_other_owner():
            for start, end in self._of_cores.end(claim):
                self._holes.give_back(start, end - start)

    def free(self, address: int) -> bool:
        """False where nothing that is live begins at the address."""
        with self._lock:
            self._begin_change()
            held = self._live.get(address)
            if held is not None:
                self._end(held, address)
            self._is_changing = False
            return held is not None

    def free_later(self, address: int) -> None:
        """For `__del__`, which may run in the middle of anything."""
        held = self._live.get(address)
        if held is not None:
            self.pending.append(held)

    def apply_pending(self) -> None:
        """Work in what was noted."""
        with self._lock:
            self._begin_change()
            self._is_changing = False

    def _apply_pending(self) -> None:
        pending = self.pending
        while pending:
            claim = pending[0]
            address = claim.resolved_address
            if isinstance(claim, PerCoreClaim):
                self._end_per_core(claim)
            elif address is not None and self._live.get(address) is claim and not claim.has_other_owner():
                self._end(claim, address)
            pending.popleft()

    def _note_room(self) -> None:
        """The room may have become less."""

    def _end(self, claim: Claim, address: int) -> None:
        del self._live[address]
        for journal in self.journals:
            journal.append((claim, False))
        if address < OVERFLOW_BASE:
            self._holes.give_back(address, claim.size)

    def occupy(self, ranges: Iterable[tuple[int, int]], label: str) -> None:
        """Take exactly these (first address, end), for nobody."""
        for start, end in ranges:
            if end <= start or not self._holes.take_at(start, end - start):
                raise MeshError(
                    f"{start} to {end} cannot be occupied in {self.region.buffer_type.name}, which lies from "
                    f"{self.region.base} to {self.region.end}: ranges must lie inside, and apart from each other."
                )
            self._live[start] = claim = self._labelled(self, end - start, label)
            claim.resolved_address, claim.holder = start, _nobody
        self._note_room()

    def reserve(self, size: int) -> None:
        """Leave `size` bytes at the bottom to others; 0 takes them back."""
        with self._lock:
            self._begin_change()
            region, grown = self.region, size - self.reserved
            lowest = min(self._live, default=None)
            if grown > region.size or (lowest is not None and lowest < region.base + grown):
                held = "" if lowest is None else f"; the lowest there is {self._allocation(lowest)}"
                raise MeshError(
                    f"The lowest {size} B of {region.buffer_type.name} cannot be given to sub-devices, for they are "
                    f"not free{held}. Deallocate it first, or ask for less."
                )
            bottom = replace(region, base=region.base + grown, size=region.size - grown)
            self.region, self.reserved = bottom, size
            self._rebuild()
            self._note_room()
            self._is_changing = False

    def statistics(self) -> Statistics:
        return self._settled(self._statistics)

    def claims(self) -> list[Claim]:
        """Of everything that is live, in the order of allocation."""
        return self._settled(lambda: list(self._live.values()))

    def live(self) -> list[Allocation]:
        """In address order."""
        return self._settled(lambda: [self._allocation(address) for address in sorted(self._live)])

    def at(self, address: int) -> Allocation | None:
        """The live allocation that covers the address."""
        return self._settled(lambda: self._covering(address))

    def _covering(self, address: int) -> Allocation | None:
        if self._in_order is None:
            self._in_order = sorted(self._live)
        before = bisect_right(self._in_order, address) - 1
        start = self._in_order[before] if before >= 0 else -1
        held = self._live.get(start)
        return self._allocation(start) if held is not None and address < start + held.size else None

    def extent(self, address: int) -> tuple[int, int]:
        """Where that ends which is live and begins at the address, and its number; 0 where nothing begins there."""
        held = self._live.get(address)
        return (address, 0) if held is None else (address + held.size, held.number)

    def since(self, number: int, chosen: Callable[[int, Claim], bool] | None = None) -> list[Allocation]:
        """What was allocated after the allocation of this number and is live, the latest first.

        `chosen`: of these what it says yes to, by address and claim.
        """
        return self._settled(lambda: [self._allocation(at) for at in self._after(number, chosen)])

    def _after(self, number: int, chosen: Callable[[int, Claim], bool] | None) -> Iterator[int]:
        for address, claim in reversed(self._live.items()):
            if claim.number <= number:
                return
            if chosen is None or chosen(address, claim):
                yield address

    def blocks(self) -> Iterator[tuple[int, int, bool]]:
        """Address, size and whether it is allocated, of every allocation and every hole, in address order."""
        held = self._settled(lambda: [(address, claim.size, True) for address, claim in self._live.items()])
        held += [(start, end - start, True) for start, end in self._of_cores.union()]
        return iter(sorted([*held, *((start, size, False) for start, size in self._free_extents())]))

    def occupied(self) -> Iterator[tuple[int, int]]:
        """(first address, end) of what is allocated, neighbours as one."""
        start = self.region.base
        for hole, size in self._free_extents():
            if hole > start:
                yield start, hole
            start = hole + size
        if start < self.region.end:
            yield start, self.region.end

    def _free_extents(self) -> list[tuple[int, int]]:
        return self._settled(lambda: list(self._holes))

    def lowest(self) -> int | None:
        """The lowest address that is occupied."""
        return self._settled(lambda: min((*self._live, *(start for start, _ in self._of_cores.union())), default=None))

    def _allocation(self, address: int) -> Allocation:
        held = self._live[address]
        label = str(held.owner()) if held.label is None else held.label
        where = None if held.site is None else resolved(held.site)
        kind = self.region.buffer_type
        return Allocation(address, held.size, kind, label, where, held.number, held.owner)

    def _statistics(self) -> Statistics:
        allocated = sum(claim.size for claim in self._live.values())
        allocated += sum(end - start for start, end in self._of_cores.union())
        free = sum(size for _, size in self._holes)
        return Statistics(self.region.size, allocated, free, self._holes.largest())

    def _when_full(self, claim: Claim) -> int:
        """Raise; or, where memory is only tracked, give an address that no chip has."""
        if self._is_enforced or not self._has_warned:
            live = map(self._allocation, self._live)
            banks = _banks_of(claim.owner()) or self.region.banks
            request = Request(claim.requested, claim.size, banks)
            message = described_exhaustion(self.region, self._statistics(), live, request, self.reserved)
            if self._is_enforced:
                raise OutOfDeviceMemory(message)
            self._has_warned = True
            warn_or_raise(message, DeviceMemoryWarning, OutOfDeviceMemory)
        self._beyond += claim.size
        return self._beyond - claim.size


def _banks_of(owner: object) -> int | None:
    """Over how many banks the owner spreads, where it says so: sharded tensors are not on all."""
    banks = getattr(owner, "banks", None)
    return banks() if callable(banks) else None


def _nobody() -> None:
    return None
