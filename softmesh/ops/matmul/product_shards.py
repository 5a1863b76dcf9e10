"""Shard layouts of products: those of a program config's blocks, where the memory config does not say."""

from __future__ import annotations

import math

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet, num_cores_to_corerangeset
from softmesh.hardware.memory_config import ShardOrientation, ShardSpec
from softmesh.hardware.program_configs import (
    MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig,
    MatmulProgramConfig,
)
from softmesh.tensor.dtype import TILE_SIZE
from softmesh.tensor.spec import TensorSpec

_ROWS, _COLUMNS = ShardOrientation.ROW_MAJOR, ShardOrientation.COL_MAJOR
_Blocks = (
    MatmulMultiCoreReuseProgramConfig
    | MatmulMultiCoreReuseMultiCastProgramConfig
    | MatmulMultiCoreReuseMultiCast1DProgramConfig
    | MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig
)


def product_shards(a: TensorSpec, width: int, config: MatmulProgramConfig | None) -> ShardSpec | None:
    """One block of the product of a with `width` columns on each core."""
    if not isinstance(config, _Blocks) or not config.per_core_M or not config.per_core_N:
        return None
    rows = math.prod(tuple(a.padded_shape)[:-1])
    down = -(-rows // (config.per_core_M * TILE_SIZE))
    across = -(-width // (config.per_core_N * TILE_SIZE))
    shard = [config.per_core_M * TILE_SIZE, config.per_core_N * TILE_SIZE]
    if isinstance(config, MatmulMultiCoreReuseMultiCastProgramConfig):
        end = (down - 1, across - 1) if config.transpose_mcast else (across - 1, down - 1)
        cores = CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(*end))])
        return ShardSpec(cores, shard, _COLUMNS if config.transpose_mcast else _ROWS)
    cut = a.memory_config.shard_spec
    orientation = cut.orientation if cut and isinstance(config, MatmulMultiCoreReuseProgramConfig) else _ROWS
    if isinstance(config, MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig):
        if cut is None:
            return None
        corner = cut.grid.bounding_box().end
        grid = CoreCoord(corner.x + 1, corner.y + 1)
    else:
        grid = config.compute_with_storage_grid_size
    if down * across > grid.x * grid.y:
        return None
    cores = num_cores_to_corerangeset(down * across, grid, row_wise=orientation is _ROWS)
    return ShardSpec(cores, shard, orientation)
