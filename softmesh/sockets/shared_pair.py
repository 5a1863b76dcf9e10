"""Memory that two processes of one host share: each writes messages into its half, and reads in the other's.

For each block of memory its writer counts how often it was used, and its reader how often it has done with it; where
the counts are equal the block is free. So neither waits for the other.
"""

from __future__ import annotations

from collections import deque

from softmesh.processes.context import DistributedContext
from softmesh.processes.shared_memory import SPAN, Segment
from softmesh.processes.shelf import ALL, FIRST, SLOTS, Block, Shelf

WORD = 8
RING = 4096  # bytes of a channel
FIRST_RING = (
    2 * SLOTS * WORD
)  # before: for each process, how often the other has done with each of its blocks
MOST_CHANNELS = (FIRST - FIRST_RING) // RING
_HALVES = (FIRST, SPAN // 2, SPAN - RING)  # of the addresses
_MOST_LOOKS = 16


class SharedPair:
    """What two processes write for each other."""

    def __init__(self, pair: DistributedContext, segment: Segment) -> None:
        self.segment = segment
        rank = pair.rank
        self._shelf = Shelf(segment, _HALVES[rank], _HALVES[rank + 1])
        self._words = segment.words
        self._done_by_other, self._done_here = rank * SLOTS, (1 - rank) * SLOTS  # words
        self._free = ALL
        self._uses = [0] * SLOTS
        self._out: deque[Block] = deque()  # not known to be free again
        self._in: dict[int, Block] = {}  # the other's, by slot
        self._read: deque[Block] = deque()  # of these, what this process may still read

    def take(self, size: int) -> Block | None:
        """Memory for a message; None where the other process holds on to too much already."""
        self.look()
        for _ in range(min(len(self._out), _MOST_LOOKS)):
            block = self._out.popleft()
            if self._is_done_with(block):
                self._free |= block.bit
            else:
                self._out.append(block)
        found = self._shelf.take(size, self._free, forgets=True)
        if found is not None:
            self._shelf.settle()
            self._use(found)
        return found

    def take_again(self, block: Block) -> bool:
        """The same memory for another message, if it is free."""
        if not self._shelf.has(block):
            return False
        if self._free & block.bit:
            self._use(block)
            return True
        if not self._is_done_with(block):
            return False
        self._uses[block.slot] += 1
        return True

    def _is_done_with(self, block: Block) -> bool:
        return self._words[self._done_by_other + block.slot] == self._uses[block.slot]

    def _use(self, block: Block) -> None:
        self._free &= ~block.bit
        self._uses[block.slot] += 1
        self._out.append(block)

    def block(self, slot: int, offset: int, size: int) -> Block:
        """The other's memory."""
        known = self._in.get(slot)
        if known is None or known.offset != offset or known.size != size:
            known = self._in[slot] = Block(slot, offset, size, self.segment.tensor(offset, size))
        known.rest()
        return known

    def read_later(self, block: Block) -> None:
        self._read.append(block)

    def done(self, block: Block) -> None:
        if self.segment.order is not None:
            self.segment.order()
        self._words[self._done_here + block.slot] += 1

    def look(self) -> None:
        """Give back what nothing reads any more."""
        for _ in range(min(len(self._read), _MOST_LOOKS)):
            block = self._read.popleft()
            if block.is_idle():
                self.done(block)
            else:
                self._read.append(block)
