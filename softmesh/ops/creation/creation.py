"""full, zeros, arange, rand, full_like, fill, tril: tensors from constants, ranges and random numbers.

On the host, or the same on every device of a mesh.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from softmesh.arguments import checked, checked_function, checked_int, checked_shape, described, refused
from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.definition import AfterRunning, Definition
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import BoundCall
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from softmesh.kinds import Kind
from softmesh.ops.golden import golden_composite, golden_data_movement
from softmesh.ops.golden import golden_creation as golden
from softmesh.ops.golden.golden_functions import InOrder, with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.device_lifecycle import GetDefaultDevice
from softmesh.runtime.memory.host_memory import check_host_room
from softmesh.strictness import warn_or_raise
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.from_torch_values import created, created_constant
from softmesh.tensor.mappers import MeshMapperConfig, TensorToMesh
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import mark_unwritten

_LONGEST_NUMBER = 8  # bytes
_MOST_BITS = 64
_COUNTED_AT_ONCE = 1 << 20
_COUNTED_IN_PARTS = (torch.bfloat16, torch.float32, torch.int32)


def _create(
    where: str,
    values: torch.Tensor,
    dtype: DataType | None,
    layout: Layout | None,
    device: MeshDevice | None,
    memory_config: MemoryConfig | None,
    mapper: TensorToMesh | None = None,
    *,
    is_drawn: bool = False,
) -> Tensor:
    return created(
        where,
        values,
        DataType.BFLOAT16 if dtype is None else dtype,
        Layout.ROW_MAJOR if layout is None else layout,
        GetDefaultDevice() if device is None else device,
        memory_config,
        mapper,
        is_drawn=is_drawn,
    )


def _checked_number(where: str, name: str, value: object) -> float:
    if not isinstance(value, int | float):
        raise refused(where, f"{name} must be a number, got {described(value)}")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ArgumentValueError(f"{where}: {name} is a number of {value.bit_length()} bits; no dtype has more than 64")
    return value


def _check_fit(where: str, value: float, dtype: DataType) -> None:
    """A number that wraps around, or is none, becomes another in every element. -1 is all ones, and meant so."""
    known = facts(dtype)
    is_whole = not known.is_float
    if is_whole and not -(1 << known.bits - 1) <= value < 1 << known.bits:
        warn_or_raise(
            f"{where}: {value} does not fit into {dtype.name.lower()}, and each element becomes another number: use a "
            "number that the dtype holds, or a wider dtype.",
        )


def _full(
    where: str,
    shape: Sequence[int],
    value: float,
    dtype: DataType | None,
    layout: Layout | None,
    device: MeshDevice | None,
    memory_config: MemoryConfig | None,
) -> Tensor:
    sizes = tuple(checked_shape(where, shape))
    number = _checked_number(where, "fill_value", value)
    if dtype is not None:
        _check_fit(where, number, dtype)
    return created_constant(
        where,
        sizes,
        number,
        DataType.BFLOAT16 if dtype is None else dtype,
        Layout.ROW_MAJOR if layout is None else layout,
        GetDefaultDevice() if device is None else device,
        memory_config,
    )


@placed("The same on all devices.")
@with_reference(golden.full)
def full(
    shape: Sequence[int],
    fill_value: float,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    optional_tensor: Tensor | None = None,
) -> Tensor:
    """`fill_value` everywhere; written into `optional_tensor` where one is given."""
    if optional_tensor is None:
        return _full("full", shape, fill_value, dtype, layout, device, memory_config)
    checked("full", "optional_tensor", optional_tensor, Tensor, "a ttnn.Tensor").check_writable("full")
    sizes = tuple(checked_shape("full", shape))
    if tuple(optional_tensor.shape) != sizes:
        raise MeshError(f"full: optional_tensor has shape {optional_tensor.shape}, asked for {list(shape)}.")
    own = optional_tensor
    filled = _full("full", sizes, fill_value, own.dtype, own.layout, own.device(), None)
    optional_tensor.overwrite(filled.view_data(), filled.view_distribution())
    return optional_tensor


@placed("The same on all devices.")
@with_reference(golden.zeros)
def zeros(
    shape: Sequence[int],
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """
    >>> y = ttnn.zeros((8, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 64]), (Replicate, Replicate))
    """
    return _full("zeros", shape, 0, dtype, layout, device, memory_config)


@placed("The same on all devices.")
@with_reference(golden.ones)
def ones(
    shape: Sequence[int],
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    return _full("ones", shape, 1, dtype, layout, device, memory_config)


@placed("The same on all devices.")
@with_reference(golden.zeros)
def empty(
    shape: Sequence[int],
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.ROW_MAJOR,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Contents are undefined: here they are zeros, and who reads them before they were written is warned."""
    made = _full("empty", shape, 0, dtype, layout, device, memory_config)
    mark_unwritten(made, "empty")
    return made


