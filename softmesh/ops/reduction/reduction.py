"""sum, mean, max, argmax, topk, sort, cumsum and the like, over dims of each device's shard.

Over a split dim the result of a reduction is a contribution (Partial) that a collective must sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.argument_forms import named_by_position, one_after_the_other
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Arguments, Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import BoundCall, Signature
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.kinds import Kind
from softmesh.ops import gradients
from softmesh.ops.golden import golden_composite
from softmesh.ops.golden import golden_reduction as golden
from softmesh.ops.golden.golden_functions import InOrder, rounds_once, with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.result_shards import cut_anew
from softmesh.tensor.tensor import Tensor

ReduceFunction = Callable[[torch.Tensor, list[int], bool, bool], torch.Tensor]
_TUNING = "compute_kernel_config sub_core_grids fast_and_approximate_mode"

# Work on each element, in steps of the vector unit. argmax has no kernel there: a scalar core compares one element in
# about 20 cycles. topk sorts runs of 64 with their indices; a published one of 32 x 16384 took 180 us.
_SCALAR_COMPARISON = 200
_BITONIC_SORT = 218


class Reduction(NamedTuple):
    """`combine` is how contributions of several devices make the whole; None: they do not.

    `scaling` is what a factor of the values becomes for the result.
    """

    reference: Callable[..., torch.Tensor]
    function: ReduceFunction
    combine: str | None
    scaling: Callable[[float], float] = float
    gradient: gradients.Rule | None = None


def _squared(scalar: float) -> float:
    return scalar * scalar


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(
        golden.reduction(torch.sum),
        lambda x, dims, keep, _: x.sum(dims, keepdim=keep),
        "sum",
        gradient=gradients.of_reduced_sum,
    ),
    "mean": Reduction(
        golden.reduction(torch.mean),
        lambda x, dims, keep, _: x.float().mean(dims, keepdim=keep),
        "avg",
        gradient=gradients.of_mean,
    ),
    "max": Reduction(golden.reduction(torch.amax), lambda x, dims, keep, _: x.amax(dims, keepdim=keep), "max"),
    "min": Reduction(golden.reduction(torch.amin), lambda x, dims, keep, _: x.amin(dims, keepdim=keep), "min"),
    "std": Reduction(
        golden.spread(torch.sqrt),
        lambda x, dims, keep, one: x.float().std(dims, correction=int(one), keepdim=keep),
        None,
        abs,
    ),
    "var": Reduction(
        golden.spread(torch.clone),
        lambda x, dims, keep, one: x.float().var(dims, correction=int(one), keepdim=keep),
        None,
        _squared,
    ),
}
_OPPOSITE = {"max": REDUCTIONS["min"].function, "min": REDUCTIONS["max"].function}


def _of_whole_values(rule: rules.SingleRule) -> rules.SingleRule:
    """The same for values that are no contributions themselves."""

    @rules.labelled(dim_labels.without_passes(rule.labels))
    def whole(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        return rule(at)

    return whole


def _reduced(operand: Operand, dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    kept = [1 if d in dims else n for d, n in enumerate(operand.shape) if keepdim or d not in dims]
    return tuple(kept)


def _register(name: str, entry: Reduction) -> None:
    def define(
        input_tensor: Operand,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        scalar: float = 1.0,
        correction: bool | None = None,
        output_layout: Layout | None = None,
    ) -> Local:
        dims = input_tensor.dims(None if isinstance(dim, Sequence) and not dim else dim)  # no dims are all of them
        backward = [d - input_tensor.rank for d in dims]
        bessel = True if correction is None else bool(correction)
        factor = entry.scaling(scalar)
        is_turned_over = scalar < 0 and name in _OPPOSITE  # the largest is a factor times the smallest
        function = _OPPOSITE[name] if is_turned_over else entry.function

        def compute(x: torch.Tensor) -> torch.Tensor:
            if not backward:
                return x.clone() * scalar
            result = function(x, backward, keepdim, bessel)
            return result if factor == 1.0 else result * factor

        if output_layout is Layout.ROW_MAJOR and facts(input_tensor.dtype).is_block:
            raise MeshError(
                f"{name}: output_layout ROW_MAJOR is not for {input_tensor.dtype}: block-float formats only exist in "
                "TILE layout. Leave output_layout out, or typecast the tensor to ttnn.bfloat16 first."
            )
        layouts = None if output_layout is None else (output_layout,)
        rule = rules.reducing(entry.combine, dims, keepdim)
        place = cut_anew(input_tensor.spec, _reduced(input_tensor, dims, keepdim), output_layout or input_tensor.layout)
        rule = _of_whole_values(rule) if is_turned_over else rule
        return Local(compute, rule, layouts=layouts, memory_config=place, exact=compute if name == "sum" else None)

    with_reference(entry.reference)(define)
    define.__doc__ = f"""{name} of the values times `scalar`, over one dim, several, or (None) all.

