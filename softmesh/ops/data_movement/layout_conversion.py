"""to_layout, tilize, typecast, to_memory_config, clone, copy: the same values in another layout, dtype or memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from softmesh.arguments import checked
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Arguments, Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import BoundCall, Signature
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.golden import golden_creation
from softmesh.ops.golden import golden_data_movement as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import rules
from softmesh.placement.placements import placed
from softmesh.tensor.convert import to_storage
from softmesh.tensor.dtype import TILE_SIZE, DataType, Layout, facts
from softmesh.tensor.padding import host_layout, with_padding
from softmesh.tensor.shard_rules import config_of_a_tensor
from softmesh.tensor.spec import make_spec
from softmesh.tensor.tensor import Tensor

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def in_place_of(operand: Operand) -> dict[str, Any]:
    """What a copy of whole pages keeps beside the values: the padding, where it holds something or is larger."""
    spec = operand.spec
    plain = make_spec(operand.shape, spec.dtype, spec.layout, spec.memory_config, spec.tile)
    if not spec.pad_value and spec.padded_shape == plain.padded_shape:
        return {}
    return {"pad_value": spec.pad_value, "padded_shape": tuple(spec.padded_shape)}


def _row_major_dtype(operand: Operand) -> DataType:
    """Block floats exist in tiles only; untilised they become bfloat16."""
    return DataType.BFLOAT16 if facts(operand.dtype).is_block else operand.dtype


@operation(
    kind=Kind.ELEMENTWISE,
    gradient=gradients.passed_on,
    **_OPTIONS,
    on_host=True,
    controls="memory_config output_tensor",
    tuning="sub_core_grids",
    argument_aliases={"input_dtype": "dtype"},
)
@placed("Placed as the operand is; a partial sum stays one, except where fractions are cut off.")
@with_reference(golden.typecast)
def typecast(input_tensor: Operand, dtype: DataType, output_dtype: DataType | None = None) -> Local:
    """To another dtype: `(tensor, dtype)`, or `(tensor, input_dtype, output_dtype)`.

    >>> y = ttnn.typecast(split(8, 64, dim=1), ttnn.bfloat8_b)
    >>> y.dtype.name, ttnn.placements(y)
    ('BFLOAT8_B', (Replicate, Shard(1)))
    """
    wanted = dtype if output_dtype is None else output_dtype
    if not isinstance(wanted, DataType):
        raise ArgumentError(f"typecast: dtype must be a ttnn dtype such as ttnn.bfloat16, got {wanted!r}")
    if output_dtype is not None and dtype is not input_tensor.dtype:
        raise MeshError(f"typecast: input_dtype={dtype} but the tensor is {input_tensor.dtype}.")
    cuts_fractions = input_tensor.is_float and not facts(wanted).is_float
    rule = rules.elementwise if cuts_fractions else rules.keeping
    return Local(
        _cast(input_tensor, wanted), rule, dtypes=(wanted,), exact=_same
    )  # into new memory, also where the dtype stays


_LARGEST_UINT16 = 65535
_HALF = 0.5  # rounds up
_LARGEST = {DataType.UINT32: 2.0**32 - 2**8, DataType.INT32: 2.0**31 - 2**7}  # that a float32 can be


def _cast(operand: Operand, wanted: DataType) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a chip makes of values that `wanted` does not have: they are clamped; only uint16 takes the nearest."""
    if operand.on_host:
        return _cast_on_host(operand, wanted)
    if wanted is DataType.UINT16 and operand.dtype is not wanted:
        if operand.dtype in (DataType.UINT8, DataType.INT8):
            return lambda x: x.int().clamp_min(0)
        if operand.is_float:
            return lambda x: (x.double() + _HALF).floor().nan_to_num(nan=0.0).clamp(0, _LARGEST_UINT16)
        return lambda x: x.clamp(0, _LARGEST_UINT16)
    if operand.is_float and wanted in _LARGEST:
        least, most = 0.0 if wanted is DataType.UINT32 else -(2.0**31), _LARGEST[wanted]
        return lambda x: x.float().nan_to_num(nan=least, posinf=most).trunc().clamp(least, most)
    return _same


