"""Tensors that all ranks of a group put together, each its own part: in memory they share, or by messages.

    exchange = Assembly(group, "all_gather", fingerprint, whole)
    found = exchange.open(lambda own_part: own_part.copy_(data))     # waits for the others
    kept = exchange.keep()                                           # or exchange.close(), if it was only read

In shared memory there is one copy of it on a host, however many ranks keep it. An exchange is planned once for a
call with given shapes, and used again.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import torch

from softmesh.processes.context import DistributedContext
from softmesh.processes.meeting import MOST_RANKS, MeetingPlace
from softmesh.processes.shared_memory import shared_segment
from softmesh.processes.shelf import Block, rounded

Fill = Callable[[torch.Tensor], object]
Pieces = Callable[[torch.Tensor], Iterable[torch.Tensor]]


@dataclass(frozen=True)
class Whole:
    """What is put together: `place(whole, rank)` is the view that a rank fills; all are of one shape.

    `seen_as` is the shape under which it is found, where that is another.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    place: Callable[[torch.Tensor, int], torch.Tensor]
    seen_as: tuple[int, ...] | None = None

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def empty(self, rows: int | None = None) -> torch.Tensor:
        return torch.empty(self.shape if rows is None else (rows, *self.shape[1:]), dtype=self.dtype)

    def part(self) -> tuple[int, ...]:
        return tuple(self.place(torch.empty(self.shape, dtype=self.dtype, device="meta"), 0).shape)


class RankGroup:
    """Ranks that make the same calls in the same order."""

    def __init__(self, context: DistributedContext) -> None:
        self.context = context
        self._has_met = False
        self._meeting: MeetingPlace | None = None

    def meeting(self, op: str) -> MeetingPlace | None:
        """Where they share memory; the first call, which all make, is what finds out."""
        if not self._has_met:
            self._has_met = True
            segment = shared_segment(self.context, op) if self.context.size <= MOST_RANKS else None
            self._meeting = None if segment is None else MeetingPlace(self.context, segment)
        return self._meeting


class Exchange(ABC):
    def __init__(
        self, group: RankGroup, op: str, fingerprint: object, whole: Whole, pieces: Pieces = lambda _: ()
    ) -> None:
        """`pieces` cuts what is found, once for each place in memory."""
        self.group, self.op, self.fingerprint, self.whole = group, op, fingerprint, whole
        self._digest = zlib.crc32(repr((op, fingerprint)).encode())
        self._nbytes = whole.nbytes
        self._size = rounded(self._nbytes)
        self._block: Block | None = None
        self._found: torch.Tensor | None = None
        self._pieces = pieces
        self.pieces: list[torch.Tensor] = []  # of what was found, while it is open

    def open(self, fill: Fill) -> torch.Tensor:
        """What all ranks have put in; `fill` writes this rank's part. Until `close`, not longer."""
        meeting = self.group.meeting(self.op)
        block = None if meeting is None else meeting.borrow(self._size)
        if meeting is None or block is None:
            self._found = self._by_messages(fill)
            self.pieces = list(self._pieces(self._found))
            return self._found
        found, own, *self.pieces = block.views(self, self._views)
        fill(own)
        meeting.meet(self.op, self.fingerprint, self._digest, self._nbytes)
        self._found, self._block = found, block
        return found

    def keep(self) -> torch.Tensor:
        """What `open` gave, for good."""
        found, block = self._found, self._block
        assert found is not None
        self._forget()
        meeting = None if block is None else self.group.meeting(self.op)
        return found if block is None or meeting is None else meeting.lend(block, found)

    def close(self) -> None:
        block = self._block
        self._forget()
        meeting = None if block is None else self.group.meeting(self.op)
        if block is not None and meeting is not None:
            meeting.give_back(block)

    def _forget(self) -> None:
        """Keep no view: a block counts those of others to know whether it is still read."""
        self._found = self._block = None
        self.pieces = []

    def _views(self, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = memory[: self._nbytes].view(self.whole.dtype).view(self.whole.shape)
        found = self._found_in(whole)
        return found, self.whole.place(whole, self.group.context.rank), *self._pieces(found)

    @abstractmethod
    def _found_in(self, whole: torch.Tensor) -> torch.Tensor:
        """What of the whole is for this rank."""

    @abstractmethod
    def _by_messages(self, fill: Fill) -> torch.Tensor: ...


class Assembly(Exchange):
    """Every rank gets the whole."""

    def _found_in(self, whole: torch.Tensor) -> torch.Tensor:
        return whole if self.whole.seen_as is None else whole.view(self.whole.seen_as)

    def _by_messages(self, fill: Fill) -> torch.Tensor:
        context = self.group.context
        own = torch.empty(self.whole.part(), dtype=self.whole.dtype)
        fill(own)
        parts = own.new_empty((context.size, *own.shape))
        context.allgather(own, parts, op=self.op, fingerprint=self.fingerprint)
        return self._found_in(_put_together(self.whole.empty(), parts, self.whole.place))


class Deal(Exchange):
    """The first dim of the whole counts ranks: each gets its row, to which all have contributed."""

    def _found_in(self, whole: torch.Tensor) -> torch.Tensor:
        return whole[self.group.context.rank]

    def _by_messages(self, fill: Fill) -> torch.Tensor:
        context = self.group.context
        own = torch.empty(self.whole.part(), dtype=self.whole.dtype)
        fill(own)
        parts = torch.empty_like(own)
        context.all_to_all(own, parts, op=self.op, fingerprint=self.fingerprint)
        return _put_together(self.whole.empty(rows=1), parts.unsqueeze(1), self.whole.place)[0]


def _put_together(
    whole: torch.Tensor, parts: torch.Tensor, place: Callable[[torch.Tensor, int], torch.Tensor]
) -> torch.Tensor:
    if _lie_in_order(whole, place, len(parts)):
        return parts.view(whole.shape)
    for rank, part in enumerate(parts):
        place(whole, rank).copy_(part)
    return whole


def _lie_in_order(
    whole: torch.Tensor, place: Callable[[torch.Tensor, int], torch.Tensor], count: int
) -> bool:
    places = (place(whole, rank) for rank in range(count))
    each = whole.numel() // count
    return all(p.is_contiguous() and p.storage_offset() == i * each for i, p in enumerate(places))
