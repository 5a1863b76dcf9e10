"""Axes and placements in the words of the program that is checked."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.placement.words import Partial, Placement
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_label
from softmesh.train.checking.values import Value


def axes_text(axes: Sequence[Axis]) -> str:
    return " and ".join(map(repr, axes))


def placement_text(mesh: MeshDevice, words: Sequence[Placement]) -> str:
    """The word for each axis that has several devices."""
    if len(words) != mesh.shape.dims():
        return ", ".join(map(repr, words))
    shown = [
        f"{axis_label(mesh, axis)}: {word!r}"
        for axis, (word, n) in enumerate(zip(words, mesh.shape, strict=True))
        if n > 1
    ]
    return ", ".join(shown)


def is_partial(of: Value | Tensor, axis: int) -> bool:
    words = of.words if isinstance(of, Value) else of.view_distribution().placements
    return axis < len(words) and isinstance(words[axis], Partial)
