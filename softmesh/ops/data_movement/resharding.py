"""move, reallocate, reshard, partial sharding: the same values elsewhere in memory; bitcast and broadcast_to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch

from softmesh.arguments import checked_function
from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.dispatch import part_work
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.kinds import Kind
from softmesh.ops.data_movement.layout_conversion import all_cores, in_place_of
from softmesh.ops.golden import golden_composite
from softmesh.ops.golden import golden_creation as golden
from softmesh.ops.golden.golden_functions import InOrder, with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.tensor import Tensor

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}


@operation("move", kind=Kind.COPY, **_OPTIONS, controls="memory_config")
@with_reference(golden.move)
def _move(input_tensor: Operand) -> Local:
    """The same values in new memory."""
    return Local(torch.clone, **in_place_of(input_tensor))


@checked_function
@placed("As the operand.")
@with_reference(golden.move)
def move(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """The values in new memory, so that a gap closes; the tensor that held them is freed."""
    if not input_tensor.is_allocated() or input_tensor.storage.device is None:
        return cast(Tensor, _move(input_tensor, memory_config=memory_config))  # which says why not
    storage, values = input_tensor.storage, input_tensor.storage.data
    storage.release()  # first, so that the new memory may be that which the old leaves free
    storage.data = values
    try:
        return cast(Tensor, _move(input_tensor, memory_config=memory_config))
    finally:
        storage.data = None


@checked_function
@placed("As the operand.")
@with_reference(golden.reallocate)
def reallocate(tensor: Tensor, memory_config: MemoryConfig | None = None) -> Tensor:
    """As `move`: the values in new memory, the tensor that held them freed.

    >>> y = ttnn.reallocate(ttnn.clone(split(8, 64, dim=1)))
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    return move(tensor, memory_config=memory_config)


@operation(kind=Kind.RELOCATION, **_OPTIONS, controls="output_tensor", positional="output_tensor")
def reshard(input_tensor: Operand, output_memory_config: MemoryConfig) -> Local:
    """From one way of lying on cores to another.

    >>> x = ttnn.to_memory_config(split(64, 128, dim=1), one_core)
    >>> y = ttnn.reshard(x, two_cores)
    >>> y.is_sharded(), ttnn.placements(y)
    (True, (Replicate, Shard(1)))
    """
    if not output_memory_config.is_sharded():
        raise MeshError(
            f"reshard: output_memory_config is not sharded: {output_memory_config}. Use ttnn.sharded_to_interleaved."
        )
    if not input_tensor.spec.memory_config.is_sharded():
        raise MeshError("reshard: input_tensor is not sharded: use ttnn.interleaved_to_sharded.")
    return Local(lambda x: x, memory_config=output_memory_config, **in_place_of(input_tensor))


def _slice_rows(op: str, operand: Operand, num_slices: int, slice_index: int) -> int:
    """Rows of one of the slices that all rows but the last dim are cut into."""
    rows = math.prod(operand.shape[:-1])
    if num_slices < 1 or rows % num_slices or not 0 <= slice_index < num_slices:
        raise MeshError(
            f"{op}: slice_index={slice_index} of num_slices={num_slices} does not fit the {rows} rows of "
            f"{operand.name} {list(operand.shape)}: they must divide evenly."
        )
    return rows // num_slices


@rules.labelled(dim_labels.spelled("width -> width", passes=((0,),)))
def _row_slice_rule(at: rules.Situation) -> rules.Placement:
    """A split of the last dim stays, one of the rows is cut across."""
    word = at.word
    if not isinstance(word, rules.Shard):
        return word
    return word.at(len(at.out_shape) - 1) if word.dim == len(at.shape) - 1 else rules.LOCAL


@operation(kind=Kind.MOVEMENT, **_OPTIONS, controls="output_dtype")
def interleaved_to_sharded_partial(
    input_tensor: Operand,
    grid: CoreCoord | Sequence[int] | CoreRangeSet,
    shard_shape: Sequence[int],
    num_slices: int,
    slice_index: int,
    shard_scheme: TensorMemoryLayout,
    shard_orientation: ShardOrientation,
) -> Local:
    """One of `num_slices` runs of rows as [1, 1, rows, width], spread over cores."""
    rows = _slice_rows("interleaved_to_sharded_partial", input_tensor, num_slices, slice_index)
    cores = grid if isinstance(grid, CoreRangeSet) else all_cores("interleaved_to_sharded_partial", grid)
    spread = ShardSpec(cores, list(shard_shape), shard_orientation)
    config = MemoryConfig(shard_scheme, BufferType.L1, spread)
    rank, width = input_tensor.rank, input_tensor.shape[-1]

    def compute(x: torch.Tensor) -> torch.Tensor:
        matrix = x.reshape(*x.shape[: x.dim() - rank], 1, 1, -1, width)
        return matrix.narrow(-2, slice_index * rows, rows)

    return Local(compute, _row_slice_rule, memory_config=config)


