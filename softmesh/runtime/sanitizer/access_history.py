"""Access histories: who read or wrote a piece of memory since it was last overwritten, and in no order with whom.

`History` is that of one piece, `AddressSpace` holds those of a memory by address. Memory that is freed and allocated
again keeps its history: whoever may still be using it does not know. `HostMemory` has the host tensors that a
non-blocking read may still be filling.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from softmesh.runtime.memory.allocations import Span
from softmesh.runtime.sanitizer.vector_clocks import Agent, Clock, Places, Step

if TYPE_CHECKING:
    from softmesh.runtime.command_tensor import TensorMemory


class Where(NamedTuple):
    """The part of a piece of memory: on which devices (None: all), and there which pages (None: all)."""

    places: Places | None
    pages: range | None = None
    paged: object = None  # how the memory is cut into pages: numbers of other pages mean nothing to these

    def meets(self, other: Where) -> bool:
        if self.places is not None and other.places is not None and self.places.isdisjoint(other.places):
            return False
        if self.pages is None or other.pages is None or self.paged != other.paged:
            return True
        return self.pages.start < other.pages.stop and other.pages.start < self.pages.stop

    def covers(self, other: Where) -> bool:
        if self.places is not None and (other.places is None or not other.places <= self.places):
            return False
        if self.pages is None:
            return True
        if other.pages is None or self.paged != other.paged:
            return False
        return self.pages.start <= other.pages.start and other.pages.stop <= self.pages.stop

    def shared_places(self, other: Where) -> Places | None:
        if self.places is None or other.places is None:
            return self.places or other.places
        return self.places & other.places


EVERYWHERE = Where(None)


class Touch(NamedTuple):
    """A step reads or writes memory, `span` as it was then."""

    step: Step
    is_write: bool
    where: Where
    span: Span


class History:
    """Touches of one piece of memory.

    A write replaces what it covers, and a read the last read of its agent: what is ordered with the new one needs
    no order with the old one. While one agent alone touches it, all of it at a time, only its last write and its
    last read since are noted.
    """

    __slots__ = ("_read", "_touches", "_write", "only")

    def __init__(self, touches: Sequence[Touch] = ()) -> None:
        self._write: tuple[Step, Span] | None = None
        self._read: tuple[Step, Span] | None = None
        self._touches = list(touches)
        self.only = _only_agent(self._touches)

    @property
    def touches(self) -> list[Touch]:
        if self._write is not None:
            step, span = self._write
            self._touches = [Touch(step, True, EVERYWHERE, span)]
        if self._read is not None:
            if self._touches and not self._touches[-1].is_write:
                self._touches.pop()
            step, span = self._read
            self._touches.append(Touch(step, False, EVERYWHERE, span))
        self._write = self._read = None
        return self._touches

    def note(self, step: Step, is_write: bool, span: Span) -> None:
        """`only` touches all of it once more: nobody can be overtaken."""
        if is_write:
            self._write, self._read = (step, span), None
        else:
            self._read = (step, span)

    def add(self, touch: Touch, clock: Clock) -> Sequence[Touch]:
        """Those that nothing orders before the new one, and that it conflicts with; `clock` is the new one's."""
        if touch.where is not EVERYWHERE or self.only is not touch.step.agent:
            return self._add_among_others(touch, clock)
        self.note(touch.step, touch.is_write, touch.span)
        return ()

    def _add_among_others(self, touch: Touch, clock: Clock) -> list[Touch]:
        found, kept = [], []
        for old in self.touches:
            is_mine = old.step.agent is touch.step.agent
            if not is_mine and (touch.is_write or old.is_write) and _may_overtake(touch, old, clock):
                found.append(old)
            is_replaced = touch.is_write or (is_mine and not old.is_write)
            if not is_replaced or not touch.where.covers(old.where):
                kept.append(old)
        self._touches = [*kept, touch]
        self.only = _only_agent(self._touches)
        return found


def _only_agent(touches: list[Touch]) -> Agent | None:
    agents = {touch.step.agent for touch in touches}
    return agents.pop() if len(agents) == 1 else None


