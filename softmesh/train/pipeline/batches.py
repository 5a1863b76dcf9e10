"""A batch cut into micro-batches, which are brought to the devices that work on them."""

from __future__ import annotations

import torch

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import Tensor
from softmesh.train.axes import Axis, divided, has_axis, on_mesh

BATCH_AXIS = "dp"


def cut_into(count: int, name: str, batch: torch.Tensor) -> list[torch.Tensor]:
    """Equal shares of the rows, one after the other."""
    values = checked("step", name, batch, torch.Tensor, "a torch.Tensor with the rows of the whole batch")
    rows = values.shape[0] if values.ndim else 0
    if rows == 0 or rows % count:
        raise MeshError(
            f"step: the {rows} rows of {name} do not divide into {count} micro-batches. Use a multiple of {count}, or "
            "another number of micro-batches."
        )
    return list(values.chunk(count))


def placed(name: str, values: torch.Tensor, mesh: MeshDevice, splits: dict[Axis, int] | None) -> Tensor:
    """On the mesh: numbers as float32 tiles, indices as uint32 rows. Without `splits`, rows are split along "dp"."""
    along: dict[Axis, int] = (
        ({BATCH_AXIS: 0} if has_axis(mesh, BATCH_AXIS) else {}) if splits is None else splits
    )
    for axis, dim in along.items():
        divided(f"step: dim {dim} of a micro-batch of {name}", values.shape[dim], mesh, axis)
    if values.is_floating_point():
        return on_mesh(values, mesh, along, DataType.FLOAT32, Layout.TILE)
    return on_mesh(values.to(torch.int32), mesh, along, DataType.UINT32)
