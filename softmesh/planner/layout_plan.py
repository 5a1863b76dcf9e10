"""`softmesh.plan`: the best way to lay a function's tensors and work over a mesh, as a value."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from softmesh.cost.mesh_lines import lines_of
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware import FabricConfig
from softmesh.planner.cache_dtypes import with_smaller_caches
from softmesh.planner.capture import captured, leaf_values
from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.conflicts import explain_conflict
from softmesh.planner.constraints import Constraint, MeshShapeIs, WeightDtypes, check_constraints
from softmesh.planner.explanation.plan_explanation import PlanExplanation, explanation_of, title_of
from softmesh.planner.goal import Goal
from softmesh.planner.integer_program import Status
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.problem_setup import ANYTHING, Freedom
from softmesh.planner.program.followed_plan import following
from softmesh.planner.program.plan_source import source_of
from softmesh.planner.system_meshes import meshes_of
from softmesh.planner.system_search import MeshChoice, SearchResult, searched, with_pipelines
from softmesh.planner.torch_modules import function_of
from softmesh.progress import working
from softmesh.runtime.device import MeshDevice


class LayoutPlan(ChosenLayout):
    """What was chosen, with the ways to show it, write it as a program and follow it."""

    def __str__(self) -> str:
        return str(explanation_of(self))

    def __repr__(self) -> str:
        return f"LayoutPlan({title_of(self)})"

    def _repr_html_(self) -> str:
        return self.explained(0)._repr_html_()

    def explained(self, runners_up: int = 5, time_limit: float = 20.0) -> PlanExplanation:
        """What is placed where, what is sent, what the plan waits for, and so many plans that lost, searched anew."""
        return explanation_of(self, runners_up, time_limit)

    def svg(self) -> str:
        """A picture of the layout: how each tensor is cut, what is sent, and what takes how long."""
        return self.explained(0).svg()

    def values(
        self, function: Callable[..., Any] | torch.nn.Module, inputs: Sequence[Any] | Mapping[str, Any] = ()
    ) -> dict[str, torch.Tensor]:
        """What `run` of the plan's file takes, by name: of the program that was planned, which runs on one device."""
        _check_program(function, inputs)
        if isinstance(function, torch.nn.Module):
            function, inputs = function_of(function, inputs), _in_order(inputs)
        found = leaf_values(function, inputs, chip=self.problem.chip)
        missing = [leaf.name for leaf in self.problem.graph.leaves if leaf.name not in found]
        if missing:
            raise ArgumentError(
                f"plan.values(): the plan has {missing[0]}, this program has not: give the one planned."
            )
        return found

    def source(self) -> str:
        """A Python file of plain TT-NN calls that does what is planned."""
        return source_of(self)

    def followed(self, mesh_device: MeshDevice) -> AbstractContextManager[None]:
        """In the block, the ops of the program that was planned are done as planned, on a mesh of the plan's shape."""
        return following(self, mesh_device)


def plan(
    function: Callable[..., Any] | torch.nn.Module,
    mesh: MeshDevice | str,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    goal: Goal | str = Goal.DECODE,
    constraints: Sequence[Constraint] = (),
    dtypes: Sequence[WeightDtypes] = (),
    time_limit: float = 60.0,
    gap: float = 1e-3,
    fabric: FabricConfig | None = None,
    down: Sequence[str] = (),
    taken: Sequence[str] = (),
    stages: int | None = None,
    freedom: Freedom = ANYTHING,
) -> LayoutPlan:
    """The best layout of `function` of `inputs`, which is written as on one device.

    `mesh` is an open mesh, or the name of a system: then the shape to open is found too, under any fabric or the one
    that is given, on what is left of links and chips that are `down` and of submeshes that others have `taken`
    ("2x2@0,2"). `stages` are those of a pipeline; None looks at all numbers where a pipeline can help.

    >>> found = softmesh.plan(model, "T3000", [tokens], constraints=[NotReplicated("layers.*.up")])
    >>> found.layout("layers.0.up"), found.seconds, found.gap
    """
    _check_limit(time_limit)
    _check_sizes(gap, stages)
    _check_program(function, inputs)
    _check_lists(constraints=constraints, dtypes=dtypes, down=down, taken=taken)
    wanted = Goal(goal) if isinstance(goal, Goal) or goal in _GOALS else _refuse_goal(goal)
    every = (*freedom.constraints, *constraints)
    asked = [one.shape for one in every if isinstance(one, MeshShapeIs)]
    choices = choices_of(mesh, fabric=fabric, down=down, taken=taken, asked=asked)
    if isinstance(function, torch.nn.Module):
        function, inputs = function_of(function, inputs), _in_order(inputs)
    graph = captured(function, inputs, chip=choices[0].chip)
    check_constraints([*every, *dtypes], graph, len(choices[0].shape))
    graph = with_smaller_caches(graph, choices[0].chip, [*freedom.dtypes, *dtypes])
    own = replace(freedom, constraints=every, dtypes=(*freedom.dtypes, *dtypes))
    until = time.monotonic() + time_limit
    with working("searching for the best plan", time_limit):
        return best_plan(graph, choices, wanted, own, until=until, gap=gap, stages=stages)