def _may_overtake(touch: Touch, old: Touch, clock: Clock) -> bool:
    step = old.step
    if clock.counts.get(step.agent.number, 0) >= step.number or not touch.where.meets(old.where):
        return False
    return not clock.knows(step, touch.where.shared_places(old.where))


class _Piece(History):
    __slots__ = ("end",)

    def __init__(self, end: int, touches: Sequence[Touch]) -> None:
        super().__init__(touches)
        self.end = end


class AddressSpace:
    """Pieces that do not overlap, cut wherever somebody touched one part and not the other."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: dict[int, _Piece] = {}

    def note(self, step: Step, is_write: bool, span: Span) -> bool:
        """A touch of all of a piece on all devices: False unless nobody but its agent ever touched that piece."""
        piece = self._pieces.get(span.start)
        if piece is None or piece.only is not step.agent or piece.end != span.end:
            return False
        piece.note(step, is_write, span)
        return True

    def add(self, touch: Touch, clock: Clock) -> Sequence[Touch]:
        """As `History.add`, for all that the touch is about."""
        span = touch.span
        piece = self._pieces.get(span.start)
        if piece is not None and piece.end == span.end:
            return piece.add(touch, clock)
        return self._add_to_pieces(span.start, span.end, touch, clock)

    def _add_to_pieces(self, start: int, end: int, touch: Touch, clock: Clock) -> list[Touch]:
        self._cut(start)
        self._cut(end)
        first, after = bisect_left(self._starts, start), bisect_left(self._starts, end)
        starts = self._starts[first:after]
        found = [old for at in starts for old in self._pieces[at].add(touch, clock)]
        if touch.is_write and touch.where is EVERYWHERE:
            self._starts[first:after] = [start]
            for at in starts:
                del self._pieces[at]
            self._pieces[start] = _Piece(end, [touch])
        else:
            self._fill(start, end, starts, touch)
        return found

    def _cut(self, at: int) -> None:
        """Let no piece lie on both sides of an address."""
        before = bisect_right(self._starts, at) - 1
        if before < 0 or self._starts[before] == at:
            return
        piece = self._pieces[self._starts[before]]
        if piece.end > at:
            self._put(at, _Piece(piece.end, piece.touches))
            piece.end = at

    def _fill(self, start: int, end: int, starts: list[int], touch: Touch) -> None:
        """Between the pieces that were there, nobody touched anything yet."""
        for at in starts:
            if start < at:
                self._put(start, _Piece(at, [touch]))
            start = self._pieces[at].end
        if start < end:
            self._put(start, _Piece(end, [touch]))

    def _put(self, start: int, piece: _Piece) -> None:
        insort(self._starts, start)
        self._pieces[start] = piece


class HostMemory:
    """Only what is being filled is known here: everything else the host alone reads and writes."""

    def __init__(self) -> None:
        self.filling: dict[int, tuple[weakref.ref[TensorMemory], History]] = {}

    def fill(self, storage: TensorMemory, touch: Touch, clock: Clock) -> Sequence[Touch]:
        """A queue writes to it, some time; those that write to it too, in no order."""
        if id(storage) not in self.filling:
            self._remember(storage, History())
        return self.filling[id(storage)][1].add(touch, clock)

    def share(self, storage: TensorMemory, others: Iterable[TensorMemory]) -> None:
        """Others are made of the same memory."""
        if id(storage) in self.filling:
            for other in others:
                self._remember(other, self.filling[id(storage)][1])

    def unfinished(self, storage: TensorMemory, host: Clock) -> list[Touch]:
        """The writes that the host cannot know to be over."""
        known = self.filling.get(id(storage))
        if known is None:
            return []
        unfinished = [touch for touch in known[1].touches if not host.knows(touch.step, None)]
        if not unfinished:
            del self.filling[id(storage)]
        return unfinished

    def _remember(self, storage: TensorMemory, history: History) -> None:
        key, filling = id(storage), self.filling
        filling[key] = (weakref.ref(storage, lambda _: filling.pop(key, None)), history)