def _cast_on_host(operand: Operand, wanted: DataType) -> Callable[[torch.Tensor], torch.Tensor]:
    """By the rules of the host, which are not those of a chip."""
    if not operand.is_float or wanted is operand.dtype:
        return _same
    if facts(wanted).is_block and not operand.rank:
        return lambda x: to_storage(x.unsqueeze(-1), wanted).squeeze(-1)
    return lambda x: to_storage(x, wanted)


@operation(
    kind=Kind.LAYOUT,
    gradient=gradients.passed_on,
    **_OPTIONS,
    on_host=True,
    controls="memory_config",
    tuning="sub_core_grids",
    positional="memory_config sub_core_grids pad_value",
)
def to_layout(
    tensor: Operand, layout: Layout, dtype: DataType | None = None, *, pad_value: float | None = None
) -> Local:
    """To TILE, with `pad_value` (0) in what it takes to whole tiles, or to ROW_MAJOR.

    Block floats become bfloat16 in ROW_MAJOR. On the host they stay as they are, and `dtype` is ignored.

    >>> y = ttnn.to_layout(split(8, 64, dim=0), ttnn.ROW_MAJOR_LAYOUT)
    >>> y.layout.name, ttnn.placements(y)
    ('ROW_MAJOR', (Replicate, Shard(0)))
    """
    if not isinstance(layout, Layout):
        raise ArgumentError(f"to_layout: layout must be ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT, got {layout!r}")
    if tensor.on_host:
        _check_untiled(tensor, layout)
        layout, wanted = host_layout(tensor.spec, layout), None
    else:
        wanted = dtype
    kept = _row_major_dtype(tensor) if layout is Layout.ROW_MAJOR else tensor.dtype
    padding = pad_value if layout is Layout.TILE and tensor.layout is not Layout.TILE else None
    return Local(
        _same,
        dtypes=(wanted or kept,),
        layouts=(layout,),
        keeps_memory=True,
        pad_value=padding or 0.0,
    )


def _check_untiled(tensor: Operand, layout: Layout) -> None:
    """Tiles of another size are taken apart where their rows and columns make whole ones of 32 x 32."""
    is_untiled = tensor.layout is Layout.TILE and layout is Layout.ROW_MAJOR
    if is_untiled and any(n % TILE_SIZE for n in tuple(tensor.spec.padded_shape)[-2:]):
        raise MeshError(
            f"Last 2 dims of input shape must be multiples of 32: to_layout got {tensor.spec.padded_shape} in tiles of "
            f"{tensor.spec.tile.tile_shape}. Pad it, or read it with ttnn.to_torch."
        )


_TILIZE_TUNING = "use_multicore use_low_perf sub_core_grids tile"


@operation(kind=Kind.LAYOUT, **_OPTIONS, controls="memory_config dtype queue_id", tuning=_TILIZE_TUNING)
def tilize(input_tensor: Operand) -> Local:
    """Row-major to tiles; the last two dims must already be whole tiles.

    >>> y = ttnn.tilize(ttnn.to_layout(split(32, 128, dim=1), ttnn.ROW_MAJOR_LAYOUT))
    >>> y.layout.name, ttnn.placements(y)
    ('TILE', (Replicate, Shard(1)))
    """
    height, width = input_tensor.spec.tile.tile_shape
    shape = input_tensor.shape
    if len(shape) < 2 or shape[-1] % width or shape[-2] % height:
        raise MeshError(
            f"tilize: {list(shape)} is not made of whole {height}x{width} tiles: use ttnn.tilize_with_zero_padding "
            "or ttnn.to_layout."
        )
    return Local(_same, layouts=(Layout.TILE,))


@operation(kind=Kind.LAYOUT, **_OPTIONS, controls="memory_config output_dtype", tuning="use_multicore sub_core_grids")
def tilize_with_zero_padding(input_tensor: Operand) -> Local:
    """Row-major to tiles; what is missing to whole tiles is padding."""
    return Local(_same, layouts=(Layout.TILE,))


