"""A memory pool with lazy allocation: addresses are computed when somebody asks for them.

Most programs never ask where a tensor lies. So an allocation that is guaranteed to have room is only appended to the
queue `pending`, and so is its end. The queue is applied in its order when an address or anything else is asked for, and
at the latest after `_MOST_PENDING` entries: many at a time cost less than one here and there, between ops that push
this code out of the caches. Addresses are those of applying each entry at once. On a mesh with several queues, whoever
watches their order asks for every address: there the plain Pool is used.

An entry of the queue is a claim. Where its `resolved_address` is None it is an allocation, otherwise the end of one. A
claim that is followed at once by its own end, and to which nobody else holds a reference (`_UNSHARED_REFERENCES`), is
dropped without an address.

`allocate` appends without the lock, for `deque.append` is atomic. `_small` is the largest size that may wait. Applying
the queue sets it to -1, so that no other thread defers; one that appended just before sees that afterwards, has the
queue applied, and finds NO_ADDRESS in its claim if the room was gone. The next allocation that takes room under the
lock sets `_small` again, from the guaranteed room of the free list; `_MOST_PENDING` waiting claims take at most half.
"""

from __future__ import annotations

from collections import deque
from sys import getrefcount

from softmesh.callsite import RawSite, raw_call_site
from softmesh.runtime.memory.allocations import Claim, PerCoreClaim
from softmesh.runtime.memory.memory_map import Region
from softmesh.runtime.memory.pool import NO_ADDRESS, NUMBERS, OVERFLOW_BASE, Pool

_MOST_PENDING = 64
# Of what is surely free an allocation that waits takes at most such a fraction.
_SMALL_FRACTION = 2 * _MOST_PENDING


def _references_while_pending() -> int:
    """References to a claim that only a record and a name have, as this Python counts them."""
    pending = deque([object()])
    pending.append(pending[0])
    claim = pending[0]
    return getrefcount(claim)


_UNSHARED_REFERENCES = _references_while_pending()


class DeferredPool(Pool):
    """Claims pending are allocations, and behind them their frees: a claim that was worked in, or is there before."""

    def __init__(self, region: Region, is_enforced: bool = True) -> None:
        super().__init__(region, is_enforced)
        self._small = region.size // _SMALL_FRACTION  # bytes of an allocation that may wait

    def allocate(self, size: int, requested: int, owner: object, site: RawSite | None = None) -> Claim:
        claim = Claim(owner, self._ends)
        claim.pool, claim.size, claim.requested, claim.site = self, size, requested, site or raw_call_site()
        claim.label, claim.holder, claim.number = None, None, next(NUMBERS)
        if size <= self._small and len(self.pending) < _MOST_PENDING:
            claim.resolved_address = None  # a record of which this is so is an allocation
            self.pending.append(claim)
            if size <= self._small and claim.resolved_address != NO_ADDRESS:
                return claim
            self.apply_pending()  # somebody takes room at this moment, and may not have seen the record
            if claim.resolved_address != NO_ADDRESS:
                return claim
        claim.resolved_address = NO_ADDRESS
        with self._lock:
            self._begin_change()
            self._hold(claim, self._take(size))
            self._is_changing = False
        return claim

    def guarantees_room(self, size: int) -> bool:
        waiting = len(self.pending) * max(0, self._small)
        if waiting and self._holes.guaranteed_room() < size + waiting:
            self.apply_pending()
            waiting = 0
        return self._holes.guaranteed_room() >= size + waiting

    def _apply_pending(self) -> None:
        """Until somebody has taken room, or found that there is some, no allocation is small."""
        self._small = -1
        pending, live, holes = self.pending, self._live, self._holes
        if not pending:
            return
        self._in_order = None
        while pending:
            ended = []
            while pending and (address := pending[0].resolved_address) is not None:
                claim = pending[0]
                if isinstance(claim, PerCoreClaim):
                    self._end_per_core(claim)
                elif live.get(address) is claim and (claim.holder is None or not claim.has_other_owner()):
                    del live[address]
                    ended.append((address, claim.size))
                    for journal in self.journals:
                        journal.append((claim, False))
                pending.popleft()
            if len(ended) > 1:
                ended.sort(reverse=self.region.bottom_up)  # first fit comes back to the last of them first
            for address, size in ended:
                if address < OVERFLOW_BASE:
                    holes.give_back(address, size)
            if pending and pending[0].resolved_address is None:  # there may be an end by now that was not there above
                claim = pending[0]
                if len(pending) > 1 and pending[1] is claim and getrefcount(claim) == _UNSHARED_REFERENCES:
                    claim.resolved_address = NO_ADDRESS  # two ends of nothing, whichever of them is left by Ctrl-C
                    pending.popleft()
                    pending.popleft()  # over before anything else happened: nobody can ask where it was
                else:
                    self._allocate_pending(claim)

    def _allocate_pending(self, claim: Claim) -> None:
        address = self._take(claim.size)
        if address is None:  # taken while this was being written down: `allocate` finds out
            claim.resolved_address = NO_ADDRESS
            self.pending.popleft()
            return
        self._live[address] = claim
        for journal in self.journals:
            journal.append((claim, True))
        self.pending.popleft()
        claim.resolved_address = address  # `_rebuild` does it where this is not reached

    def _note_room(self) -> None:
        self._small = self._holes.guaranteed_room() // _SMALL_FRACTION
