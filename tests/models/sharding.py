"""Memory and program configs as decode programs write them: activations over cores, weights over banks of DRAM."""

from __future__ import annotations

import math

import softmesh as ttnn

TILE = ttnn.TILE_SIZE
GRID = ttnn.CoreCoord(8, 8)
L1_WIDTH = ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG
L1_HEIGHT = ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG


def compute_config(
    fidelity: ttnn.MathFidelity, approx: bool = False, fp32: bool = True
) -> ttnn.WormholeComputeKernelConfig:
    return ttnn.WormholeComputeKernelConfig(
        math_fidelity=fidelity, math_approx_mode=approx, fp32_dest_acc_en=fp32, packer_l1_acc=True
    )


NORM = compute_config(ttnn.MathFidelity.HiFi2)
ATTENTION = compute_config(ttnn.MathFidelity.HiFi2, approx=True)
LOFI = compute_config(ttnn.MathFidelity.LoFi, fp32=False)
HIFI2 = compute_config(ttnn.MathFidelity.HiFi2, fp32=False)
HIFI4 = compute_config(ttnn.MathFidelity.HiFi4)


def core_grid(cores: int) -> ttnn.CoreGrid:
    return ttnn.CoreGrid(x=min(cores, GRID.x), y=math.ceil(cores / GRID.x))


def width_sharded(width: int, cores: int, rows: int = TILE) -> ttnn.MemoryConfig:
    return ttnn.create_sharded_memory_config(
        (rows, width // cores),
        core_grid(cores),
        ttnn.ShardStrategy.WIDTH,
        ttnn.ShardOrientation.ROW_MAJOR,
        use_height_and_width_as_shard_shape=True,
    )


def height_sharded(width: int, cores: ttnn.CoreRangeSet, rows: int = TILE) -> ttnn.MemoryConfig:
    return ttnn.create_sharded_memory_config(
        shape=(rows, width),
        core_grid=cores,
        strategy=ttnn.ShardStrategy.HEIGHT,
        orientation=ttnn.ShardOrientation.ROW_MAJOR,
        use_height_and_width_as_shard_shape=True,
    )


def dram_sharded(device: ttnn.MeshDevice, k: int, n: int) -> ttnn.MemoryConfig:
    """A weight's columns over the banks, a whole number of tiles in each."""
    banks = device.dram_grid_size()
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(banks.x - 1, banks.y - 1))})
    columns = math.ceil(n / (TILE * banks.x)) * TILE
    spec = ttnn.ShardSpec(cores, (k, columns), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.DRAM, spec)


def dram_matmul(k: int, n: int, cores: int) -> ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig:
    return ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=math.gcd(k // TILE // cores, 8),
        per_core_M=1,
        per_core_N=math.ceil(n / TILE / cores),
        fused_activation=None,
    )


def prefill_matmul(
    rows: int, k: int, n: int, fused_activation: object = None
) -> ttnn.MatmulMultiCoreReuseMultiCastProgramConfig:
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=GRID,
        in0_block_w=math.gcd(k // TILE, 8),
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=max(1, math.ceil(rows / TILE / GRID.y)),
        per_core_N=math.ceil(n / TILE / GRID.x),
        transpose_mcast=False,
        fused_activation=fused_activation,
        fuse_batch=rows <= 2048,
    )


def norm_program(width: int, cores: int) -> ttnn.LayerNormShardedMultiCoreProgramConfig:
    tiles = width // TILE // cores
    grid = core_grid(cores)
    return ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=[grid.x, grid.y],
        subblock_w=math.gcd(tiles, 4),
        block_h=1,
        block_w=tiles,
        inplace=False,
    )


def sdpa_program(q_chunk: int = 0, k_chunk: int = 0) -> ttnn.SDPAProgramConfig:
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=(8, 8), exp_approx_mode=False, q_chunk_size=q_chunk, k_chunk_size=k_chunk
    )
