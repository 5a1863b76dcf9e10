"""Likely causes of a wrong gradient, of a wrong synchronisation and of a wrong step of an optimizer."""

from __future__ import annotations

import torch

from softmesh.diff.entries import Entry
from softmesh.diff.gradient_recording import GRADIENT
from softmesh.diff.result import Cause
from softmesh.placement.placements import REPLICATE, Partial
from softmesh.train.module import Phase

_NEAR = 0.02  # of a whole number, the distance of a ratio that is taken for it


def is_of_training(entry: Entry) -> bool:
    return entry.gradient_of is not None or bool(entry.module and _phase(entry) is not None)


def _phase(entry: Entry) -> Phase | None:
    if entry.name in (Phase.SYNC.value, Phase.CLIP.value):
        return Phase(entry.name)
    if not entry.name.endswith(".step"):
        return None
    return Phase.BEFORE_STEP if entry.name.startswith(GRADIENT) else Phase.STEP


def training_cause(entry: Entry, ratio: float | None) -> tuple[Cause, str]:
    """`ratio`: so many times the reference, where it is a multiple of it."""
    phase = None if entry.gradient_of is not None else _phase(entry)
    if phase is Phase.STEP:
        return Cause.OTHER_ARGUMENT, (
            f"the gradient of {entry.module} agrees with the reference, and what the step makes of it does not: the "
            "optimizer has another learning rate, other state or another parameter."
        )
    open_axes = [axis for axis, word in enumerate(entry.outputs[0].dist.placements) if isinstance(word, Partial)]
    if phase is Phase.BEFORE_STEP and open_axes:
        return Cause.PARTIAL_SUM, (
            f"each device along mesh axis {_listed(open_axes)} steps by its own contribution to the gradient of "
            f"{entry.module}: sync_gradients along that axis is missing."
        )
    if ratio is not None:
        return _multiple(entry, phase, ratio)
    if phase is not None:
        return Cause.OTHER_VALUES, (
            f"what came back to {entry.module} in this pass agrees with the reference, and its gradient does not: that "
            "of an earlier pass is still in it (zero_grad), or it was changed in between."
        )
    grown = _axes_that_meet(entry)
    if grown:
        return Cause.PARTIAL_SUM, (
            f"a contribution of each device along mesh axis {_listed(grown)} meets a gradient that all of them share "
            "here: they were not added up on the way back, which train.broadcast(x, axis) before layers whose weights "
            "are split sees to."
        )
    return Cause.UNKNOWN, "the gradients that it comes from agree with the reference, and it does not."


def _multiple(entry: Entry, phase: Phase | None, ratio: float) -> tuple[Cause, str]:
    grid = entry.outputs[0].dist.grid
    sizes = {axis: n for axis, n in enumerate(grid) if n > 1 and abs(ratio - n) < _NEAR * n}
    inverse = {axis: n for axis, n in enumerate(grid) if n > 1 and abs(ratio * n - 1) < _NEAR}
    told = f"it is {ratio:.4g} times the reference"
    if phase is not None and (sizes or inverse):
        how = "summed, and not averaged," if sizes else "averaged, and not summed,"
        axes = _listed(list(sizes or inverse))
        return Cause.WRONG_SCALE, f"{told}: contributions were {how} over the devices of mesh axis {axes}."
    if sizes:
        axes = _listed(list(sizes))
        return Cause.DOUBLE_REDUCE, (
            f"{told}, the size of mesh axis {axes}: on the way back equal gradients are added up along it. Call "
            "train.all_reduce(x, axis, noop_backward=True) where all devices hold the same gradient."
        )
    return Cause.WRONG_SCALE, f"{told}."


def _axes_that_meet(entry: Entry) -> list[int]:
    """Where some of the gradients that are added up here are contributions, and others are everybody's."""
    words = [one.dist.placements for one in entry.inputs]
    made = entry.outputs[0].dist.placements
    return [
        axis
        for axis, word in enumerate(made)
        if isinstance(word, Partial) and any(axis < len(one) and one[axis] is REPLICATE for one in words)
    ]


def _listed(axes: list[int]) -> str:
    return " and ".join(map(str, axes))


def ratio_of(found: torch.Tensor, expected: torch.Tensor) -> float | None:
    """The factor between the two, if there is one."""
    own, other = (one.flatten().double() for one in (found, expected))
    if own.shape != other.shape or not float(own.norm()) * float(other.norm()) > 0:
        return None
    both = float(own @ other)
    is_multiple = abs(both) >= (1 - 1e-4) * float(own.norm()) * float(other.norm())
    return both / float(other @ other) if is_multiple else None
