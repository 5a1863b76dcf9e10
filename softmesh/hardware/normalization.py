"""How layer norm, softmax and attention are shared out among cores."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.hardware.compute import MathFidelity
from softmesh.hardware.config import HardwareConfig


class LayerNormProgramConfig(HardwareConfig):
    """Any of the program configs that layer_norm and rms_norm take."""

    __slots__ = ()


class SoftmaxProgramConfig(HardwareConfig):
    """Any of the program configs that softmax takes."""

    __slots__ = ()


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class LayerNormDefaultProgramConfig(LayerNormProgramConfig):
    legacy_reduction: bool = False
    legacy_rsqrt: bool = False
    use_welford: bool = False


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class LayerNormShardedMultiCoreProgramConfig(LayerNormProgramConfig):
    compute_with_storage_grid_size: CoreCoord
    subblock_w: int
    block_h: int
    block_w: int
    inplace: bool
    legacy_reduction: bool = False
    legacy_rsqrt: bool = False
    use_welford: bool = False


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class SoftmaxDefaultProgramConfig(SoftmaxProgramConfig):
    """Let the op choose."""


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class SoftmaxShardedMultiCoreProgramConfig(SoftmaxProgramConfig):
    compute_with_storage_grid_size: CoreCoord
    subblock_w: int
    block_h: int
    block_w: int


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class SDPAProgramConfig(HardwareConfig):
    """Chunks of queries and keys that scaled dot-product attention works on at a time."""

    compute_with_storage_grid_size: CoreCoord
    sub_core_grids: CoreRangeSet | None = None
    q_chunk_size: int
    k_chunk_size: int
    exp_approx_mode: bool | None = None
    max_cores_per_head_batch: int = 16
    max_k_splits: int = 1
    matmul_math_fidelity: MathFidelity | None = None
    segmented_accumulation: bool = False
