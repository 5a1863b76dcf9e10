"""The layout that was chosen for a graph: which strategy each op takes, where each leaf lies, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.distributed.layouts import Layout
from softmesh.distributed.placement_requests import mesh_mapper
from softmesh.planner.goal import Candidate, Goal, Opening, Stage
from softmesh.planner.integer_program import Status
from softmesh.planner.op_strategies import OpStrategy
from softmesh.planner.pipeline_cuts import pipeline_seconds, ranked_pipeline_seconds
from softmesh.planner.placement_problem import Assignment, Home, PlacementProblem, PlanCost
from softmesh.planner.problem_setup import ANYTHING, Freedom
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.mappers import TensorToMesh


@dataclass(frozen=True)
class ChosenLayout:
    """Which strategy each op takes, where each leaf lies, and what that costs.

    `problem`, `assignment` and `cost` are of the whole graph on the mesh of one stage: of all of it where there is
    no pipeline.
    """

    problem: PlacementProblem
    assignment: Assignment
    cost: PlanCost
    bound: float  # no plan for any mesh, in however many stages, has fewer `ranked_seconds`
    gap: float  # how much of its time it may be above that
    status: Status
    goal: Goal = Goal.DECODE
    opening: Opening | None = None
    stages: tuple[Stage, ...] = ()  # of a pipeline; none without one
    candidates: tuple[Candidate, ...] = ()  # mesh shapes and numbers of stages that were looked at, the best first
    search_seconds: float = 0.0
    freedom: Freedom = ANYTHING  # what it was chosen from

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        return self.problem.mesh_shape

    @property
    def seconds(self) -> float:
        """By the goal: of one call, or of a pipeline between two calls, or of a step."""
        return pipeline_seconds(self.goal, self.stages) if self.stages else self.cost.seconds

    @property
    def ranked_seconds(self) -> float:
        """With something for every launch: what is minimised, and what bounds and the gap are told of."""
        return ranked_pipeline_seconds(self.goal, self.stages) if self.stages else self.cost.ranked_seconds

    @property
    def own_bound(self) -> float:
        """No plan for this mesh, in as many stages, has fewer `ranked_seconds`."""
        return max([self.bound, *(one.bound for one in self.candidates if not one.why)])

    @property
    def strategies(self) -> list[OpStrategy]:
        """Of each node, the one that was chosen."""
        chosen = zip(self.problem.strategies, self.assignment.strategies, strict=True)
        return [own[at] for own, at in chosen]

    @property
    def memory(self) -> int:
        """Bytes on each device at the peak; of a pipeline, in its fullest stage."""
        return max((stage.memory for stage in self.stages), default=self.cost.peak)

    def home(self, name: str) -> Home:
        """Where and as what a weight, an input or a cache of this name is kept."""
        return self.problem.given(self.assignment, self.problem.graph.named(name).number)

    def layout(self, name: str) -> Layout:
        """A placement for each mesh axis."""
        return self.home(name).layout

    def left(self, number: int) -> Layout:
        """Where an output of the graph is left for the caller."""
        at = self.assignment.homes.get(number)
        if at is None:
            return self.problem.given(self.assignment, number).layout
        return self.problem.homes[number][at].layout

    def mapper(self, name: str, mesh_device: MeshDevice) -> TensorToMesh:
        """For `from_torch`: puts it where the plan has it."""
        return mesh_mapper(mesh_device, list(self.layout(name)))
