"""TT-NN's device operations of matmul, slice and layer norm, as far as programs inspect them: parameters, inputs,
output specs, program factories, default configs.

They compute through `ttnn.linear` and `ttnn.slice`. Factories only tell which program TT-NN would take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import torch

from softmesh.arguments import checked, checked_all, checked_int, reject_unknown_keywords
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.plan import check_broadcast
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware.enums import Arch, NativeEnum
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.hardware.program_configs import (
    DeviceComputeKernelConfig,
    LayerNormDefaultProgramConfig,
    LayerNormProgramConfig,
    LayerNormShardedMultiCoreProgramConfig,
    MathFidelity,
    MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig,
    MatmulProgramConfig,
    WormholeComputeKernelConfig,
    init_device_compute_kernel_config,
)
from softmesh.hardware.shape import Shape
from softmesh.ops.matmul.matmul import linear
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.device_allocation import allocate_tensor_on_device
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.tensor import Tensor

# -- matmul ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class MatmulParams:
    """Everything about a product but its tensors."""

    program_config: MatmulProgramConfig | None = field(default=None, init=False)
    bcast_batch: bool | None = field(default=None, init=False)
    output_mem_config: MemoryConfig = field(default=DRAM_MEMORY_CONFIG, init=False)
    output_dtype: DataType | None = field(default=None, init=False)
    compute_kernel_config: DeviceComputeKernelConfig | None = field(default=None, init=False)
    untilize_out: bool = field(default=False, init=False)
    transpose_a: bool = field(default=False, init=False)
    transpose_b: bool = field(default=False, init=False)


@dataclass(eq=False)
class MatmulInputs:
    """The factors; `optional_input_tensors` begins with the bias."""

    input_tensors: list[Tensor] = field(default_factory=list, init=False)
    optional_input_tensors: list[Tensor | None] = field(default_factory=list, init=False)
    optional_output_tensors: list[Tensor | None] = field(default_factory=list, init=False)

    def factors(self) -> tuple[Tensor, Tensor]:
        found = checked_all("MatmulInputs", "input_tensors", self.input_tensors, (Tensor,), "ttnn.Tensors")
        if len(found) != 2:
            raise MeshError(f"MatmulInputs: input_tensors holds {len(found)} tensors, and a product has two factors.")
        return found[0], found[1]


class MatmulMultiCoreProgramFactory:
    """Where no program config is given."""


class MatmulMultiCoreReuseOptimizedProgramFactory:
    """For MatmulMultiCoreReuseProgramConfig."""


class MatmulMultiCoreReuseMcast1DProgramFactory:
    """For MatmulMultiCoreReuseMultiCast1DProgramConfig."""


class MatmulMultiCoreReuseMcast2DProgramFactory:
    """For MatmulMultiCoreReuseMultiCastProgramConfig."""


class MatmulMultiCoreReuseMultiCastDRAMShardedProgramFactory:
    """For MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig."""


class MatmulMultiCoreReuseBatchedHSDRAMShardedProgramFactory:
    """For MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig."""


_FACTORIES: dict[type, type] = {
    MatmulMultiCoreReuseProgramConfig: MatmulMultiCoreReuseOptimizedProgramFactory,
    MatmulMultiCoreReuseMultiCast1DProgramConfig: MatmulMultiCoreReuseMcast1DProgramFactory,
    MatmulMultiCoreReuseMultiCastProgramConfig: MatmulMultiCoreReuseMcast2DProgramFactory,
    MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig: MatmulMultiCoreReuseMultiCastDRAMShardedProgramFactory,
    MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig: (
        MatmulMultiCoreReuseBatchedHSDRAMShardedProgramFactory
    ),
}


@reject_unknown_keywords
def matmul_select_program_factory(operation_attributes: MatmulParams, tensor_args: MatmulInputs) -> object:
    """By the program config. TT-NN also chooses a config where none is given: which one is not modelled."""
    tensor_args.factors()
    return _FACTORIES.get(type(operation_attributes.program_config), MatmulMultiCoreProgramFactory)()


@reject_unknown_keywords
def create_matmul_attributes(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    parameters: MatmulParams,
    optional_output_tensors: Sequence[Tensor | None],
) -> MatmulParams:
    """The parameters with what follows from the tensors filled in; the program config stays as it is."""
    where = "create_matmul_attributes"
    checked(where, "parameters", parameters, MatmulParams, "a ttnn.MatmulParams")
    a = checked(where, "input_tensor_a", input_tensor_a, Tensor, "a ttnn.Tensor")
    b = checked(where, "input_tensor_b", input_tensor_b, Tensor, "a ttnn.Tensor")
    given = next((tensor for tensor in optional_output_tensors if tensor is not None), None)
    filled = MatmulParams()
    vars(filled).update(vars(parameters))
    if filled.output_dtype is None:
        filled.output_dtype = a.dtype if given is None else given.dtype
    if given is not None:
        filled.output_mem_config = given.memory_config()
    if filled.bcast_batch is None:
        filled.bcast_batch = math.prod(list(b.shape)[:-2]) == 1
    if filled.compute_kernel_config is None:
        filled.compute_kernel_config = WormholeComputeKernelConfig()
    return filled


def _turned(factor: Tensor, transpose: bool) -> tuple[int, ...]:
    *batch, rows, columns = factor.shape
    return (*batch, columns, rows) if transpose else (*batch, rows, columns)


def _product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a[-1] != b[-2]:
        raise MeshError(f"MatmulDeviceOperation: {list(a)} and {list(b)} have no product.")
    batch = check_broadcast("MatmulDeviceOperation", [("input_tensors[0]", a[:-2]), ("input_tensors[1]", b[:-2])])
    return (*batch, a[-2], b[-1])


class MatmulDeviceOperation:
    """What TT-NN decides before it runs a product, and the product itself."""

    @staticmethod
    def compute_output_specs(operation_attributes: MatmulParams, tensor_args: MatmulInputs) -> list[TensorSpec]:
        a, b = tensor_args.factors()
        params = operation_attributes
        shape = _product_shape(_turned(a, params.transpose_a), _turned(b, params.transpose_b))
        layout = Layout.ROW_MAJOR if params.untilize_out else Layout.TILE
        dtype = params.output_dtype or a.dtype
        return [make_spec(shape, dtype, layout, params.output_mem_config, a.spec.tile)]

    @staticmethod
    def create_output_tensors(operation_attributes: MatmulParams, tensor_args: MatmulInputs) -> list[Tensor]:
        device = tensor_args.factors()[0].device()
        if device is None:
            raise MeshError("MatmulDeviceOperation: the factors must be on a device; use ttnn.to_device.")
        specs = MatmulDeviceOperation.compute_output_specs(operation_attributes, tensor_args)
        return [allocate_tensor_on_device(spec, device) for spec in specs]

    @staticmethod
    def compute_program_hash(operation_attributes: MatmulParams, tensor_args: MatmulInputs) -> int:
        """Equal for calls that can share a program."""
        others = tensor_args.optional_input_tensors
        specs = [None if t is None else t.spec for t in (*tensor_args.factors(), *others)]
        return hash((*vars(operation_attributes).values(), *specs))

    @staticmethod
    def invoke(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor,
        bias: Tensor | None = None,
        attributes: MatmulParams | None = None,
    ) -> list[Tensor]:
        params = checked("invoke", "attributes", attributes, MatmulParams, "a ttnn.MatmulParams")
        product = linear(
            input_tensor_a,
            input_tensor_b,
            bias=bias,
            transpose_a=params.transpose_a,
            transpose_b=params.transpose_b,
            memory_config=params.output_mem_config,
            dtype=params.output_dtype,
            program_config=params.program_config,
            compute_kernel_config=params.compute_kernel_config,
        )
        return [OPERATIONS["to_layout"](product, Layout.ROW_MAJOR) if params.untilize_out else product]


# -- slice -------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class SliceParams:
    slice_start: Shape = field(default_factory=lambda: Shape([]), init=False)
    slice_end: Shape = field(default_factory=lambda: Shape([]), init=False)
    step: Shape = field(default_factory=lambda: Shape([]), init=False)
    output_mem_config: MemoryConfig = field(default=DRAM_MEMORY_CONFIG, init=False)
    output_mem_config_inherited: bool = field(default=False, init=False)
    sub_core_grids: CoreRangeSet | None = field(default=None, init=False)


@dataclass(eq=False)
class SliceInputs:
    input: Tensor
    preallocated_output: Tensor | None = field(default=None, init=False)


class SliceTileProgramFactory:
    """For tensors in tiles."""


def _allocated(op: str, spec: TensorSpec, beside: Tensor) -> Tensor:
    device = beside.device()
    if device is None:
        raise MeshError(f"{op}: the input must be on a device; use ttnn.to_device.")
    return allocate_tensor_on_device(spec, device)


class SliceDeviceOperation:
    @staticmethod
    def compute_output_specs(operation_attributes: SliceParams, tensor_args: SliceInputs) -> TensorSpec:
        given, params = tensor_args.input.spec, operation_attributes
        steps: list[Any] = list(params.step) or [1] * len(given.shape)
        starts, ends = list(params.slice_start), list(params.slice_end)
        if not len(starts) == len(ends) == len(steps) == len(given.shape):
            raise MeshError(
                f"SliceDeviceOperation: slice_start {starts}, slice_end {ends} and step {steps} must each have an "
                f"entry for each dim of {given.shape}."
            )
        cut = [len(range(n)[a:b:s]) for n, a, b, s in zip(given.shape, starts, ends, steps, strict=True)]
        config = given.memory_config if params.output_mem_config_inherited else params.output_mem_config
        return make_spec(tuple(cut), given.dtype, given.layout, config, given.tile)

    @staticmethod
    def create_output_tensors(operation_attributes: SliceParams, tensor_args: SliceInputs) -> Tensor:
        if tensor_args.preallocated_output is not None:
            return tensor_args.preallocated_output
        spec = SliceDeviceOperation.compute_output_specs(operation_attributes, tensor_args)
        return _allocated("SliceDeviceOperation", spec, tensor_args.input)


# -- layer norm --------------------------------------------------------------------------------------
#
# The norms themselves are in `normalization`; nothing here computes one.


_WIDEST_SUBBLOCK = 4  # tiles


class LayerNormType(NativeEnum):
    LAYERNORM = 0
    RMSNORM = 1


class DistributedLayerNormStage(NativeEnum):
    """Which half of a norm over a split row: the statistics, or the norm by the gathered ones."""

    NOT_DISTRIBUTED = 0
    PRE_ALL_GATHER = 1
    POST_ALL_GATHER = 2


@reject_unknown_keywords
def layernorm_default_compute_config(arch: Arch) -> WormholeComputeKernelConfig:
    """What layer_norm takes where no config is given; that it is this one is not known for every chip."""
    return _exact(arch)


@reject_unknown_keywords
def rmsnorm_default_compute_config(arch: Arch) -> WormholeComputeKernelConfig:
    """What rms_norm takes where no config is given; that it is this one is not known for every chip."""
    return _exact(arch)


def _exact(arch: Arch) -> WormholeComputeKernelConfig:
    return init_device_compute_kernel_config(
        arch, math_fidelity=MathFidelity.HiFi4, math_approx_mode=False, fp32_dest_acc_en=True
    )


@reject_unknown_keywords
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
    compute_kernel_config: WormholeComputeKernelConfig = field(default_factory=WormholeComputeKernelConfig, init=False)
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

    @staticmethod
    def create_descriptor(*args: object) -> NoReturn:
        """TT-NN's kernels and circular buffers for a norm, which there are none of here."""
        raise NotModelled(
            "softmesh has no kernels in C++ that LayerNormShardedProgramFactory.create_descriptor could describe; run "
            "ttnn.layer_norm or ttnn.rms_norm, or write kernels in Python (docs/kernels.md)."
        )


