"""`softmesh.plan`: the best way to lay a function's tensors and work over a mesh, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from softmesh.cost.mesh_lines import lines_of
from softmesh.distributed.layouts import Layout
from softmesh.distributed.placement_requests import mesh_mapper
from softmesh.errors import MeshError
from softmesh.planner.capture import captured
from softmesh.planner.goal import Candidate, Goal, Opening, Stage
from softmesh.planner.integer_program import Solution, Status, solved
from softmesh.planner.placement_problem import Assignment, Home, PlacementProblem, PlanCost
from softmesh.planner.problem_setup import ANYTHING, Freedom, problem_of
from softmesh.planner.program.followed_plan import following
from softmesh.planner.program.plan_source import source_of
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.mappers import TensorToMesh


@dataclass(frozen=True)
class LayoutPlan:
    """Which strategy each op takes, where each leaf lies, and what that costs.

    `problem`, `assignment` and `cost` are of the whole graph on the mesh of one stage: of all of it where there is
    no pipeline.
    """

    problem: PlacementProblem
    assignment: Assignment
    cost: PlanCost
    bound: float  # seconds: no plan takes less
    gap: float  # how much of its time it may be above the optimum
    status: Status
    goal: Goal = Goal.DECODE
    opening: Opening | None = None
    stages: tuple[Stage, ...] = ()  # of a pipeline; none without one
    candidates: tuple[Candidate, ...] = ()  # mesh shapes and numbers of stages that were looked at, the best first
    search_seconds: float = 0.0

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        return self.problem.mesh_shape

    @property
    def seconds(self) -> float:
        return self.cost.seconds

    def home(self, name: str) -> Home:
        """Where and as what a weight, an input or a cache of this name is kept."""
        return self.problem.given(self.assignment, self.problem.graph.named(name).number)

    def layout(self, name: str) -> Layout:
        """A placement for each mesh axis."""
        return self.home(name).layout

    def mapper(self, name: str, mesh_device: MeshDevice) -> TensorToMesh:
        """For `from_torch`: puts it where the plan has it."""
        return mesh_mapper(mesh_device, list(self.layout(name)))

    def source(self) -> str:
        """A Python file of plain TT-NN calls that does what is planned."""
        return source_of(self)

    def followed(self, mesh_device: MeshDevice) -> AbstractContextManager[None]:
        """In the block, the ops of the program that was planned are done as planned, on a mesh of the plan's shape."""
        return following(self, mesh_device)


def plan(
    function: Callable[..., Any],
    mesh_device: MeshDevice,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    time_limit: float = 60.0,
    gap: float = 1e-4,
    freedom: Freedom = ANYTHING,
) -> LayoutPlan:
    """Plan `function` of `inputs`, written as on one device, for this mesh."""
    chip = mesh_device.system.chip
    graph = captured(function, inputs, chip=chip)
    problem = problem_of(graph, tuple(mesh_device.shape), lines_of(mesh_device), chip, freedom)
    return plan_of(problem, solved(problem, time_limit, gap))


def plan_of(problem: PlacementProblem, solution: Solution) -> LayoutPlan:
    if solution.assignment is None or solution.cost is None:
        why = (
            "no plan was found in time: give it more"
            if solution.status is Status.TIME_LIMIT
            else "nothing fits the memory of these devices: take more of them, or a smaller dtype"
        )
        raise MeshError(f"softmesh.plan: {why}.")
    return LayoutPlan(problem, solution.assignment, solution.cost, solution.bound, solution.gap, solution.status)
