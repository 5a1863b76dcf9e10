"""The best plan for a number of stages: where the graph is cut, and how it lies on the mesh that every stage has.

What each piece between two possible cuts takes at least is known from the relaxed program, and so is what the slowest
stage of any cut takes at least. The cuts that could be better than the best plan so far are then solved one after the
other, each for the pace of its slowest stage and with the memory of every stage.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import NamedTuple

from softmesh.cost.link_costs import all_gather
from softmesh.planner.first_assignment import first_assignment
from softmesh.planner.goal import Goal, Stage
from softmesh.planner.integer_program import Limits, PlacementSearch, minimum
from softmesh.planner.least_cuts import LeastCuts
from softmesh.planner.linear_model import INFINITE, Costs
from softmesh.planner.pipeline_cuts import (
    Cuts,
    Places,
    boundaries,
    crossing,
    least_seconds,
    ranked_pipeline_seconds,
    send_line,
)
from softmesh.planner.placement_problem import Assignment, PlacementProblem, PlanCost
from softmesh.planner.placement_program import MEGA, MICRO, Work

_MOST_CUTS = 4000  # that are looked at
_SIZES = [1 << power for power in range(10, 33)]  # bytes that may be sent
_SURELY = 0.98  # of what a byte takes between those sizes


class Staged(NamedTuple):
    assignment: Assignment
    cost: PlanCost
    stages: tuple[Stage, ...]
    ranked_seconds: float  # by the goal


class _Send(NamedTuple):
    """What is sent from one stage to the next: at least, and for a byte of each of these values."""

    least: float
    for_byte: float
    values: tuple[int, ...]


class PipelineSearch:
    def __init__(self, search: PlacementSearch, goal: Goal, count: int) -> None:
        self._search, self._goal, self._count = search, goal, count
        self._problem: PlacementProblem = search.problem
        self.starts = (0, *boundaries(self._problem), len(self._problem.graph.nodes))
        self.best: Staged | None = None
        self.bound = 0.0
        self._solved: list[list[Counter[Hashable]]] = []  # the stages of cuts

    @property
    def pieces(self) -> int:
        """That are not cut."""
        return len(self.starts) - 1

    def look(self, limits: Limits) -> None:
        """A bound without the memory of stages, and a plan if one fits that is found without a search."""
        self._search.cut_into(())
        seconds, assignment = self._search.least(self._search.costs, limits)
        seconds += (self._count - 1) * min((send.least for send in self._sends), default=0.0)
        self.bound = max(self.bound, least_seconds(self._goal, seconds, self._count))
        for found in (assignment, self._found_op_by_op()):
            if found is not None:
                self.take(found)

    def close(self, limits: Limits) -> bool:
        """Solves the cuts that could be better than the best plan. Whether there was time for all of them."""
        if self._is_near_enough(limits):
            return True
        cuts = self._least_cuts(limits)
        self.bound = max(self.bound, cuts.slowest(self._count))
        least = math.inf
        for number, places in enumerate(cuts.cuts(self._count, lambda: self._enough(limits))):
            if self._is_near_enough(limits):
                return True
            if limits.left <= 0 or number >= _MOST_CUTS:
                return False
            kinds = [self._kind(a, b) for a, b in pairwise(places)]
            if any(self._is_no_better(kinds, than) for than in self._solved):
                continue
            bound, is_out_of_time = self._solve(places, limits)
            if is_out_of_time:
                return False
            self._solved.append(kinds)
            least = min(least, bound)
        self.bound = max(self.bound, min(least, self._enough(limits)))
        return True

    def take(self, assignment: Assignment) -> float:
        """Cut as is best for it, and kept where nothing better is known."""
        cost = self._problem.cost(assignment)
        cuts = Cuts(self._problem, assignment, cost)
        places = None if cost.broken else cuts.best(self._count, self._goal)
        return math.inf if places is None else self.keep(cuts, places)

    def keep(self, cuts: Cuts, places: Places) -> float:
        stages = cuts.stages(places)
        seconds = ranked_pipeline_seconds(self._goal, stages)
        if self.best is None or seconds < self.best.ranked_seconds:
            self.best = Staged(cuts.assignment, cuts.cost, stages, seconds)
        return seconds

    def _found_op_by_op(self) -> Assignment | None:
        found = first_assignment(self._problem, self._search.program.classes)
        return None if found is None else found[0]

    def _enough(self, limits: Limits) -> float:
        """A cut that takes as long need not be solved."""
        best = math.inf if self.best is None else self.best.ranked_seconds
        return min(best, limits.below) * (1 - limits.gap)

    def _is_near_enough(self, limits: Limits) -> bool:
        return self.bound >= self._enough(limits)

    # -- what stages take at least ---------------------------------------------------------------

    @cached_property
    def _sends(self) -> list[_Send]:
        """Before each piece but the first."""
        line, graph = send_line(self._problem), self._problem.graph
        nothing = all_gather(line, 0).seconds
        for_byte = min((all_gather(line, size).seconds - nothing) / size for size in _SIZES) * _SURELY
        known = self._problem.last_uses
        return [_Send(nothing, for_byte, tuple(crossing(graph, known, node))) for node in self.starts[1:-1]]

    def _least_cuts(self, limits: Limits) -> LeastCuts:
        """By the relaxed program without memory; nothing is known of what there is no time for."""
        works = [self._search.program.work(a, b, own_only=True) for a, b in pairwise(self.starts)]
        known: dict[Work, float] = {}
        if self._goal is not Goal.DECODE:
            self._search.cut_into(())
            for work in works:
                if work not in known and limits.left > 0:
                    known[work] = self._search.least(self._search.program.costs(work), limits)[0]
        send = min((send.least for send in self._sends), default=0.0)
        seconds = [known.get(work, 0.0) for work in works]
        kinds = [frozenset(self._kind(at, at + 1).items()) for at in range(self.pieces)]
        return LeastCuts(seconds, send, self._least_kept(), self._problem.memory_bytes, kinds)

    def _least_kept(self) -> list[int]:
        """Bytes of the leaves that each piece alone reads, split as far as they may be."""
        problem, found = self._problem, [0] * self.pieces
        for leaf in problem.graph.leaves:
            held = (problem.held_bytes(leaf.number, home.dtype, home.layout) for home in problem.homes[leaf.number])
            pieces = {self._piece(node) for node in self._readers.get(leaf.number, ())}
            if len(pieces) == 1:
                found[pieces.pop()] += min(held)
        return found

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        graph = self._problem.graph
        found: dict[int, list[int]] = {}
        for node in graph.nodes:
            for value in node.operands:
                found.setdefault(graph.root(value), []).append(node.number)
        return found

    # -- one cut ---------------------------------------------------------------------------------

    def _solve(self, places: Places, limits: Limits) -> tuple[float, bool]:
        """The least that a plan takes that is cut so, and whether the time was over."""
        spans = [(self.starts[a], self.starts[b]) for a, b in pairwise(places)]
        self._search.cut_into(spans)
        model, stages = self._search.program.model, self._stages_of(places)
        pace = model.continuous(INFINITE)
        for terms, least in [_sum_of(stages)] if self._goal is Goal.DECODE else stages:
            model.add_row(least, INFINITE, [(pace, 1.0), *((variable, -cost) for variable, cost in terms.items())])
        below = limits._replace(below=min(limits.below, math.inf if self.best is None else self.best.ranked_seconds))
        return minimum(self._search.program, {pace: 1.0}, below, _OfCut(self, self._search, places))

    def _stages_of(self, places: Places) -> list[tuple[Costs, float]]:
        """What each kind of stage costs, and what it costs in any case, in microseconds."""
        program, found = self._search.program, {}
        for a, b in pairwise(places):
            kind = frozenset(self._kind(a, b).items())
            if kind in found and self._goal is not Goal.DECODE:
                continue
            terms, least = program.costs(program.work(self.starts[a], self.starts[b])), 0.0
            if b < self.pieces:
                least = self._add_send(self._sends[b - 1], terms)
            found[kind if self._goal is not Goal.DECODE else (a, b)] = terms, least
        return list(found.values())

    def _add_send(self, send: _Send, terms: Costs) -> float:
        """To what a stage costs; and what of it there is in any case. What it takes for one value is exact."""
        line, is_one = send_line(self._problem), len(send.values) == 1
        for value in send.values:
            for variable, size in self._search.program.held(value):
                seconds = all_gather(line, round(size * MEGA)).seconds if is_one else size * MEGA * send.for_byte
                terms[variable] = terms.get(variable, 0.0) + seconds * MICRO
        return 0.0 if is_one else send.least * MICRO

    @cached_property
    def _kind(self) -> Callable[[int, int], Counter[Hashable]]:
        return cache(self._kind_of)

    def _kind_of(self, first: int, end: int) -> Counter[Hashable]:
        """What a stage does and holds, which may be more or less than another."""
        program = self._search.program
        work = program.work(self.starts[first], self.starts[end])
        found: Counter[Hashable] = Counter(dict([*work.nodes, *work.moves]))
        for value in self._sends[end - 1].values if end < self.pieces else ():
            found["send", program.value_class[value]] += 1
        for value, pieces in self._long_lived.items():
            if pieces[0] < end and first <= pieces[-1] and not any(first <= at < end for at in pieces[1:-1]):
                found["held", program.value_class[value]] += 1
        return found

    @cached_property
    def _long_lived(self) -> dict[int, tuple[int, ...]]:
        """Values that live in several pieces: in which one first, in which they are read, and in which one last."""
        found = {}
        for value, (first, last) in self._search.memory.lives.items():
            begin, end = self._piece(first), self._piece(min(last, self.starts[-1] - 1))
            if begin < end:
                readers = (self._piece(node) for node, _ in self._search.program.uses[value])
                found[value] = begin, *sorted(set(readers)), end
        return found

    def _piece(self, node: int) -> int:
        return bisect_right(self.starts, node) - 1

    def _is_no_better(self, kinds: Sequence[Counter[Hashable]], than: Sequence[Counter[Hashable]]) -> bool:
        """Whether each stage of a cut that is solved is less than one of these, or the same."""
        if self._goal is Goal.DECODE:
            return sorted(map(_told, kinds)) == sorted(map(_told, than))
        return all(any(one <= other for other in kinds) for one in than)


class _OfCut:
    """Judges assignments by the stages of one cut."""

    def __init__(self, pipeline: PipelineSearch, search: PlacementSearch, places: Places) -> None:
        self._pipeline, self._search, self._places = pipeline, search, places

    def __call__(self, assignment: Assignment) -> tuple[float, bool]:
        problem = self._search.problem
        cost = problem.cost(assignment)
        if cost.broken:
            return math.inf, False
        cuts, is_new, is_over = Cuts(problem, assignment, cost), False, False
        for a, b in pairwise(self._places):
            over = cuts.over(a, b)
            is_over = is_over or bool(over)
            if over and self._search.add_worst(over, (cuts.starts[a], cuts.starts[b])):
                is_new = True
        if not is_over:
            return self._pipeline.keep(cuts, self._places), False
        self._pipeline.take(assignment)
        return math.inf, is_new

    def known(self) -> float:
        best = self._pipeline.best
        return math.inf if best is None else best.ranked_seconds


def _sum_of(stages: Sequence[tuple[Costs, float]]) -> tuple[Costs, float]:
    found: Costs = {}
    for terms, _ in stages:
        for variable, cost in terms.items():
            found[variable] = found.get(variable, 0.0) + cost
    return found, sum(least for _, least in stages)


def _told(kind: Counter[Hashable]) -> list[str]:
    return sorted(map(str, kind.items()))
