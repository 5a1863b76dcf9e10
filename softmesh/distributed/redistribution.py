"""The cheapest ways between the layouts of a value: shortest paths over the steps.

Ties go to the fewer steps, then to the step that is named first, so that a plan is the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from softmesh.distributed.layouts import Extents, Layout, Value
from softmesh.distributed.steps import Step, steps_from
from softmesh.perf.link_costs import Line

Edges = Iterable[tuple[Step, Layout]]  # a step, and the layout it leads to (backwards: comes from)


class Way(NamedTuple):
    seconds: float
    steps: tuple[Step, ...]


HERE = Way(0.0, ())


class Routes:
    """Between the layouts of one value on one mesh."""

    def __init__(self, value: Value, lines: tuple[Line, ...]) -> None:
        self._value, self._lines = value, lines
        self._steps: dict[Layout, tuple[Step, ...]] = {}
        self._from: dict[Layout, dict[Layout, Way]] = {}
        self._held: dict[Layout, tuple[Extents, int]] = {}

    def held(self, layout: Layout) -> tuple[Extents, int]:
        """What a device has of it: the shape of its piece, and the bytes."""
        found = self._held.get(layout)
        if found is None:
            value = self._value
            found = self._held[layout] = (value.local_shape(layout), value.bytes_on_each(layout))
        return found

    def steps(self, layout: Layout) -> tuple[Step, ...]:
        found = self._steps.get(layout)
        if found is None:
            found = self._steps[layout] = tuple(steps_from(layout, self._value, self._lines))
        return found

    def ways_from(self, start: Layout) -> dict[Layout, Way]:
        """To every layout that can be reached."""
        found = self._from.get(start)
        if found is None:
            found = self._from[start] = _shortest(
                [start],
                lambda layout: [(step, step.after) for step in self.steps(layout)],
                lambda known, step: (*known, step),
            )
        return found

    def ways_to(self, is_goal: Callable[[Layout], bool], starts: Iterable[Layout]) -> dict[Layout, Way]:
        """The cheapest to any of the goals, from each layout that can be met on the way from `starts`."""
        before = self._predecessors(starts)
        return _shortest(
            [layout for layout in before if is_goal(layout)],
            lambda layout: before[layout],
            lambda known, step: (step, *known),
        )

    def _predecessors(self, starts: Iterable[Layout]) -> dict[Layout, list[tuple[Step, Layout]]]:
        """For each layout that can be reached, the steps that lead there and where they begin."""
        before: dict[Layout, list[tuple[Step, Layout]]] = {}
        waiting = list(dict.fromkeys(starts))
        for start in waiting:
            before.setdefault(start, [])
        while waiting:
            layout = waiting.pop()
            for step in self.steps(layout):
                if step.after not in before:
                    before[step.after] = []
                    waiting.append(step.after)
                before[step.after].append((step, layout))
        return before


def _shortest(
    ends: list[Layout],
    edges: Callable[[Layout], Edges],
    grown: Callable[[tuple[Step, ...], Step], tuple[Step, ...]],
) -> dict[Layout, Way]:
    found: dict[Layout, Way] = {}
    order = count()
    queue: list[tuple[float, int, int, Layout, tuple[Step, ...]]] = [
        (0.0, 0, next(order), end, ()) for end in ends
    ]
    while queue:
        seconds, length, _, layout, steps = heapq.heappop(queue)
        if layout in found:
            continue
        found[layout] = Way(seconds, steps)
        for step, beyond in edges(layout):
            if beyond not in found:
                further = (seconds + step.cost.seconds, length + 1, next(order), beyond, grown(steps, step))
                heapq.heappush(queue, further)
    return found


@lru_cache(maxsize=1024)
def routes(value: Value, lines: tuple[Line, ...]) -> Routes:
    return Routes(value, lines)
