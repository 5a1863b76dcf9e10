"""All-gather and all-to-all of tensors between ranks, planned once per shape: in shared memory, else by messages.

    exchange = AllGatherExchange(group, "all_gather", fingerprint, layout)
    views = exchange.open(lambda own: own[0].copy_(data))     # waits for the others
    kept = exchange.keep()                                    # or exchange.close(), if it was only read

In shared memory there is one copy of the result on a host, however many ranks keep it. An exchange is idle, or open
(between `open` and `keep` or `close`): only while it is open are the views valid, and `keep` makes the result outlive
it.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from softmesh.processes.block_allocator import Block, rounded
from softmesh.processes.context import DistributedContext
from softmesh.processes.lockstep import Lockstep
from softmesh.processes.shm_barrier import ShmBarrier, shm_barrier_of
from softmesh.processes.waits import CallMismatch

Fill = Callable[[Sequence[torch.Tensor]], object]
Cut = Callable[[torch.Tensor], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class ExchangeLayout:
    """What is put together: `place(whole, rank)` is the view that a rank fills; all are of one shape.

    `result_shape` is the shape under which it is found, where that is another.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    place: Callable[[torch.Tensor, int], torch.Tensor]
    result_shape: tuple[int, ...] | None = None

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def empty(self, rows: int | None = None) -> torch.Tensor:
        return torch.empty(self.shape if rows is None else (rows, *self.shape[1:]), dtype=self.dtype)

    def part(self) -> tuple[int, ...]:
        return tuple(self.place(torch.empty(self.shape, dtype=self.dtype, device="meta"), 0).shape)


class RankGroup:
    """Ranks that make the same calls in the same order, as `calls` knows them."""

    def __init__(self, context: DistributedContext, calls: Lockstep) -> None:
        self.context, self.calls = context, calls
        context.look_around = calls.check
        self._barrier_is_known = False
        self._barrier: ShmBarrier | None = None

    def barrier(self, op: str) -> ShmBarrier | None:
        """Where they share memory; the first call, which all make, is what finds out."""
        if not self._barrier_is_known:
            self._barrier, self._barrier_is_known = shm_barrier_of(self.context, op), True
        return self._barrier


@dataclass(frozen=True)
class Views:
    """Of one place in memory: what is found there, the parts that this rank fills, and pieces to be read."""

    found: torch.Tensor
    own: Sequence[torch.Tensor]
    pieces: Sequence[torch.Tensor]


class Exchange(ABC):
    """`parts` cuts the place that this rank fills, and `pieces` what it finds: once for each place in memory."""

    def __init__(
        self,
        group: RankGroup,
        op: str,
        fingerprint: object,
        whole: ExchangeLayout,
        parts: Cut = lambda place: (place,),
        pieces: Cut = lambda found: (),
    ) -> None:
        self.group, self.op, self.fingerprint, self.whole = group, op, fingerprint, whole
        self._context = group.context
        self._parts, self._pieces = parts, pieces
        self._digest = zlib.crc32(repr((op, fingerprint)).encode())
        self._nbytes = whole.nbytes
        self._size = rounded(self._nbytes)
        self._block: Block | None = None
        self._views: Views | None = None

    def open(self, fill: Fill) -> Views:
        """What all ranks have put in; `fill` writes this rank's parts. Until `close`, not longer."""
        try:
            return self._opened(fill)
        except CallMismatch as mismatch:
            self.group.calls.explain(self._context)
            mismatch.wait.linger_for_report()
            raise

    def _opened(self, fill: Fill) -> Views:
        barrier = self.group.barrier(self.op)
        block = None if barrier is None else barrier.allocate(self._size)
        if barrier is None or block is None:
            self._views = views = self._by_messages(fill)
            return views
        views = block.views(self, self._views_of)
        fill(views.own)
        calls = self.group.calls
        wait = self._context.collective(self.op, self.fingerprint, self._nbytes)
        barrier.wait_for_all(wait, self._digest ^ calls.code)
        self._views, self._block = views, block
        return views

    def keep(self) -> torch.Tensor:
        """What `open` found, for good."""
        views, block = self._views, self._block
        assert views is not None
        self._views = self._block = None
        barrier = None if block is None else self.group.barrier(self.op)
        return views.found if block is None or barrier is None else barrier.share_view(block, views.found)

    def close(self) -> None:
        block = self._block
        self._views = self._block = None  # a block counts views to know whether it is still read
        barrier = None if block is None else self.group.barrier(self.op)
        if block is not None and barrier is not None:
            barrier.free_block(block)

    def _views_of(self, memory: torch.Tensor) -> Views:
        whole = memory[: self._nbytes].view(self.whole.dtype).view(self.whole.shape)
        place, found = self.whole.place(whole, self._context.rank), self._found_in(whole)
        return Views(found, self._parts(place), self._pieces(found))

    def _by_messages(self, fill: Fill) -> Views:
        own = torch.empty(self.whole.part(), dtype=self.whole.dtype)
        fill(self._parts(own))
        found = self._by_collective(own)
        return Views(found, (), self._pieces(found))

    @abstractmethod
    def _found_in(self, whole: torch.Tensor) -> torch.Tensor:
        """What of the whole is for this rank."""

    @abstractmethod
    def _by_collective(self, own: torch.Tensor) -> torch.Tensor:
        """What this rank finds after all have sent each other their parts."""


class AllGatherExchange(Exchange):
    """Every rank gets the whole."""

    def _found_in(self, whole: torch.Tensor) -> torch.Tensor:
        return whole if self.whole.result_shape is None else whole.view(self.whole.result_shape)

    def _by_collective(self, own: torch.Tensor) -> torch.Tensor:
        parts = own.new_empty((self._context.size, *own.shape))
        self._context.allgather(own, parts, op=self.op, fingerprint=self.fingerprint, salt=self.group.calls.code)
        return self._found_in(_assembled(self.whole.empty(), parts, self.whole.place))


class AllToAllExchange(Exchange):
    """The first dim of the whole counts ranks: each gets its row, to which all have contributed."""

    def _found_in(self, whole: torch.Tensor) -> torch.Tensor:
        return whole[self._context.rank]

    def _by_collective(self, own: torch.Tensor) -> torch.Tensor:
        parts = torch.empty_like(own)
        self._context.all_to_all(own, parts, op=self.op, fingerprint=self.fingerprint, salt=self.group.calls.code)
        return _assembled(self.whole.empty(rows=1), parts.unsqueeze(1), self.whole.place)[0]


def _assembled(
    whole: torch.Tensor, parts: torch.Tensor, place: Callable[[torch.Tensor, int], torch.Tensor]
) -> torch.Tensor:
    if _is_in_rank_order(whole, place, len(parts)):
        return parts.view(whole.shape)
    for rank, part in enumerate(parts):
        place(whole, rank).copy_(part)
    return whole


def _is_in_rank_order(whole: torch.Tensor, place: Callable[[torch.Tensor, int], torch.Tensor], count: int) -> bool:
    places = (place(whole, rank) for rank in range(count))
    each = whole.numel() // count
    return all(p.is_contiguous() and p.storage_offset() == i * each for i, p in enumerate(places))
