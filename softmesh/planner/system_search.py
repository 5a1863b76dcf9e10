"""The search over a system: each mesh shape that it offers, whole or cut into the stages of a pipeline.

The cheapest plan so far is a limit to all that are looked at after it, so that what is worse is given up early. What a
mesh could do at best is known without a search: every op at its fastest, and nothing sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import Extents
from softmesh.errors import MeshError
from softmesh.planner.goal import Candidate, Goal, Opening, Stage
from softmesh.planner.integer_program import Solution, Status, first_solution, solved
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.op_strategies import StrategyFinder
from softmesh.planner.pipeline_cuts import boundaries, cut, least_seconds, pipeline_seconds
from softmesh.planner.placement_problem import PlacementProblem
from softmesh.planner.problem_setup import Freedom, NoStrategy, problem_of
from softmesh.systems.chip import Chip

_LEAST_SECONDS = 2.0  # that a candidate gets, whatever is left
_MOST_STAGES = 16
_TIGHTER = 3  # attempts to fill stages more evenly


@dataclass(frozen=True)
class MeshChoice:
    """A mesh of this shape for each stage; `opening` has the shape of them all together."""

    opening: Opening | None
    chip: Chip
    lines: tuple[Line, ...]
    stages: int = 1

    @property
    def shape(self) -> Extents:
        return tuple(line.devices for line in self.lines)


@dataclass(frozen=True)
class Found:
    choice: MeshChoice
    problem: PlacementProblem
    solution: Solution
    stages: tuple[Stage, ...]
    seconds: float  # by the goal


@dataclass(frozen=True)
class SearchResult:
    best: Found | None
    bound: float  # of all that may be chosen
    is_out_of_time: bool
    candidates: tuple[Candidate, ...]
    why_none: str = ""


def searched(
    graph: OpGraph,
    choices: Sequence[MeshChoice],
    goal: Goal,
    freedom: Freedom,
    *,
    time_limit: float,
    gap: float,
) -> SearchResult:
    return _Search(graph, goal, freedom, time.monotonic() + time_limit, gap).over(choices)


def with_pipelines(choice: MeshChoice) -> Iterator[MeshChoice]:
    """The mesh as one, and cut along its axes into equal stages. A part of a ring is a line."""
    shapes = {choice.shape}
    for axis, n in enumerate(choice.shape):
        for shape in list(shapes):
            shapes |= {(*shape[:axis], n // k, *shape[axis + 1 :]) for k in range(2, n + 1) if n % k == 0}
    whole = math.prod(choice.shape)
    for shape in sorted(shapes, key=lambda one: (-math.prod(one), one)):
        lines = tuple(
            line if n == line.devices else line._replace(devices=n, is_ring=False)
            for n, line in zip(shape, choice.lines, strict=True)
        )
        if whole // math.prod(shape) <= _MOST_STAGES:
            yield replace(choice, lines=lines, stages=whole // math.prod(shape))


def _without_twins(choices: Sequence[MeshChoice]) -> list[MeshChoice]:
    """Without those whose axes are joined as those of another, in whatever order."""
    kinds: dict[tuple[object, ...], MeshChoice] = {}
    for choice in choices:
        joined = sorted((line.devices, line.links if line.devices > 1 else 0, line.is_ring) for line in choice.lines)
        kinds.setdefault((choice.stages, *joined), choice)
    return list(kinds.values())


def _share(waiting: int) -> float:
    """Of the time that is left, what the first of them gets: as much as three others."""
    return 3 / (waiting + 2)


@dataclass
class _Look:
    """What is known of a mesh: nothing at first but how fast it could be."""

    choice: MeshChoice
    problem: PlacementProblem | None
    bound: float
    seconds: float | None = None
    why: str = ""
    is_open: bool = True  # whether a longer search could tell more
    first: Solution | None = None  # what is found without a search


class _Search:
    def __init__(self, graph: OpGraph, goal: Goal, freedom: Freedom, deadline: float, gap: float) -> None:
        self._graph, self._goal, self._freedom = graph, goal, freedom
        self._deadline, self._gap = deadline, gap
        self._finders: dict[tuple[Line, ...], StrategyFinder] = {}
        self._best: Found | None = None
        self._why = ""

    def over(self, choices: Sequence[MeshChoice]) -> SearchResult:
        looks = self._set_up(choices)
        whole = [look for look in looks if look.is_open and look.choice.stages == 1]
        if len(whole) > 1:
            self._look_before(whole)
            looks.sort(key=lambda look: (look.choice.stages, look.seconds or math.inf, look.bound))
        first = [look for look in looks if look.is_open]
        for at, look in enumerate(first):
            share = self._left * _share(len(first) - at)
            self._look_at(look, max(_LEAST_SECONDS, share))
        again = sorted((look for look in first if look.is_open), key=lambda look: look.bound)
        for at, look in enumerate(again):  # with the time that others have left
            if self._left > _LEAST_SECONDS:
                self._look_at(look, self._left / (len(again) - at))
        return self._result(looks)

    def _look_before(self, looks: Sequence[_Look]) -> None:
        """A plan for each that is found without a search: the mesh for which it is fastest is searched first."""
        for look in looks:
            assert look.problem is not None
            look.first = first_solution(look.problem)
            found = self._found(look.choice, look.problem, look.first)
            if found is not None:
                self._take(look, found)

    def _take(self, look: _Look, found: Found) -> None:
        look.seconds = found.seconds if look.seconds is None else min(found.seconds, look.seconds)
        look.why = "it takes longer"
        if self._best is None or found.seconds < self._best.seconds:
            self._best = found

    @property
    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _result(self, looks: Sequence[_Look]) -> SearchResult:
        best = self._best
        found = [self._candidate(look) for look in looks]
        found.sort(key=lambda one: (one.why != "", one.seconds or math.inf, one.bound))
        bound = min((one.bound for one in found), default=math.inf)
        is_out_of_time = any(look.is_open and (best is None or look.bound < best.seconds) for look in looks)
        return SearchResult(best, bound, is_out_of_time, tuple(found), self._why)

    def _candidate(self, look: _Look) -> Candidate:
        is_best = self._best is not None and self._best.choice == look.choice
        why = "" if is_best else look.why or "it takes longer"
        return Candidate(look.choice.shape, look.choice.stages, look.seconds, look.bound, why)

    def _set_up(self, choices: Sequence[MeshChoice]) -> list[_Look]:
        """Whole meshes first; of those for as many stages only the one that could be fastest is open."""
        looks = [look for choice in _without_twins(choices) if (look := self._at_first(choice)) is not None]
        looks.sort(key=lambda look: (look.choice.stages, look.bound))
        numbers = set()
        for look in looks:
            if look.choice.stages > 1 and look.choice.stages in numbers:
                look.is_open, look.why = False, "not looked at: another mesh for as many stages may be faster"
            elif look.is_open:
                numbers.add(look.choice.stages)
        return looks

    def _at_first(self, choice: MeshChoice) -> _Look | None:
        try:
            problem = self._problem(choice)
        except NoStrategy as error:
            self._why = self._why or str(error)
            return _Look(choice, None, math.inf, why=str(error).removeprefix("softmesh.plan: "), is_open=False)
        if choice.stages > 1 and len(boundaries(problem)) + 1 < choice.stages:
            return None
        least = sum(min(one.total_seconds for one in own) for own in problem.strategies)
        return _Look(choice, problem, least_seconds(self._goal, least, choice.stages))

    def _problem(self, choice: MeshChoice) -> PlacementProblem:
        finder = self._finders.get(choice.lines)
        if finder is None:
            finder = self._finders[choice.lines] = StrategyFinder(choice.shape, choice.chip, choice.lines)
        return problem_of(
            self._graph, choice.shape, choice.lines, choice.chip, self._freedom, finder, stages=choice.stages
        )

    def _look_at(self, look: _Look, share: float) -> None:
        if self._best is not None and look.bound >= self._best.seconds:
            look.is_open, look.why = False, "at its fastest it takes longer"
            return
        if self._best is not None and self._left <= 0:
            look.why = "not looked at: the time was over"
            return
        limit, until = self._limit(look.choice), time.monotonic() + share
        solution, found, bound = self._solved(look, limit, until)
        look.bound = max(look.bound, bound)
        look.is_open = solution.status is Status.TIME_LIMIT
        if found is None:
            look.why = self._why_not(solution, limit)
            return
        self._take(look, found)

    def _solved(self, look: _Look, limit: float, until: float) -> tuple[Solution, Found | None, float]:
        problem, bound = look.problem, math.inf
        assert problem is not None
        for _ in range(_TIGHTER if look.choice.stages > 1 else 1):
            left = max(until - time.monotonic(), 1.0)
            solution = solved(problem, left, self._gap, limit, None if look.first is None else look.first.priced)
            found = self._found(look.choice, problem, solution)
            bound = min(bound, least_seconds(self._goal, solution.bound, look.choice.stages))
            if found is not None or solution.assignment is None:
                break
            problem = replace(problem, kept_share=problem.kept_share * 1.15)  # some stage is fuller than the others
        return solution, found, bound

    def _limit(self, choice: MeshChoice) -> float:
        """Above which a placement on one stage is of no use."""
        if self._best is None:
            return math.inf
        cost = self._best.solution.cost
        launches = 0.0 if cost is None else cost.ranked_seconds - cost.seconds
        return (self._best.seconds + launches) / least_seconds(self._goal, 1.0, choice.stages)

    def _found(self, choice: MeshChoice, problem: PlacementProblem, solution: Solution) -> Found | None:
        if solution.assignment is None or solution.cost is None:
            return None
        if choice.stages == 1:
            return Found(choice, problem, solution, (), solution.cost.seconds)
        stages = cut(problem, solution.assignment, solution.cost, choice.stages)
        if stages is None:
            return None
        return Found(choice, problem, solution, stages, pipeline_seconds(self._goal, stages))

    def _why_not(self, solution: Solution, limit: float) -> str:
        if solution.assignment is not None:
            return "no cut into stages fits the memory"
        if solution.status is Status.TIME_LIMIT:
            return "nothing was found in time"
        return "nothing fits the memory" if limit == math.inf else "nothing that fits is faster"


def check_found(result: SearchResult) -> Found:
    if result.best is None:
        why = (
            "no plan was found in time: give it more"
            if result.is_out_of_time
            else "nothing fits the memory of these devices: take more of them, or a smaller dtype"
        )
        raise MeshError(result.why_none or f"softmesh.plan: {why}.")
    return result.best
