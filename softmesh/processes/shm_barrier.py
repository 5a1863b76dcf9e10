"""A barrier in shared memory for the ranks of one host, which also allocates the same memory blocks on all of them.

Lock-free: each rank writes only its own words, and polls those of the others. A word holds the number of the barrier
that the rank has reached (high 32 bits) and a digest of its call (low 32 bits), so that ranks in different calls are
found. Beside it stand two masks of the blocks that the rank does not use, for even and for odd barriers: a mask is
read until the barrier after the next, and a rank cannot be further ahead than that.

A block is allocated (in use on all ranks), then freed or shared by each rank on its own, and free again once every
rank has said so at a barrier. As all ranks read the same masks and make the same calls, they choose the same block
without asking each other.
"""

from __future__ import annotations

from collections import deque

import torch

from softmesh.processes.block_allocator import ALL, FIRST, SLOTS, Block, BlockAllocator, retire
from softmesh.processes.context import DistributedContext
from softmesh.processes.shared_memory import Segment, shared_segment
from softmesh.processes.waits import CallMismatch, Wait

_WORD = 8
_MASK = SLOTS // 8  # bytes
_LINE = 64  # bytes that processors keep together
_RANK_STRIDE = 4 * _LINE  # of each rank: a line for its word, and one for each of two masks
MOST_RANKS = FIRST // _RANK_STRIDE


class ShmBarrier:
    def __init__(self, rank: int, size: int, segment: Segment) -> None:
        self.segment = segment
        self._releases_memory = rank == 0  # one of them gives memory back for all
        self._allocator = BlockAllocator(segment)
        self._map, self._words = segment.map, segment.words
        others = [other for other in range(size) if other != rank]
        self._own_word = rank * _RANK_STRIDE // _WORD
        self._other_words = tuple(other * _RANK_STRIDE // _WORD for other in others)
        self._own_masks = _masks_of(rank)
        self._other_masks = tuple(zip(*map(_masks_of, others), strict=True))
        self.step = 0
        self._awaited = 0
        self._idle = ALL  # blocks that this rank has no use for
        self._free: int | None = ALL  # as all said at the last barrier, less what was taken since
        self._shared: deque[Block] = deque()

    def allocate(self, size: int) -> Block | None:
        """The same block on every rank; None, on every rank, where too many are in use. Sizes are `rounded`."""
        if self._free is None:
            self._free = self._idle_on_all_ranks()
        block = self._allocator.take(size, self._free, releases_memory=self._releases_memory)
        if block is not None:
            others = ~block.bit
            self._free &= others
            self._idle &= others
        return block

    def free_block(self, block: Block) -> None:
        """This rank is done with it; others may not be."""
        self._idle |= block.bit

    def share_view(self, block: Block, view: torch.Tensor) -> torch.Tensor:
        """A tensor that may go anywhere; once nothing reads it, the block is given back."""
        self._shared.append(block)
        return block.share_view(view)

    def restart(self, step: int) -> None:
        """Go on from this step, as all ranks do, while none of them waits."""
        self.step = step
        for at in self._own_masks:
            self._map[at : at + _MASK] = self._idle.to_bytes(_MASK, "little")
        self._words[self._own_word] = step << 32
        self._free = None

    def wait_for_all(self, wait: Wait, digest: int) -> None:
        """Go on when all ranks have come; what each wrote before, all can read after."""
        if self._shared:
            retire(self._shared, Block.is_idle, self.free_block)
        step = self.step = self.step + 1
        order = self.segment.order
        at = self._own_masks[step & 1]
        self._map[at : at + _MASK] = self._idle.to_bytes(_MASK, "little")
        if order is not None:
            order()
        self._awaited = step << 32
        word = self._awaited | digest
        self._words[self._own_word] = word
        with wait:
            wait.until(self._all_arrived)
            if order is not None:
                order()
            if self._has_mismatch(word, step):
                raise CallMismatch(wait)
        self._free = None
        if self._allocator.has_holes:
            self._allocator.reclaim_holes()

    def _all_arrived(self) -> bool:
        words, awaited = self._words, self._awaited
        for at in self._other_words:  # noqa: SIM110 - asked often, and a generator costs twice as much
            if words[at] < awaited:
                return False
        return True

    def _has_mismatch(self, word: int, step: int) -> bool:
        """Whether a rank is in another call; one that is ahead has found this one right."""
        for at in self._other_words:
            other = self._words[at]
            if other != word and other >> 32 == step:
                return True
        return False

    def _idle_on_all_ranks(self) -> int:
        free, memory = self._own_idle_mask(), self._map
        for at in self._other_masks[self.step & 1]:
            free &= int.from_bytes(memory[at : at + _MASK], "little")
        return free

    def _own_idle_mask(self) -> int:
        at = self._own_masks[self.step & 1]
        return int.from_bytes(self._map[at : at + _MASK], "little")


def _masks_of(rank: int) -> tuple[int, int]:
    """Where a rank's masks are: for even steps, and for odd ones."""
    return rank * _RANK_STRIDE + _LINE, rank * _RANK_STRIDE + 2 * _LINE


# By their ranks in the world: a mesh that the same processes open again finds the memory of the last one.
_BARRIERS: dict[tuple[int, ...], ShmBarrier | None] = {}


def shm_barrier_of(context: DistributedContext, op: str) -> ShmBarrier | None:
    """Where the ranks of a context meet; None where they share no memory. They call it together the first time."""
    ranks = context.group.ranks
    if ranks not in _BARRIERS:
        segment = shared_segment(context, op) if context.size <= MOST_RANKS else None
        _BARRIERS[ranks] = None if segment is None else ShmBarrier(context.rank, context.size, segment)
    return _BARRIERS[ranks]
