"""Cuts into stages, by what each piece takes and keeps at least: those that could be of use, the best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

from softmesh.planner.pipeline_cuts import Places


@dataclass(frozen=True)
class LeastCuts:
    seconds: Sequence[float]  # of each piece
    send: float  # to the next stage
    kept: Sequence[int]  # bytes of leaves that no other piece reads
    room: int
    kinds: Sequence[Hashable]  # pieces of a kind are alike

    def slowest(self, count: int) -> float:
        """Of any cut into so many stages."""
        return self._rest(0, count)

    def cuts(self, count: int, enough: Callable[[], float]) -> Iterator[Places]:
        """Those whose slowest stage may take less than `enough`; of cuts that differ in the order of stages, one."""
        yield from self._further((0,), count, enough)

    def _further(self, places: Places, count: int, enough: Callable[[], float]) -> Iterator[Places]:
        first = places[-1]
        if count == 0:
            yield places
            return
        ends = [(self._through(first, end, count), end) for end in self._ends(first, count)]
        for seconds, end in sorted(ends):
            if seconds < enough() and not self._is_out_of_order(places, end):
                yield from self._further((*places, end), count - 1, enough)

    def _is_out_of_order(self, places: Places, end: int) -> bool:
        """Whether this stage and the one before it could change places, and are not in the order that is taken."""
        if len(places) < 2 or end - places[-1] <= places[-1] - places[-2]:
            return False
        return len(set(self.kinds[places[-2] : end])) == 1 and end < len(self.kinds) and places[-2] > 0

    def _ends(self, first: int, count: int) -> Sequence[int]:
        pieces = len(self.seconds)
        return range(first + 1, pieces - count + 2) if count > 1 else (pieces,)

    def _through(self, first: int, end: int, count: int) -> float:
        """The slowest of a stage and of the others behind it."""
        kept = self._kept_before[end] - self._kept_before[first]
        if kept > self.room:
            return math.inf
        own = self._seconds_before[end] - self._seconds_before[first] + (self.send if count > 1 else 0.0)
        return max(own, self._rest(end, count - 1)) if count > 1 else own

    @cached_property
    def _rest(self) -> Callable[[int, int], float]:
        return cache(self._slowest_from)

    def _slowest_from(self, first: int, count: int) -> float:
        return min((self._through(first, end, count) for end in self._ends(first, count)), default=math.inf)

    @cached_property
    def _seconds_before(self) -> list[float]:
        return list(accumulate(self.seconds, initial=0.0))

    @cached_property
    def _kept_before(self) -> list[int]:
        return list(accumulate(self.kept, initial=0))