@operation(
    "sharded_to_interleaved_partial",
    kind=Kind.MOVEMENT,
    **_OPTIONS,
    controls="memory_config",
    tuning="output_dtype",
    patches="cache_tensor",
)
def sharded_to_interleaved_partial(
    input_tensor: Operand, cache_tensor: Operand, num_slices: int, slice_index: int
) -> Local:
    """Write a run of rows back to its place in the cache tensor; returns that."""
    op = "sharded_to_interleaved_partial"
    rows, width = _slice_rows(op, cache_tensor, num_slices, slice_index), cache_tensor.shape[-1]
    if math.prod(input_tensor.shape) != rows * width or input_tensor.shape[-1] != width:
        raise MeshError(
            f"{op}: input_tensor {list(input_tensor.shape)} must hold {rows} rows of {width}: one of {num_slices} "
            f"slices of cache_tensor {list(cache_tensor.shape)}."
        )
    ranks, dtype = (input_tensor.rank, cache_tensor.rank), cache_tensor.dtype

    def compute(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        values = round_to(x, dtype).reshape(*x.shape[: x.dim() - ranks[0]], rows, width)
        flat = cache.reshape(*cache.shape[: cache.dim() - ranks[1]], -1, width)
        flat.narrow(-2, slice_index * rows, rows).copy_(values)
        is_view = flat.data_ptr() == cache.data_ptr()
        return cache if is_view else cache.copy_(flat.reshape(cache.shape))

    return Local(compute, _cache_rule)


@rules.labelled(dim_labels.spelled("width, width -> width"))
def _cache_rule(at: rules.Situation) -> rules.Placement:
    """Both split along their last dim stay so."""
    rules.refuse_partial(at)
    shapes = [shape for shape in at.shapes if shape is not None]
    splits = [
        word.at(len(at.out_shape) - 1) if word.dim == len(shape) - 1 else rules.LOCAL
        for word, shape in zip(at.words, shapes, strict=True)
        if isinstance(word, rules.Shard)
    ]
    return splits[0] if len(set(splits)) == 1 else rules.LOCAL


class _FillPadding(Operation):
    """Without padding there is nothing to fill: the tensor itself comes back."""

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        given = kwargs.get("input_tensor", args[0] if args else None)
        if (
            isinstance(given, Tensor)
            and given.layout is Layout.TILE
            and tuple(given.shape) == tuple(given.padded_shape)
        ):
            given.check_allocated(self.name)
            return given
        return super().invoke(args, kwargs, call)


@operation(kind=Kind.MOVEMENT, rule=rules.keeping, **_OPTIONS, controls="memory_config", operation_class=_FillPadding)
@with_reference(InOrder(torch.clone))
def fill_implicit_tile_padding(input_tensor: Operand, fill_value: float) -> Local:
    """The same values, and `fill_value` between them and the ends of their tiles.

    Ops that would read the padding on a chip (reductions over whole tiles) see the logical values alone.

    >>> y = ttnn.fill_implicit_tile_padding(split(8, 128, dim=1), 0.0)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 32]), (Replicate, Shard(1)))
    """
    if input_tensor.layout is not Layout.TILE:
        raise MeshError("fill_implicit_tile_padding: the input must be in TILE layout: ttnn.to_layout makes it so.")
    return Local(torch.clone, pad_value=fill_value)


def _typecast(operand: Operand, dtype: DataType) -> Local:
    cuts_fractions = operand.is_float and not facts(dtype).is_float
    return Local(lambda x: x, rules.elementwise if cuts_fractions else rules.keeping, dtypes=(dtype,))


@operation(
    "experimental.typecast",
    kind=Kind.ELEMENTWISE,
    **_OPTIONS,
    controls="memory_config optional_output_tensor",
    positional="memory_config optional_output_tensor",
)
@placed("Placed as the operand is; a partial sum stays one, except where fractions are cut off.")
@with_reference(InOrder(torch.clone))
def experimental_typecast(input_tensor: Operand, dtype: DataType) -> Local:
    """To another dtype."""
    return _typecast(input_tensor, dtype)


def _from_and_to(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """`(tensor, dtype, ...)`, or with the dtype it has in front of the one it gets."""
    if len(args) > 2 and isinstance(args[2], DataType):
        kwargs, args = kwargs | {"input_dtype": args[1]}, (args[0], *args[2:])
    elif "output_dtype" in kwargs:
        if len(args) > 1:
            kwargs, args = kwargs | {"input_dtype": args[1]}, args[:1]
        kwargs = {"dtype" if name == "output_dtype" else name: value for name, value in kwargs.items()}
    return args, kwargs


@operation(
    "experimental.quasar.typecast",
    kind=Kind.ELEMENTWISE,
    **_OPTIONS,
    controls="memory_config optional_output_tensor",
    tuning="sub_core_grids",
    positional="memory_config optional_output_tensor sub_core_grids",
    rearrange=_from_and_to,
    forms=("input_tensor input_dtype output_dtype memory_config? optional_output_tensor? sub_core_grids?",),
)
@placed("Placed as the operand is; a partial sum stays one, except where fractions are cut off.")
@with_reference(InOrder(torch.clone))
def quasar_typecast(input_tensor: Operand, dtype: DataType, *, input_dtype: DataType | None = None) -> Local:
    """To another dtype: `(tensor, dtype)`, or `(tensor, input_dtype, output_dtype)`."""
    if input_dtype not in (None, input_tensor.dtype):
        raise MeshError(
            f"experimental.quasar.typecast: input_dtype={input_dtype} but the tensor is {input_tensor.dtype}."
        )
    return _typecast(input_tensor, dtype)


_BITS = {
    DataType.BFLOAT16: torch.bfloat16,
    DataType.FLOAT32: torch.float32,
    DataType.INT32: torch.int32,
    DataType.UINT32: torch.int32,
    DataType.UINT16: torch.int16,
    DataType.UINT8: torch.uint8,
    DataType.INT8: torch.int8,
}


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.elementwise,
    **_OPTIONS,
    controls="memory_config output_tensor",
    tuning="sub_core_grids",
)
def bitcast(input_tensor: Operand, dtype: DataType) -> Local:
    """The same bits, read as another dtype of the same size."""
    source = input_tensor.dtype
    if source not in _BITS or dtype not in _BITS or facts(source).bits != facts(dtype).bits:
        raise MeshError(f"bitcast: {source} cannot be read as {dtype}: both must be of one size, and no block floats.")

    def compute(x: torch.Tensor) -> torch.Tensor:
        return round_to(x.to(_BITS[source]).view(_BITS[dtype]).to(_WIDE.get(dtype, _BITS[dtype])), dtype)

    return Local(compute, dtypes=(dtype,))


_WIDE = {DataType.UINT32: torch.int64, DataType.UINT16: torch.int32}


_MAX_BROADCAST_RANK = 4


def _check_broadcast_to(operand: Operand, sizes: Sequence[int]) -> None:
    op, shape = "experimental.broadcast_to", list(operand.shape)
    if max(operand.rank, len(sizes)) > _MAX_BROADCAST_RANK:
        raise MeshError(f"{op}: the input {shape} and the output shape {sizes} must be at most 4D: reshape first.")
    if len(sizes) < operand.rank:
        raise MeshError(
            f"{op}: the output shape {sizes} must be at least as large as the broadcast shape: it has fewer dims than "
            f"the input {shape}."
        )
    for n, size in zip(shape, sizes[len(sizes) - operand.rank :], strict=True):
        if n not in (1, size):
            raise MeshError(
                f"{op}: input dimension {n} of {shape} cannot be broadcast to output dimension {size} of {sizes}: only "
                "dims of extent 1 are repeated."
            )
    if operand.spec.memory_config.is_sharded():
        raise MeshError(
            f"bcast_to: Invalid input memory config {operand.spec.memory_config}: {op} takes interleaved tensors, "
            "ttnn.sharded_to_interleaved makes one."
        )


@operation(
    "experimental.broadcast_to",
    kind=Kind.MOVEMENT,
    rule=rules.resizing,
    part_work=part_work.REPEATS,
    **_OPTIONS,
    controls="memory_config output",
)
@with_reference(golden_composite.broadcast_to)
def broadcast_to(input: Operand, output_shape: Sequence[int]) -> Local:
    """Repeat dims of extent 1 up to `output_shape`, adding dims in front."""
    sizes, rank = [int(n) for n in output_shape], input.rank
    added = len(sizes) - rank
    _check_broadcast_to(input, sizes)
    touched = [d for d, n in enumerate(input.shape) if n != sizes[added + d]]

    def compute(x: torch.Tensor) -> torch.Tensor:
        lead = x.shape[: x.dim() - rank]
        return x.reshape(*lead, *(1,) * added, *x.shape[len(lead) :]).expand(*lead, *sizes)

    return Local(compute, rules.resizing(touched, shift=added))