>>> y = ttnn.{name}(split(8, 64, dim=1), dim=1, keepdim=True)
>>> y.shape, ttnn.placements(y)
(Shape([8, 1]), (Replicate, {f"Partial({entry.combine})" if entry.combine else "Local"}))
>>> ttnn.placements(ttnn.{name}(split(8, 64, dim=1), dim=0))
(Replicate, Shard(0))
"""
    operation(
        name,
        kind=Kind.REDUCTION,
        gradient=entry.gradient,
        part_work=part_work.TAKES_MEAN if entry.combine is None else None,
        native="ReduceDeviceOperation",
        controls="memory_config",
        tuning=_TUNING,
    )(define)


for _name, _entry in REDUCTIONS.items():
    _register(_name, _entry)


_SUM = "experimental.fast_reduce_nc"


@operation(
    _SUM,
    kind=Kind.REDUCTION,
    cost=flops_per_element(1),
    controls="memory_config output",
    tuning="compute_kernel_config sub_core_grids",
    needs_tile=True,
    program_count=lambda device, spec, given: len(given["dims"]),  # one after another
)
@with_reference(golden.fast_reduce_nc)
def fast_reduce_nc(input: Operand, *, dims: Sequence[int] = ()) -> Local:
    """The sum over dims in front of the last two, which stay with an extent of 1."""
    if not dims:
        raise MeshError(f"fast_reduce_nc dims should not be empty: {_SUM} sums over the dims that are named.")
    summed = input.dims(list(dims), "dims")
    if any(d >= input.rank - 2 for d in summed):
        raise MeshError(
            f"{_SUM}: dims={list(dims)} of {list(input.shape)} must lie in front of the last two; ttnn.sum takes those."
        )
    backward = [d - input.rank for d in summed]
    rule = rules.reducing("sum", summed, keepdim=True)
    return Local(lambda x: x.sum(backward, keepdim=True), rule, memory_config=DRAM_MEMORY_CONFIG)


def _keeping_dims(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """`(tensor, dim, keepdim)`, or `(tensor, output_tensor, dims=...)`, which keeps the dims it multiplies over."""
    return args, kwargs | ({"keepdim": True} if "dims" in kwargs else {})


@operation(
    kind=Kind.REDUCTION,
    controls="memory_config output_tensor",
    rearrange=one_after_the_other(_keeping_dims, named_by_position(1, "input_tensor output_tensor")),
    forms=("input_tensor output_tensor",),
)
@with_reference(golden.prod)
def prod(
    input_tensor: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dims: Sequence[int] | None = None,
) -> Local:
    """The product over one dim, several, or all."""
    over = input_tensor.dims(dim if dims is None else dims)
    rank = input_tensor.rank

    def compute(x: torch.Tensor) -> torch.Tensor:
        for d in over:
            x = x.prod(d - rank, keepdim=True)
        lead = x.dim() - rank
        return x if keepdim else x.reshape(*x.shape[:lead], *(x.shape[lead + d] for d in range(rank) if d not in over))

    return Local(compute, rules.reducing("prod", over, keepdim))


def _check_indices_target(definition: Definition, call: BoundCall) -> None:
    """What TT-NN asks of the output tensor of argmax: its shape is its own affair."""
    for target in call.targets:
        if not isinstance(target, Tensor):
            continue
        if target.dtype is not DataType.UINT32:
            raise MeshError(
                f"Only UINT32 dtype is supported for outputs: the output tensor of {definition.name} is {target.dtype}."
            )
        if not target.memory_config().interleaved or target.layout is not Layout.ROW_MAJOR:
            raise MeshError(
                f"{definition.name}: the output tensor must be INTERLEAVED, in ROW_MAJOR layout; got "
                f"{target.memory_config()}, {target.layout}."
            )


@operation(
    kind=Kind.SELECTION,
    rule=rules.reducing,
    native="ArgMaxDeviceOperation",
    cost=flops_per_element(_SCALAR_COMPARISON),
    controls="memory_config output_tensor",
    tuning="sub_core_grids enable_secondary_dm use_multicore",
    check_targets=_check_indices_target,
)
@with_reference(golden.argmax)
def argmax(input_tensor: Operand, dim: int | None = None, keepdim: bool = False) -> Local:
    """The index of the first largest element along `dim` (None: of the flattened tensor), as uint32.

    An output tensor keeps its shape: it takes the indices in order.
    """
    rank = input_tensor.rank
    over = input_tensor.dims(dim)

    def compute(x: torch.Tensor) -> torch.Tensor:
        if dim is not None:
            return x.argmax(over[0] - rank, keepdim=keepdim)
        flat = x.reshape(*x.shape[: x.dim() - rank], -1).argmax(-1)
        return flat.reshape(*flat.shape, *(1,) * rank) if keepdim else flat

    rule = rules.reducing(None, over, keepdim)
    return Local(compute, rule, dtypes=(DataType.UINT32,), layouts=(Layout.ROW_MAJOR,), fills_target=True)


def index_type(extent: int) -> DataType:
    """Of places along a dim."""
    return DataType.UINT16 if extent <= 65535 else DataType.UINT32


_INDICES = (DataType.UINT16, DataType.UINT32, DataType.INT32)


def _check_topk_targets(op: Definition, call: BoundCall) -> None:
    """What TT-NN asks of output tensors: values as the input has them, whole numbers for the places."""
    dtype, targets = call.tensors[0].dtype, call.targets
    if len(targets) != 2 or not all(isinstance(target, Tensor) for target in targets):
        return
    fitting = (dtype,) if dtype is DataType.FLOAT32 else (DataType.BFLOAT16, DataType.BFLOAT8_B)
    for name, target, wanted in zip(("values", "indices"), targets, (fitting, _INDICES), strict=True):
        if target.dtype not in wanted:
            raise MeshError(
                f"Preallocated output tensor of {name} must be {' or '.join(d.name for d in wanted)}, got "
                f"{target.dtype}: topk reads values of {dtype}."
            )


def _check_topk_indices(values: Operand, at: int, indices: Operand) -> None:
    if at != -1:
        raise MeshError(
            "topk: indices_tensor is only supported for a reduction on the last dimension, got dim "
            f"{at + values.rank} of {list(values.shape)}: transpose both first."
        )
    if indices.shape != values.shape:
        raise MeshError(
            f"Indices tensor has incorrect shape: topk got {list(indices.shape)} for values {list(values.shape)}."
        )
    if values.dtype is DataType.FLOAT32 and indices.dtype is not DataType.UINT32:
        raise MeshError(
            "Optional indices tensor must be UINT32 when input tensor is FLOAT32: topk got indices of "
            f"{indices.dtype}; ttnn.typecast them."
        )
    if indices.is_float:
        raise MeshError(f"topk: indices_tensor must hold whole numbers, got {indices.dtype}.")


@operation(
    kind=Kind.SELECTION,
    rule=rules.within,
    native="TopKDeviceOperation",
    cost=flops_per_element(_BITONIC_SORT),
    controls="memory_config output_tensor",
    tuning="sub_core_grids stable",
    results="list[Tensor]",
    check_targets=_check_topk_targets,
)
@with_reference(golden.topk)
def topk(
    input_tensor: Operand,
    k: int = 32,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    indices_tensor: Operand | None = None,
) -> Local:
    """Values in order and their indices (uint16, uint32 above 65,535); equal values come in torch's order.

    `indices_tensor` has an index for each value, to stand for it in the result.

    >>> values, indices = ttnn.topk(split(32, 64, dim=0), k=4)
    >>> values.shape, indices.dtype.name, ttnn.placements(values)
    (Shape([8, 4]), 'UINT16', (Replicate, Shard(0)))
    """
    d = input_tensor.dim(dim)
    n = input_tensor.shape[d]
    if not 1 <= k <= n:
        raise MeshError(f"topk: k={k} must be between 1 and {n}, the extent of dim {dim}.")
    at = d - input_tensor.rank
    if indices_tensor is not None:
        _check_topk_indices(input_tensor, at, indices_tensor)
    of_places = index_type(n) if indices_tensor is None else indices_tensor.dtype

    def compute(x: torch.Tensor, indices: torch.Tensor | None) -> list[torch.Tensor]:
        values, places = x.topk(k, at, largest)  # in order, whether or not that is asked for
        if indices is None:
            return [values, places]
        return [values, torch.take_along_dim(indices, places, at)]

    return Local(compute, rules.within(d), dtypes=(input_tensor.dtype, of_places))


@placed("Split as the operand is; split along the dim it runs along, Local. A partial sum stays one.")
def scan_rule(dims: tuple[int, ...]) -> rules.SingleRule:
    """Linear, and mixing values along `dims`."""

    @rules.labelled(dim_labels.aligned(without=dims, passes=dim_labels.FIRST))
    def rule(at: rules.Situation) -> rules.Placement:
        mixed = {dim % len(at.shape) for dim in dims}
        if isinstance(at.word, rules.Shard) and at.word.dim in mixed:
            return rules.LOCAL
        return rules.linear(at)

    return rule


def _check_in_tiles(op: str, operand: Operand) -> None:
    if operand.layout is not Layout.TILE:
        raise MeshError(
            f"The provided input tensor has a non-tile layout: {operand.layout}. {op} works on tiles: use "
            "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)."
        )


@operation(
    kind=Kind.SCAN,
    rule=scan_rule,
    cost=flops_per_element(1),
    controls="memory_config dtype out",
    tuning="disable_compensated_sum",
)
@with_reference(golden.cumsum)
def cumsum(input: Operand, dim: int, *, reverse_order: bool = False) -> Local:
    """Running sums along `dim`; from the end with `reverse_order`."""
    _check_in_tiles("cumsum", input)
    if not input.rank and dim in (0, -1):  # one value is its own sum
        return Local(torch.clone, rules.keeping)
    at = input.from_end(dim)

    def compute(x: torch.Tensor) -> torch.Tensor:
        return x.flip(at).cumsum(at).flip(at) if reverse_order else x.cumsum(at)

    return Local(compute, scan_rule((at,)), exact=compute)


# -- along a dim, in order: sort, prefix products and sums, moving averages, nonzero -----------------


_SORTED_WITH_LONG_INDICES = (DataType.UINT16, DataType.FLOAT32)


def _check_sorted_into(op: Definition, call: BoundCall) -> None:
    dtype, targets = call.tensors[0].dtype, call.targets
    if dtype in _SORTED_WITH_LONG_INDICES and len(targets) == 2 and targets[1].dtype is not DataType.UINT32:
        raise MeshError(
            f"sort: the tensor of indices must be UINT32 when input dtype is {dtype.name}, got {targets[1].dtype}."
        )


@operation(
    kind=Kind.SELECTION,
    rule=rules.within,
    cost=flops_per_element(16),
    controls="memory_config out",
    precision="native",
    results="list[Tensor]",
    check_targets=_check_sorted_into,
)
@with_reference(golden_composite.sort)
def sort(input_tensor: Operand, dim: int = -1, descending: bool = False, stable: bool = False) -> Local:
    """[values in order, the places they come from] along `dim`; places as uint16, uint32 above 65,535.

    Of uint16 and float32 values they are uint32. Equal values keep their order; TT-NN promises that for `stable=True`
    only.
    """
    is_long = input_tensor.dtype in _SORTED_WITH_LONG_INDICES
    if not input_tensor.rank and dim in (0, -1):  # one value is in order
        places = DataType.UINT32 if is_long else index_type(1)
        made = (input_tensor.dtype, places)
        return Local(lambda x: [x, torch.zeros_like(x, dtype=torch.int64)], rules.elementwise, dtypes=made)
    at = input_tensor.from_end(dim)
    places = DataType.UINT32 if is_long else index_type(input_tensor.shape[at])
    return Local(
        lambda x: list(torch.sort(x, dim=at, descending=bool(descending), stable=True)),
        rules.within(at),
        dtypes=(input_tensor.dtype, places),
    )


def _as_the_output(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """An output tensor has its own dtype, whatever is asked for beside it."""
    return args, kwargs | ({"dtype": None} if kwargs.get("out") is not None else {})


@operation(
    kind=Kind.SCAN,
    rule=rules.within,
    cost=flops_per_element(1),
    controls="dtype memory_config out",
    rearrange=_as_the_output,
)
@with_reference(golden_composite.cumprod)
def cumprod(input_tensor: Operand, dim: int, *, reverse_order: bool = False) -> Local:
    """Running products along `dim`; from the end with `reverse_order`."""
    _check_in_tiles("cumprod", input_tensor)
    if not input_tensor.rank and dim in (0, -1):
        return Local(torch.clone, rules.keeping)
    at = input_tensor.from_end(dim)

    def compute(x: torch.Tensor) -> torch.Tensor:
        return x.flip(at).cumprod(at).flip(at) if reverse_order else x.cumprod(at)

    return Local(compute, rules.within(at))


@operation(kind=Kind.SCAN, rule=scan_rule, cost=flops_per_element(1), controls="memory_config output")
@with_reference(golden_composite.moreh_cumsum)
def moreh_cumsum(input: Operand, dim: int) -> Local:
    """Running sums along `dim`."""
    at = input.from_end(dim)
    return Local(lambda x: x.cumsum(at), scan_rule((at,)), exact=lambda x: x.cumsum(at))


@operation(
    "experimental.intimg", kind=Kind.SCAN, rule=scan_rule, cost=flops_per_element(2), controls="", floats_only=True
)
@with_reference(InOrder(rounds_once(lambda x: torch.cumsum(torch.cumsum(x, 1), 2))))
def integral_image(input_tensor: Operand) -> Local:
    """[N, H, W, C]: at each pixel the sum of all above and to the left of it, its own row and column included."""
    if input_tensor.rank != 4:
        raise MeshError(f"experimental.intimg: input_tensor {list(input_tensor.shape)} must be [N, H, W, C].")
    return Local(lambda x: x.cumsum(-3).cumsum(-2), scan_rule((-3, -2)))


def averaging_matrix(length: int, alpha: float, like: torch.Tensor) -> torch.Tensor:
    """(length, length): what each value counts in the average at each later place."""
    places = torch.arange(length, device=like.device)
    age = places.unsqueeze(0) - places.unsqueeze(1)  # of row's value at column's place
    weights = torch.pow(torch.tensor(alpha, dtype=torch.float64), age.clamp_min(0).double())
    return torch.where(age >= 0, (1 - alpha) * weights, 0.0).to(like.dtype)


_LONGEST_BLOCK = 256  # values that one product averages: beyond it, blocks follow each other


@operation(
    kind=Kind.SCAN,
    rule=scan_rule,
    cost=flops_per_element(3),
    controls="out memory_config",
    tuning="core_grid compute_kernel_config",
    floats_only=True,
)
def ema(input_tensor: Operand, alpha: float) -> Local:
    """y[t] = alpha * y[t - 1] + (1 - alpha) * x[t] along the last dim, from y = 0 before the first.

    What TT-NN starts from is not documented.
    """
    if not 0 <= alpha <= 1:
        raise MeshError(f"ema: alpha={alpha} must lie between 0 and 1.")

    def compute(x: torch.Tensor) -> torch.Tensor:
        blocks: list[torch.Tensor] = []
        for block in x.split(_LONGEST_BLOCK, -1):
            average = block @ averaging_matrix(block.shape[-1], alpha, x)
            if blocks:
                fading = alpha ** torch.arange(1, block.shape[-1] + 1, device=x.device, dtype=x.dtype)
                average = average + blocks[-1][..., -1:] * fading
            blocks.append(average)
        return torch.cat(blocks, -1)

    return Local(compute, scan_rule((-1,)))


_NON_ZERO_WIDTH = 8  # of the tensor in which TT-NN counts them
_NON_ZERO: dict[str, Any] = {
    "memory_config": DRAM_MEMORY_CONFIG,
    "dtypes": (DataType.UINT32, DataType.UINT32),
    "layouts": (Layout.ROW_MAJOR, Layout.ROW_MAJOR),
}


@operation(kind=Kind.SELECTION, rule=rules.opaque, controls="memory_config", precision="data", results="list[Tensor]")
def nonzero(input_tensor: Operand) -> Local:
    """A tensor of four dims -> [how many are not 0, where they are], as uint32.

    The number is the first value of [1, 1, 1, 8]; [1, 1, 1, 4 * volume] has the four indices of one after the other,
    in the order of the values, and 0 after them.
    """
    if input_tensor.rank != 4:
        raise MeshError(f"nonzero: input_tensor must have four dims, got {list(input_tensor.shape)}.")
    shape = input_tensor.shape
    volume = math.prod(shape)

    def compute(x: torch.Tensor) -> list[torch.Tensor]:
        found = (x != 0).flatten(-4)
        places = torch.arange(volume, device=x.device)
        order = torch.where(found, places, volume).sort(-1).values
        count = found.sum(-1, keepdim=True)
        digits = torch.unravel_index(order.clamp_max(volume - 1), shape)
        indices = torch.where((order < volume).unsqueeze(-1), torch.stack(digits, -1), 0).flatten(-2)
        return [
            _as_last_of_four(torch.nn.functional.pad(count, (0, _NON_ZERO_WIDTH - 1))),
            _as_last_of_four(indices),
        ]

    return Local(compute, **_NON_ZERO)


def _as_last_of_four(values: torch.Tensor) -> torch.Tensor:
    """(..., n) as (..., 1, 1, 1, n)"""
    return values.unsqueeze(-2).unsqueeze(-2).unsqueeze(-2)
