"""Sharded memory configs by how a tensor is cut: `create_sharded_memory_config` and its form that rounds up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from softmesh.arguments import checked, checked_ints, described
from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import (
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    ShardStrategy,
    TensorMemoryLayout,
)
from softmesh.hardware.shape import divup, roundup

_TILE = 32


def create_sharded_memory_config(
    shape: Sequence[int],
    core_grid: CoreGrid | CoreRangeSet,
    strategy: ShardStrategy,
    orientation: ShardOrientation | None = None,
    use_height_and_width_as_shard_shape: bool = False,
) -> MemoryConfig:
    """An L1 config that cuts a tensor of this shape evenly over the cores.

    >>> config = create_sharded_memory_config((1, 1, 64, 96), CoreGrid(x=3, y=2), ShardStrategy.BLOCK)
    >>> config.shard_spec.shape
    [32, 32]
    """
    grid = _shard_grid(core_grid)
    layout = _layout(strategy)
    orientation = ShardOrientation.ROW_MAJOR if orientation is None else orientation
    if use_height_and_width_as_shard_shape:
        return _l1_sharded(layout, grid, _last_two(shape, orientation), orientation)
    if isinstance(core_grid, CoreRangeSet):
        raise MeshError(
            "height and width must be shard shape with CoreRangeSet; pass the shape of one shard with "
            "use_height_and_width_as_shard_shape=True, or give a CoreGrid"
        )
    tensor, parts = _height_and_width(shape), _parts(layout, grid, orientation, "Invalid sharding core_grid")
    if tensor.height % parts.height or tensor.width % parts.width:
        raise MeshError(
            f"Invalid sharding core_grid: a {tensor.height} x {tensor.width} tensor does not divide into "
            f"{parts.height} x {parts.width} equal shards; pad it, or use another {core_grid!r}"
        )
    return _l1_sharded(layout, grid, (tensor.height // parts.height, tensor.width // parts.width), orientation)


def create_sharded_memory_config_(
    shape: Sequence[int],
    core_grid: CoreGrid | CoreRangeSet,
    strategy: ShardStrategy | TensorMemoryLayout,
    orientation: ShardOrientation | None,
    use_height_and_width_as_shard_shape: bool = False,
    tile_layout: bool = False,
) -> MemoryConfig:
    """The same, rounding the shards up where they do not divide.

    With `tile_layout` the height is rounded up first: to a multiple of the cores, in blocks to whole tiles for each.
    """
    grid = _shard_grid(core_grid)
    layout = strategy if isinstance(strategy, TensorMemoryLayout) else _layout(strategy)
    if not isinstance(orientation, ShardOrientation):
        raise MeshError(f"Invalid type of shard orientation: give a ttnn.ShardOrientation, not {orientation!r}")
    if use_height_and_width_as_shard_shape:
        shard = _last_two(shape, orientation)
    else:
        parts = _parts(layout, grid, orientation, "Invalid CoreRangeSet for block sharding strategy")
        height, width = _height_and_width(shape)
        if tile_layout and layout is TensorMemoryLayout.HEIGHT_SHARDED:
            height = roundup(height, parts.height)
        elif tile_layout and layout is TensorMemoryLayout.BLOCK_SHARDED:
            height = roundup(height, parts.height * _TILE)
        shard = divup(height, parts.height), divup(width, parts.width)
    if tile_layout and all(extent % _TILE for extent in shard):
        raise MeshError(
            f"Incorrect tensor shape: {list(shape)} makes shards of {list(shard)}, which are no whole tiles in either "
            f"direction; pad it to multiples of {_TILE}"
        )
    return _l1_sharded(layout, grid, shard, orientation)


class _HeightWidth(NamedTuple):
    height: int
    width: int


def _parts(layout: TensorMemoryLayout, grid: CoreRangeSet, orientation: ShardOrientation, refusal: str) -> _HeightWidth:
    """Into how many shards the height and the width of a tensor are cut."""
    if layout is TensorMemoryLayout.HEIGHT_SHARDED:
        return _HeightWidth(grid.num_cores(), 1)
    if layout is TensorMemoryLayout.WIDTH_SHARDED:
        return _HeightWidth(1, grid.num_cores())
    box = grid.bounding_box().grid_size()
    if box.x * box.y != grid.num_cores():
        raise MeshError(f"{refusal}: block sharding needs one rectangle of cores, not {grid}")
    return _HeightWidth(box.y, box.x) if orientation is ShardOrientation.ROW_MAJOR else _HeightWidth(box.x, box.y)


def _height_and_width(shape: Sequence[int]) -> _HeightWidth:
    *leading, width = _checked_shape(shape, 1)
    return _HeightWidth(math.prod(leading), width)


def _last_two(shape: Sequence[int], orientation: ShardOrientation) -> tuple[int, int]:
    *_, height, width = _checked_shape(shape, 2)
    return (height, width) if orientation is ShardOrientation.ROW_MAJOR else (width, height)


def _checked_shape(shape: Sequence[int], rank: int) -> list[int]:
    sizes = checked_ints("create_sharded_memory_config", "shape", shape)
    if len(sizes) < rank:
        raise MeshError(f"create_sharded_memory_config: shape {sizes} needs {rank} dims or more")
    return sizes


def _shard_grid(core_grid: CoreGrid | CoreRangeSet) -> CoreRangeSet:
    if isinstance(core_grid, CoreRangeSet):
        return core_grid
    if isinstance(core_grid, CoreGrid):
        return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(core_grid.x - 1, core_grid.y - 1))])
    raise ArgumentError(f"Invalid core_grid type: {described(core_grid)} is neither a CoreGrid nor a CoreRangeSet")


def _layout(strategy: ShardStrategy) -> TensorMemoryLayout:
    checked("create_sharded_memory_config", "strategy", strategy, ShardStrategy, "a ttnn.ShardStrategy")
    return TensorMemoryLayout[f"{strategy.name}_SHARDED"]


def _l1_sharded(
    layout: TensorMemoryLayout, grid: CoreRangeSet, shard: Sequence[int], orientation: ShardOrientation
) -> MemoryConfig:
    return MemoryConfig(layout, BufferType.L1, ShardSpec(grid, shard, orientation))