class LayerNormDeviceOperation:
    """What TT-NN decides before it runs a norm."""

    @staticmethod
    def select_program_factory(
        operation_attributes: LayerNormParams, tensor_args: LayerNormInputs
    ) -> LayerNormMultiCoreProgramFactory | LayerNormShardedProgramFactory:
        is_sharded = tensor_args.input.memory_config().is_sharded()
        return LayerNormShardedProgramFactory() if is_sharded else LayerNormMultiCoreProgramFactory()

    @staticmethod
    def compute_output_specs(operation_attributes: LayerNormParams, tensor_args: LayerNormInputs) -> TensorSpec:
        spec, params = tensor_args.input.spec, operation_attributes
        shape = tuple(spec.shape)
        dtype = params.dtype or spec.dtype
        if params.distributed_norm_stage is DistributedLayerNormStage.PRE_ALL_GATHER:
            tiles = 2 if params.norm_type is LayerNormType.LAYERNORM else 1
            shape, dtype = (*shape[:-1], tiles * TILE_SIZE), params.dtype or DataType.BFLOAT16
        return make_spec(shape, dtype, Layout.TILE, params.output_mem_config, spec.tile)

    @staticmethod
    def create_output_tensors(operation_attributes: LayerNormParams, tensor_args: LayerNormInputs) -> Tensor:
        spec = LayerNormDeviceOperation.compute_output_specs(operation_attributes, tensor_args)
        return _allocated("LayerNormDeviceOperation", spec, tensor_args.input)

    @staticmethod
    def compute_program_hash(operation_attributes: LayerNormParams, tensor_args: LayerNormInputs) -> int:
        """Equal for calls that can share a program."""
        params, inputs = operation_attributes, tensor_args
        others = (inputs.residual_input_tensor, inputs.weight, inputs.bias, inputs.stats)
        specs = tuple(None if tensor is None else tensor.spec for tensor in (inputs.input, *others))
        return hash((*vars(params).values(), specs))


@reject_unknown_keywords
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
