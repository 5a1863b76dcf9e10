"""A batch brought to the mesh: its rows divided among the devices that train on different ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from softmesh.dispatch.operation import OPERATIONS
from softmesh.errors import MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, axis_number, divided, on_mesh

_FLOATS = {torch.bfloat16: DataType.BFLOAT16, torch.float16: DataType.BFLOAT16}


def placed(what: str, values: torch.Tensor, mesh: MeshDevice, splits: Mapping[Axis, int]) -> Tensor:
    """Integers become uint32 rows, anything else tiles. Two axes may split one dim: the first counts slowest."""
    _check_divides(what, values, mesh, splits)
    first = {axis: dim for axis, dim in splits.items() if dim not in _before(splits, axis)}
    if values.is_floating_point():
        dtype, layout = _FLOATS.get(values.dtype, DataType.FLOAT32), Layout.TILE
    else:
        dtype, layout = DataType.UINT32, Layout.ROW_MAJOR
    tensor = on_mesh(values, mesh, first, dtype, layout)
    for axis, dim in splits.items():
        if axis not in first:
            tensor = OPERATIONS["mesh_partition"](tensor, dim, cluster_axis=axis_number(mesh, axis))
    return tensor


def _before(splits: Mapping[Axis, int], axis: Axis) -> list[int]:
    """The dims that axes before this one split."""
    axes = list(splits)
    return [splits[other] for other in axes[: axes.index(axis)]]


def _check_divides(what: str, values: torch.Tensor, mesh: MeshDevice, splits: Mapping[Axis, int]) -> None:
    extents = list(values.shape)
    for axis, dim in splits.items():
        if not 0 <= dim < len(extents):
            raise MeshError(
                f"{what} has the shape {list(values.shape)}, and mesh axis {axis!r} is to split dim {dim}."
            )
        extents[dim] = divided(f"{what}, dim {dim} of {list(values.shape)}", extents[dim], mesh, axis)
