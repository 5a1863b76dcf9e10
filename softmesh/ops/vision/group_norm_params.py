"""Weights and biases of a group norm, spread over the columns of a core grid as a chip wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.cores import CoreGrid
from softmesh.dispatch.checked_function import checked_function
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, ShardOrientation, TensorMemoryLayout
from softmesh.ops.vision.group_norm_masks import create_group_norm_input_mask
from softmesh.placement.mappers import ShardTensor2dMesh
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.transfer import from_torch


def _up(n: int, step: int = TILE_SIZE) -> int:
    return -(-n // step) * step


@checked_function
def create_group_norm_weight_bias_rm(
    input_tensor: torch.Tensor, num_channels: int, num_cores_x: int
) -> torch.Tensor:
    """C values as [1, 1, rows, 32]: for each of `num_cores_x` columns of cores its share, padded to whole rows."""
    if num_cores_x < 1 or num_channels % num_cores_x or input_tensor.numel() != num_channels:
        raise MeshError(
            f"create_group_norm_weight_bias_rm: {input_tensor.numel()} values must be num_channels={num_channels}, and "
            f"num_cores_x={num_cores_x} divide them."
        )
    share = num_channels // num_cores_x
    return F.pad(input_tensor.reshape(num_cores_x, share), (0, _up(share) - share)).reshape(
        1, 1, -1, TILE_SIZE
    )


def columns_of(op: str, operand: Operand | None, channels: int, grid: CoreGrid | None) -> int:
    """Over how many columns of cores a weight was spread; 1 where it is not padded."""
    if operand is None:
        return 1
    held = math.prod(operand.shape)
    if held == channels:
        return 1
    fits = [n for n in range(1, channels + 1) if channels % n == 0 and n * _up(channels // n) == held]
    if not fits:
        raise MeshError(
            f"{op}: {operand.name} {list(operand.shape)} must hold {channels} values, one for a channel, plain or as "
            "ttnn.create_group_norm_weight_bias_rm spreads them."
        )
    wanted = [] if grid is None else [n for n in (grid.x, grid.y) if n in fits]
    return (wanted or fits)[0]


def unpacked(values: torch.Tensor, rank: int, channels: int, columns: int) -> torch.Tensor:
    """(..., C) from plain values or those spread over columns."""
    flat = values.reshape(*values.shape[: values.dim() - rank], -1)
    return flat if columns == 1 else flat.unflatten(-1, (columns, -1))[..., : channels // columns].flatten(-2)


@checked_function
def get_group_norm_cores_across_channel(
    memory_layout: TensorMemoryLayout, core_grid: CoreGrid, shard_orientation: ShardOrientation | None = None
) -> int:
    """How many cores share the channels: one for height sharding, all for width sharding, one side of a block."""
    if memory_layout is TensorMemoryLayout.HEIGHT_SHARDED:
        return 1
    if memory_layout is TensorMemoryLayout.WIDTH_SHARDED:
        return core_grid.x * core_grid.y
    return core_grid.x if shard_orientation is ShardOrientation.ROW_MAJOR else core_grid.y


@checked_function
def dram_group_norm_virtual_columns(core_grid: CoreGrid, num_channels: int, num_groups: int) -> int:
    """The most columns of the grid among which groups and tiles of channels divide evenly."""
    for columns in range(min(core_grid.x, num_groups), 0, -1):
        if num_channels % (columns * TILE_SIZE) == 0 and num_groups % columns == 0:
            return columns
    raise MeshError(
        f"dram_group_norm_virtual_columns: num_channels={num_channels} must be a multiple of {TILE_SIZE}: pad the "
        "channels to whole tiles."
    )


@checked_function
def dram_group_norm_params_from_torch(
    torch_params: torch.Tensor | Sequence[torch.Tensor],
    channels_per_device: int,
    groups_per_device: int,
    device: MeshDevice,
    mesh_axis: int | None = None,
    core_grid: CoreGrid | None = None,
    return_mask: bool = True,
    dtype: DataType = DataType.BFLOAT16,
) -> Any:
    """Weights (and biases) of a group norm on the device, spread over columns of cores, and the mask beside them.

    With `mesh_axis` each holds all channels, of which the devices along that axis take their share.
    """
    if channels_per_device < 1 or groups_per_device < 1 or mesh_axis not in (None, 0, 1):
        raise MeshError(
            f"dram_group_norm_params_from_torch: channels_per_device={channels_per_device} and "
            f"groups_per_device={groups_per_device} must be 1 or more, mesh_axis={mesh_axis} None, 0 or 1."
        )
    params = [torch_params] if isinstance(torch_params, torch.Tensor) else list(torch_params)
    columns = dram_group_norm_virtual_columns(
        core_grid or device.core_grid, channels_per_device, groups_per_device
    )
    share = channels_per_device // columns
    mapper = None
    if mesh_axis is not None:
        dims: list[int | None] = [None, None]
        dims[mesh_axis] = 2
        mapper = ShardTensor2dMesh(device, dims=(dims[0], dims[1]), mesh_shape=device.shape)
    made = [
        from_torch(
            create_group_norm_weight_bias_rm(param.flatten(), param.numel(), param.numel() // share),
            dtype=dtype,
            layout=Layout.ROW_MAJOR,
            device=device,
            memory_config=DRAM_MEMORY_CONFIG,
            mesh_mapper=mapper,
        )
        for param in params
    ]
    if not return_mask:
        return made
    mask = create_group_norm_input_mask(channels_per_device, groups_per_device, columns, dtype)
    return made, from_torch(mask.to_torch(), dtype=dtype, layout=Layout.TILE, device=device)
