"""Mesh axes by name or number, as layers and losses take them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from softmesh.arguments import checked, described
from softmesh.distributed.placement_requests import axis_names
from softmesh.errors import ArgumentValueError, MeshError, did_you_mean
from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.mappers import Mapper, MeshMapperConfig, ShardTensorToMesh, create_mesh_mapper
from softmesh.tensor.tensor import Tensor

Axis = int | str


def axis_number(mesh: MeshDevice, axis: Axis) -> int:
    """Which axis of the mesh this is; an error with the names that there are."""
    rank = checked("axis_number", "mesh", mesh, MeshDevice, "a ttnn.MeshDevice").shape.dims()
    if isinstance(axis, bool) or not isinstance(axis, int | str):
        raise ArgumentValueError(f"A mesh axis is a name or a number, got {described(axis)}.")
    if isinstance(axis, int):
        if not 0 <= axis < rank:
            raise ArgumentValueError(f"Mesh axis {axis}: {mesh} has the axes 0 to {rank - 1}.")
        return axis
    names = axis_names(mesh)
    if names is None:
        raise ArgumentValueError(
            f"Mesh axis {axis!r}: the axes of {mesh} have no names: set "
            f"mesh.axis_names = {('dp', 'tp', 'cp', 'pp')[:rank]}."
        )
    if axis not in names:
        raise ArgumentValueError(
            f"Mesh axis {axis!r}: the axes of {mesh} are {', '.join(map(repr, names))}."
            f"{did_you_mean(axis, names, cutoff=0.4)}"
        )
    return names.index(axis)


def axis_size(mesh: MeshDevice, axis: Axis) -> int:
    number = axis_number(mesh, axis)
    return int(mesh.shape[number])


def axis_label(mesh: MeshDevice, axis: int) -> Axis:
    """An axis as the program calls it: by its name, if it has one."""
    names = axis_names(mesh)
    return axis if names is None else names[axis]


def has_axis(mesh: MeshDevice, axis: Axis) -> bool:
    return isinstance(axis, int) or axis in (axis_names(mesh) or ())


def mapper(mesh: MeshDevice, splits: dict[Axis, int]) -> Mapper:
    """Tensors split along these axes (which dim along which axis), the same on all devices of the others."""
    checked("mapper", "mesh", mesh, MeshDevice, "a ttnn.MeshDevice")
    checked("mapper", "splits", splits, dict, "a dict of mesh axes and dims such as {0: 2}")
    dims = set(splits.values())
    if len(splits) > 1 and len(dims) == 1:
        if math.prod(axis_size(mesh, axis) for axis in splits) != mesh.get_num_devices():
            raise ArgumentValueError(
                f"One dim can be split along several axes only if these are all there are: {splits} on {mesh}."
            )
        return ShardTensorToMesh(mesh, dims.pop())
    words: list[PlacementShard | PlacementReplicate] = [PlacementReplicate()] * mesh.shape.dims()
    for axis, dim in splits.items():
        words[axis_number(mesh, axis)] = PlacementShard(dim)
    return create_mesh_mapper(mesh, MeshMapperConfig(words))


def on_mesh(
    values: torch.Tensor,
    mesh: MeshDevice,
    splits: dict[Axis, int] | None = None,
    dtype: DataType | None = None,
    layout: Layout | None = None,
) -> Tensor:
    """The whole of a tensor, brought to the devices that are to have it."""
    made = from_torch(values, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper(mesh, splits or {}))
    assert made is not None
    return made


def divided(what: str, extent: int, mesh: MeshDevice, axis: Axis) -> int:
    """The share of one device along the axis, or an error that says what does not divide."""
    size = axis_size(mesh, axis)
    if extent % size:
        raise MeshError(
            f"{what}: {extent} does not divide among the {size} devices along mesh axis {axis!r}. "
            f"Use a multiple of {size}."
        )
    return extent // size


def listed(axes: Axis | Sequence[Axis] | None) -> list[Axis]:
    if axes is None:
        return []
    return [axes] if isinstance(axes, int | str) else list(axes)