@placed("The same on all devices.")
@with_reference(golden.arange)
def arange(
    start: int,
    end: int | None = None,
    step: int = 1,
    *,
    dtype: DataType = DataType.BFLOAT16,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    layout: Layout = Layout.ROW_MAJOR,
) -> Tensor:
    """`(end)` counts from 0; `(start, end, step)` from start."""
    for name, value in (("start", start), ("end", 0 if end is None else end), ("step", step)):
        if not math.isfinite(_checked_number("arange", name, value)):
            raise refused("arange", f"{name} must be finite, got {value}")
    first, last = (0, start) if end is None else (start, end)
    if step == 0 or (last - first) * step < 0:
        raise MeshError(f"arange: step {step} does not lead from {first} to {last}.")
    return _create("arange", _counted(first, last, step, dtype), dtype, layout, device, memory_config)


def _counted(first: float, last: float, step: float, dtype: DataType) -> torch.Tensor:
    """As torch counts; many numbers are rounded part by part, and never lie there as wide as torch has them."""
    count = max(0, math.ceil((last - first) / step))
    storage = facts(dtype).storage
    are_whole = all(isinstance(number, int) for number in (first, last, step))
    if count < _COUNTED_AT_ONCE or not are_whole or storage not in _COUNTED_IN_PARTS:
        check_host_room("arange", count * _LONGEST_NUMBER, [(count,)])
        return torch.arange(first, last, step)
    check_host_room("arange", count * storage.itemsize, [(count,)])
    values = torch.empty(count, dtype=storage)
    for at in range(0, count, _COUNTED_AT_ONCE):
        part = values[at : at + _COUNTED_AT_ONCE]
        begin = first + at * step
        part.copy_(torch.arange(begin, begin + len(part) * step, step))
    return values


def rand(
    shape: Sequence[int],
    device: MeshDevice | None = None,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
    mesh_mapper: MeshMapperConfig | None = None,
) -> Tensor:
    """Uniform in [low, high). Seed 0 draws from torch's generator, any other seed repeats itself.

    With a mapper config `shape` is the whole tensor, split as the config says.
    """
    if not _checked_number("rand", "low", low) <= _checked_number("rand", "high", high):
        raise MeshError(f"rand: low={low} must not be above high={high}.")
    number = checked_int("rand", "seed", seed)
    generator = torch.Generator().manual_seed(number) if number else None
    sizes = tuple(checked_shape("rand", shape))
    check_host_room("rand", math.prod(sizes) * _LONGEST_NUMBER, [sizes])
    values = torch.rand(sizes, generator=generator) * (high - low) + low
    mapper = None
    if mesh_mapper is not None:
        if device is None:
            raise ArgumentError("rand: mesh_mapper needs a device to map to.")
        mapper = TensorToMesh(device.shape, mesh_mapper)
    return _create("rand", values, dtype, layout, device, memory_config, mapper, is_drawn=True)


def randn(
    shape: Sequence[int],
    device: MeshDevice | None = None,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: object = None,
    seed: int | None = None,
) -> Tensor:
    """Normal, with mean 0 and deviation 1. Without a seed it draws from torch's generator; a seed repeats itself."""
    generator = None if seed is None else torch.Generator().manual_seed(checked_int("randn", "seed", seed))
    values = torch.randn(tuple(checked_shape("randn", shape)), generator=generator)
    return _create("randn", values, dtype, layout, device, memory_config, is_drawn=True)


