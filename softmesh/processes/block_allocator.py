"""The allocator of blocks in a shared memory segment: a memory pool that hands out freed blocks again, by size.

Knows nothing of processes. It is deterministic: the same calls with the same answers about what is free give the same
blocks, so ranks that make the same calls need not ask each other. A block is in use, idle (kept for the next call of
its size), or dropped (its memory went back to the machine, and its addresses are a hole). A new hole is reused only
after `reclaim_holes`, when all processes are known to have dropped the block.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from softmesh.processes.shared_memory import BOARD, Segment
from softmesh.storage_owners import storage_owners

SLOTS = 512  # blocks at a time
ALL = (1 << SLOTS) - 1
FIRST = 1 << 20  # where blocks begin; before are the words by which ranks find each other
_PAGE = 1 << 12
_SHARE_OF_MEMORY = 16  # of the machine's: where there is more than this, idle blocks go
_MOST_VIEWS = 16
_MOST_LOOKS = 16  # at blocks of a queue, each time

_Made = TypeVar("_Made")


class Block:
    """Its memory, and the views of it that stay in this process's own hands."""

    def __init__(self, slot: int, offset: int, size: int, memory: torch.Tensor) -> None:
        self.slot, self.offset, self.size = slot, offset, size
        self.bit = 1 << slot
        self._memory, self._storage = memory, memory.untyped_storage()
        self._views: dict[object, Any] = {}
        self._own_uses = 0

    def views(self, of: object, make: Callable[[torch.Tensor], _Made]) -> _Made:
        """What `make` makes of the memory, kept for the next time. Not to be given to others: see `share_view`."""
        found = self._views.get(of)
        if found is None:
            found = self._views[of] = make(self._memory)
        made: _Made = found
        return made

    def share_view(self, view: torch.Tensor) -> torch.Tensor:
        """The same memory for somebody who does not say when it is no longer needed; see `is_idle`."""
        self._own_uses = storage_owners(self._storage._cdata)
        return view.view_as(view)

    def is_idle(self) -> bool:
        """Whether nobody in this process reads what was shared."""
        return storage_owners(self._storage._cdata) <= self._own_uses

    def trim_views(self) -> None:
        """Nobody uses it: only now may kept views be dropped, as `is_idle` counts them."""
        if len(self._views) > _MOST_VIEWS:
            self._views.clear()


def retire(queue: deque[Block], is_over: Callable[[Block], bool], end: Callable[[Block], object]) -> None:
    """Look at some blocks of the queue, in turns; `end` those for which it is over."""
    for _ in range(min(len(queue), _MOST_LOOKS)):
        block = queue.popleft()
        if is_over(block):
            end(block)
        else:
            queue.append(block)


class BlockAllocator:
    """The addresses from `first` to `last` of a segment."""

    def __init__(self, segment: Segment, first: int = FIRST, last: int = BOARD) -> None:
        self._segment, self._last = segment, last
        self._blocks: dict[int, Block] = {}  # by slot, the longest unused first
        self._of_size: dict[int, int] = {}  # the slots of each size, as bits
        self._holes: dict[int, list[int]] = {}  # offsets of forgotten blocks, by size
        self._new_holes: list[tuple[int, int]] = []
        self._end = first
        self._slots = self._total = 0
        self._most_bytes = _memory_of_machine() // _SHARE_OF_MEMORY

    def take(self, size: int, free: int, *, releases_memory: bool) -> Block | None:
        """One of the `free` blocks (as bits), or a new one; None where there are too many already.

        `size` is a `rounded` one. `releases_memory`: of several processes one gives memory back to the machine.
        """
        usable = free & self._of_size.get(size, 0)
        if self._total > self._most_bytes:
            self._drop_idle(free & ~usable, releases_memory)
        if not usable:
            return self._new(size, free, releases_memory)
        slot = (usable & -usable).bit_length() - 1
        block = self._blocks[slot] = self._blocks.pop(slot)
        block.trim_views()
        return block

    def has(self, block: Block) -> bool:
        """Whether it was not dropped since."""
        return self._blocks.get(block.slot) is block

    @property
    def has_holes(self) -> bool:
        return bool(self._new_holes)

    def reclaim_holes(self) -> None:
        """All processes have come so far: what one of them had to forget is forgotten."""
        for size, offset in self._new_holes:
            self._holes.setdefault(size, []).append(offset)
        self._new_holes.clear()

    def _new(self, size: int, free: int, releases_memory: bool) -> Block | None:
        if len(self._blocks) == SLOTS:
            self._drop_idle(free, releases_memory, at_most=1)
        holes = self._holes.get(size)
        if len(self._blocks) == SLOTS or (not holes and self._end + size > self._last):
            return None
        slot = next(slot for slot in range(SLOTS) if slot not in self._blocks)
        offset = holes.pop() if holes else self._end
        self._end = max(self._end, offset + size)
        return self._put(Block(slot, offset, size, self._segment.tensor(offset, size)))

    def _drop_idle(self, free: int, releases_memory: bool, at_most: int = SLOTS) -> None:
        idle = [block for block in self._blocks.values() if free & block.bit] if free & self._slots else []
        for block in idle[:at_most]:
            self._drop(block, releases_memory)

    def _put(self, block: Block) -> Block:
        self._blocks[block.slot] = block
        self._of_size[block.size] = self._of_size.get(block.size, 0) | block.bit
        self._slots |= block.bit
        self._total += block.size
        return block

    def _drop(self, block: Block, releases_memory: bool) -> None:
        del self._blocks[block.slot]
        self._of_size[block.size] &= ~block.bit
        self._slots &= ~block.bit
        self._total -= block.size
        self._new_holes.append((block.size, block.offset))
        if releases_memory:
            self._segment.release(block.offset, block.size)


def rounded(nbytes: int) -> int:
    """Up to an eighth more, so that blocks of nearly the same size are the same.

    >>> rounded(1), rounded(70_000), rounded(1 << 24)
    (4096, 73728, 16777216)
    """
    step = max(_PAGE, 1 << max(0, (max(nbytes, 1) - 1).bit_length() - 4))
    return -(-max(nbytes, 1) // step) * step


def _memory_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
