"""Narrower problems: plans that split along one axis of a mesh only, and do the same work all along the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from softmesh.distributed.layouts import Layout
from softmesh.placement.placements import Replicate
from softmesh.planner.placement_problem import Assignment, PlacementProblem

_T = TypeVar("_T")


def narrowed(problem: PlacementProblem, axis: int) -> PlacementProblem | None:
    """The problem with the choices that split along this axis only; None where an op or a leaf has no such choice."""

    def is_narrow(layout: Layout) -> bool:
        return all(at == axis or isinstance(word, Replicate) for at, word in enumerate(layout))

    strategies = _filtered(problem.strategies, lambda one: all(map(is_narrow, (*one.needs, *one.gives))))
    homes = _filtered(tuple(problem.homes.values()), lambda one: is_narrow(one.layout))
    if not all(strategies) or not all(homes):
        return None
    return replace(problem, strategies=strategies, homes=dict(zip(problem.homes, homes, strict=True)))


def widened(assignment: Assignment, narrow: PlacementProblem, problem: PlacementProblem) -> Assignment:
    """The assignment of a narrower problem, in the numbers of the problem that it is a part of."""
    strategies = tuple(
        every.index(some[at])
        for every, some, at in zip(problem.strategies, narrow.strategies, assignment.strategies, strict=True)
    )
    homes = {number: problem.homes[number].index(narrow.homes[number][at]) for number, at in assignment.homes.items()}
    return Assignment(strategies, homes)


def _filtered(choices: tuple[tuple[_T, ...], ...], is_kept: Callable[[_T], bool]) -> tuple[tuple[_T, ...], ...]:
    """Equal lists stay one object, by which equal layers are known."""
    known: dict[int, tuple[_T, ...]] = {}
    for every in choices:
        if id(every) not in known:
            known[id(every)] = tuple(one for one in every if is_kept(one))
    return tuple(known[id(every)] for every in choices)
