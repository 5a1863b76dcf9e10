"""Redistribution: the communication steps between layouts of a value, and the cheapest sequence of them.

Each step changes the word of one mesh axis:

all_gather         Shard(dim)  -> Replicate
all_reduce         Partial     -> Replicate
reduce_scatter     Partial     -> Shard(dim)
all_to_all         Shard(dim)  -> Shard(to_dim)
partition          Replicate   -> Shard(dim)     nothing travels
contribute         Replicate   -> Partial        nothing travels: the first keeps it, the others hold zeros

Sequences are shortest paths over the steps. Ties go to the fewer steps, then to the step that is named first, so
that a plan is the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from softmesh.cost import link_costs
from softmesh.cost.chip_costs import copy_seconds
from softmesh.cost.launches import launch_seconds
from softmesh.cost.link_costs import Line, LinkCost
from softmesh.cost.op_workloads import MOST_READ
from softmesh.distributed.layouts import SUM, Layout, Value, is_split, with_word
from softmesh.kinds import Kind
from softmesh.placement.placements import REPLICATE, Partial, Shard

GATHER, REDUCE, REDUCE_SCATTER = Kind.ALL_GATHER.value, Kind.ALL_REDUCE.value, Kind.REDUCE_SCATTER.value
PARTITION, EXCHANGE, CONTRIBUTE = Kind.PARTITION.value, Kind.ALL_TO_ALL.value, "contribute"
LOCAL_STEPS = (PARTITION, CONTRIBUTE)
RING = "ring"  # blocks passed on from neighbour to neighbour, in the midst of an op


class Step(NamedTuple):
    kind: str
    axis: int
    dim: int | None  # the dim that is gathered, scattered, partitioned, or given up
    to_dim: int | None
    after: Layout
    cost: LinkCost
    combines: str = "sum"  # how contributions become the value
    launches: int = 1  # ops that it takes

    @property
    def travels(self) -> bool:
        return self.kind not in LOCAL_STEPS

    def __str__(self) -> str:
        return self.named(f"axis {self.axis}")

    def named(self, axis: str) -> str:
        """The step with what its axis is called."""
        dims = "" if self.dim is None else f"dim {self.dim}"
        dims += "" if self.to_dim is None else f" to dim {self.to_dim}"
        how = "" if self.combines == "sum" else self.combines
        return f"{self.kind}({', '.join(filter(None, (how, dims, axis)))})"


def steps_from(layout: Layout, value: Value, lines: tuple[Line, ...]) -> Iterator[Step]:
    """Every step that can be taken from here."""
    here = value.held_on_each(layout)
    for axis, word in enumerate(layout):
        if value.mesh[axis] == 1:
            continue
        if isinstance(word, Shard):
            yield from _from_split(layout, axis, word, here, value, lines[axis])
        elif isinstance(word, Partial):
            yield from _from_contributions(layout, axis, word.op, here, value, lines[axis])
        else:
            yield from _from_copies(layout, axis, here, value, lines[axis])


def _from_split(layout: Layout, axis: int, word: Shard, here: int, value: Value, line: Line) -> Iterator[Step]:
    if any(is_split(later, word.dim) for later in layout[axis + 1 :]):
        return  # not the innermost split of this dim
    gathered = with_word(layout, axis, REPLICATE)
    yield Step(GATHER, axis, word.dim, None, gathered, link_costs.all_gather(line, here, in_l1=value.is_in_l1(layout)))
    if not value.divides(layout, axis, word.dim):
        return
    for dim, after in _even_splits(gathered, axis, value):
        if dim != word.dim:
            cost, launches = _exchanged(layout, gathered, after, dim, value, line)
            yield Step(EXCHANGE, axis, word.dim, dim, after, cost, launches=launches)


def _from_contributions(
    layout: Layout, axis: int, combines: str, here: int, value: Value, line: Line
) -> Iterator[Step]:
    total, in_l1 = with_word(layout, axis, REPLICATE), value.is_in_l1(layout)
    yield Step(REDUCE, axis, None, None, total, link_costs.all_reduce(line, here, in_l1=in_l1), combines)
    if combines == "sum":
        for dim, after in _even_splits(layout, axis, value):
            yield Step(REDUCE_SCATTER, axis, dim, None, after, link_costs.reduce_scatter(line, here, in_l1=in_l1))


def _from_copies(layout: Layout, axis: int, here: int, value: Value, line: Line) -> Iterator[Step]:
    for dim in range(len(value.shape)):
        if value.may_split(layout, axis, dim):
            after = with_word(layout, axis, Shard(dim))
            seconds, launches = _cut(layout, after, dim, value, line)
            yield Step(PARTITION, axis, dim, None, after, LinkCost(seconds, 0), launches=launches)
    if all(word == SUM for word in layout if isinstance(word, Partial)):  # of what is no sum, zeros are no contribution
        zeros = LinkCost(copy_seconds(line.chip, here, in_l1=value.is_in_l1(layout)), 0)
        yield Step(CONTRIBUTE, axis, None, None, with_word(layout, axis, SUM), zeros)


def _cut(whole: Layout, after: Layout, dim: int, value: Value, line: Line) -> tuple[float, int]:
    """Seconds and ops with which each device keeps its part; through the midst of tiles it is done in rows."""
    here, piece, in_l1 = value.held_on_each(whole), value.held_on_each(after), value.is_in_l1(whole)
    seconds = copy_seconds(line.chip, piece, read=min(here, MOST_READ * piece), in_l1=in_l1)
    if not value.cuts_tiles(after, dim):
        return seconds, 1
    return seconds + sum(copy_seconds(line.chip, size, in_l1=in_l1) for size in (here, piece)), 3


def _exchanged(
    layout: Layout, gathered: Layout, after: Layout, dim: int, value: Value, line: Line
) -> tuple[LinkCost, int]:
    here, in_l1 = value.held_on_each(layout), value.is_in_l1(layout)
    if value.can_exchange(layout, after):
        return link_costs.all_to_all(line, here, in_l1=in_l1), 1
    everything = link_costs.all_gather(line, here, in_l1=in_l1)  # and each keeps its part
    seconds, launches = _cut(gathered, after, dim, value, line)
    return everything._replace(seconds=everything.seconds + seconds), 1 + launches


def _even_splits(layout: Layout, axis: int, value: Value) -> Iterator[tuple[int, Layout]]:
    for dim in range(len(value.shape)):
        is_outer = any(is_split(word, dim) for word in layout[axis + 1 :])
        if not is_outer and value.divides(layout, axis, dim):
            yield dim, with_word(layout, axis, Shard(dim))


Edges = Iterable[tuple[Step, Layout]]  # a step, and the layout it leads to (backwards: comes from)


class Way(NamedTuple):
    seconds: float
    steps: tuple[Step, ...]
    launches: int


HERE = Way(0.0, (), 0)


class Routes:
    """Between the layouts of one value on one mesh; nothing travels along `closed` axes."""

    def __init__(self, value: Value, lines: tuple[Line, ...], closed: frozenset[int], is_traced: bool) -> None:
        self._value, self._lines, self._closed = value, lines, closed
        self._launch = launch_seconds(lines[0].chip, is_traced=is_traced) if lines else 0.0
        self._steps: dict[Layout, tuple[Step, ...]] = {}
        self._from: dict[Layout, dict[Layout, Way]] = {}
        self._held: dict[Layout, int] = {}

    def piece_bytes(self, layout: Layout) -> int:
        found = self._held.get(layout)
        if found is None:
            found = self._held[layout] = self._value.held_on_each(layout)
        return found

    def steps(self, layout: Layout) -> tuple[Step, ...]:
        found = self._steps.get(layout)
        if found is None:
            every = steps_from(layout, self._value, self._lines)
            found = tuple(step for step in every if not (step.travels and step.axis in self._closed))
            self._steps[layout] = found
        return found

    def ways_from(self, start: Layout) -> dict[Layout, Way]:
        """To every layout that can be reached."""
        found = self._from.get(start)
        if found is None:
            found = self._from[start] = _shortest(
                [start],
                lambda layout: [(step, step.after) for step in self.steps(layout)],
                lambda known, step: (*known, step),
                self._launch,
            )
        return found

    def ways_to(self, is_goal: Callable[[Layout], bool], starts: Iterable[Layout]) -> dict[Layout, Way]:
        """The cheapest to any of the goals, from each layout that can be met on the way from `starts`."""
        before = self._predecessors(starts)
        return _shortest(
            [layout for layout in before if is_goal(layout)],
            lambda layout: before[layout],
            lambda known, step: (step, *known),
            self._launch,
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
    launch: float,
) -> dict[Layout, Way]:
    """The cheapest ways, with the host's time for launching every step."""
    found: dict[Layout, Way] = {}
    order = count()
    queue: list[tuple[float, int, int, Layout, tuple[Step, ...]]] = [(0.0, 0, next(order), end, ()) for end in ends]
    while queue:
        ranked, length, _, layout, steps = heapq.heappop(queue)
        if layout in found:
            continue
        found[layout] = Way(sum(step.cost.seconds for step in steps), steps, sum(step.launches for step in steps))
        for step, beyond in edges(layout):
            if beyond not in found:
                cost = ranked + step.cost.seconds + step.launches * launch
                further = (cost, length + 1, next(order), beyond, grown(steps, step))
                heapq.heappush(queue, further)
    return found


@lru_cache(maxsize=1024)
def routes(
    value: Value, lines: tuple[Line, ...], closed: frozenset[int] = frozenset(), *, is_traced: bool = False
) -> Routes:
    return Routes(value, lines, closed, is_traced)
