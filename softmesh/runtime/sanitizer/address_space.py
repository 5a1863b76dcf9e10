"""The histories of a memory by address.

Memory that is freed and given to something else keeps its history: who may still be using it does not know.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from softmesh.runtime.memory.span import Span
from softmesh.runtime.sanitizer.clock import Clock, Step
from softmesh.runtime.sanitizer.history import EVERYWHERE, History, Touch


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
