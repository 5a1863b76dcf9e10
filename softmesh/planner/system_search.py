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
from softmesh.planner.integer_program import Solution, Status, solved
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
    bound: float


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


def _share(waiting: Sequence[MeshChoice]) -> float:
    """Of the time that is left, what the first gets: a whole mesh as much as three pipelines."""
    weights = [3 if choice.stages == 1 else 1 for choice in waiting]
    return weights[0] / sum(weights)


class _Search:
    def __init__(self, graph: OpGraph, goal: Goal, freedom: Freedom, deadline: float, gap: float) -> None:
        self._graph, self._goal, self._freedom = graph, goal, freedom
        self._deadline, self._gap = deadline, gap
        self._finders: dict[tuple[Line, ...], StrategyFinder] = {}
        self._best: Found | None = None
        self._candidates: list[Candidate] = []
        self._bounds: list[float] = []
        self._is_out_of_time = False
        self._why = ""

    def over(self, choices: Sequence[MeshChoice]) -> SearchResult:
        waiting = self._set_up(choices)
        for at, (choice, problem, least) in enumerate(waiting):
            share = max(_LEAST_SECONDS, (self._deadline - time.monotonic()) * _share([w[0] for w in waiting[at:]]))
            if self._best is not None and least >= self._best.seconds:
                self._note(choice, None, least, "at its fastest it takes longer")
            elif self._best is not None and time.monotonic() >= self._deadline:
                self._is_out_of_time = True
                self._note(choice, None, least, "not looked at: the time was over")
            else:
                self._look_at(choice, problem, least, share)
        candidates = sorted(self._candidates, key=lambda one: (one.why != "", one.seconds or math.inf, one.bound))
        bound = min(self._bounds, default=math.inf)
        if self._best is not None:
            bound = min(bound, self._best.bound)
        return SearchResult(self._best, bound, self._is_out_of_time, tuple(candidates), self._why)

    def _set_up(self, choices: Sequence[MeshChoice]) -> list[tuple[MeshChoice, PlacementProblem, float]]:
        found = []
        for choice in _without_twins(choices):
            try:
                problem = self._problem(choice)
            except NoStrategy as error:
                self._why = self._why or str(error)
                self._note(choice, None, math.inf, str(error).removeprefix("softmesh.plan: "))
                continue
            if choice.stages > 1 and len(boundaries(problem)) + 1 < choice.stages:
                continue
            least = sum(min(one.total_seconds for one in own) for own in problem.strategies)
            found.append((choice, problem, least_seconds(self._goal, least, choice.stages)))
        found.sort(key=lambda one: (one[0].stages, one[2]))
        fastest: dict[int, float] = {}
        for choice, _, least in found:
            if choice.stages > 1 and choice.stages in fastest:
                self._note(choice, None, least, "not looked at: another mesh for as many stages may be faster")
            fastest.setdefault(choice.stages, least)
        kinds = dict.fromkeys(choice.stages for choice, _, _ in found)
        return [
            one for stages in kinds for one in [w for w in found if w[0].stages == stages][: None if stages == 1 else 1]
        ]

    def _problem(self, choice: MeshChoice) -> PlacementProblem:
        finder = self._finders.get(choice.lines)
        if finder is None:
            finder = self._finders[choice.lines] = StrategyFinder(choice.shape, choice.chip, choice.lines)
        return problem_of(
            self._graph, choice.shape, choice.lines, choice.chip, self._freedom, finder, stages=choice.stages
        )

    def _look_at(self, choice: MeshChoice, problem: PlacementProblem, least: float, share: float) -> None:
        limit = self._limit(choice)
        until = time.monotonic() + share
        bound = math.inf
        for _ in range(_TIGHTER if choice.stages > 1 else 1):
            solution = solved(problem, max(until - time.monotonic(), 1.0), self._gap, limit)
            found = self._found(choice, problem, solution)
            bound = min(bound, max(least, least_seconds(self._goal, solution.bound, choice.stages)))
            if found is not None or solution.assignment is None:
                break
            problem = replace(problem, kept_share=problem.kept_share * 1.15)  # some stage is fuller than the others
        if found is not None and (self._best is None or found.seconds < self._best.seconds):
            if self._best is not None:
                self._replace_best(found)
            self._best = found
            self._candidates.append(Candidate(choice.shape, choice.stages, found.seconds, bound, ""))
            self._bounds.append(bound)
            self._is_out_of_time |= solution.status is Status.TIME_LIMIT
            return
        self._is_out_of_time |= solution.status is Status.TIME_LIMIT
        self._note(choice, None if found is None else found.seconds, bound, self._why_not(solution, found, limit))

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
        bound = least_seconds(self._goal, solution.bound, choice.stages)
        if choice.stages == 1:
            return Found(choice, problem, solution, (), solution.cost.seconds, bound)
        stages = cut(problem, solution.assignment, solution.cost, choice.stages)
        if stages is None:
            return None
        return Found(choice, problem, solution, stages, pipeline_seconds(self._goal, stages), bound)

    def _why_not(self, solution: Solution, found: Found | None, limit: float) -> str:
        if found is not None:
            return "it takes longer"
        if solution.status is Status.TIME_LIMIT and solution.assignment is None:
            return "nothing was found in time"
        if solution.assignment is not None:
            return "no cut into stages fits the memory"
        return "nothing fits the memory" if limit == math.inf else "nothing that fits is faster"

    def _replace_best(self, found: Found) -> None:
        """The one that was best has lost to this one."""
        self._candidates = [replace(one, why=one.why or "it takes longer") for one in self._candidates]

    def _note(self, choice: MeshChoice, seconds: float | None, bound: float, why: str) -> None:
        self._candidates.append(Candidate(choice.shape, choice.stages, seconds, bound, why))
        if math.isfinite(bound):
            self._bounds.append(bound)


def check_found(result: SearchResult) -> Found:
    if result.best is None:
        why = (
            "no plan was found in time: give it more"
            if result.is_out_of_time
            else "nothing fits the memory of these devices: take more of them, or a smaller dtype"
        )
        raise MeshError(result.why_none or f"softmesh.plan: {why}.")
    return result.best