def _in_order(inputs: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    return list(inputs.values() if isinstance(inputs, Mapping) else inputs)


def choices_of(
    mesh: MeshDevice | str,
    *,
    fabric: FabricConfig | None = None,
    down: Sequence[str] = (),
    taken: Sequence[str] = (),
    asked: Sequence[tuple[int, ...]] = (),
) -> list[MeshChoice]:
    """What may be opened: the mesh that is open, or those of a system, shapes that are `asked` for among them."""
    if isinstance(mesh, str):
        offered = meshes_of(mesh, fabric=fabric, down=down, taken=taken, asked=asked)
        return [MeshChoice(one.opening, one.chip, one.lines) for one in offered]
    if not isinstance(mesh, MeshDevice):
        raise ArgumentError(
            f'softmesh.plan: mesh is an open ttnn.MeshDevice, or the name of a system such as "T3000", got {mesh!r}.'
        )
    if fabric is not None or down or taken:
        raise ArgumentError("softmesh.plan: fabric, down and taken belong to a system that is named, not to a mesh.")
    return [MeshChoice(None, mesh.system.chip, lines_of(mesh))]


def best_plan(
    graph: OpGraph,
    choices: Sequence[MeshChoice],
    goal: Goal,
    freedom: Freedom,
    *,
    until: float,
    gap: float,
    stages: int | None = None,
) -> LayoutPlan:
    """`until`: by `time.monotonic()`. A pipeline is looked at where it can help, or where nothing fits without one."""
    started = time.monotonic()
    is_step = goal is Goal.TRAINING or graph.goes_back
    if is_step and stages not in (None, 1):
        raise ArgumentError("softmesh.plan: a step of training is not cut into stages: leave stages out.")
    cut = [one for choice in choices for one in with_pipelines(choice) if one.stages == 1 or not is_step]
    may_help = goal is Goal.PREFILL and not is_step and choices[0].opening is not None
    first = [one for one in cut if (one.stages == stages if stages is not None else one.stages == 1 or may_help)]
    if not first:
        able = ", ".join(str(n) for n in sorted({one.stages for one in cut}))
        raise ArgumentError(f"softmesh.plan: these meshes are cut into equal stages, {able}, and not into {stages}.")
    for tried in (first, cut):
        limit = max(until - time.monotonic(), 1.0)
        result = searched(graph, tried, goal, freedom, time_limit=limit, gap=gap)
        if result.best is not None or stages is not None or len(cut) == len(tried):
            break
    if result.best is None and not result.is_out_of_time:
        explain_conflict(graph, cut if stages is None else first, goal, freedom, until)
    return _plan_found(result, goal, freedom, started)


def _plan_found(result: SearchResult, goal: Goal, freedom: Freedom, started: float) -> LayoutPlan:
    found = result.best
    if found is None:
        raise MeshError("softmesh.plan: no plan was found in time: give it more by time_limit.")
    bound = min(result.bound, found.ranked_seconds)
    return LayoutPlan(
        found.problem,
        found.assignment,
        found.cost,
        bound,
        1 - bound / found.ranked_seconds if found.ranked_seconds else 0.0,
        Status.TIME_LIMIT if result.is_out_of_time else Status.OPTIMAL,
        goal,
        found.choice.opening,
        found.stages,
        result.candidates,
        time.monotonic() - started,
        freedom,
    )


_GOALS = [goal.value for goal in Goal]


def _refuse_goal(goal: object) -> Goal:
    raise ArgumentError(f"softmesh.plan: goal is one of {', '.join(_GOALS)}, got {goal!r}.")


def _check_limit(seconds: object) -> None:
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ArgumentError(f"softmesh.plan: time_limit is a number of seconds above 0, got {seconds!r}.")


def _check_program(function: object, inputs: object) -> None:
    if not callable(function):
        raise ArgumentError(f"softmesh.plan: it plans a function or a torch module, got {function!r}.")
    if not isinstance(inputs, list | tuple | Mapping):
        raise ArgumentError(
            f"softmesh.plan: inputs are a list, or a dict by the names of parameters, got a {type(inputs).__name__}: "
            "write [x], also for a single one."
        )


def _check_lists(**several: object) -> None:
    for name, given in several.items():
        kind, example = _KINDS[name]
        if not isinstance(given, list | tuple):
            raise ArgumentError(f"softmesh.plan: {name} is a list, such as [{example}], got {given!r}.")
        wrong = next((one for one in given if not isinstance(one, kind)), None)
        if wrong is not None:
            raise ArgumentError(f"softmesh.plan: {name} is a list such as [{example}], got {wrong!r} in it.")


_KINDS: dict[str, tuple[type, str]] = {
    "constraints": (Constraint, 'NotReplicated("layers.*.up")'),
    "dtypes": (WeightDtypes, 'WeightDtypes("layers.*", (ttnn.bfloat8_b,))'),
    "down": (str, '"link:0-1"'),
    "taken": (str, '"2x2@0,0"'),
}


def _check_sizes(gap: float, stages: int | None) -> None:
    if not isinstance(gap, int | float) or not 0 <= gap < 1:
        raise ArgumentError(f"softmesh.plan: gap is a part of the plan's time, from 0 to less than 1, got {gap!r}.")
    if stages is not None and (not isinstance(stages, int) or stages < 1):
        raise ArgumentError(f"softmesh.plan: stages is a whole number, 1 or more, got {stages!r}.")
