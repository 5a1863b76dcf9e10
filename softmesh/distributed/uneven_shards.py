"""Uneven shards of one dim over several mesh axes: removed before anything else is planned, made after everything else.

All of the filler lies behind the last chunk of all, so no axis can be gathered by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from softmesh.cost.chip_costs import copy_seconds
from softmesh.cost.link_costs import Line, LinkCost, all_gather
from softmesh.distributed.layouts import Layout, Value, nested_unevenly, unsized, with_word
from softmesh.distributed.redistribution import GATHER, PARTITION, Step
from softmesh.distributed.redistribution_ops import Run, gathering, partition
from softmesh.placement.placements import REPLICATE, Shard


class UnevenConversion(NamedTuple):
    """The layout without such splits, and what it takes to get from the one to the other."""

    layout: Layout
    steps: tuple[Step, ...] = ()
    moves: tuple[Run, ...] = ()


def without_nested_uneven(layout: Layout, value: Value, lines: tuple[Line, ...]) -> UnevenConversion:
    """From an operand's layout to one without."""
    at = unsized(layout)
    steps: list[Step] = []
    moves: list[Run] = []
    for dim, axes in nested_unevenly(layout, value).items():
        for axis in reversed(axes):
            cost = all_gather(lines[axis], value.bytes_on_each(at))
            at = with_word(at, axis, REPLICATE)
            steps.append(Step(GATHER, axis, dim, None, at, cost))
        moves += _ungathered(dim, axes, value.shape[dim])
    return UnevenConversion(at, tuple(steps), tuple(moves))


def to_nested_uneven(wanted: Layout, value: Value, lines: tuple[Line, ...]) -> UnevenConversion:
    """From a layout without to the one that is asked for."""
    goal = at = wanted
    steps: list[Step] = []
    moves: list[Run] = []
    nested = nested_unevenly(wanted, value)
    for axes in nested.values():
        for axis in axes:
            goal = at = with_word(goal, axis, REPLICATE)
    for dim, axes in nested.items():
        for axis in axes:
            at = with_word(at, axis, Shard(dim))
            copy = LinkCost(copy_seconds(lines[axis].chip, value.bytes_on_each(at)), 0)
            steps.append(Step(PARTITION, axis, dim, None, at, copy))
        moves += _split_over(dim, axes, value.shape[dim], value.mesh)
    return UnevenConversion(goal, tuple(steps), tuple(moves))


def _ungathered(dim: int, axes: Sequence[int], size: int) -> tuple[Run, ...]:
    """Undo an uneven split over several axes, the innermost first; only the last knows where the filler begins."""
    inner, outer = sorted(axes)[1:], min(axes)
    return (
        *(gathering(dim, None, axis) for axis in reversed(inner)),
        gathering(dim, size, outer),
    )


def _split_over(dim: int, axes: Sequence[int], size: int, mesh: Sequence[int]) -> tuple[Run, ...]:
    """An uneven split over several axes, the outermost first, with all of the filler behind the last chunk."""
    pieces = math.prod(mesh[axis] for axis in axes)
    room = -(-size // pieces) * pieces
    moves = []
    for axis in sorted(axes):
        moves.append(_partitioning(dim, room, size, axis))
        room //= mesh[axis]
    return tuple(moves)


def _partitioning(dim: int, room: int, size: int, axis: int) -> Run:
    return lambda tensor: partition(tensor, dim, room, size, cluster_axis=axis)
