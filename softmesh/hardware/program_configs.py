"""Program configs: how matmul, norms, softmax and attention are cut into blocks and shared out among cores, and the
precision of compute kernels. Sizes are in tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, cast

from softmesh.arguments import checked
from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.hardware.activation import UnaryWithParam
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.enums import Arch, NativeEnum
from softmesh.input_files.json_texts import checked_json, from_json_text, json_text

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
        kind, name = WormholeComputeKernelConfig, "device_kernel_config"
        return replace(checked("init_device_compute_kernel_config", name, device_kernel_config, kind, kind.__name__))
    return WormholeComputeKernelConfig(
        math_fidelity=math_fidelity,
        math_approx_mode=math_approx_mode,
        fp32_dest_acc_en=fp32_dest_acc_en,
        packer_l1_acc=packer_l1_acc,
        dst_full_sync_en=dst_full_sync_en,
        throttle_level=throttle_level,
    )


_Config = TypeVar("_Config", bound="MatmulProgramConfig")
_NO_CORES = CoreRangeSet([])
_ONE_CORE = CoreCoord(1, 1)


class MatmulProgramConfig(HardwareConfig):
    """Any of the program configs that ttnn.matmul and ttnn.linear take."""

    __slots__ = ()

    @property
    def activation(self) -> UnaryWithParam | None:
        """What the kernel applies to the product, behind the bias; some forms have no place for it."""
        return getattr(self, "fused_activation", None)

    def __repr__(self) -> str:
        return self.native_text()

    def to_json(self) -> str:
        values = {field.name: _as_json(getattr(self, field.name)) for field in fields(cast(Any, self))}
        return json_text(values)

    @classmethod
    def from_json(cls: type[_Config], text: str) -> _Config:
        """What `to_json` wrote."""

        def made(data: Any) -> _Config:
            values = checked_json(data, dict, "an object of fields")
            return cls(
                **{name: _OF_JSON.get(name, _same)(value) for name, value in values.items() if value is not None}
            )

        return from_json_text(f"{cls.__name__}.from_json", text, made)


def _same(value: Any) -> Any:
    return value


_OF_JSON: dict[str, Callable[[Any], Any]] = {
    "compute_with_storage_grid_size": CoreCoord._of_json,
    "allowed_worker_cores": CoreRangeSet._of_json,
    "hop_cores": CoreRangeSet._of_json,
    "fused_activation": UnaryWithParam.of_json,
}


def _as_json(value: object) -> object:
    if isinstance(value, CoreCoord | CoreRangeSet):
        return value._as_json()
    return value.as_json() if isinstance(value, UnaryWithParam) else value


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
class MatmulMultiCoreReuseProgramConfig(MatmulProgramConfig):
    """Every core computes its own block from its own inputs."""

    compute_with_storage_grid_size: CoreCoord
    in0_block_w: int
    out_subblock_h: int
    out_subblock_w: int
    per_core_M: int
    per_core_N: int
    allowed_worker_cores: CoreRangeSet | None = None


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
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


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
class MatmulMultiCoreReuseMultiCastProgramConfig(_MultiCastProgramConfig):
    """Rows of cores share blocks of the first operand, columns those of the second."""

    transpose_mcast: bool
    fused_activation: UnaryWithParam | None = None
    fuse_batch: bool = True
    allowed_worker_cores: CoreRangeSet | None = None


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
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


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
class MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(MatmulProgramConfig):
    """Weights stream in from shards that lie across the DRAM banks."""

    in0_block_w: int
    per_core_M: int
    per_core_N: int
    fused_activation: UnaryWithParam | None = None
    num_workers_per_dram_bank: int = 1


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
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

    def __repr__(self) -> str:
        return self.native_text()


class SoftmaxProgramConfig(HardwareConfig):
    """Any of the program configs that softmax takes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
class LayerNormDefaultProgramConfig(LayerNormProgramConfig):
    legacy_reduction: bool = False
    legacy_rsqrt: bool = field(default=False, repr=False)
    use_welford: bool = False


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
class LayerNormShardedMultiCoreProgramConfig(LayerNormProgramConfig):
    compute_with_storage_grid_size: CoreCoord
    subblock_w: int
    block_h: int
    block_w: int
    inplace: bool
    legacy_reduction: bool = False
    legacy_rsqrt: bool = field(default=False, repr=False)
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


@dataclass(kw_only=True, slots=True, unsafe_hash=True, repr=False)
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

    def __repr__(self) -> str:
        return self.native_text(", ", ("false", "true"))


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
