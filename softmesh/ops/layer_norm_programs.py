"""How TT-NN would run a layer norm: the parts of its device operation that programs look at and steer by.

The norms themselves are in `normalization`; nothing here computes one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch

from softmesh.arguments import checked, checked_int, knows_its_names
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.compute import (
    MathFidelity,
    WormholeComputeKernelConfig,
    init_device_compute_kernel_config,
)
from softmesh.hardware.data_movement import Arch
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.hardware.normalization import (
    LayerNormDefaultProgramConfig,
    LayerNormProgramConfig,
    LayerNormShardedMultiCoreProgramConfig,
)
from softmesh.native_enum import NativeEnum
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import allocate_tensor_on_device, from_torch

_WIDEST_SUBBLOCK = 4  # tiles


class LayerNormType(NativeEnum):
    LAYERNORM = 0
    RMSNORM = 1


class DistributedLayerNormStage(NativeEnum):
    """Which half of a norm over a split row: the statistics, or the norm by the gathered ones."""

    NOT_DISTRIBUTED = 0
    PRE_ALL_GATHER = 1
    POST_ALL_GATHER = 2


@knows_its_names
def layernorm_default_compute_config(arch: Arch) -> WormholeComputeKernelConfig:
    """What layer_norm takes where no config is given; that it is this one is not known for every chip."""
    return _exact(arch)


@knows_its_names
def rmsnorm_default_compute_config(arch: Arch) -> WormholeComputeKernelConfig:
    """What rms_norm takes where no config is given; that it is this one is not known for every chip."""
    return _exact(arch)


def _exact(arch: Arch) -> WormholeComputeKernelConfig:
    return init_device_compute_kernel_config(
        arch, math_fidelity=MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True
    )


@knows_its_names
def create_layernorm_program_config(
    shard_spec: ShardSpec | None = None, tile_height: int = TILE_SIZE, tile_width: int = TILE_SIZE
) -> LayerNormProgramConfig:
    """The config that fits a sharded input: a block is a shard, in tiles, cut into subblocks of 4 tiles or fewer."""
    if shard_spec is None:
        return LayerNormDefaultProgramConfig()
    rows, columns = checked(
        "create_layernorm_program_config", "shard_spec", shard_spec, ShardSpec, "a ttnn.ShardSpec"
    ).shape
    block_h, block_w = rows // tile_height, columns // tile_width
    subblock = max((n for n in range(1, _WIDEST_SUBBLOCK + 1) if block_w % n == 0), default=1)
    return LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=shard_spec.grid.bounding_box().grid_size(),
        subblock_w=subblock,
        block_h=block_h,
        block_w=block_w,
        inplace=False,
    )


@dataclass(eq=False)
class LayerNormParams:
    """Everything about a norm but its tensors."""

    norm_type: LayerNormType = field(default=LayerNormType.LAYERNORM, init=False)
    distributed_norm_stage: DistributedLayerNormStage = field(
        default=DistributedLayerNormStage.NOT_DISTRIBUTED, init=False
    )
    eps: float = field(default=0.0, init=False)
    output_mem_config: MemoryConfig = field(default=DRAM_MEMORY_CONFIG, init=False)
    program_config: LayerNormProgramConfig = field(default_factory=LayerNormDefaultProgramConfig, init=False)
    compute_kernel_config: WormholeComputeKernelConfig = field(
        default_factory=WormholeComputeKernelConfig, init=False
    )
    dtype: DataType | None = field(default=None, init=False)


@dataclass(eq=False)
class LayerNormInputs:
    """The tensors of a norm."""

    input: Tensor
    residual_input_tensor: Tensor | None = field(default=None, init=False)
    weight: Tensor | None = field(default=None, init=False)
    bias: Tensor | None = field(default=None, init=False)
    stats: Tensor | None = field(default=None, init=False)
    recip_tensor: Tensor | None = field(default=None, init=False)


class LayerNormMultiCoreProgramFactory:
    """For interleaved inputs."""

    @staticmethod
    def default_core_range(device: MeshDevice) -> CoreRangeSet:
        """All worker cores."""
        grid = device.compute_with_storage_grid_size()
        return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(grid.x - 1, grid.y - 1))])


class LayerNormShardedProgramFactory:
    """For sharded inputs."""


class LayerNormDeviceOperation:
    """What TT-NN decides before it runs a norm."""

    @staticmethod
    def select_program_factory(
        operation_attributes: LayerNormParams, tensor_args: LayerNormInputs
    ) -> LayerNormMultiCoreProgramFactory | LayerNormShardedProgramFactory:
        is_sharded = tensor_args.input.memory_config().is_sharded()
        return LayerNormShardedProgramFactory() if is_sharded else LayerNormMultiCoreProgramFactory()

    @staticmethod
    def compute_output_specs(
        operation_attributes: LayerNormParams, tensor_args: LayerNormInputs
    ) -> TensorSpec:
        spec, params = tensor_args.input.spec, operation_attributes
        shape = tuple(spec.shape)
        dtype = params.dtype or spec.dtype
        if params.distributed_norm_stage is DistributedLayerNormStage.PRE_ALL_GATHER:
            tiles = 2 if params.norm_type is LayerNormType.LAYERNORM else 1
            shape, dtype = (*shape[:-1], tiles * TILE_SIZE), params.dtype or DataType.BFLOAT16
        return make_spec(shape, dtype, Layout.TILE, params.output_mem_config, spec.tile)

    @staticmethod
    def create_output_tensors(operation_attributes: LayerNormParams, tensor_args: LayerNormInputs) -> Tensor:
        device = tensor_args.input.device()
        if device is None:
            raise MeshError("LayerNormDeviceOperation: the input must be on a device; use ttnn.to_device.")
        spec = LayerNormDeviceOperation.compute_output_specs(operation_attributes, tensor_args)
        return allocate_tensor_on_device(spec, device)

    @staticmethod
    def compute_program_hash(operation_attributes: LayerNormParams, tensor_args: LayerNormInputs) -> int:
        """Equal for calls that can share a program."""
        params, inputs = operation_attributes, tensor_args
        others = (inputs.residual_input_tensor, inputs.weight, inputs.bias, inputs.stats)
        specs = tuple(None if tensor is None else tensor.spec for tensor in (inputs.input, *others))
        return hash((*vars(params).values(), specs))


@knows_its_names
def create_layer_norm_reciprocals(device: MeshDevice, core_range_set: CoreRangeSet, width: int) -> Tensor:
    """1, 1/2, ... 1/width in the L1 of each core, for the running means of Welford's method."""
    where = "create_layer_norm_reciprocals"
    count = checked_int(where, "width", width)
    if count < 1:
        raise MeshError(f"{where}: width={width} must be at least 1.")
    cores = checked(where, "core_range_set", core_range_set, CoreRangeSet, "a ttnn.CoreRangeSet").num_cores()
    row = torch.arange(1, count + 1, dtype=torch.float32).reciprocal()
    shard = ShardSpec(core_range_set, [1, count], ShardOrientation.ROW_MAJOR)
    memory = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1, shard)
    made = from_torch(
        row.expand(cores, count),
        DataType.FLOAT32,
        layout=Layout.ROW_MAJOR,
        device=device,
        memory_config=memory,
    )
    return cast(Tensor, made)
