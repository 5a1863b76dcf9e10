"""Program configs: how matmul, norms, softmax and attention are cut into blocks and shared out among cores, and the
precision of compute kernels. Sizes are in tiles.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.errors import ArgumentError
from softmesh.hardware.activation import UnaryOpType, UnaryWithParam
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.enums import Arch, NativeEnum

# Precision of compute kernels.


class MathFidelity(NativeEnum):
    """How many passes a multiplication makes over the mantissas: more passes, more bits."""

    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 255


class ThrottleLevel(NativeEnum):
    """How much a matmul slows itself down to stay within the power budget."""

    NO_THROTTLE = 0
    LEVEL_1 = 1
    LEVEL_2 = 2
    LEVEL_3 = 3
    LEVEL_4 = 4
    LEVEL_5 = 5


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class WormholeComputeKernelConfig(HardwareConfig):
    """Precision of a compute kernel; for Blackhole as well, in spite of its name."""

    math_fidelity: MathFidelity = MathFidelity.Invalid
    math_approx_mode: bool = True
    fp32_dest_acc_en: bool = False
    packer_l1_acc: bool = False
    dst_full_sync_en: bool = False
    throttle_level: ThrottleLevel = ThrottleLevel.NO_THROTTLE


BlackholeComputeKernelConfig = WormholeComputeKernelConfig
DeviceComputeKernelConfig = WormholeComputeKernelConfig


def init_device_compute_kernel_config(
    arch: Arch,
    device_kernel_config: WormholeComputeKernelConfig | None = None,
    *,
    math_fidelity: MathFidelity = MathFidelity.LoFi,
    math_approx_mode: bool = True,
    fp32_dest_acc_en: bool = False,
    packer_l1_acc: bool = False,
    dst_full_sync_en: bool = False,
    throttle_level: ThrottleLevel = ThrottleLevel.NO_THROTTLE,
) -> WormholeComputeKernelConfig:
    """A copy of the config given, or one of the other arguments; every `arch` has the same class."""
    if device_kernel_config is not None:
        return replace(device_kernel_config)
    return WormholeComputeKernelConfig(
        math_fidelity=math_fidelity,
        math_approx_mode=math_approx_mode,
        fp32_dest_acc_en=fp32_dest_acc_en,
        packer_l1_acc=packer_l1_acc,
        dst_full_sync_en=dst_full_sync_en,
        throttle_level=throttle_level,
    )


def _as_json(value: object) -> object:
    if isinstance(value, CoreCoord | CoreRangeSet):
        return json.loads(value.to_json())
    if isinstance(value, UnaryWithParam):
        return {"op_type": value.op_type.value, "params": value.params}
    return value


def _of_json(value: Any) -> object:
    """By its form: no two kinds of fields are written alike."""
    if isinstance(value, list):
        return CoreRangeSet.from_json(json.dumps(value))
    if not isinstance(value, dict):
        return value
    if "op_type" in value:
        return UnaryWithParam(UnaryOpType(value["op_type"]), *value["params"])
    return CoreCoord.from_json(json.dumps(value))


_NO_CORES = CoreRangeSet([])
_ONE_CORE = CoreCoord(1, 1)


_Matmul = TypeVar("_Matmul", bound="MatmulProgramConfig")


class MatmulProgramConfig(HardwareConfig):
    """Any of the program configs that ttnn.matmul and ttnn.linear take."""

    __slots__ = ()

    def to_json(self) -> str:
        """An object with the names of the fields; what is absent is null."""
        values = {name: _as_json(getattr(self, name)) for name in self._converters()}
        return json.dumps(values, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls: type[_Matmul], text: str) -> _Matmul:
        try:
            return cls(**{name: _of_json(value) for name, value in json.loads(text).items()})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ArgumentError(f"{cls.__name__}.from_json(): not what to_json() wrote: {error!r}") from error

    @property
    def activation(self) -> UnaryWithParam | None:
        """What the kernel applies to the product, behind the bias; some forms have no place for it."""
        return getattr(self, "fused_activation", None)


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
class _MultiCastProgramConfig(MatmulProgramConfig):
    """An output block that is not given is what a core computes in all: per_core_M x per_core_N."""

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    out_block_h: int | None = None
    out_block_w: int | None = None
    per_core_M: int
    per_core_N: int

    def __post_init__(self) -> None:
        if self.out_block_h is None:
            self.out_block_h = self.per_core_M
        if self.out_block_w is None:
            self.out_block_w = self.per_core_N


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MatmulMultiCoreReuseMultiCastProgramConfig(_MultiCastProgramConfig):
    """Rows of cores share blocks of the first operand, columns those of the second."""

    transpose_mcast: bool
    fused_activation: UnaryWithParam | None = None
    fuse_batch: bool = True
    allowed_worker_cores: CoreRangeSet | None = None


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class MatmulMultiCoreReuseMultiCast1DProgramConfig(_MultiCastProgramConfig):
    """One operand is shared with all cores, the other split among them; output blocks as in the 2-D form."""

    fuse_batch: bool
    fused_activation: UnaryWithParam | None = None
    mcast_in0: bool
    gather_in0: bool = False
    hop_cores: CoreRangeSet = _NO_CORES
    num_global_cb_receivers: int = 1
    untilize_out: bool = False
    allowed_worker_cores: CoreRangeSet | None = None
    stream_in1: bool = False


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


# Layer norm, softmax and attention: how they are shared out among cores.


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


# Attention's caches and indexers.


class SparseKVFormat(NativeEnum):
    """How a row of keys and values lies in a cache that sparse attention reads.

    SCALED_FP8 is a row of bytes: latent values in fp8, a float32 scale for each 128 of them, then bfloat16 ones.
    """

    BF16 = 0
    FP8_E4M3 = 1
    SCALED_FP8 = 2


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class PagedCacheGeometryOverride(HardwareConfig):
    """Reads the tiles of each block as `num_kv_heads` heads of `block_size` positions; 0 leaves the cache's own."""

    block_size: int = 0
    num_kv_heads: int = 0

    def active(self) -> bool:
        return bool(self.block_size or self.num_kv_heads)


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class IndexerScoreProgramConfig(HardwareConfig):
    """Chunks of queries and keys that the scores of an indexer are computed for at a time."""

    q_chunk_size: int = 32
    k_chunk_size: int = 32
    head_group_size: int = 1
