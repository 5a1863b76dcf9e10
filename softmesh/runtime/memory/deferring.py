"""A memory whose addresses are worked out when somebody asks for them.

Most programs never ask where a tensor lies. So an allocation that surely has room is only written down, and so is
its end; what was written down is worked in, in its order, when an address or anything else is asked for, and at
the latest after some dozens: many at a time cost less than one here and there, between ops that push this code out
of the caches. Addresses are those of working in each at once.

On a mesh with several queues whoever watches their order asks for every address: there, they are worked out at once.
"""

from __future__ import annotations

from collections import deque
from sys import getrefcount

from softmesh.callsite import raw_call_site
from softmesh.runtime.memory.claim import Claim
from softmesh.runtime.memory.memory_map import Region
from softmesh.runtime.memory.pool import BEYOND, NOWHERE, NUMBERS, Pool

_MOST_NOTES = 64
# Of what is surely free an allocation that waits takes at most such a fraction.
_OF_THE_ROOM = 2 * _MOST_NOTES


def _held_twice() -> int:
    """References to a claim that only a note and a name have, as this Python counts them."""
    notes = deque([object()])
    notes.append(notes[0])
    claim = notes.popleft()
    return getrefcount(claim)


_OURS = _held_twice()


class DeferringPool(Pool):
    """Its notes are allocations, and behind them their ends: a claim that was worked in, or stands there before."""

    def __init__(self, region: Region, is_enforced: bool = True) -> None:
        super().__init__(region, is_enforced)
        self._small = region.size // _OF_THE_ROOM  # bytes of an allocation that may wait

    def allocate(self, size: int, requested: int, owner: object) -> Claim:
        claim = Claim(owner, self._ends)
        claim.pool, claim.size, claim.requested, claim.site = self, size, requested, raw_call_site()
        claim.label, claim.holder, claim.number = None, None, next(NUMBERS)
        if size <= self._small and len(self.notes) < _MOST_NOTES:
            claim.settled_at = None  # a note of which this is so is an allocation
            self.notes.append(claim)
            if size <= self._small and claim.settled_at != NOWHERE:
                return claim
            self.settle()  # somebody takes room at this moment, and may not have seen the note
            if claim.settled_at != NOWHERE:
                return claim
        claim.settled_at = NOWHERE
        with self._lock:
            self._settle()
            self._hold(claim, self._take(size))
        return claim

    def surely_has(self, size: int) -> bool:
        waiting = len(self.notes) * max(0, self._small)
        if waiting and self._holes.sure_room() < size + waiting:
            self.settle()
            waiting = 0
        return self._holes.sure_room() >= size + waiting

    def _settle(self) -> None:
        """Until somebody has taken room, or found that there is some, no allocation is small."""
        self._small = -1
        notes, live, holes = self.notes, self._live, self._holes
        if not notes:
            return
        self._in_order = None
        while notes:
            ended = []
            while notes and (address := notes[0].settled_at) is not None:
                claim = notes.popleft()
                if live.get(address) is claim and (claim.holder is None or not claim.has_others()):
                    del live[address]
                    ended.append((address, claim.size))
            if len(ended) > 1:
                ended.sort(reverse=self.region.bottom_up)  # first fit comes back to the last of them first
            for address, size in ended:
                if address < BEYOND:
                    holes.give_back(address, size)
            if notes and notes[0].settled_at is None:  # there may be an end by now that was not there above
                claim = notes.popleft()
                if notes and notes[0] is claim and getrefcount(claim) == _OURS:
                    notes.popleft()  # over before anything else happened: nobody can ask where it was
                else:
                    self._work_in(claim)

    def _work_in(self, claim: Claim) -> None:
        try:
            address = self._take(claim.size)
            if address is None:  # taken while this was being written down: `allocate` finds out
                claim.settled_at = NOWHERE
                return
            self._live[address] = claim
            claim.settled_at = address
        except KeyboardInterrupt:
            if claim.settled_at is None:
                self.notes.appendleft(claim)
            raise

    def _note_room(self) -> None:
        self._small = self._holes.sure_room() // _OF_THE_ROOM
