"""The layout planner: every way to split an op's work over the axes of a mesh, and the cheapest that fits.

A strategy is one choice for each mesh axis (see `split_choices`). From it follow the layouts that it needs of the
operands and the layout of its result; `redistribution` tells what it takes to get there. What a plan costs is the
communication before, the work on each device with what it exchanges in its midst, and the communication after. Plans
are ranked with the host's time for launching each op beside it, which decides where all of that is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from softmesh.cost.launches import launch_seconds
from softmesh.cost.link_costs import Line
from softmesh.distributed.layouts import Extents, Layout, Value, is_whole
from softmesh.distributed.redistribution import Step, Way, routes
from softmesh.distributed.split_choices import Choice, Split
from softmesh.errors import MeshError
from softmesh.placement.placements import Shard

Inside = Callable[[Split], tuple[Step, ...]]


@dataclass(frozen=True)
class Problem:
    """All that a plan depends on. `wanted` None leaves the result's layout to the planner."""

    op: str
    names: tuple[str, ...]  # of the operands
    forms: tuple[str, ...]  # the dtypes of the operands and, last, of the result
    given_layouts: tuple[Layout, ...]
    operands: tuple[Value, ...]
    layouts: tuple[Layout, ...]  # those given, but for what is done in any case
    result: Value
    wanted: Layout | None
    choices: tuple[tuple[Choice, ...], ...]  # for each axis
    lines: tuple[Line, ...]
    memory: int  # bytes on each device
    seconds: Callable[[Split], float]  # of the work on a device
    inside: Inside | None = None
    is_true: Callable[[Split], bool] | None = None  # asked of a candidate before it is taken
    before: tuple[tuple[Step, ...], ...] = ()  # what is done to each operand in any case
    behind: tuple[Step, ...] = ()  # and to the result

    @property
    def mesh(self) -> Extents:
        return self.result.mesh

    @property
    def launch(self) -> float:
        """Seconds that the host takes for one op more."""
        return launch_seconds(self.lines[0].chip)


@dataclass(frozen=True)
class Strategy:
    split: Split
    needs: tuple[Layout, ...]
    gives: Layout
    ways_in: tuple[Way, ...]
    inside: tuple[Step, ...]
    compute_seconds: float
    bytes_on_each: int

    @property
    def seconds_before_output(self) -> float:
        inside = sum(step.cost.seconds for step in self.inside)
        return sum(way.seconds for way in self.ways_in) + self.compute_seconds + inside

    @property
    def launches_before_output(self) -> int:
        """Ops beside the work itself."""
        return sum(way.launches for way in self.ways_in) + sum(step.launches for step in self.inside)


@dataclass(frozen=True)
class Plan:
    problem: Problem
    strategy: Strategy
    way_out: Way
    layout: Layout  # of the result

    @property
    def seconds(self) -> float:
        always = sum(step.cost.seconds for steps in (*self.problem.before, self.problem.behind) for step in steps)
        return self.strategy.seconds_before_output + self.way_out.seconds + always

    @property
    def launches(self) -> int:
        return self.strategy.launches_before_output + self.way_out.launches

    @property
    def ranked_seconds(self) -> float:
        """With the launch of every op that the plan adds."""
        return self.seconds + self.launches * self.problem.launch

    @property
    def moving_seconds(self) -> float:
        """Of all but the op itself."""
        return self.seconds - self.strategy.compute_seconds

    @property
    def final_layout(self) -> Layout:
        return self.problem.behind[-1].after if self.problem.behind else self.layout

    @property
    def steps_before(self) -> list[tuple[str, Step]]:
        """What is done to the operands, by name, in the order in which it happens."""
        problem = self.problem
        known = problem.before or ((),) * len(problem.names)
        return [
            (name, step)
            for name, first, way in zip(problem.names, known, self.strategy.ways_in, strict=True)
            for step in (*first, *way.steps)
        ]

    @property
    def steps_behind(self) -> list[Step]:
        """What is done to the result."""
        return [*self.way_out.steps, *self.problem.behind]

    @property
    def inserted(self) -> list[tuple[str, Step]]:
        """The steps with which anything travels, and what does."""
        inside = [("statistics", step) for step in self.strategy.inside]
        steps = [*self.steps_before, *inside, *(("the result", step) for step in self.steps_behind)]
        return [(name, step) for name, step in steps if step.travels]


