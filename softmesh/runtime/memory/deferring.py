"""A memory whose addresses are worked out when somebody asks for them.

Most programs never ask where a tensor lies. So an allocation that surely has room is only written down, and so is
its end; what was written down is worked in, in its order, when an address or anything else is asked for, and at
the latest after some dozens: many at a time cost less than one here and there, between ops that push this code out
of the caches. Addresses are those of working in each at once.

On a mesh with several queues whoever watches their order asks for every address: there, they are worked out at once.
"""

from __future__ import annotations

from softmesh.callsite import raw_call_site
from softmesh.runtime.memory.claim import Claim
from softmesh.runtime.memory.memory_map import Region
from softmesh.runtime.memory.pool import BEYOND, Pool, next_number

_MOST_NOTES = 64
# Of what surely has room, an allocation that waits takes at most this part. More than those notes: several threads
# may each add one before the first of them looks how many there are.
_PART_OF_ROOM = 2 * _MOST_NOTES


class DeferringPool(Pool):
    """Its notes are allocations, and of what has an address, the end."""

    def __init__(self, region: Region, is_enforced: bool = True) -> None:
        super().__init__(region, is_enforced)
        self._small = region.size // _PART_OF_ROOM  # bytes of an allocation that may wait

    def allocate(self, size: int, requested: int, owner: object) -> Claim:
        claim = Claim(owner)
        claim.pool, claim.size, claim.requested = self, size, requested
        claim.site, claim.number = raw_call_site(5), next_number()
        claim.label = claim.holder = claim.settled_at = None
        notes = self.notes
        notes.append(claim)
        if size > self._small or len(notes) > _MOST_NOTES:
            self.settle()
        return claim

    def surely_has(self, size: int) -> bool:
        if self.notes and self._holes.sure_room() < size + len(self.notes) * self._small:
            self.settle()
        return self._holes.sure_room() >= size + len(self.notes) * self._small

    def _settle(self) -> None:
        notes, live, holes = self.notes, self._live, self._holes
        if not notes:
            return
        self._in_order = None
        try:
            while notes:
                ended = []
                while notes and (address := notes[0].settled_at) is not None:
                    claim = notes.popleft()
                    if live.get(address) is claim:
                        del live[address]
                        ended.append((address, claim.size))
                if len(ended) > 1:
                    ended.sort(
                        reverse=self.region.bottom_up
                    )  # first fit comes back to the last of them first
                for address, size in ended:
                    if address < BEYOND:
                        holes.give_back(address, size)
                if notes:
                    claim = notes.popleft()
                    self._hold(claim, self._take(claim.size))
        finally:
            self._note_room()

    def _note_room(self) -> None:
        self._small = self._holes.sure_room() // _PART_OF_ROOM
