"""Big results in memory that an earlier one has left.

A fresh block of 32 MiB or more is mapped anew and page-faults through all of its memory, which costs two to
three times what filling it does. So the blocks that were handed out here are remembered, and one that
nothing reads any more is handed out again: torch counts the owners of a block, views and numpy arrays
included. What is remembered is bounded by an eighth of the machine's memory; closing a mesh lets it go.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import torch

BIG = (32 << 20) - (4 << 10)  # bytes; smaller blocks the C library keeps by itself (see memory_reuse)
_SHARE_OF_MEMORY = 8


class Blocks:
    """Blocks of memory that were handed out, the longest unused first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: list[torch.UntypedStorage] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous CPU tensor whose values are whatever was there."""
        count = math.prod(shape) * dtype.itemsize
        at = next((i for i, b in enumerate(self._known) if b.nbytes() == count and _is_idle(b)), None)
        if at is None:
            self._make_room(count)
            block = torch.empty(count, dtype=torch.uint8).untyped_storage()
        else:
            block = self._known.pop(at)
        if count <= self._limit:
            self._known.append(block)
        return torch.empty(0, dtype=dtype).set_(block, 0, tuple(shape), _strides(shape))

    def _make_room(self, count: int) -> None:
        """Forget idle blocks first, then others, until `count` more bytes are within the limit."""
        self._known.sort(key=_is_idle, reverse=True)
        while self._known and self.bytes_known() + count > self._limit:
            del self._known[0]

    def bytes_known(self) -> int:
        return sum(block.nbytes() for block in self._known)

    def release(self) -> None:
        """Give back what nothing reads; what is in use is freed by its last reader."""
        self._known.clear()


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _is_idle(block: torch.UntypedStorage) -> bool:
    return torch._C._storage_Use_Count(block._cdata) == 1


def _memory_of_machine() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # a system that does not tell
        return 8 << 30


_BLOCKS = Blocks(_memory_of_machine() // _SHARE_OF_MEMORY)


def empty_result(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return _BLOCKS.empty(shape, dtype)


def release_results() -> None:
    _BLOCKS.release()


def filled_from(pieces: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """`pieces.reshape(shape)`; a big copy goes into memory that is there already."""
    if pieces.numel() * pieces.itemsize <= BIG or not pieces.is_cpu or pieces.requires_grad:
        return pieces.reshape(shape)
    try:
        return pieces.view(shape)
    except RuntimeError:  # not in one stride: it must be copied
        result = empty_result(shape, pieces.dtype)
        result.view(pieces.shape).copy_(pieces)
        return result
