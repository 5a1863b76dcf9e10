"""Brute force: every assignment of a small problem, priced by its evaluator. The search is held to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product

from softmesh.errors import MeshError
from softmesh.planner.goal import Goal
from softmesh.planner.pipeline_cuts import Cuts, ranked_pipeline_seconds
from softmesh.planner.placement_problem import Assignment, PlacementProblem, PlanCost

_MOST = 5_000_000


def best_of_all(problem: PlacementProblem) -> tuple[Assignment, PlanCost] | None:
    """The cheapest assignment that fits, the first of equally cheap ones; None where none fits."""
    best: tuple[Assignment, PlanCost] | None = None
    for assignment in _assignments(problem):
        cost = problem.cost(assignment)
        if cost.fits and (best is None or cost.ranked_seconds < best[1].ranked_seconds):
            best = assignment, cost
    return best


def best_pipeline_of_all(problem: PlacementProblem, count: int, goal: Goal) -> float:
    """The least ranked seconds of so many stages, wherever they are cut and however they lie; infinite if none fits."""
    best = math.inf
    for assignment in _assignments(problem):
        cost = problem.cost(assignment)
        if cost.broken:
            continue
        cuts = Cuts(problem, assignment, cost)
        for middle in combinations(range(1, cuts.pieces), count - 1):
            stages = cuts.stages((0, *middle, cuts.pieces))
            if all(stage.memory <= problem.memory_bytes for stage in stages):
                best = min(best, ranked_pipeline_seconds(goal, stages))
    return best


def _assignments(problem: PlacementProblem) -> Iterator[Assignment]:
    numbers = sorted(problem.homes)
    extents = [*(len(own) for own in problem.strategies), *(len(problem.homes[n]) for n in numbers)]
    if math.prod(extents) > _MOST:
        raise MeshError(f"brute force would try {math.prod(extents):,} assignments, and stops at {_MOST:,}.")
    nodes = len(problem.strategies)
    for chosen in product(*(range(n) for n in extents)):
        yield Assignment(chosen[:nodes], dict(zip(numbers, chosen[nodes:], strict=True)))
