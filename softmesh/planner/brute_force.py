"""Brute force: every assignment of a small problem, priced by its evaluator. The search is held to it."""

from __future__ import annotations

import math
from itertools import product

from softmesh.errors import MeshError
from softmesh.planner.placement_problem import Assignment, PlacementProblem, PlanCost

_MOST = 5_000_000


def best_of_all(problem: PlacementProblem) -> tuple[Assignment, PlanCost] | None:
    """The cheapest assignment that fits, the first of equally cheap ones; None where none fits."""
    numbers = sorted(problem.homes)
    extents = [*(len(own) for own in problem.strategies), *(len(problem.homes[n]) for n in numbers)]
    if math.prod(extents) > _MOST:
        raise MeshError(f"brute force would try {math.prod(extents):,} assignments, and stops at {_MOST:,}.")
    best: tuple[Assignment, PlanCost] | None = None
    nodes = len(problem.strategies)
    for chosen in product(*(range(n) for n in extents)):
        assignment = Assignment(chosen[:nodes], dict(zip(numbers, chosen[nodes:], strict=True)))
        cost = problem.cost(assignment)
        if cost.fits and (best is None or cost.ranked_seconds < best[1].ranked_seconds):
            best = assignment, cost
    return best
