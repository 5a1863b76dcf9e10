"""A plan's problem with something changed, searched anew under a limit: in as many stages as the plan has."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import NamedTuple

from softmesh.planner.chosen_layout import ChosenLayout
from softmesh.planner.integer_program import Limits, PlacementSearch
from softmesh.planner.pipeline_cuts import cut
from softmesh.planner.pipeline_search import PipelineSearch
from softmesh.planner.placement_problem import PlacementProblem

_GAP = 0.01  # how near to the best of its kind it is searched
_LEAST = 1.0  # seconds that a search gets
_TOLD = 0.1  # a search that ends further from its optimum tells nothing


class Anew(NamedTuple):
    plan: ChosenLayout | None  # None where nothing was found
    bound: float  # no plan of this problem has fewer `ranked_seconds`; infinite where nothing fits

    @property
    def tells(self) -> bool:
        """Whether it is near enough to the best of its kind to speak for it."""
        if self.plan is None:
            return self.bound == math.inf
        return self.bound >= self.plan.ranked_seconds * (1 - _TOLD)


def planned_anew(plan: ChosenLayout, problem: PlacementProblem, time_limit: float) -> Anew:
    limits = Limits(time.monotonic() + max(_LEAST, time_limit), _GAP)
    search = PlacementSearch(problem)
    if not plan.stages:
        found = search.solved(limits.until, limits.gap)
        if found.assignment is None or found.cost is None:
            return Anew(None, found.bound)
        made = replace(plan, problem=problem, assignment=found.assignment, cost=found.cost)
        return Anew(made, found.bound)
    pipeline = PipelineSearch(search, plan.goal, len(plan.stages))
    pipeline.look(limits)
    pipeline.close(limits)
    best = pipeline.best
    if best is None:
        return Anew(None, pipeline.bound)
    made = replace(plan, problem=problem, assignment=best.assignment, cost=best.cost, stages=best.stages)
    return Anew(made, pipeline.bound)


def priced_again(plan: ChosenLayout, problem: PlacementProblem) -> ChosenLayout:
    """The plan as it is, with links or memory of another problem, which leaves it no less room."""
    cost = problem.cost(plan.assignment)
    stages = cut(problem, plan.assignment, cost, len(plan.stages), plan.goal) if plan.stages else ()
    assert stages is not None
    return replace(plan, problem=problem, cost=cost, stages=stages)
