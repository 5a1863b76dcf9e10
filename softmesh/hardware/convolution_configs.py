"""Configurations of convolutions: how they are sharded, sliced and buffered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.hardware.activation import UnaryWithParam
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.enums import DataType, Layout, NativeEnum
from softmesh.hardware.memory_config import TensorMemoryLayout


class PaddingMode(NativeEnum):
    Zeros = 0
    Replicate = 1


class SliceType(NativeEnum):
    """What is cut so that a large input fits in L1: its height, its width, or nothing."""

    L1Full = 0
    DRAMSliceHeight = 1
    DRAMSliceWidth = 2


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class Conv2dConfig(HardwareConfig):
    """How a convolution lays out its activations and weights."""

    weights_dtype: DataType | None = None
    activation: UnaryWithParam | None = None
    deallocate_activation: bool = False
    reallocate_halo_output: bool = True
    config_tensors_in_dram: bool = False
    act_block_h_override: int = 0
    act_block_w_div: int = 1
    reshard_if_not_optimal: bool = False
    override_sharding_config: bool = False
    shard_layout: TensorMemoryLayout | None = None
    core_grid: CoreRangeSet | None = None
    transpose_shards: bool = False
    output_layout: Layout = Layout.TILE
    enable_act_double_buffer: bool = False
    enable_weights_double_buffer: bool = False
    full_inner_dim: bool = False
    enable_kernel_stride_folding: bool | None = None
    enable_activation_reuse: bool = False
    force_split_reader: bool | None = None
    override_output_sharding_config: bool = False
    padding_mode: PaddingMode = PaddingMode.Zeros


Conv1dConfig = Conv2dConfig


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class Conv2dSliceConfig(HardwareConfig):
    """How many slices a 2-D op cuts its input into; 0 lets the op choose."""

    SliceTypeEnum: ClassVar[type[SliceType]] = SliceType

    slice_type: SliceType
    num_slices: int = 0


@dataclass(kw_only=True, slots=True, unsafe_hash=True)
class Conv3dConfig(HardwareConfig):
    """How a 3-D convolution is blocked; `C_in_block` and `alignment` also say how its weights were prepared."""

    weights_dtype: DataType = DataType.BFLOAT16
    output_layout: Layout = Layout.ROW_MAJOR
    T_out_block: int = 1
    W_out_block: int = 1
    H_out_block: int = 1
    C_out_block: int = 0
    C_in_block: int = 0
    dilation: tuple[int, ...] = (1, 1, 1)
    alignment: int = 32
    compute_with_storage_grid_size: CoreCoord = field(default_factory=lambda: CoreCoord(1, 1))
    enable_fp32_operand_split: bool = False


Op2DSliceConfig = Conv2dSliceConfig
Conv2dDRAMSliceHeight = Op2DDRAMSliceHeight = SliceType.DRAMSliceHeight
Conv2dDRAMSliceWidth = Op2DDRAMSliceWidth = SliceType.DRAMSliceWidth
Conv2dL1Full = Op2DL1Full = SliceType.L1Full
Conv2dL1FullSliceConfig = Op2DL1FullSliceConfig = Conv2dSliceConfig(slice_type=SliceType.L1Full)
