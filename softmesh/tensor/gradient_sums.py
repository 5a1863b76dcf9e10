"""Detects gradients that are synchronised twice: notes along which axes, and at which line, each was summed.

A gradient that is synchronised twice is too large by the number of devices, and nothing about its values shows it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.strictness import warn_or_raise

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
    def __init__(self, gradient: torch.Tensor, axes: Axes) -> None:
        self.gradient, self.axes = weakref.ref(gradient), axes


# Of each parameter; what was noted of a gradient ends when a backward pass brings another.
_SUMMED: weakref.WeakKeyDictionary[Storage, _Noted] = weakref.WeakKeyDictionary()


def summed_over(parameter: Storage) -> Axes:
    noted = _SUMMED.get(parameter)
    return {} if noted is None or noted.gradient() is not parameter.gradient else noted.axes


def note_summed(parameter: Storage, axes: Axes) -> None:
    """Its gradient, as it is now, was added up over these axes, and over no others."""
    if parameter.gradient is not None:
        _SUMMED[parameter] = _Noted(parameter.gradient, axes)


def warn_if_summed(doing: str, name: str, known: Axes, axis: int, devices: int) -> None:
    if axis in known and devices > 1:
        warn_or_raise(
            f"{doing}: {name} was added up over the {devices} devices along mesh axis {axis} before, at {known[axis]}, "
            "and no backward pass has brought another since: a second mean changes nothing, a second sum makes it "
            f"{devices} times too large. Synchronise gradients once a step.",
            SoftmeshWarning,
            MeshError,
        )
