"""The search over a system: each mesh shape that it offers, whole or cut into the stages of a pipeline.

First a bound for every mesh: what it could do if choices might be fractions, and memory were without limit. Meshes of
one axis come first, for which that takes the least time, and then the most promising. No mesh takes more than a small
part of the time before all others had their turn; one that needs more gets a first plan that splits along one axis
only. The cheapest plan so far is a limit to all others, so that most are given up by their bounds; those that could
still be better are searched, one after the other, in the time left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import Extents
from softmesh.planner.first_assignment import Priced, first_assignment
from softmesh.planner.goal import SLOWER_AT_BEST, Candidate, Goal, Opening, Stage
from softmesh.planner.integer_program import Limits, PlacementSearch, Status, classes_in
from softmesh.planner.narrower_problems import narrowed, widened
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.op_strategies import StrategyFinder
from softmesh.planner.pipeline_cuts import boundaries, cut, least_seconds, pipeline_seconds, ranked_pipeline_seconds
from softmesh.planner.pipeline_search import PipelineSearch
from softmesh.planner.placement_problem import Assignment, PlacementProblem, PlanCost
from softmesh.planner.problem_setup import Freedom, NoStrategy, problem_of
from softmesh.systems.chip import Chip

_LEAST_SECONDS = 2.0  # that a mesh is searched, whatever is left
_GLANCE = 0.1  # of the time that is left, what one mesh may take before the others had their turn
_MOST_STAGES = 16


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
    assignment: Assignment
    cost: PlanCost
    stages: tuple[Stage, ...]
    seconds: float  # by the goal
    ranked_seconds: float


@dataclass(frozen=True)
class SearchResult:
    best: Found | None
    bound: float  # of all that may be chosen
    is_out_of_time: bool
    candidates: tuple[Candidate, ...]


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


def _without_twins(choices: Sequence[MeshChoice], freedom: Freedom) -> list[MeshChoice]:
    """Without those whose axes are joined as those of another, in whatever order if nothing tells them apart."""
    kinds: dict[tuple[object, ...], MeshChoice] = {}
    for choice in choices:
        joined = [(line.devices, line.links if line.devices > 1 else 0, line.is_ring) for line in choice.lines]
        if not freedom.tells_axes_apart:
            joined.sort()
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
    times: int = 0  # that it was searched
    search: PlacementSearch | None = None
    pipeline: PipelineSearch | None = None

    @property
    def axes(self) -> int:
        return sum(n > 1 for n in self.choice.shape)

    def shut(self, why: str) -> None:
        """Nothing more is to be learnt of it."""
        self.is_open, self.search, self.pipeline = False, None, None
        self.why = self.why or why


class _Search:
    def __init__(self, graph: OpGraph, goal: Goal, freedom: Freedom, deadline: float, gap: float) -> None:
        self._graph, self._goal, self._freedom = graph, goal, freedom
        self._deadline, self._gap = deadline, gap
        self._finders: dict[tuple[Line, ...], StrategyFinder] = {}
        self._best: Found | None = None

    def over(self, choices: Sequence[MeshChoice]) -> SearchResult:
        looks = [
            look for choice in _without_twins(choices, self._freedom) if (look := self._at_first(choice)) is not None
        ]
        for look in sorted(looks, key=lambda one: (one.axes, one.bound)):
            if look.is_open and self._is_open(look):
                self._glance_at(look)
        while waiting := [look for look in looks if look.is_open and self._is_open(look)]:
            if self._left <= 0:
                break
            look = min(waiting, key=lambda one: (one.times, one.bound))
            self._look_at(look, max(_LEAST_SECONDS, self._left * _share(len(waiting))))
        return self._result(looks)

    @property
    def _left(self) -> float:
        return self._deadline - time.monotonic()

    @property
    def _enough(self) -> float:
        """What takes as long is of no use."""
        return math.inf if self._best is None else self._best.ranked_seconds * (1 - self._gap)

    def _is_open(self, look: _Look) -> bool:
        if look.bound >= self._enough:
            if look.seconds is not None and look.bound < look.seconds * (1 - self._gap):
                look.seconds = None  # of what was found without a search: it could be better, and is not good enough
            look.shut(SLOWER_AT_BEST if look.seconds is None else "it takes longer")
        return look.is_open

    # -- one mesh --------------------------------------------------------------------------------

    def _at_first(self, choice: MeshChoice) -> _Look | None:
        """Every op at its fastest, and nothing sent."""
        try:
            problem = self._problem(choice)
        except NoStrategy as error:
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

    def _glance_at(self, look: _Look) -> None:
        """A bound, and a plan if one is found without a search. When the time is over, a plan if there is none yet."""
        assert look.problem is not None
        if self._left <= 0:
            if self._best is None:
                self._take_known(look)
            return
        search = look.search = PlacementSearch(look.problem)
        if look.choice.stages > 1:
            pipeline = look.pipeline = PipelineSearch(search, self._goal, look.choice.stages)
            pipeline.look(self._limits(self._soon))
            look.bound = max(look.bound, pipeline.bound)
            self._take_staged(look, pipeline)
            return
        bound, assignment = search.least(search.costs, self._limits(self._soon))
        look.bound = max(look.bound, bound)
        if assignment is not None and (cost := look.problem.cost(assignment)).fits:
            self._take(look, (assignment, cost))
            return
        if assignment is None and look.bound < math.inf:
            self._take_narrower(look)
        if look.seconds is None:
            self._take_known(look)

    def _take_narrower(self, look: _Look) -> None:
        """The best plans that split along one axis only: they are found soon, where all of them together take long."""
        assert look.problem is not None
        axes = [axis for axis, n in enumerate(look.choice.shape) if n > 1]
        for axis in axes if len(axes) > 1 else ():
            narrow = narrowed(look.problem, axis)
            if narrow is None or self._left <= 0:
                continue
            known = self._limits(self._soon)
            solution = PlacementSearch(narrow).solved(known.until, known.gap, known.below)
            if solution.assignment is not None:
                assignment = widened(solution.assignment, narrow, look.problem)
                self._take(look, (assignment, look.problem.cost(assignment)))

    @property
    def _soon(self) -> float:
        """When a glance that began now is over, so that every mesh gets one."""
        share = max(self._left * _GLANCE, min(_LEAST_SECONDS, self._left / 3))
        return time.monotonic() + share

    def _limits(self, until: float) -> Limits:
        return Limits(until, self._gap, math.inf if self._best is None else self._best.ranked_seconds)

    def _look_at(self, look: _Look, share: float) -> None:
        assert look.problem is not None
        look.times += 1
        until = min(self._deadline, time.monotonic() + share)
        limits = self._limits(until)
        search = look.search = look.search or PlacementSearch(look.problem)
        if look.choice.stages > 1:
            pipeline = look.pipeline = look.pipeline or PipelineSearch(search, self._goal, look.choice.stages)
            is_over = pipeline.close(limits)
            look.bound = max(look.bound, pipeline.bound)
            self._take_staged(look, pipeline)
        else:
            solution = search.solved(until, self._gap, limits.below)
            look.bound, is_over = max(look.bound, solution.bound), solution.status is not Status.TIME_LIMIT
            if solution.assignment is not None and solution.cost is not None:
                self._take(look, (solution.assignment, solution.cost))
        if is_over:
            look.shut(self._why_not(look, limits.below))

    def _why_not(self, look: _Look, below: float) -> str:
        if look.seconds is not None:
            return "it takes longer"
        return "nothing fits the memory" if below == math.inf else "nothing that fits is faster"

    # -- plans -----------------------------------------------------------------------------------

    def _take_known(self, look: _Look) -> None:
        assert look.problem is not None
        found = first_assignment(look.problem, classes_in(look.problem))
        if found is not None:
            self._take(look, found)

    def _take(self, look: _Look, found: Priced) -> None:
        problem, (assignment, cost), stages = look.problem, found, ()
        assert problem is not None
        if look.choice.stages > 1:
            made = cut(problem, assignment, cost, look.choice.stages, self._goal)
            if made is None:
                return
            self._keep(look, assignment, cost, made)
        else:
            self._keep(look, assignment, cost, stages)

    def _take_staged(self, look: _Look, pipeline: PipelineSearch) -> None:
        if pipeline.best is not None:
            self._keep(look, pipeline.best.assignment, pipeline.best.cost, pipeline.best.stages)

    def _keep(self, look: _Look, assignment: Assignment, cost: PlanCost, stages: tuple[Stage, ...]) -> None:
        assert look.problem is not None
        seconds = pipeline_seconds(self._goal, stages) if stages else cost.seconds
        ranked = ranked_pipeline_seconds(self._goal, stages) if stages else cost.ranked_seconds
        look.seconds = seconds if look.seconds is None else min(seconds, look.seconds)
        if self._best is None or ranked < self._best.ranked_seconds:
            self._best = Found(look.choice, look.problem, assignment, cost, stages, seconds, ranked)

    # -- the answer ------------------------------------------------------------------------------

    def _result(self, looks: Sequence[_Look]) -> SearchResult:
        found = [self._candidate(look) for look in looks]
        found.sort(key=lambda one: (one.why != "", one.seconds or math.inf, one.bound))
        bound = min((one.bound for one in found), default=math.inf)
        is_out_of_time = any(look.is_open and look.bound < self._enough for look in looks)
        return SearchResult(self._best, bound, is_out_of_time, tuple(found))

    def _candidate(self, look: _Look) -> Candidate:
        best = self._best
        if best is not None and best.choice == look.choice:
            bound = min(look.bound, best.ranked_seconds)
            return Candidate(look.choice.shape, look.choice.stages, best.seconds, bound, "")
        why = look.why or ("it takes longer" if look.seconds is not None else "not searched: the time was over")
        return Candidate(look.choice.shape, look.choice.stages, look.seconds, look.bound, why)
