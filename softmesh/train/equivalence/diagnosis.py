"""Diagnosis of a difference: missing collectives, and values multiplied by the size of an axis.

A missing all_reduce is traced from the op that warned back to the op that left the partial sum; a missing broadcast
is the last module where gradients stop being the same on all devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement
from softmesh.runtime.command_tensor import CommandTensor
from softmesh.runtime.commands import Command
from softmesh.runtime.device import MeshDevice
from softmesh.train.axes import Axis, axis_label
from softmesh.train.equivalence.run_recorder import Op, Place, Run
from softmesh.train.equivalence.values import is_partial


def missing_reduce(mesh: MeshDevice, ops: Sequence[Op], number: int) -> tuple[str, Axis | None]:
    """Why an op warned: which op left the partial sum, and what is missing between the two."""
    user = ops[number]
    assert user.problem is not None
    for axis in range(mesh.shape.dims()):
        origin = _origin(ops, number, axis)
        label = axis_label(mesh, axis)
        if origin is not None:
            return (
                f"missing all_reduce over mesh axis {label!r}: {origin.describe(True)} leaves a partial sum along "
                f"{label!r}, and {user.describe(True)} takes it for the whole. Call all_reduce(x, {label!r}, "
                "noop_backward=True) between the two.",
                label,
            )
        if _falls_apart(user.command, axis):
            return (
                f"missing all_reduce over mesh axis {label!r} inside {user.command.name}: {user.problem}",
                label,
            )
    return user.problem, None


def _origin(ops: Sequence[Op], user: int, axis: int) -> Op | None:
    """The op that left a partial sum along the axis, which op number `user` then took for the whole."""
    found, wanted = None, _partial_input(ops[user].command, axis)
    while wanted is not None and (at := _producer(ops, user, wanted)) is not None:
        found, user = ops[at], at
        wanted = _partial_input(found.command, axis)
    return found


def _partial_input(command: Command, axis: int) -> CommandTensor | None:
    return next((tensor for tensor in command.inputs if is_partial(tensor, axis)), None)


def _producer(ops: Sequence[Op], before: int, tensor: CommandTensor) -> int | None:
    """Found by where the values lie: what hands a tensor on makes a new one over the same memory."""
    place = _address(tensor)
    for at in reversed(range(before)):
        if place in map(_address, ops[at].command.outputs):
            return at
    return None


def _address(tensor: CommandTensor) -> int:
    data = tensor.storage.data
    return 0 if data is None else data.data_ptr()


def _falls_apart(command: Command, axis: int) -> bool:
    """Whether devices along the axis hold something of their own only after the op."""
    words = [tensor.view_distribution().placements for tensor in (*command.outputs, *command.inputs)]
    if any(len(each) <= axis for each in words):
        return False
    return _differs(words[0][axis]) and not any(_differs(each[axis]) for each in words[1:])


def _differs(word: Placement) -> bool:
    return word is LOCAL or isinstance(word, Partial)


class MissingBroadcast(NamedTuple):
    """A module that got one gradient and handed back one for each device along an axis."""

    place: Place
    label: Axis

    def __str__(self) -> str:
        return (
            f"missing broadcast over mesh axis {self.label!r}: each device along {self.label!r} brings a "
            f"contribution of its own to the gradient of {self.place}, and nobody adds them up. Call "
            f"x = broadcast(x, {self.label!r}) where x enters {self.place.path or 'the model'}."
        )


def missing_broadcast(mesh: MeshDevice, run: Run, before: Place | None, axes: Sequence[int]) -> MissingBroadcast | None:
    """The last module before this place of the backward pass, along one of the axes, where gradients branch."""
    for axis in axes:
        found = None
        for place, returned in run.gradients.items():
            if place == before:
                break
            if place.kind == "input" and is_partial(returned.value, axis) and not _got_several(run, place, axis):
                found = place
        if found is not None:
            return MissingBroadcast(found, axis_label(mesh, axis))
    return None


def _got_several(run: Run, place: Place, axis: int) -> bool:
    outputs = (
        returned.value for other, returned in run.gradients.items() if other.kind == "output" and other[:2] == place[:2]
    )
    return any(is_partial(value, axis) for value in outputs)


# Values that are a multiple of what they should be: one all_reduce too many, or a sum in place of a mean.


_CLOSE = 1e-2  # how near to a whole multiple a ratio must be
_POWERS = (1, 2, 3)  # a mistake that each of several layers makes multiplies


def axes_of_ratio(mesh: MeshDevice, ratio: float | None) -> list[list[Axis]]:
    """The axes, alone or together, of which the number of devices (or a power of it) is the ratio or its inverse."""
    if ratio is None or ratio <= 0:
        return []
    times = max(ratio, 1 / ratio)
    axes = [axis for axis, n in enumerate(mesh.shape) if n > 1]
    for power, count in itertools.product(_POWERS, range(1, len(axes) + 1)):
        fitting = [
            [axis_label(mesh, axis) for axis in chosen]
            for chosen in itertools.combinations(axes, count)
            if abs(times / math.prod(mesh.shape[axis] for axis in chosen) ** power - 1) < _CLOSE
        ]
        if fitting:
            return fitting
    return []


def reduce_of_replicated(mesh: MeshDevice, commands: Iterable[Command]) -> tuple[int, int] | None:
    """The first all_reduce that was given what all devices along its axis hold alike: (its number, the axis)."""
    for number, command in enumerate(commands):
        along = command.arguments.get("cluster_axis") if command.name == "all_reduce" else None
        if isinstance(along, int) and mesh.shape[along] > 1:
            words = command.inputs[0].view_distribution().placements
            if along < len(words) and words[along] is REPLICATE:
                return number, along
    return None
