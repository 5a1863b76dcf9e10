"""Shard layouts of results whose operands lie in shards: as an operand is cut, where that fits, or anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softmesh.hardware.memory_config import MemoryConfig, ShardOrientation, ShardSpec, TensorMemoryLayout
from softmesh.tensor.dtype import Layout
from softmesh.tensor.shard_rules import physical_shape, row_alignment
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tile import padded_shape


def shards_fit(given: TensorSpec, shape: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape is cut by the shards of another: it has as many rows and columns."""
    if tuple(given.shape) == shape:
        return True
    config = given.memory_config
    if config.shard_spec is None or config.created_with_nd_shard_spec or len(shape) < 2:
        return False
    padded = padded_shape(shape, given.layout, given.tile, row_alignment(config))
    return physical_shape(padded) == physical_shape(given.padded_shape)


def cut_anew(given: TensorSpec, shape: Sequence[int], layout: Layout) -> MemoryConfig | None:
    """A tensor of another shape over the cores of one that is sharded, by the same scheme; None where it is not."""
    config, shards = given.memory_config, given.memory_config.shard_spec
    if shards is None or config.created_with_nd_shard_spec or not shape:
        return None
    rows, columns = physical_shape(padded_shape(tuple(shape), layout, given.tile))
    down, across = _shards_along(config, shards)
    height, width = given.tile.tile_shape if layout is Layout.TILE else (1, 1)
    shard = [_share(rows, down, height), _share(columns, across, width)]
    return MemoryConfig(config.memory_layout, config.buffer_type, ShardSpec(shards.grid, shard, shards.orientation))


def _shards_along(config: MemoryConfig, shards: ShardSpec) -> tuple[int, int]:
    """How many shards there may be one below the other, and side by side."""
    if config.memory_layout is TensorMemoryLayout.HEIGHT_SHARDED:
        return shards.num_cores(), 1
    if config.memory_layout is TensorMemoryLayout.WIDTH_SHARDED:
        return 1, shards.num_cores()
    extent = shards.grid.bounding_box().grid_size()
    return (extent.y, extent.x) if shards.orientation is ShardOrientation.ROW_MAJOR else (extent.x, extent.y)


def _share(extent: int, parts: int, unit: int) -> int:
    """Of each part, in whole units."""
    return max(-(-extent // (parts * unit)), 1) * unit


def over_most_cores(given: Iterable[TensorSpec], shape: tuple[int, ...]) -> MemoryConfig | None:
    """Of the operands in shards that fit the result, where the one on the most cores lies."""
    cut = [one for one in given if one.memory_config.shard_spec is not None and shards_fit(one, shape)]
    if not cut:
        return None
    return max(cut, key=lambda one: one.memory_config.shard_spec.num_cores()).memory_config  # type: ignore[union-attr]
