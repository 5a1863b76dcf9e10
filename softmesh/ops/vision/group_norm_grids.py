"""Core grids and shardings on which a chip can run a group norm.

The rules are TT-NN's as far as they are known; where several grids would do, its choice may be another.
"""

from __future__ import annotations

from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.dispatch.checked_function import checked_function
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import TILE_SIZE

_CHANNEL_STEP = 8  # channels of one core come in multiples of this


@checked_function
def find_closest_largest_divisor(num: int, start_divisor: int) -> int:
    """The largest divisor of `num` that is not above `start_divisor`."""
    return next(n for n in range(max(1, start_divisor), 0, -1) if num % n == 0)


def _check(op: str, channels: int, groups: int, pixels: int) -> None:
    if min(channels, groups, pixels) < 1 or channels % groups or channels % TILE_SIZE:
        raise MeshError(
            f"{op}: num_channels={channels} must be a multiple of {TILE_SIZE} and of num_groups={groups}, "
            f"and input_nhw={pixels} 1 or more."
        )


def _columns(channels: int, groups: int, most: int) -> int:
    """The most cores among which channels divide in steps of 8, and with whole groups."""
    size = channels // groups
    fits = (n for n in range(most, 0, -1) if channels // _CHANNEL_STEP % n == 0 and channels // n % size == 0)
    return next(fits)


@checked_function
def determine_expected_group_norm_sharded_config_and_grid_size(
    *,
    device: MeshDevice,
    num_channels: int,
    num_groups: int,
    input_nhw: int,
    is_height_sharded: bool,
    is_row_major: bool = False,
) -> tuple[MemoryConfig, CoreGrid]:
    """How to shard an input of `input_nhw` rows, and the core grid for it."""
    _check("determine_expected_group_norm_sharded_config_and_grid_size", num_channels, num_groups, input_nhw)
    grid = device.compute_with_storage_grid_size()
    tiles = -(-input_nhw // TILE_SIZE)
    across = (
        1 if is_height_sharded else _columns(num_channels, num_groups, grid.x if is_row_major else grid.y)
    )
    most = grid.x * grid.y if is_height_sharded else (grid.y if is_row_major else grid.x)
    along = find_closest_largest_divisor(tiles, most)
    shard = [tiles // along * TILE_SIZE, num_channels // across]
    if is_height_sharded:
        columns, rows = min(grid.x, along), -(-along // grid.x)
    else:
        columns, rows = (across, along) if is_row_major else (along, across)
    layout = TensorMemoryLayout.HEIGHT_SHARDED if is_height_sharded else TensorMemoryLayout.BLOCK_SHARDED
    by_row = is_height_sharded or is_row_major
    orientation = ShardOrientation.ROW_MAJOR if by_row else ShardOrientation.COL_MAJOR
    cores = CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(columns - 1, rows - 1))])
    spread = ShardSpec(cores, shard, orientation)
    return MemoryConfig(layout, BufferType.L1, spread), CoreGrid(x=columns, y=rows)


@checked_function
def determine_expected_group_norm_dram_grid_size(
    *, device: MeshDevice, num_channels: int, num_groups: int, input_nhw: int, num_batches: int = 1
) -> CoreGrid:
    """The largest grid among whose columns groups and channel tiles divide evenly, and among whose rows the pixels."""
    _check("determine_expected_group_norm_dram_grid_size", num_channels, num_groups, input_nhw)
    grid = device.compute_with_storage_grid_size()
    fits = (
        n
        for n in range(min(grid.x, num_groups), 0, -1)
        if num_channels // TILE_SIZE % n == 0 and num_groups % n == 0
    )
    tiles = -(-input_nhw // TILE_SIZE)
    return CoreGrid(x=next(fits), y=find_closest_largest_divisor(tiles, grid.y))
