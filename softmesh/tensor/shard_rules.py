"""The rules of shards: which memory configs a tensor can have, by its shape, dtype, layout and tile, and what follows.

They are TT-NN's, in the order in which it asks them: a config with several mistakes is refused for the same one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from softmesh.errors import MeshError
from softmesh.hardware.memory_config import (
    MemoryConfig,
    NdShardSpec,
    ShardDistributionStrategy,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tile import DEFAULT_TILE, Tile, padded_shape

_CUT_WIDTH = (TensorMemoryLayout.WIDTH_SHARDED, TensorMemoryLayout.BLOCK_SHARDED)


def row_alignment(config: MemoryConfig) -> int:
    """What the rows of a row-major tensor are filled up to a multiple of: the width of its shards."""
    if config.interleaved:
        return 1
    flat, nd = config.shard_spec, config.nd_shard_spec
    shard = flat.shape if flat is not None else () if nd is None else tuple(nd.shard_shape)
    return (shard[-1] if shard else 1) or 1


def physical_shape(padded: Sequence[int]) -> tuple[int, int]:
    """A padded shape as rows and columns."""
    return math.prod(tuple(padded)[:-1]), tuple(padded)[-1]


def check_shards(
    shape: Sequence[int],
    dtype: DataType,
    layout: Layout,
    config: MemoryConfig,
    tile: Tile,
    tries_row_major: bool = False,
) -> None:
    """Refuse what TT-NN refuses. `from_torch` tries a row-major layout first, which shows in one of the texts."""
    if layout is Layout.ROW_MAJOR and tile.tile_shape != DEFAULT_TILE.tile_shape:
        raise MeshError(
            "Configuring a ROW MAJOR page config with a custom tile configuration is not supported. Leave the tile "
            f"out, or pass layout=ttnn.TILE_LAYOUT: got {tile}."
        )
    flat = None if config.created_with_nd_shard_spec else config.shard_spec
    nd = config.nd_shard_spec
    if config.is_sharded() and flat is None and nd is None and layout is Layout.TILE:
        raise MeshError(
            f"bad optional access: {config.memory_layout} in tiles needs a shard spec: give "
            "shard_spec=ttnn.ShardSpec(...)."
        )
    if config.is_sharded() and (flat is not None or nd is not None):
        padded = padded_shape(tuple(shape), layout, tile, row_alignment(config))
        if flat is not None:
            _check_flat(flat, padded, layout, config, tile, tries_row_major)
        elif nd is not None:
            _check_nd(nd, layout, tile)
        check_dtype(dtype, layout)
        if flat is not None and len(padded) == 1 and flat.shape[0] != 1:
            raise MeshError(
                f"Shard shape must be 1D for 1D tensor! Got {flat.shape} for {list(shape)}: give the shard a height "
                "of 1, or the tensor a second dim."
            )
    else:
        check_dtype(dtype, layout)


def check_dtype(dtype: DataType, layout: Layout) -> None:
    if dtype is DataType.INVALID:
        raise MeshError(
            "Only UINT32, INT32, FLOAT32, UINT16, UINT8, INT8, BFLOAT16, BFLOAT8_B, BFLOAT4_B, or FP8_E4M3 dtypes are "
            f"supported on device! {dtype} holds no values: choose another."
        )
    if dtype in (DataType.BFLOAT8_B, DataType.BFLOAT4_B) and layout is not Layout.TILE:
        raise MeshError(
            "Only TILE layout is supported for BFLOAT8_B dtype! Layout must be Layout::TILE for bfloat8_b or "
            f"bfloat4_b! Got {layout} for {dtype}: pass layout=ttnn.TILE_LAYOUT or choose another dtype."
        )
    if dtype is DataType.FP8_E4M3 and layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"Only ROW_MAJOR layout is supported for FP8_E4M3 dtype! Got {layout}: pass layout=ttnn.ROW_MAJOR_LAYOUT."
        )


def _check_flat(
    flat: ShardSpec,
    padded: Sequence[int],
    layout: Layout,
    config: MemoryConfig,
    tile: Tile,
    tries_row_major: bool,
) -> None:
    height, width = flat.shape
    if not width and config.memory_layout in _CUT_WIDTH and (layout is Layout.ROW_MAJOR or tries_row_major):
        raise MeshError(
            "Row Major width alignment must be greater than 0; a sharded tensor takes it from the shard width (0)"
        )
    if layout is Layout.TILE and (height % tile.height or width % tile.width):
        raise _not_tiles(f"({height}, {width})", tile)
    rows, columns = physical_shape(padded)
    if config.memory_layout is TensorMemoryLayout.HEIGHT_SHARDED:
        if width != columns:
            raise MeshError(
                f"Shard width {width} must match physical width {columns} for height sharded: every shard holds whole "
                "rows."
            )
        _check_count("height", rows, height, flat.num_cores(), f"cores {flat.num_cores()}.", flat)
    elif config.memory_layout is TensorMemoryLayout.WIDTH_SHARDED:
        if height != rows:
            raise MeshError(
                f"Shard height {height} must match physical height {rows} for width sharded: every shard holds whole "
                "columns."
            )
        _check_count("width", columns, width, flat.num_cores(), f"cores {flat.num_cores()}.", flat)
    elif config.memory_layout is TensorMemoryLayout.BLOCK_SHARDED:
        _check_block(flat, rows, columns)


def _check_block(flat: ShardSpec, rows: int, columns: int) -> None:
    if flat.grid.size() != 1:
        raise MeshError(
            f"Shard grid must be one full rectangular grid for block sharded! Got {flat.grid}: give one CoreRange."
        )
    box = flat.grid.bounding_box().grid_size()
    row_major = flat.orientation is ShardOrientation.ROW_MAJOR
    order = f"for {'row' if row_major else 'column'} major orientation!"
    height, width = flat.shape
    down, across = (
        ((box.y, f"rows {box.y} {order}"), (box.x, f"columns {box.x} {order}"))
        if row_major
        else ((box.x, f"columns {box.x} {order}"), (box.y, f"rows {box.y} {order}"))
    )
    _check_count("height", rows, height, *down, flat)
    _check_count("width", columns, width, *across, flat)


def _check_count(what: str, extent: int, shard: int, most: int, most_text: str, flat: ShardSpec) -> None:
    if not shard:
        raise MeshError(f"Shard shape must be greater than 0 in each sharded dim, got {flat.shape}")
    count = -(-extent // shard)
    if count > most:
        raise MeshError(
            f"Number of shards along {what} {count} must not exceed number of {most_text} Make the shards larger, or "
            f"the grid, which is {flat.grid}."
        )


def _check_nd(nd: NdShardSpec, layout: Layout, tile: Tile) -> None:
    shape = tuple(nd.shard_shape)
    if not all(shape):
        raise MeshError(f"Shard shape must be greater than 0 in each sharded dim, got {list(shape)}")
    height, width = (1, 1, *shape)[-2:]
    if layout is Layout.TILE and (height % tile.height or width % tile.width):
        raise _not_tiles(str(nd.shard_shape), tile)


def _not_tiles(shape: str, tile: Tile) -> MeshError:
    return MeshError(
        f"Physical shard shape {shape} must be tile {{{tile.height}, {tile.width}}} sized! Choose shards of whole "
        "tiles, or ROW_MAJOR_LAYOUT."
    )


# What follows from the shape of a tensor: shards given in two dims have a form of n dims, and shards of n dims that
# are whole rows, whole columns or blocks of the flattened tensor have one of two.


def config_of_a_tensor(config: MemoryConfig, padded: Sequence[int]) -> MemoryConfig:
    """The memory config as a tensor of this padded shape tells it."""
    if config.created_with_nd_shard_spec:
        nd = config.nd_shard_spec
        assert nd is not None
        found = _two_dims(nd, tuple(padded))
        if found is None:
            return config.of_a_tensor(TensorMemoryLayout.ND_SHARDED, None, nd)
        layout, height_width = found
        return config.of_a_tensor(layout, ShardSpec(nd.grid, height_width, nd.orientation), nd)
    flat = config.shard_spec
    if flat is None or config.interleaved:
        return config
    is_block = config.memory_layout is TensorMemoryLayout.BLOCK_SHARDED
    strategy = ShardDistributionStrategy.GRID_2D if is_block else ShardDistributionStrategy.ROUND_ROBIN_1D
    shape = flat.shape[1:] if len(padded) == 1 else flat.shape
    return config.of_a_tensor(config.memory_layout, flat, NdShardSpec(shape, flat.grid, flat.orientation, strategy))


def _two_dims(nd: NdShardSpec, padded: tuple[int, ...]) -> tuple[TensorMemoryLayout, tuple[int, int]] | None:
    shard = tuple(nd.shard_shape)
    if nd.shard_distribution_strategy is ShardDistributionStrategy.CONTIGUOUS_1D or not all(shard) or not shard:
        return None
    height = _folded_height(shard, padded)
    if height is None:
        return None
    width = shard[-1]
    rows, columns = physical_shape(padded)
    down, across = -(-rows // height), -(-columns // width)
    if nd.orientation is ShardOrientation.COL_MAJOR:
        down, across = across, down
    if down * across > nd.num_cores():
        return None
    deals_in_turn = nd.shard_distribution_strategy is ShardDistributionStrategy.ROUND_ROBIN_1D
    if deals_in_turn and height == rows:
        return TensorMemoryLayout.WIDTH_SHARDED, (height, width)
    if deals_in_turn and width == columns:
        return TensorMemoryLayout.HEIGHT_SHARDED, (height, width)
    if nd.grid.size() != 1:
        return None
    box = nd.grid.bounding_box().grid_size()
    if (deals_in_turn and across != box.x) or across > box.x or down > box.y:
        return None
    return TensorMemoryLayout.BLOCK_SHARDED, (height, width)


def _folded_height(shard: tuple[int, ...], padded: tuple[int, ...]) -> int | None:
    """The rows of a shard once all dims but the last are folded into one; None where they leave gaps."""
    height, width, rank = 1, shard[-1], len(shard)
    whole = (1,) * max(rank - len(padded), 0) + padded
    for at in range(2, rank + 1):
        height *= shard[-at]
        if shard[-at] == whole[-at]:
            continue
        if math.prod(shard) != height * width:
            return None
        above = whole[:-at]
        ends = at == rank or whole[-at] % shard[-at] == 0 or all(n == 1 for n in above)
        return height if ends else None
    return height
