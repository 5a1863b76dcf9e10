"""Masks that tell a chip which columns of a tile belong to which group of channels."""

from __future__ import annotations

from itertools import accumulate
from typing import cast

import torch

from softmesh.dispatch.checked_function import checked_function
from softmesh.errors import MeshError
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import from_torch


@checked_function
def find_max_tile_span(W: int, group_size: int, tile_width: int) -> int:
    """The most tiles that any of the groups of W channels touches."""
    starts = range(0, W, group_size)
    return max((start + group_size - 1) // tile_width - start // tile_width + 1 for start in starts)


def _mask(
    op: str, channels: int, groups: int, columns: int, tile: tuple[int, int], rows_in_last_tile: int = 0
) -> torch.Tensor:
    """(1, groups, tile rows, width): 1 where a group lies, counted from the tile in which it starts."""
    if min(channels, groups, columns, *tile) < 1 or channels % groups or groups % columns:
        raise MeshError(
            f"{op}: num_groups={groups} must divide num_channel={channels}, and num_cores_across_channel={columns} "
            "divide the groups."
        )
    height, width = tile
    size = channels // groups
    span = find_max_tile_span(channels, size, width)
    mask = torch.zeros(1, groups, height, width * span)
    starts = list(accumulate([size] * (groups // columns - 1), lambda at, by: (at + by) % width, initial=0))
    for group in range(groups):
        start = starts[group % len(starts)]
        mask[:, group, : rows_in_last_tile or height, start : start + size] = 1
    return mask


@checked_function
def create_group_norm_input_mask(
    num_channel: int,
    num_groups: int,
    num_cores_across_channel: int,
    data_type: DataType = DataType.BFLOAT16,
    tile_height: int = TILE_SIZE,
    tile_width: int = TILE_SIZE,
    rows_in_last_tile: int = 0,
) -> Tensor:
    """A host tensor [1, groups, tile rows, width] in tiles: 1 where a group's channels are, else 0."""
    tile = (tile_height, tile_width)
    op, sizes = "create_group_norm_input_mask", (num_channel, num_groups, num_cores_across_channel)
    return cast(
        Tensor, from_torch(_mask(op, *sizes, tile, rows_in_last_tile), dtype=data_type, layout=Layout.TILE)
    )


@checked_function
def create_group_norm_input_negative_mask(
    num_channel: int,
    num_groups: int,
    num_cores_across_channel: int,
    data_type: DataType = DataType.BFLOAT16,
    tile_height: int = TILE_SIZE,
    tile_width: int = TILE_SIZE,
) -> Tensor:
    """As the input mask, with 1 and 0 exchanged."""
    tile = (tile_height, tile_width)
    op, sizes = "create_group_norm_input_negative_mask", (num_channel, num_groups, num_cores_across_channel)
    return cast(Tensor, from_torch(1 - _mask(op, *sizes, tile), dtype=data_type, layout=Layout.TILE))
