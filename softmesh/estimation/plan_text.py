"""A plan for a terminal, in a few lines, and for other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from softmesh.planner.explanation.own_ops import share_own_ops_could_save
from softmesh.planner.goal import SLOWER_AT_BEST, Candidate, Goal
from softmesh.planner.layout_plan import LayoutPlan
from softmesh.planner.parallel_degrees import degrees
from softmesh.planner.placement_problem import LAUNCH_SECONDS

_WORTH_A_WORD = 0.05


def summary(found: LayoutPlan) -> list[str]:
    """What is to be opened, what it takes, how far that may be from the best, and what else was looked at."""
    opening = found.opening
    told = " x ".join(f"{n} {kind}" for kind, n in degrees(found).items()) or "one device"
    lines = [
        "" if opening is None else f"open      {_times(opening.shape)} of {opening.system}, {opening.fabric.name}",
        f"parallel  {told}",
        f"{found.goal.value:9} {_seconds(found.seconds)}, at most {found.gap:.2%} above the best {_of_what(found)}",
        f"memory    {found.memory / 1e9:.2f} of {found.problem.memory_bytes / 1e9:.2f} GB on each device",
        f"search    {found.search_seconds:.1f} s, {found.status.value}",
        f"bound     with {LAUNCH_SECONDS * 1e6:g} us for each launch it is {_seconds(found.ranked_seconds)}, "
        f"and no plan of these can be below {_seconds(found.bound)}",
    ]
    if opening is not None and opening.offset is not None:
        lines.insert(1, f"offset    {', '.join(map(str, opening.offset))}")
    for at, stage in enumerate(found.stages):
        took = f"{_seconds(stage.seconds)}, {stage.memory / 1e9:.2f} GB on each device"
        lines.append(f"stage {at:<3} {_times(found.mesh_shape)}, {stage.layers} layers, {took}")
    for one in found.candidates:
        if one.why:
            lines.append(f"not       {_times(one.shape)} in {one.stages} stage(s): {_lost(one)}")
    if found.goal is Goal.TRAINING:
        lines.append("not       in several stages: a step of training is not cut")
    saved = share_own_ops_could_save(found)
    if saved > _WORTH_A_WORD:
        lines.append(f"own ops   a ring of keys and others of softmesh's own (--own-ops) could save up to {saved:.0%}")
    return [line for line in lines if line]


def _of_what(found: LayoutPlan) -> str:
    """All that was looked at: what is no plan has a line of its own."""
    count = len(found.candidates)
    return "for this mesh" if count < 2 else f"of {count} meshes and stages that were looked at"


def _lost(one: Candidate) -> str:
    if one.seconds is not None:
        return f"{_seconds(one.seconds)}, {one.why}"
    return f"{one.why}: {_seconds(one.bound)}" if one.why == SLOWER_AT_BEST else one.why


def document(found: LayoutPlan) -> dict[str, Any]:
    """The plan for other programs."""
    opening = found.opening
    leaves = {leaf.name: found.home(leaf.name) for leaf in found.problem.graph.leaves}
    return {
        "system": opening and opening.system,
        "fabric": opening and opening.fabric.name,
        "mesh": list(opening.shape if opening is not None else found.mesh_shape),
        "stage_mesh": list(found.mesh_shape),
        "goal": found.goal.value,
        "seconds": found.seconds,
        "ranked_seconds": found.ranked_seconds,
        "bound": found.bound,
        "own_bound": found.own_bound,
        "gap": found.gap,
        "status": found.status.value,
        "degrees": degrees(found),
        "memory_bytes": found.memory,
        "stages": [vars(stage) for stage in found.stages],
        "candidates": [vars(one) | {"bound": _or_none(one.bound)} for one in found.candidates],
        "tensors": {
            name: {"placements": [repr(word) for word in home.layout], "dtype": home.dtype.name}
            for name, home in leaves.items()
        },
    }


def _or_none(bound: float) -> float | None:
    """JSON has no infinity: None where nothing of the kind can be."""
    return bound if math.isfinite(bound) else None


def _times(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.3f} s"
