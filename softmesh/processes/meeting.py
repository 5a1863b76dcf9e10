"""Ranks of one host that make the same calls in the same order, and meet in memory they share.

Each rank has a word that says how far it has come, with a digest of its call beside it, and a mask of the blocks it
has no use for. A block may be taken once every rank has said so at the last meeting; as all of them read the same
masks and make the same calls they choose the same block, without asking. A mask is kept until the meeting after the
next: a rank cannot be further ahead than that.
"""

from __future__ import annotations

from collections import deque

import torch

from softmesh.processes.context import DistributedContext
from softmesh.processes.shared_memory import Segment, shared_segment
from softmesh.processes.shelf import ALL, FIRST, SLOTS, Block, Shelf
from softmesh.processes.waiting import Wait, differing

_WORD = 8
_MASK = SLOTS // 8  # bytes
_LINE = 64  # bytes that processors keep together
_APART = 4 * _LINE  # of each rank: a line for its word, and one for each of two masks
MOST_RANKS = FIRST // _APART
_MOST_LOOKS = 16  # at lent blocks, for each meeting


class MeetingPlace:
    def __init__(self, rank: int, size: int, segment: Segment) -> None:
        self._segment = segment
        self._forgets = rank == 0  # one of them gives memory back for all
        self._shelf = Shelf(segment)
        self._map, self._words = segment.map, segment.words
        others = [other for other in range(size) if other != rank]
        self._own_word = rank * _APART // _WORD
        self._other_words = tuple(other * _APART // _WORD for other in others)
        self._own_masks = _masks_of(rank)
        self._other_masks = tuple(zip(*map(_masks_of, others), strict=True))
        self._step = 0
        self._awaited = 0
        self._idle = ALL  # blocks that this rank has no use for
        self._free: int | None = ALL  # as all said at the last meeting, less what was taken since
        self._lent: deque[Block] = deque()

    def borrow(self, size: int) -> Block | None:
        """The same block on every rank; None, on every rank, where too many are in use. Sizes are `rounded`."""
        if self._free is None:
            self._free = self._said_by_all()
        block = self._shelf.take(size, self._free, forgets=self._forgets)
        if block is not None:
            others = ~block.bit
            self._free &= others
            self._idle &= others
        return block

    def give_back(self, block: Block) -> None:
        """This rank is done with it; others may not be."""
        self._idle |= block.bit

    def lend(self, block: Block, view: torch.Tensor) -> torch.Tensor:
        """A tensor that may go anywhere; once nothing reads it, the block is given back."""
        self._lent.append(block)
        return block.lend(view)

    def meet(self, wait: Wait, digest: int) -> None:
        """Go on when all ranks have come; what each wrote before, all can read after."""
        if self._lent:
            self._look_at_lent()
        step = self._step = self._step + 1
        order = self._segment.order
        at = self._own_masks[step & 1]
        self._map[at : at + _MASK] = self._idle.to_bytes(_MASK, "little")
        if order is not None:
            order()
        self._awaited = step << 32
        word = self._awaited | digest
        self._words[self._own_word] = word
        with wait:
            wait.until(self._all_came)
            if order is not None:
                order()
            if self._differs(word, step):
                wait.stay_broken()
                raise differing(wait)
        self._free = None
        if self._shelf.has_holes:
            self._shelf.settle()

    def _all_came(self) -> bool:
        words, awaited = self._words, self._awaited
        for at in self._other_words:  # noqa: SIM110 - asked often, and a generator costs twice as much
            if words[at] < awaited:
                return False
        return True

    def _differs(self, word: int, step: int) -> bool:
        """Whether a rank is in another call; one that is ahead has found this one right."""
        for at in self._other_words:
            other = self._words[at]
            if other != word and other >> 32 == step:
                return True
        return False

    def _look_at_lent(self) -> None:
        lent = self._lent
        for _ in range(min(len(lent), _MOST_LOOKS)):
            block = lent.popleft()
            if block.is_idle():
                self.give_back(block)
            else:
                lent.append(block)

    def _said_by_all(self) -> int:
        free, memory = self._idle_at_last_meeting(), self._map
        for at in self._other_masks[self._step & 1]:
            free &= int.from_bytes(memory[at : at + _MASK], "little")
        return free

    def _idle_at_last_meeting(self) -> int:
        at = self._own_masks[self._step & 1]
        return int.from_bytes(self._map[at : at + _MASK], "little")


def _masks_of(rank: int) -> tuple[int, int]:
    """Where a rank's masks are: for even steps, and for odd ones."""
    return rank * _APART + _LINE, rank * _APART + 2 * _LINE


# By their ranks in the world: a mesh that the same processes open again finds the memory of the last one.
_PLACES: dict[tuple[int, ...], MeetingPlace | None] = {}


def meeting_place(context: DistributedContext, op: str) -> MeetingPlace | None:
    """Where the ranks of a context meet; None where they share no memory. They call it together the first time."""
    ranks = context.group.ranks
    if ranks not in _PLACES:
        segment = shared_segment(context, op) if context.size <= MOST_RANKS else None
        _PLACES[ranks] = None if segment is None else MeetingPlace(context.rank, context.size, segment)
    return _PLACES[ranks]