@operation(
    kind=Kind.LAYOUT,
    part_work=part_work.PADS,
    **_OPTIONS,
    controls="memory_config dtype",
    tuning="use_multicore sub_core_grids",
)
def tilize_with_val_padding(input_tensor: Operand, output_tensor_shape: Sequence[int], pad_value: float) -> Local:
    """Row-major to tiles, padded up to `output_tensor_shape`; the values stay the logical ones."""
    wanted, shape = [int(n) for n in output_tensor_shape], input_tensor.shape or (1, 1)
    if len(wanted) != len(shape) or any(w < n for w, n in zip(wanted, shape, strict=True)):
        raise MeshError(f"tilize_with_val_padding: output shape {wanted} must be at least the input's {list(shape)}.")
    tile = input_tensor.spec.tile
    if any(n % unit for n, unit in zip(wanted[-2:], tile.tile_shape[-len(wanted) :], strict=True)):
        raise MeshError(
            f"tilize_with_val_padding: To be tilizable output tensor shape {wanted} must be divisible by tile size "
            f"{list(tile.tile_shape)}."
        )
    return Local(
        _same,
        layouts=(Layout.TILE,),
        pad_value=pad_value,
        padded_shape=tuple(wanted),
        shards=lambda _: [_tall_shards(input_tensor, wanted)],
    )


def _tall_shards(operand: Operand, padded: Sequence[int]) -> ShardSpec | None:
    """The operand's shards, as high as the padded tensor."""
    config = operand.spec.memory_config
    if config.memory_layout is not TensorMemoryLayout.WIDTH_SHARDED or config.shard_spec is None:
        return None
    cut = config.shard_spec
    return ShardSpec(cut.grid, [math.prod(padded[:-1]), cut.shape[1]], cut.orientation)


def _check_untilize(definition: Definition, call: BoundCall) -> None:
    spec = call.tensors[0].spec
    rows = math.prod(tuple(spec.padded_shape)[:-1]) // spec.tile.height
    if call.named["sub_core_grids"] is not None and rows > 1:
        raise MeshError(
            f"sub_core_grid untilize only supports tensors that are one tile high: {list(spec.shape)} is {rows} tiles "
            "high. Leave sub_core_grids out."
        )


@operation(
    kind=Kind.LAYOUT,
    **_OPTIONS,
    controls="memory_config queue_id",
    tuning="use_multicore sub_core_grids",
    check=_check_untilize,
)
def untilize(input_tensor: Operand) -> Local:
    """Tiles to row-major.

    >>> y = ttnn.untilize(split(8, 64, dim=1))
    >>> y.layout.name, ttnn.placements(y)
    ('ROW_MAJOR', (Replicate, Shard(1)))
    """
    return Local(_same, dtypes=(_row_major_dtype(input_tensor),), layouts=(Layout.ROW_MAJOR,))


untilize_force_native = untilize_force_codegen = untilize  # TT-NN's two kernels for it


@operation(
    kind=Kind.LAYOUT,
    rule=rules.resizing,
    **_OPTIONS,
    controls="memory_config queue_id",
    tuning="use_multicore sub_core_grids",
)
@with_reference(golden.untilize_with_unpadding)
def untilize_with_unpadding(input_tensor: Operand, output_tensor_end: Sequence[int]) -> Local:
    """Tiles to row-major, cut at `output_tensor_end`, the last index kept in each dim; it may lie in the padding."""
    ends, shape = [int(n) for n in output_tensor_end], input_tensor.shape
    padded = tuple(input_tensor.spec.padded_shape)
    if len(ends) != len(shape) or any(not 0 <= end < n for end, n in zip(ends, padded, strict=True)):
        raise MeshError(f"untilize_with_unpadding: ends {ends} must lie within the padded shape {list(padded)}.")
    kept, spec = [end + 1 for end in ends], input_tensor.spec
    touched = [d for d, (n, whole) in enumerate(zip(kept, shape, strict=True)) if n != whole]
    cuts = [slice(0, n) for n in kept]
    index: tuple[Any, ...] = (..., *cuts)
    reads_padding = any(n > whole for n, whole in zip(kept, shape, strict=True))
    return Local(
        lambda x: (with_padding(x, spec) if reads_padding else x)[index],
        rules.resizing(touched),
        dtypes=(_row_major_dtype(input_tensor),),
        layouts=(Layout.ROW_MAJOR,),
    )


