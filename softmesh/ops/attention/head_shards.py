"""Shard layouts of attention heads: how TT-NN cuts results whose memory config does not say."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.cores import (
    CoreCoord,
    CoreRange,
    CoreRangeSet,
    corerange_to_cores,
    num_cores_to_corerangeset_in_subcoregrids,
)
from softmesh.hardware.memory_config import ShardOrientation, ShardSpec
from softmesh.tensor.dtype import TILE_SIZE
from softmesh.tensor.spec import TensorSpec

Extents = tuple[int, int, int]  # heads of all of the batch, rows of one, its width


def in_tiles(extent: int) -> int:
    return -(-extent // TILE_SIZE) * TILE_SIZE


def on_cores_in_order(
    many: int, shard: Sequence[int], grid: CoreCoord, within: CoreRangeSet | None = None, skipped: int = 0
) -> ShardSpec | None:
    """One shard on each of so many cores, row by row; None where there are not as many."""
    cores = within or CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(grid.x - 1, grid.y - 1))])
    if cores.num_cores() < many + skipped:
        return None
    first = corerange_to_cores(cores, row_wise=True)[skipped]
    chosen = num_cores_to_corerangeset_in_subcoregrids(first, many, cores, row_wise=True)
    return ShardSpec(chosen, shard, ShardOrientation.ROW_MAJOR)


def decode_shards(
    users: int, heads: Sequence[int], width: int, grid: CoreCoord, overlap: bool
) -> list[ShardSpec | None]:
    """A user on each core; keys beside queries, or (without overlap) on the cores behind them."""
    skipped = (0, 0 if overlap else users, 0)
    return [
        on_cores_in_order(users, [in_tiles(count), in_tiles(width)], grid, skipped=start)
        for count, start in zip(heads, skipped, strict=True)
    ]


def split_shards(row: ShardSpec | None, extents: Sequence[Extents], turns_keys: bool) -> list[ShardSpec | None]:
    """The heads of a sharded row stay on its cores."""
    if row is None:
        return [None] * len(extents)
    shards = []
    for at, (heads, rows, width) in enumerate(extents):
        height, across = (width, rows) if turns_keys and at == 1 else (rows, width)
        each = -(-heads * height // row.num_cores())
        shards.append(ShardSpec(row.grid, [each, across], row.orientation))
    return list(shards)


def joined_shards(heads: TensorSpec) -> ShardSpec | None:
    """The heads that a core has come to lie side by side on it."""
    cut = heads.memory_config.shard_spec
    rows = heads.padded_shape[-2]
    if cut is None or cut.shape[0] % rows:
        return None
    count = cut.shape[0] // rows
    return ShardSpec(cut.grid, [cut.shape[0] // count, cut.shape[1] * count], cut.orientation)
