"""Compares a value of a mesh with the same value of one device, by its placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution
from softmesh.placement.pieces import along_the_mesh, combined
from softmesh.placement.placements import REPLICATE, Partial, Placement, Shard
from softmesh.runtime.command_tensor import CommandTensor
from softmesh.runtime.device import MeshDevice
from softmesh.train.axes import Axis, axis_label

_RATIO_ROOM = 10  # times the tolerance: what a value may be off a multiple of another and count as one


class Value(NamedTuple):
    """What the devices hold of a tensor: leading dims as `dist` says."""

    data: torch.Tensor
    dist: Distribution

    @classmethod
    def of(cls, tensor: CommandTensor) -> Value:
        return cls(*along_the_mesh(tensor.view_data().detach(), tensor.view_distribution()))

    @property
    def words(self) -> tuple[Placement, ...]:
        return self.dist.placements

    def combined(self) -> Value:
        """Contributions put together: no axis is Partial any more."""
        data, words = self.data, list(self.words)
        for axis, word in enumerate(words):
            if isinstance(word, Partial):
                data, words[axis] = combined(data, axis, word.op), REPLICATE
        return Value(data, self.dist.with_placements(tuple(words)))


class Difference(NamedTuple):
    largest: float
    scale: float  # the largest of what it should be
    devices: tuple[MeshCoordinate, ...]  # that are off; none where all hold what they should
    ratio: float | None  # where the value is a multiple of what it should be

    @property
    def relative(self) -> float:
        return self.largest / self.scale


def whole(what: str, value: Value) -> torch.Tensor:
    """The one value that the pieces make up."""
    for axis, word in enumerate(value.words):
        if not (word is REPLICATE or isinstance(word, Shard | Partial)):
            raise MeshError(
                f"check: {what} is {word} along mesh axis {axis}: each device holds something of its own, which is no "
                "value of one device. Put it on the mesh with a mapper, or the same on all devices."
            )
    data, words = value.combined()
    for axis, word in reversed(list(enumerate(words.placements))):
        if isinstance(word, Shard):
            data = data.movedim(axis, axis + word.dim).flatten(axis + word.dim, axis + word.dim + 1)
            if word.size is not None:
                data = data.narrow(axis + word.dim, 0, word.size)
        else:
            data = data.select(axis, 0)
    return data


def spread(values: torch.Tensor, dist: Distribution) -> torch.Tensor | None:
    """The whole of a value as devices would hold it; None where it cannot be dealt out like that."""
    for axis, (word, devices) in enumerate(zip(dist.placements, dist.grid, strict=True)):
        if not isinstance(word, Shard):
            values = values.unsqueeze(axis)
            continue
        at = axis + word.dim
        if at >= values.dim() or values.shape[at] % devices or word.size is not None:
            return None
        values = values.unflatten(at, (devices, -1)).movedim(at, axis)
    return values


def is_comparable(value: Value, expected: torch.Tensor) -> bool:
    dealt_out = spread(expected, value.dist)
    return dealt_out is not None and dealt_out.shape[value.dist.lead :] == value.data.shape[value.dist.lead :]


def difference(value: Value, expected: torch.Tensor, tolerance: float, floor: float = 1e-6) -> Difference:
    """Off are devices by more than `tolerance` of the largest expected value, or of `floor` if that is larger."""
    found, dist = value.combined()
    dealt_out = spread(expected.float(), dist)
    assert dealt_out is not None
    found = found.float()
    wrong = (found - dealt_out).abs()
    wrong = wrong.masked_fill(found.isnan() & dealt_out.isnan(), 0.0).nan_to_num(nan=float("inf"))
    scale = max(float(dealt_out.nan_to_num(0.0).abs().max()) if dealt_out.numel() else 0.0, floor)
    by_device = wrong.reshape(*wrong.shape[: dist.lead], -1).amax(-1) if wrong.numel() else torch.zeros(1)
    is_off = (by_device > tolerance * scale).expand(dist.grid).flatten().tolist()
    devices = tuple(coord for coord, off in zip(dist.coordinates(), is_off, strict=True) if off)
    ratio = _ratio(found, dealt_out, tolerance) if devices else None
    return Difference(float(by_device.max()), scale, devices, ratio)


def _ratio(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> float | None:
    size = float(expected.square().sum())
    if not size > 0:
        return None
    ratio = float((found * expected).sum() / (expected.expand_as(found).square().sum()))
    room = _RATIO_ROOM * tolerance * abs(ratio) * float(expected.abs().max())
    return ratio if float((found - ratio * expected).abs().max()) <= room else None


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


def is_partial(of: Value | CommandTensor, axis: int) -> bool:
    words = of.words if isinstance(of, Value) else of.view_distribution().placements
    return axis < len(words) and isinstance(words[axis], Partial)
