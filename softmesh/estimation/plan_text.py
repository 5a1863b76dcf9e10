"""A plan for a terminal, in a few lines, and for other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from softmesh.distributed.plan_table import size
from softmesh.planner.explanation.compared_words import (
    compared,
    gap_words,
    lost_words,
    others,
    seconds_text,
    told_apart,
)
from softmesh.planner.explanation.own_ops import share_own_ops_could_save
from softmesh.planner.explanation.unsearched_forms import unsearched_forms
from softmesh.planner.goal import Goal
from softmesh.planner.integer_program import Status
from softmesh.planner.layout_plan import LayoutPlan
from softmesh.planner.parallel_degrees import degrees

_WORTH_A_WORD = 0.05


def summary(found: LayoutPlan) -> list[str]:
    """What is to be opened, what it takes, how far that may be from the best, and what else was looked at."""
    opening = found.opening
    told = " x ".join(f"{n} {kind}" for kind, n in degrees(found).items()) or "one device"
    stopped = ", stopped by --time-limit: more may find a better plan" if found.status is Status.TIME_LIMIT else ""
    lines = [
        "" if opening is None else f"open      {_times(opening.shape)} of {opening.system}, {opening.fabric.name}",
        f"parallel  {told}",
        f"{found.goal.value:9} {seconds_text(found.seconds)}, {gap_words(found, _of_what(found))}",
        f"memory    {size(found.memory)} of {size(found.problem.memory_bytes)} on each device",
        f"search    {found.search_seconds:.1f} s{stopped}",
        _bound(found),
    ]
    if opening is not None and opening.offset is not None:
        lines.insert(1, f"offset    {', '.join(map(str, opening.offset))}")
    for at, stage in enumerate(found.stages):
        sent = f" and {seconds_text(stage.send_seconds)} to hand on" if stage.send_seconds else ""
        took = f"{seconds_text(stage.seconds)}{sent}, {size(stage.memory)} on each device"
        lines.append(f"stage {at:<3} {_times(found.mesh_shape)}, {stage.layers} layers, {took}")
    for one in others(found):
        stages = f" in {one.stages} stages" if one.stages > 1 else ""
        lines.append(f"not       {_times(one.shape)}{stages}: {lost_words(found, one)}")
    if found.goal is Goal.TRAINING:
        lines.append("not       in several stages: a step of training is not cut")
    lines += [f"unseen    {form}: not searched" for form in unsearched_forms(found)]
    saved = share_own_ops_could_save(found)
    if saved > _WORTH_A_WORD:
        lines.append(f"own ops   a ring of keys and others of softmesh's own (--own-ops) could save up to {saved:.0%}")
    return [line for line in lines if line]


def _of_what(found: LayoutPlan) -> str:
    every = compared(found)
    if len(every) < 2:
        return "for this mesh"
    kinds = "meshes and pipelines" if any(one.stages > 1 for one in every) else "meshes"
    return f"of the {len(every)} {kinds} compared"


def _bound(found: LayoutPlan) -> str:
    """Explain what the gap is made of; nothing if there is none."""
    ranked, least = told_apart(found.ranked_seconds, found.bound)
    if ranked == least:
        return ""
    launch = f"{found.problem.launch * 1e6:g} us for each launch"
    return f"bound     counted with {launch} it takes {ranked}, and no plan takes less than {least}"


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
        "not_searched": unsearched_forms(found),
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
