"""Detects gradients that are synchronised twice: notes along which axes, and at which line, each was summed.

A gradient that is synchronised twice is too large by the number of devices, and nothing about its values shows it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.placement.placements import Partial, Placement, Replicate
from softmesh.strictness import doubt, doubts_are_heard, warn_or_raise

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
    """`is_part`: a backward pass has added to what was summed. `used` is the line of the step that took it.

    `is_sum`: nobody has divided it since.
    """

    def __init__(
        self,
        gradient: torch.Tensor,
        axes: Axes,
        is_part: bool = False,
        used: CallSite | None = None,
        is_sum: bool = False,
    ) -> None:
        self.gradient, self.axes = weakref.ref(gradient), axes
        self.is_part, self.used, self.is_sum = is_part, used, is_sum


# Of each parameter; what was noted of a gradient ends when another takes its place.
_SUMMED: weakref.WeakKeyDictionary[Storage, _Noted] = weakref.WeakKeyDictionary()
# Of each parameter: what the loss was, along each axis of the mesh, from which its gradient came last.
_LOSSES: weakref.WeakKeyDictionary[Storage, tuple[Placement, ...]] = weakref.WeakKeyDictionary()
_RUNNING: list[list[Placement]] = []  # the losses of backward passes that run


@contextmanager
def from_loss(placements: tuple[Placement, ...]) -> Iterator[None]:
    """A backward pass from one value on each device; of no placements if from something else."""
    loss = list(placements)
    _RUNNING.append(loss)
    try:
        yield
    finally:
        _RUNNING[:] = [other for other in _RUNNING if other is not loss]  # another thread may have its own


def note_loss(parameter: Storage) -> None:
    """A gradient has come to it."""
    if _RUNNING:
        _LOSSES[parameter] = tuple(_RUNNING[-1])


def _of_loss(parameter: Storage, axis: int) -> Placement | None:
    words = _LOSSES.get(parameter, ())
    return words[axis] if axis < len(words) else None


def _noted(parameter: Storage, gradient: torch.Tensor | None) -> _Noted | None:
    noted = _SUMMED.get(parameter)
    return None if noted is None or gradient is None or noted.gradient() is not gradient else noted


def summed_over(parameter: Storage) -> Axes:
    noted = _noted(parameter, parameter.gradient)
    return {} if noted is None or noted.is_part else noted.axes


def note_summed(parameter: Storage, axes: Axes, is_sum: bool = False) -> None:
    """Its gradient, as it is now, was added up over these axes, and over no others; and perhaps divided since."""
    if parameter.gradient is not None:
        _SUMMED[parameter] = _Noted(parameter.gradient, axes, is_sum=is_sum)


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


def doubt_used_before(doing: str, parameters: Mapping[str, Storage]) -> None:
    """Whoever adds up gradients over several steps, or takes a gradient twice, on purpose is right to."""
    if not doubts_are_heard():
        return
    for name, parameter in parameters.items():
        noted = _noted(parameter, parameter.gradient)
        if noted is None or noted.used is None:
            continue
        if noted.is_part:
            text = "and what a backward pass has added since. Call zero_grad() behind each step."
        else:
            text = (
                "and no backward pass has brought anything since: a second step goes the same way again, and whatever "
                "else is done to it comes too late. One step for each backward pass, behind all that changes gradients."
            )
        doubt(f"{doing}: the gradient of {name} holds what the step at {noted.used} used already, {text}")
        return  # one tells of all


def doubt_unused(doing: str, parameters: Mapping[str, Storage]) -> None:
    """Before gradients are thrown away. A step may be left out on purpose: most look at the gradients before."""
    if not doubts_are_heard():
        return
    for name, parameter in parameters.items():
        if parameter.gradient is not None and _noted(parameter, parameter.gradient) is None:
            doubt(
                f"{doing}: it throws away the gradient of {name}, which was neither synchronised nor used by a step "
                "since backward() brought it. To accumulate gradients, call it behind each step, and not before each "
                "backward pass.",
            )
            return


def doubt_sums_of_averages(doing: str, parameters: Mapping[str, Storage]) -> None:
    """A learning rate may have been chosen for the sum."""
    if not doubts_are_heard():
        return
    for name, parameter in parameters.items():
        noted = _noted(parameter, parameter.gradient)
        for axis, site in noted.axes.items() if noted is not None and noted.is_sum else ():
            if _of_loss(parameter, axis) == Partial("avg"):
                n = parameter.dist.devices[axis]
                doubt(
                    f"{doing}: the gradient of {name} was added up over the {n} devices along mesh axis {axis} at "
                    f"{site}, and the loss was the average of each device's own part: it is {n} times the gradient of "
                    f"the average of all. Multiply it by 1/{n}.",
                )
                return


def doubt_scale(doing: str, combined: Iterable[tuple[str, Storage, int]], average: bool) -> None:
    """Contributions that were put together in a way that does not fit the loss; which may have been scaled for it."""
    if not doubts_are_heard():
        return
    for name, parameter, axis in combined:
        word, n = _of_loss(parameter, axis), parameter.dist.devices[axis]
        if word == Partial("avg") and not average:
            doubt(
                f"{doing}: the loss was the average of each device's own part along mesh axis {axis}, and the sum of "
                f"the gradients of {name} is {n} times that of the average of all. Say average=True, or scale the "
                f"loss by 1/{n}.",
            )
        elif isinstance(word, Replicate) and average:
            doubt(
                f"{doing}: all {n} devices along mesh axis {axis} had the same loss, so that they hold contributions "
                f"to the gradient of {name}: their average is {n} times too small. Say average=False for this axis, "
                "or enter layers whose weights are split through softmesh.train's broadcast.",
            )
        else:
            continue
        return


def warn_if_partly_summed(doing: str, name: str, parameter: Storage, axis: int, devices: int) -> None:
    """Before a sum without a mean, which counts what all devices share once for each of them."""
    noted = _noted(parameter, parameter.gradient)
    if noted is not None and noted.is_part and axis in noted.axes and devices > 1:
        warn_or_raise(
            f"{doing}: {name} holds what was added up over the {devices} devices along mesh axis {axis} before, at "
            f"{noted.axes[axis]}, and a backward pass has added to it since: a sum makes the first part {devices} "
            "times too large. Synchronise once a step, behind the last backward pass.",
        )


def warn_if_summed(doing: str, name: str, known: Axes, axis: int, devices: int) -> None:
    if axis in known and devices > 1:
        warn_or_raise(
            f"{doing}: {name} was added up over the {devices} devices along mesh axis {axis} before, at {known[axis]}, "
            "and no backward pass has brought another since: a second mean changes nothing, a second sum makes it "
            f"{devices} times too large. Synchronise gradients once a step.",
        )
