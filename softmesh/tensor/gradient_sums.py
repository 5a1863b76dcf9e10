"""Detects gradients that are synchronised twice: notes along which axes, and at which line, each was summed.

A gradient that is synchronised twice is too large by the number of devices, and nothing about its values shows it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.strictness import doubt, warn_or_raise

if TYPE_CHECKING:
    from softmesh.tensor.storage import Storage

Axes = dict[int, CallSite]  # the line that added up, by mesh axis


class GradientSums:
    """Of a tensor that is a gradient."""

    needs_look = True

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def and_over(self, axes: list[int]) -> GradientSums:
        return GradientSums(self.axes | dict.fromkeys(axes, user_call_site()))


class _Noted:
    """`is_part`: a backward pass has added to what was summed. `used` is the line of the step that took it."""

    def __init__(self, gradient: torch.Tensor, axes: Axes, is_part: bool = False, used: CallSite | None = None) -> None:
        self.gradient, self.axes = weakref.ref(gradient), axes
        self.is_part, self.used = is_part, used


# Of each parameter; what was noted of a gradient ends when another takes its place.
_SUMMED: weakref.WeakKeyDictionary[Storage, _Noted] = weakref.WeakKeyDictionary()


def _noted(parameter: Storage, gradient: torch.Tensor | None) -> _Noted | None:
    noted = _SUMMED.get(parameter)
    return None if noted is None or gradient is None or noted.gradient() is not gradient else noted


def summed_over(parameter: Storage) -> Axes:
    noted = _noted(parameter, parameter.gradient)
    return {} if noted is None or noted.is_part else noted.axes


def note_summed(parameter: Storage, axes: Axes) -> None:
    """Its gradient, as it is now, was added up over these axes, and over no others."""
    if parameter.gradient is not None:
        _SUMMED[parameter] = _Noted(parameter.gradient, axes)


def note_added(parameter: Storage, before: torch.Tensor) -> None:
    """A backward pass has added to the gradient that was there."""
    noted = _noted(parameter, before)
    if noted is not None and parameter.gradient is not None:
        _SUMMED[parameter] = _Noted(parameter.gradient, noted.axes, True, noted.used)


def note_used(parameter: Storage, step: CallSite) -> None:
    """A step of an optimizer has taken its gradient."""
    if parameter.gradient is not None:
        noted = _noted(parameter, parameter.gradient)
        axes = {} if noted is None else noted.axes
        _SUMMED[parameter] = _Noted(parameter.gradient, axes, noted is not None and noted.is_part, step)


def doubt_used_before(doing: str, name: str, parameter: Storage) -> None:
    """Whoever adds up gradients over several steps on purpose is right to; most have forgotten zero_grad."""
    noted = _noted(parameter, parameter.gradient)
    if noted is not None and noted.is_part and noted.used is not None:
        doubt(
            f"{doing}: the gradient of {name} holds what the step at {noted.used} used already, and what a backward "
            "pass has added since. Call zero_grad() behind each step.",
            SoftmeshWarning,
        )


def warn_if_partly_summed(doing: str, name: str, parameter: Storage, axis: int, devices: int) -> None:
    """Before a sum without a mean, which counts what all devices share once for each of them."""
    noted = _noted(parameter, parameter.gradient)
    if noted is not None and noted.is_part and axis in noted.axes and devices > 1:
        warn_or_raise(
            f"{doing}: {name} holds what was added up over the {devices} devices along mesh axis {axis} before, at "
            f"{noted.axes[axis]}, and a backward pass has added to it since: a sum makes the first part {devices} "
            "times too large. Synchronise once a step, behind the last backward pass.",
            SoftmeshWarning,
            MeshError,
        )


def warn_if_summed(doing: str, name: str, known: Axes, axis: int, devices: int) -> None:
    if axis in known and devices > 1:
        warn_or_raise(
            f"{doing}: {name} was added up over the {devices} devices along mesh axis {axis} before, at {known[axis]}, "
            "and no backward pass has brought another since: a second mean changes nothing, a second sum makes it "
            f"{devices} times too large. Synchronise gradients once a step.",
            SoftmeshWarning,
            MeshError,
        )
