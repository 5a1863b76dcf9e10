"""How a matmul is cut into blocks and shared out among cores. Sizes are in tiles."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.hardware.activation import UnaryWithParam
from softmesh.hardware.config import HardwareConfig

_NO_CORES = CoreRangeSet([])
_ONE_CORE = CoreCoord(1, 1)


class MatmulProgramConfig(HardwareConfig):
    """Any of the program configs that ttnn.matmul and ttnn.linear take."""

    __slots__ = ()


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MatmulMultiCoreReuseProgramConfig(MatmulProgramConfig):
    """Every core computes its own block from its own inputs."""

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    per_core_M: int
    per_core_N: int
    allowed_worker_cores: CoreRangeSet | None = None


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MatmulMultiCoreReuseMultiCastProgramConfig(MatmulProgramConfig):
    """Rows of cores share blocks of the first operand, columns those of the second.

    An output block that is not given is what a core computes in all: per_core_M x per_core_N.
    """

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    out_block_h: int | None = None
    out_block_w: int | None = None
    per_core_M: int
    per_core_N: int
    transpose_mcast: bool
    fused_activation: UnaryWithParam | None = None
    fuse_batch: bool = True
    allowed_worker_cores: CoreRangeSet | None = None

    def __post_init__(self) -> None:
        if self.out_block_h is None:
            self.out_block_h = self.per_core_M
        if self.out_block_w is None:
            self.out_block_w = self.per_core_N


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MatmulMultiCoreReuseMultiCast1DProgramConfig(MatmulProgramConfig):
    """One operand is shared with all cores, the other split among them; output blocks as in the 2-D form."""

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    out_block_h: int | None = None
    out_block_w: int | None = None
    per_core_M: int
    per_core_N: int
    fuse_batch: bool
    fused_activation: UnaryWithParam | None = None
    mcast_in0: bool
    gather_in0: bool = False
    hop_cores: CoreRangeSet = _NO_CORES
    num_global_cb_receivers: int = 1
    untilize_out: bool = False
    allowed_worker_cores: CoreRangeSet | None = None
    stream_in1: bool = False

    def __post_init__(self) -> None:
        if self.out_block_h is None:
            self.out_block_h = self.per_core_M
        if self.out_block_w is None:
            self.out_block_w = self.per_core_N


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(MatmulProgramConfig):
    """Weights stream in from shards that lie across the DRAM banks."""

    in0_block_w: int
    per_core_M: int
    per_core_N: int
    fused_activation: UnaryWithParam | None = None
    num_workers_per_dram_bank: int = 1


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig(MatmulProgramConfig):
    """The same for a batch of weights."""

    in0_block_w: int
    per_core_M: int
    per_core_N: int
    fused_activation: UnaryWithParam | None = None


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MinimalMatmulConfig(HardwareConfig):
    """Blocks of the experimental minimal matmul."""

    M_block_size: int = 1
    K_block_size: int = 1
    N_block_size: int = 1
    subblock_h: int = 1
    subblock_w: int = 1
    compute_with_storage_grid_size: CoreCoord = _ONE_CORE
