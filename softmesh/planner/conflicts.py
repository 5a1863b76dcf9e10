"""The smallest set of constraints that cannot be kept together: found by leaving out one after the other.

The memory of the devices counts as a constraint, too. What remains when nothing more can be left out is a set of which
every member is needed for the conflict; then smaller sets are tried, as long as there is time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from softmesh.cost.chip_costs import memory_bytes
from softmesh.errors import MeshError
from softmesh.planner.constraints import Constraint
from softmesh.planner.goal import Goal
from softmesh.planner.integer_program import Limits, PlacementSearch, Status
from softmesh.planner.op_graph import OpGraph
from softmesh.planner.op_strategies import OPS_WITH_OWN_SPLITS, StrategyFinder
from softmesh.planner.pipeline_cuts import boundaries
from softmesh.planner.pipeline_search import PipelineSearch
from softmesh.planner.problem_setup import Freedom, NoStrategy, problem_of
from softmesh.planner.system_search import MeshChoice

_ENOUGH = 1 << 60  # bytes
_ANY_GAP = 0.999  # the first assignment that fits will do
_LEAST_SECONDS = 20.0  # that the search for a conflict gets, whatever is left


@dataclass(frozen=True)
class _Memory(Constraint):
    size: int

    def __str__(self) -> str:
        return f"each device has {self.size / 1e9:.1f} GB for tensors"


def explain_conflict(graph: OpGraph, choices: Sequence[MeshChoice], goal: Goal, freedom: Freedom, until: float) -> None:
    """Raise an error that names the constraints; return where there is no conflict, or none that was found in time."""
    memory = _Memory(memory_bytes(choices[0].chip)) if choices else _Memory(0)
    every: list[Constraint] = [*freedom.constraints, memory]
    until = max(until, time.monotonic() + _LEAST_SECONDS)
    feasible = _Feasibility(graph, choices, goal, freedom, until)
    if feasible(every):
        return
    found = conflict(every, feasible)
    if not found:
        raise MeshError(
            "softmesh.plan: on no mesh that is offered the program can be laid out at all, even without constraints: "
            f"{feasible.why}"
        )
    if found == [memory]:
        own = replace(freedom, plain_only=False)
        has_own = freedom.plain_only and any(node.op in OPS_WITH_OWN_SPLITS for node in graph.nodes)
        helps = has_own and _Feasibility(graph, choices, goal, own, until)(every)
        more = ", or ops of softmesh's own by --own-ops" if helps else ""
        raise MeshError(
            f"softmesh.plan: nothing fits the memory of these devices: take more of them, or a smaller dtype{more}."
        )
    told = "; ".join(str(one) for one in found)
    these = "These cannot be kept together" if found[1:] else "This one cannot be kept"
    raise MeshError(f"softmesh.plan: no plan keeps all constraints. {these}: {told}. Leave one of them out.")


def conflict(every: Sequence[Constraint], feasible: Callable[[Sequence[Constraint]], bool]) -> list[Constraint]:
    """A smallest set that cannot be kept; empty where even nothing cannot."""
    if not feasible([]):
        return []
    kept = list(every)
    for one in every:
        without = [other for other in kept if other is not one]
        if not feasible(without):
            kept = without
    for size in range(1, len(kept)):
        for few in combinations(every, size):
            if not feasible(few):
                return list(few)
    return kept


class _Feasibility:
    """Whether constraints can be kept together on any of the meshes; what is not known in time counts as yes."""

    def __init__(
        self, graph: OpGraph, choices: Sequence[MeshChoice], goal: Goal, freedom: Freedom, until: float
    ) -> None:
        self._graph, self._choices, self._goal, self._freedom, self._until = graph, choices, goal, freedom, until
        self._finders = {
            choice.lines: StrategyFinder(choice.shape, choice.chip, choice.lines) for choice in self._choices
        }
        self._known: dict[tuple[int, ...], bool] = {}
        self.why = ""

    def __call__(self, constraints: Sequence[Constraint]) -> bool:
        key = tuple(sorted(map(id, constraints)))
        if key not in self._known:
            self._known[key] = any(self._on(choice, constraints) for choice in self._choices)
        return self._known[key]

    def _on(self, choice: MeshChoice, constraints: Sequence[Constraint]) -> bool:
        if time.monotonic() >= self._until:
            return True
        own = tuple(one for one in constraints if not isinstance(one, _Memory))
        freedom = replace(self._freedom, constraints=own)
        try:
            problem = problem_of(
                self._graph,
                choice.shape,
                choice.lines,
                choice.chip,
                freedom,
                self._finders[choice.lines],
                stages=choice.stages,
            )
        except NoStrategy as error:
            self.why = self.why or str(error)
            return False
        layers = len(boundaries(problem)) + 1
        if layers < choice.stages:
            self.why = self.why or f"{choice.stages} stages need as many layers, and {layers} can be told apart."
            return False
        if len(own) == len(constraints):
            problem = replace(problem, memory_bytes=_ENOUGH)
        search, limits = PlacementSearch(problem), Limits(self._until, _ANY_GAP)
        if choice.stages == 1:
            return search.solved(self._until, _ANY_GAP).status is not Status.INFEASIBLE
        pipeline = PipelineSearch(search, self._goal, choice.stages)
        pipeline.look(limits)
        return pipeline.best is not None or not pipeline.close(limits) or pipeline.best is not None