@placed("Split as the operand is; of a partial sum, the same on all devices.")
def _filled(tensor: Operand, layout: Layout | None, constant: float | None = None) -> Local:
    """A constant, or else the number given as second operand, in the tensor's shape and split."""

    def compute(x: torch.Tensor, given: float | None = None) -> torch.Tensor:
        value = given if constant is None else constant
        kind = torch.float32 if isinstance(value, float) else torch.int64
        return torch.full(x.shape, value, dtype=kind, device=x.device)  # type: ignore[arg-type]

    @rules.labelled(dim_labels.moved(lambda dim: dim, passes="", is_read=False))
    def as_split(at: rules.Situation) -> rules.Placement:
        """No operand decides the values: split where the operand is, the same everywhere else."""
        return at.word if isinstance(at.word, rules.Shard) else rules.REPLICATE

    return Local(compute, as_split, layouts=(layout or tensor.layout,))


_LIKE: dict[str, Any] = {
    "cost": moves_bytes,
    "precision": "data",
    "on_host": True,
    "controls": "dtype memory_config optional_tensor",
    "unread": "tensor",
    "rule": _filled,
}


@operation(
    kind=Kind.CREATION,
    native="FullDeviceOperation",
    **_LIKE,
    tuning="device",
    positional="dtype layout device memory_config optional_tensor",
)
@with_reference(golden_data_movement.full_like)
def full_like(tensor: Operand, fill_value: Value, *, layout: Layout | None = None) -> Local:
    """`fill_value` in the shape and placement of `tensor`."""
    return _filled(tensor, layout)


@operation(
    kind=Kind.CREATION,
    native="FullDeviceOperation",
    **_LIKE,
    tuning="device",
    positional="dtype layout device memory_config optional_tensor",
)
@with_reference(InOrder(torch.zeros_like))
def zeros_like(tensor: Operand, *, layout: Layout | None = None) -> Local:
    return _filled(tensor, layout, 0)


@operation(
    kind=Kind.CREATION,
    native="FullDeviceOperation",
    **_LIKE,
    tuning="device",
    positional="dtype layout device memory_config optional_tensor",
)
@with_reference(InOrder(torch.ones_like))
def ones_like(tensor: Operand, *, layout: Layout | None = None) -> Local:
    return _filled(tensor, layout, 1)


def _leave_unwritten(op: Definition, call: BoundCall) -> AfterRunning:
    def tell(made: list[Tensor]) -> None:
        for result in made:
            mark_unwritten(result, op.name)

    return tell


@operation(
    kind=Kind.CREATION,
    **{**_LIKE, "controls": "dtype memory_config"},
    tuning="device",
    positional="dtype layout device memory_config",
    undefined=_leave_unwritten,
    leaves_undefined=True,
)
@with_reference(InOrder(torch.zeros_like))
def empty_like(tensor: Operand, *, layout: Layout | None = None) -> Local:
    """Contents are undefined: here they are zeros, and who reads them before they were written is warned."""
    return _filled(tensor, layout, 0)


@operation(
    kind=Kind.CREATION,
    native="FullDeviceOperation",
    rule=_filled,
    cost=moves_bytes,
    precision="data",
    controls="dtype memory_config",
    positional="dtype layout memory_config",
    unread="input",
)
@with_reference(golden_data_movement.moreh_full_like)
def moreh_full_like(input: Operand, fill_value: Value, *, layout: Layout | None = None) -> Local:
    return _filled(input, layout)


# -- values by place: fill, a corner of another value, one side of a diagonal ------------------------


_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}


@operation(
    kind=Kind.CREATION,
    rule=_filled,
    native="UnaryDeviceOperation",
    **_OPTIONS,
    controls="memory_config output_tensor",
    tuning="sub_core_grids",
    unread="input_tensor",
)
@with_reference(golden_composite.fill)
def fill(input_tensor: Operand, fill_value: Value) -> Local:
    """`fill_value` in the shape, dtype and split of the tensor."""
    return _filled(input_tensor, None)