def plan_of(problem: Problem) -> Plan:
    """The cheapest plan; the first of equally cheap ones."""
    best: Plan | None = None
    launch = problem.launch
    strategies = _by_rank(problem)
    ways_out = _ways_out(problem, strategies)
    for strategy in strategies:
        if best is not None and _ranked_before_output(strategy, launch) >= best.ranked_seconds:
            break  # whatever comes after it, it is no cheaper
        plan = _finished(problem, strategy, ways_out)
        is_better = plan is not None and (best is None or plan.ranked_seconds < best.ranked_seconds)
        if is_better and (problem.is_true is None or problem.is_true(strategy.split)):
            best = plan
    if best is None:
        raise _no_room(problem, strategies)
    return best


def ranking(problem: Problem) -> tuple[list[Plan], list[Strategy]]:
    """All plans, the cheapest first, and the strategies that do not fit the memory."""
    strategies = _by_rank(problem)
    ways_out = _ways_out(problem, strategies)
    found = [_finished(problem, strategy, ways_out) for strategy in strategies]
    plans = [
        plan for plan in found if plan is not None and (problem.is_true is None or problem.is_true(plan.strategy.split))
    ]
    return sorted(plans, key=lambda plan: plan.ranked_seconds), [s for s in strategies if not _fits(problem, s)]


def _by_rank(problem: Problem) -> list[Strategy]:
    launch = problem.launch
    return sorted(strategies_for(problem), key=lambda strategy: _ranked_before_output(strategy, launch))


def _ranked_before_output(strategy: Strategy, launch: float) -> float:
    return strategy.seconds_before_output + strategy.launches_before_output * launch


def strategies_for(problem: Problem) -> Iterator[Strategy]:
    known = [routes(value, problem.lines) for value in problem.operands]
    ways = [one.ways_from(layout) for one, layout in zip(known, problem.layouts, strict=True)]
    result = routes(problem.result, problem.lines)
    for choices in product(*_open_choices(problem)):
        split = Split(problem.mesh, choices)
        needs = tuple(split.needs(i) for i in range(len(problem.operands)))
        found = [reachable.get(layout) for reachable, layout in zip(ways, needs, strict=True)]
        ways_in = tuple(way for way in found if way is not None)
        gives = split.gives
        if len(ways_in) == len(found) and problem.result.can_be(gives):
            held = sum(one.piece_bytes(layout) for one, layout in zip(known, needs, strict=True))
            yield Strategy(
                split,
                needs,
                gives,
                ways_in,
                () if problem.inside is None else problem.inside(split),
                problem.seconds(split),
                held + result.piece_bytes(gives),
            )


def _open_choices(problem: Problem) -> list[list[Choice]]:
    """What the devices along each axis can do; a single one can only do it all."""
    return [
        [c for c in choices if _can_be_shared(problem, axis, c)] if n > 1 else [choices[0]]
        for axis, (n, choices) in enumerate(zip(problem.mesh, problem.choices, strict=True))
    ]


def _can_be_shared(problem: Problem, axis: int, choice: Choice) -> bool:
    """Whether each dim that the choice splits divides, or is split unevenly and may be."""
    words = [*zip(problem.operands, choice.needs, strict=True), (problem.result, choice.gives)]
    for value, word in words:
        if not isinstance(word, Shard) or value.shape[word.dim] % value.mesh[axis] == 0:
            continue
        if not choice.takes_uneven or (axis, word.dim) not in value.uneven:
            return False
    return True


def _ways_out(problem: Problem, strategies: Sequence[Strategy]) -> dict[Layout, Way]:
    """From each layout in which a strategy leaves the result to the one that is wanted, or to any whole one."""
    found = routes(problem.result, problem.lines)
    starts = dict.fromkeys(strategy.gives for strategy in strategies)
    wanted = problem.wanted
    return found.ways_to(is_whole if wanted is None else lambda layout: layout == wanted, starts)


def _finished(problem: Problem, strategy: Strategy, ways_out: dict[Layout, Way]) -> Plan | None:
    way = ways_out.get(strategy.gives)
    if way is None or not _fits(problem, strategy):
        return None
    return Plan(problem, strategy, way, way.steps[-1].after if way.steps else strategy.gives)


def _fits(problem: Problem, strategy: Strategy) -> bool:
    return strategy.bytes_on_each <= problem.memory


def _no_room(problem: Problem, strategies: Sequence[Strategy]) -> MeshError:
    least = min((strategy.bytes_on_each for strategy in strategies), default=0)
    mesh = "x".join(map(str, problem.mesh))
    return MeshError(
        f"distributed.{problem.op}: no way of splitting it over {mesh} devices fits their memory: the least takes "
        f"{least:,} B on each, of {problem.memory:,} B. Use a larger mesh, a smaller dtype, or smaller tensors."
    )
