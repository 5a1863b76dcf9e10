"""Solves placement problems by HiGHS: the best assignment, and a bound on how far it may be from the optimum.

At first the program is relaxed: choices may be fractions, and there is no limit to memory. Mostly the answer is whole
and fits; if not, the memory of the nodes at which it does not fit is added, and then branch and bound decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple, Protocol

from softmesh.planner.first_assignment import Priced, first_assignment
from softmesh.planner.linear_model import Costs
from softmesh.planner.memory_rows import MemoryRows, Span
from softmesh.planner.placement_problem import Assignment, PlacementProblem, PlanCost
from softmesh.planner.placement_program import MICRO, PlacementProgram
from softmesh.planner.repeated_layers import NodeClasses, classes_of, untied

_FEW_NODES = 16  # graphs up to this size have no layers to be tied


class Status(Enum):
    OPTIMAL = "optimal"  # within the gap that was asked for
    TIME_LIMIT = "time limit"  # the best so far
    INFEASIBLE = "infeasible"  # nothing fits


@dataclass(frozen=True)
class Solution:
    assignment: Assignment | None
    cost: PlanCost | None
    bound: float  # seconds: no assignment with equal layers alike takes less
    status: Status
    seconds: float  # that the search took

    @property
    def gap(self) -> float:
        """How much of its time the plan may be above the optimum."""
        if self.cost is None or self.cost.ranked_seconds == 0:
            return math.inf if self.cost is None else 0.0
        return max(0.0, 1 - self.bound / self.cost.ranked_seconds)


def solved(
    problem: PlacementProblem, time_limit_s: float = 60.0, gap: float = 1e-4, below: float = math.inf
) -> Solution:
    """The best assignment that is found in time; one of `below` seconds or more is of no use."""
    return PlacementSearch(problem).solved(time.monotonic() + time_limit_s, gap, below)


def classes_in(problem: PlacementProblem) -> NodeClasses:
    """What is decided once: equal layers, in graphs that can have some."""
    return untied(problem) if len(problem.graph.nodes) <= _FEW_NODES else classes_of(problem)


def least_kept(problem: PlacementProblem) -> float:
    """Bytes on each device of leaves that are split as far as they may be."""
    held = problem.held_bytes
    sizes = (
        min(held(leaf.number, home.dtype, home.layout) for home in problem.homes[leaf.number])
        for leaf in problem.graph.leaves
    )
    return sum(sizes) * problem.kept_share


class Limits(NamedTuple):
    until: float  # by time.monotonic()
    gap: float = 1e-4  # how near to the optimum is near enough
    below: float = math.inf  # seconds; a plan of as many is of no use

    @property
    def left(self) -> float:
        return self.until - time.monotonic()


class Judge(Protocol):
    """What an assignment is worth."""

    def __call__(self, assignment: Assignment) -> tuple[float, bool]:
        """Its seconds, infinite where it does not fit; and whether rows were added that forbid it."""

    def known(self) -> float:
        """The seconds of one that is found without a search."""


def minimum(program: PlacementProgram, costs: Costs, limits: Limits, judge: Judge) -> tuple[float, bool]:
    """A bound in seconds, and whether the time was over before it was near enough."""
    bound, best = 0.0, limits.below
    while limits.left > 0:
        answer = program.model.relaxed(limits.left, costs)
        if answer.is_out_of_time:
            break
        bound = max(bound, answer.bound / MICRO)
        if bound >= best * (1 - limits.gap):
            return bound, False
        if answer.values is not None:
            seconds, is_new = judge(program.assignment(answer.values))
            best = min(best, seconds)
            if bound >= best * (1 - limits.gap) or (answer.is_whole and not is_new):
                return bound, False
            if is_new:
                continue
        best = min(best, judge.known() if best == math.inf else math.inf)
        answer = program.model.minimised(limits.left, limits.gap, best * MICRO, costs)
        bound = max(bound, min(answer.bound / MICRO, best))
        seconds, is_new = (math.inf, False) if answer.values is None else judge(program.assignment(answer.values))
        best = min(best, seconds)
        if answer.is_out_of_time or not is_new:
            return bound, answer.is_out_of_time
    return bound, True


class PlacementSearch:
    """Its program is kept: what was solved once is soon solved again, with other nodes, or without some choices."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.program = PlacementProgram(problem, classes_in(problem))
        self.memory = MemoryRows(self.program)
        self.whole: Span = (0, len(problem.graph.nodes))
        self._forbidden: list[int] = []
        self._stages: tuple[Span, ...] = (self.whole,)

    def forbid(self, homes: Iterable[tuple[int, int]]) -> None:
        """From now on these values do not lie in these homes, which are numbers; and no others are forbidden."""
        self._forbidden = [self.program.home_variables(value)[at] for value, at in homes]
        self._close()

    def cut_into(self, stages: Iterable[Span]) -> None:
        """From now on the nodes of each stage have devices of their own; of none, and memory is not limited."""
        self._stages = tuple(stages)
        self._close()

    def _close(self) -> None:
        self.program.model.close([*self._forbidden, *self.memory.slack(self._stages)])

    @cached_property
    def costs(self) -> Costs:
        """Of all nodes."""
        return self.program.costs(self.program.work(*self.whole))

    def least(self, costs: Costs, limits: Limits) -> tuple[float, Assignment | None]:
        """A bound in seconds, and the assignment that is nearest to what costs so much: it need not fit."""
        answer = self.program.model.relaxed(limits.left, costs)
        values = answer.values
        return answer.bound / MICRO, None if values is None else self.program.assignment(values)

    def solved(self, until: float, gap: float = 1e-4, below: float = math.inf) -> Solution:
        """The best that is found by then, by `time.monotonic()`."""
        started = time.monotonic()
        if least_kept(self.problem) > self.problem.memory_bytes:
            return Solution(None, None, math.inf, Status.INFEASIBLE, time.monotonic() - started)
        judge = _WholeGraph(self, below)
        bound, is_out_of_time = minimum(self.program, self.costs, Limits(until, gap, below), judge)
        if judge.best is None and is_out_of_time:
            judge.known()
        status = Status.TIME_LIMIT if is_out_of_time else Status.OPTIMAL if judge.best else Status.INFEASIBLE
        assignment, cost = judge.best or (None, None)
        return Solution(assignment, cost, bound, status, time.monotonic() - started)

    def add_worst(self, over: Sequence[tuple[int, int]], span: Span) -> bool:
        """Of bytes and nodes, the worst node of each class."""
        worst: dict[int, int] = {}
        for _, node in sorted(over):
            worst[self.program.classes.nodes[node]] = node
        new = [node for node in worst.values() if self.memory.add(node, span)]
        self._close()
        return bool(new)


class _WholeGraph:
    """Judges assignments by all nodes, on one mesh."""

    def __init__(self, search: PlacementSearch, below: float) -> None:
        self._search, self._below = search, below
        self.best: Priced | None = None

    def __call__(self, assignment: Assignment) -> tuple[float, bool]:
        problem = self._search.problem
        cost = problem.cost(assignment)
        if cost.fits:
            return self._take((assignment, cost)), False
        over = [(size, node) for node, size in enumerate(cost.memory) if size > problem.memory_bytes]
        return math.inf, self._search.add_worst(over, self._search.whole)

    def known(self) -> float:
        found = first_assignment(self._search.problem, self._search.program.classes)
        return math.inf if found is None else self._take(found)

    def _take(self, found: Priced) -> float:
        seconds = found[1].ranked_seconds
        if seconds < self._below and (self.best is None or seconds < self.best[1].ranked_seconds):
            self.best = found
        return seconds