def _corner(op: str, sizes: Sequence[int], corner: Sequence[int]) -> Local:
    """[N, C, H, W], row-major: one value in the first rows and columns, another elsewhere."""
    if min(sizes) < 1 or any(not 0 <= n <= extent for n, extent in zip(corner, sizes[2:], strict=True)):
        raise MeshError(f"{op}: a corner of {list(corner)} does not fit into {list(sizes)}.")

    def compute(x: torch.Tensor, high: float = 1.0, low: float = 0.0) -> torch.Tensor:
        lead = x.shape[:-4]
        values = torch.full((*lead, *sizes), low, device=x.device)
        values[..., : corner[0], : corner[1]] = high
        return values

    return Local(compute, rules.SingleRule(lambda at: rules.REPLICATE), layouts=(Layout.ROW_MAJOR,))


def _check_four(op: str, operand: Operand) -> None:
    if operand.rank != 4:
        raise MeshError(f"{op}: any {list(operand.shape)} must have 4 dims; its values do not matter.")


@operation(kind=Kind.CREATION, **_OPTIONS, controls="memory_config", unread="any")
@with_reference(golden.fill_rm)
def fill_rm(
    N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Operand, val_hi: Value, val_lo: Value
) -> Local:
    """[N, C, H, W] with val_hi in the first hOnes rows and wOnes columns, val_lo elsewhere; `any` gives the device."""
    _check_four("fill_rm", any)
    return _corner("fill_rm", (N, C, H, W), (hOnes, wOnes))


@operation(kind=Kind.CREATION, **_OPTIONS, controls="memory_config", unread="any")
@with_reference(golden.fill_ones_rm)
def fill_ones_rm(N: int, C: int, H: int, W: int, hOnes: int, wOnes: int, any: Operand) -> Local:
    """As `fill_rm`, with 1 and 0."""
    _check_four("fill_ones_rm", any)
    return _corner("fill_ones_rm", (N, C, H, W), (hOnes, wOnes))


@placed("Split as the operand is; split along one of the last two dims, Local.")
def _triangle(op: str, operand: Operand, diagonal: int, is_lower: bool) -> Local:
    if operand.rank < 2:
        raise MeshError(f"{op}: {operand.name} {list(operand.shape)} must have two dims or more.")
    cut = torch.tril if is_lower else torch.triu
    last = operand.rank - 2

    @rules.labelled(dim_labels.moved(lambda dim: None if dim >= last else dim))
    def rule(at: rules.Situation) -> rules.Placement:
        """Which side of the diagonal a value of a split matrix is on, a piece does not know."""
        return rules.LOCAL if isinstance(at.word, rules.Shard) and at.word.dim >= last else rules.linear(at)

    return Local(lambda x: cut(x, diagonal), rule)


@operation(kind=Kind.MOVEMENT, rule=_triangle, part_work=part_work.COUNTS_PLACES, **_OPTIONS, controls="memory_config")
@with_reference(golden_composite.triangle(torch.tril))
def tril(input_tensor: Operand, *, diagonal: int = 0) -> Local:
    """0 above the diagonal of the last two dims."""
    return _triangle("tril", input_tensor, diagonal, is_lower=True)


@operation(kind=Kind.MOVEMENT, rule=_triangle, part_work=part_work.COUNTS_PLACES, **_OPTIONS, controls="memory_config")
@with_reference(golden_composite.triangle(torch.triu))
def triu(input_tensor: Operand, *, diagonal: int = 0) -> Local:
    """0 below the diagonal of the last two dims."""
    return _triangle("triu", input_tensor, diagonal, is_lower=False)


@checked_function
def moreh_full(
    shape: Sequence[int],
    fill_value: float,
    device: MeshDevice,
    *,
    dtype: DataType = DataType.BFLOAT16,
    layout: Layout = Layout.TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:
    """`fill_value` everywhere, in tiles unless asked otherwise."""
    return full(shape, fill_value, dtype, layout, device, memory_config)


@operation(kind=Kind.MOVEMENT, rule=rules.keeping, **_OPTIONS, controls="")
@with_reference(InOrder(torch.clone))
def composite_example(input_tensor: Operand) -> Local:
    """TT-NN's example of an op that is made of others: a copy."""
    return Local(torch.clone)


@checked_function
def composite_example_multiple_return(
    input_tensor: Tensor, return_output1: bool = True, return_output2: bool = True
) -> list[Tensor | None]:
    """TT-NN's example of an op of several results: copies, those that are asked for."""
    return [composite_example(input_tensor) if yes else None for yes in (return_output1, return_output2)]