@operation(
    kind=Kind.RELOCATION, gradient=gradients.passed_on, **_OPTIONS, controls="output_tensor", positional="output_tensor"
)
def to_memory_config(tensor: Operand, memory_config: MemoryConfig, dtype: DataType | None = None) -> Local:
    """To another place on the chip: DRAM or L1, interleaved or sharded over cores. Values stay.

    >>> y = ttnn.to_memory_config(split(8, 64, dim=0), ttnn.L1_MEMORY_CONFIG)
    >>> y.memory_config().buffer_type.name, ttnn.placements(y)
    ('L1', (Replicate, Shard(0)))
    """
    if not isinstance(memory_config, MemoryConfig):
        raise ArgumentError(f"to_memory_config: memory_config must be a ttnn.MemoryConfig, got {memory_config!r}")
    return Local(
        _same,
        dtypes=(dtype or tensor.dtype,),
        memory_config=memory_config,
        keeps_memory=True,
        **in_place_of(tensor),
    )


def _by_memory_config(_: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Behind a memory config comes the dtype."""
    if len(args) == 3 and isinstance(args[1], MemoryConfig):
        return args[:2], {"output_dtype": args[2], **kwargs}
    if len(args) == 2 and "sharded_memory_config" in kwargs:
        return args[:1], {"output_dtype": args[1], **kwargs}
    return args, kwargs


@operation(
    kind=Kind.RELOCATION,
    **_OPTIONS,
    controls="output_dtype preallocated_output",
    tuning="keep_l1_aligned",
    positional="output_dtype",
    rearrange=_by_memory_config,
)
def interleaved_to_sharded(
    input_tensor: Operand,
    grid: CoreCoord | Sequence[int] | CoreRangeSet | MemoryConfig | None = None,
    shard_shape: Sequence[int] | None = None,
    shard_scheme: TensorMemoryLayout | None = None,
    shard_orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    *,
    sharded_memory_config: MemoryConfig | None = None,
) -> Local:
    """Spread a tensor over cores: `(tensor, memory_config)` or grid, shard shape, scheme and orientation.

    >>> y = ttnn.interleaved_to_sharded(split(32, 128, dim=1), one_core)
    >>> y.is_sharded(), ttnn.placements(y)
    (True, (Replicate, Shard(1)))
    """
    config = grid if isinstance(grid, MemoryConfig) else sharded_memory_config
    if config is None:
        if grid is None or shard_shape is None or shard_scheme is None:
            raise ArgumentError(
                "interleaved_to_sharded(): incompatible function arguments: give a sharded memory config, or grid, "
                "shard_shape, shard_scheme and shard_orientation."
            )
        assert not isinstance(grid, MemoryConfig)
        cores = grid if isinstance(grid, CoreRangeSet) else all_cores("interleaved_to_sharded", grid)
        config = MemoryConfig(shard_scheme, BufferType.L1, ShardSpec(cores, list(shard_shape), shard_orientation))
    if not config.is_sharded():
        raise MeshError(f"interleaved_to_sharded: the memory config is not sharded: {config}.")
    if config_of_a_tensor(config, input_tensor.spec.padded_shape).shard_spec is None:
        raise MeshError(
            f"interleaved_to_sharded: shards of {config.nd_shard_spec} are no rows and columns of "
            f"{list(input_tensor.shape)} taken as a matrix: use ttnn.to_memory_config for shards in n dims."
        )
    return Local(_same, memory_config=config, **in_place_of(input_tensor))


_LONGEST_SIDE = 1 << 10  # of a grid of cores, of any chip there may be


def all_cores(op: str, extent: CoreCoord | Sequence[int]) -> CoreRangeSet:
    """Those of a grid; TT-NN makes a CoreCoord of a pair."""
    if not isinstance(extent, CoreCoord):
        if len(extent) != 2:
            raise ArgumentError(f"{op}(): incompatible function arguments: grid must be (x, y), got {extent!r}.")
        extent = CoreCoord(*extent)
    if not (1 <= extent.x <= _LONGEST_SIDE and 1 <= extent.y <= _LONGEST_SIDE):
        raise MeshError(f"{op}: no chip has a grid of {extent.x} by {extent.y} cores.")
    return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(extent.x - 1, extent.y - 1))])


@operation(
    kind=Kind.RELOCATION,
    **_OPTIONS,
    controls="output_dtype queue_id",
    tuning="is_l1_aligned",
    positional="output_dtype",
)
def sharded_to_interleaved(input_tensor: Operand, memory_config: MemoryConfig | None = None) -> Local:
    """Back from cores to interleaved pages.

    >>> x = ttnn.to_memory_config(split(32, 128, dim=1), one_core)
    >>> y = ttnn.sharded_to_interleaved(x, ttnn.L1_MEMORY_CONFIG)
    >>> y.is_sharded(), ttnn.placements(y)
    (False, (Replicate, Shard(1)))
    """
    config = memory_config or DRAM_MEMORY_CONFIG
    return Local(_same, memory_config=config, **in_place_of(input_tensor))


@operation(
    kind=Kind.COPY,
    gradient=gradients.passed_on,
    native="CloneOperation",
    **_OPTIONS,
    controls="dtype memory_config",
    tuning="compute_kernel_config",
)
def clone(input: Operand) -> Local:
    """A copy with memory of its own.

    >>> y = ttnn.clone(split(8, 64, dim=1), dtype=ttnn.float32)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    return Local(torch.clone, exact=_same, **in_place_of(input))


@operation(
    kind=Kind.COPY,
    native="CopyDeviceOperation",
    **_OPTIONS,
    controls="memory_config dtype output_tensor queue_id",
    positional="output_tensor",
    argument_aliases={"input_a": "input_tensor", "input_b": "output_tensor"},
)
def assign(input_tensor: Operand) -> Local:
    """The same values elsewhere; `(a, b)` overwrites b with a."""
    return Local(_same, exact=_same, **in_place_of(input_tensor))


@placed("The second operand is placed as the first.")
def copy(input_a: Tensor, input_b: Tensor) -> Tensor:
    """Overwrite `input_b` with `input_a`, in place, and return it.

    >>> x = ttnn.clone(split(8, 64, dim=1))
    >>> y = ttnn.copy(split(8, 64, dim=1), x)
    >>> x.shape, ttnn.placements(x)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    checked("copy", "input_b", input_b, Tensor, "a ttnn.Tensor to be written")
    return cast(Tensor, assign(input_a, input_b))


@with_reference(golden_creation.to_dtype)
def to_dtype(tensor: Tensor, dtype: DataType) -> Tensor:
    """A host tensor in another dtype; to a block format also in TILE layout."""
    if not isinstance(tensor, Tensor) or not isinstance(dtype, DataType):
        raise ArgumentError("to_dtype(): incompatible function arguments: expected a ttnn.Tensor and a ttnn dtype.")
    if tensor.storage.device is not None:
        raise MeshError(
            "Expected Tensor with HostStorage, got StorageType::DEVICE: use ttnn.typecast for tensors on a device."
        )
    if DataType.FP8_E4M3 in (kinds := {tensor.dtype, dtype}) and kinds - {DataType.FP8_E4M3} - {DataType.FLOAT32}:
        raise MeshError(
            "to_dtype: FP8_E4M3 cross-type conversion is only supported to/from FLOAT32: got "
            f"{tensor.dtype} to {dtype}. Take two steps, with ttnn.float32 between them."
        )
    if facts(dtype).is_block and tensor.layout is Layout.ROW_MAJOR:
        _check_whole_tiles(tensor)
    return cast(Tensor, typecast(tensor, dtype))


def _check_whole_tiles(tensor: Tensor) -> None:
    *rows, width = tuple(tensor.padded_shape)
    tile = tensor.spec.tile
    flat = math.prod(rows), width
    tiled = tuple(-(-n // unit) * unit for n, unit in zip(flat, tile.tile_shape, strict=True))
    if flat != tiled:
        raise MeshError(
            "to_dtype: Converting layout to Layout::TILE implicitly changed physical shape from "
            f"{flat} to {tiled} due to alignment constraints. This is currently unsupported. Please pad the tensor "
            "explicitly before conversion. ttnn.to_layout(t, ttnn.TILE_LAYOUT) before ttnn.to_dtype does that."
        )
