"""A caching allocator for large CPU results: memory blocks that an earlier result has left are handed out again.

A fresh block of 32 MiB or more is mapped anew and page-faults through all of its memory, which costs two to
three times what filling it does. So the blocks that were handed out here are remembered, and one that
nothing reads any more is handed out again: torch counts the owners of a block, views and numpy arrays
included. What is remembered is bounded by an eighth of the machine's memory; closing a mesh lets it go.

A copy of some MiB gains too (see `CachedCopy`): the C library hands out two blocks in turn to a loop that makes and
drops one, where the one that was dropped last is still in the caches. A few computations keep one block each.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from weakref import WeakSet

import torch

from softmesh.native.c_kernels import copy_past_caches
from softmesh.storage_owners import storage_owners

BIG = (32 << 20) - (4 << 10)  # bytes; smaller blocks the C library keeps by itself (see malloc_tuning)
LARGE = 8 << 20  # bytes of a copy that is worth a block of its own
_SHARE_OF_MEMORY = 8
_MOST_KEPT = 8  # blocks of copies
_LOCK = threading.RLock()  # of who keeps blocks of copies


class BlockCache:
    """Blocks of memory that were handed out, the longest unused first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: list[torch.UntypedStorage] = []
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous CPU tensor whose values are whatever was there."""
        count = math.prod(shape) * dtype.itemsize
        with self._lock:
            block = self._idle(count)
            if block is None:
                self._make_room(count)
                block = torch.empty(count, dtype=torch.uint8, device="cpu").untyped_storage()
                if count <= self._limit:
                    self._known.append(block)
            return torch.empty(0, dtype=dtype, device="cpu").set_(block, 0, tuple(shape), _strides(shape))

    def _idle(self, count: int) -> torch.UntypedStorage | None:
        """The one handed out last, for it may still be in the caches."""
        known = self._known
        for at in range(len(known) - 1, -1, -1):
            block = known[at]
            if block.is_shared():  # another process may read it
                del known[at]
            elif block.nbytes() == count and _is_idle(block):
                known.append(known.pop(at))
                return block
        return None

    def _make_room(self, count: int) -> None:
        """Forget idle blocks first, then others, until `count` more bytes are within the limit."""
        self._known.sort(key=_is_idle, reverse=True)
        while self._known and self.bytes_known() + count > self._limit:
            del self._known[0]

    def bytes_known(self) -> int:
        return sum(block.nbytes() for block in self._known)

    def release(self) -> None:
        """Give back what nothing reads; what is in use is freed by its last reader."""
        with self._lock:
            self._known.clear()


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _is_idle(block: torch.UntypedStorage) -> bool:
    return storage_owners(block._cdata) == 1


def _memory_of_machine() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # a system that does not tell
        return 8 << 30


_BLOCKS = BlockCache(_memory_of_machine() // _SHARE_OF_MEMORY)


def empty_result(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return _BLOCKS.empty(shape, dtype)


def release_results() -> None:
    _BLOCKS.release()
    release_copies()


def reshape_into_cache(pieces: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """`pieces.reshape(shape)`; a big copy goes into memory that is there already."""
    if pieces.numel() * pieces.itemsize <= BIG or not pieces.is_cpu or pieces.requires_grad:
        return pieces.reshape(shape)
    try:
        return pieces.view(shape)
    except RuntimeError:  # not in one stride: it must be copied
        result = empty_result(shape, pieces.dtype)
        if not copy_past_caches(pieces, result):
            result.view(pieces.shape).copy_(pieces)
        return result


_Kept = tuple[torch.Tensor, int, int]  # a block, torch's handle of it, and the owners it has while it is idle


class CachedCopy:
    """`data.permute(order).reshape(shape)`, a copy, for data of one kind: in the block of the last, if that is idle."""

    def __init__(self, order: list[int], shape: list[int]) -> None:
        self._order, self._shape = order, shape
        self._last: list[_Kept] = []  # mostly one, and none while a thread fills it

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        pieces = data.permute(self._order)
        try:
            kept = self._last.pop()
        except IndexError:
            kept = self._fresh(pieces)
        block, handle, idle = kept
        if storage_owners(handle) != idle or block.is_shared():  # perhaps with another process
            block, *_ = kept = self._fresh(pieces)
        found = block.copy_(pieces).view(self._shape)
        if not self._last:
            self._last.append(kept)
        return found

    def _fresh(self, pieces: torch.Tensor) -> _Kept:
        with _LOCK:
            if self not in _CACHED_COPIES:
                if len(_CACHED_COPIES) >= _MOST_KEPT:
                    release_copies()
                _CACHED_COPIES.add(self)
        with torch.inference_mode(False):  # what is made in it cannot be filled again outside
            block = torch.empty(pieces.shape, dtype=pieces.dtype, device="cpu")
        handle = block.untyped_storage()._cdata
        return block, handle, storage_owners(handle)

    def bytes_kept(self) -> int:
        return sum(block.nbytes for block, _, _ in self._last)

    def release(self) -> None:
        self._last.clear()


_CACHED_COPIES: WeakSet[CachedCopy] = WeakSet()  # those that keep a block


def release_copies() -> None:
    with _LOCK:
        for one in list(_CACHED_COPIES):
            one.release()
        _CACHED_COPIES.clear()
