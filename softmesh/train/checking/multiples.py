"""Values that are a multiple of what they should be, and who multiplied them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from softmesh.placement.words import REPLICATE
from softmesh.runtime.commands import Command
from softmesh.runtime.device import MeshDevice
from softmesh.train.axes import Axis, axis_label

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


def added_up_alike(mesh: MeshDevice, commands: Iterable[Command]) -> tuple[int, int] | None:
    """The first all_reduce that was given what all devices along its axis hold alike: (its number, the axis)."""
    for number, command in enumerate(commands):
        along = command.arguments.get("cluster_axis") if command.name == "all_reduce" else None
        if isinstance(along, int) and mesh.shape[along] > 1:
            words = command.inputs[0].view_distribution().placements
            if along < len(words) and words[along] is REPLICATE:
                return number, along
    return None
