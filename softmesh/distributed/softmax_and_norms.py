"""softmax, layer_norm and rms_norm over a split dim: devices exchange a few statistics for each row, not the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.collectives.ttnn_collectives import all_gather
from softmesh.cost.link_costs import all_gather as gather_cost
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.plan import Local
from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.generic_ops import shape_of_first
from softmesh.distributed.redistribution import GATHER, Step
from softmesh.distributed.redistribution_ops import Run, gather_uneven
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Labels, Split, by_labels
from softmesh.distributed.unified_op import Unified, own_operation
from softmesh.kinds import Kind
from softmesh.placement import dim_labels, rules
from softmesh.tensor.dtype import TILE_SIZE, DataType
from softmesh.tensor.tensor import Tensor

_FLOAT32_BYTES = 4


def _exchange(given: CallDescription, dim: int, columns: int, mixing: str) -> Callable[[Split], tuple[Step, ...]]:
    """The gathering of `columns` numbers for each row, along each axis that splits the dim."""
    shape = given.operands[0].shape

    def inside(split: Split) -> tuple[Step, ...]:
        axes, needs = split.axes(mixing), split.needs(0)
        rows, in_l1 = list(given.values[0].local_shape(needs)), given.values[0].is_in_l1(needs)
        rows[dim] = columns
        steps = []
        for axis in reversed(axes):
            piece = math.prod(rows) * _FLOAT32_BYTES
            steps.append(Step(GATHER, axis, dim, None, needs, gather_cost(given.lines[axis], piece, in_l1=in_l1)))
            rows[dim] *= split.mesh[axis]
        return tuple(steps)

    assert 0 <= dim < len(shape)
    return inside


def _gathering(given: CallDescription, dim: int, split: Split, axes: Sequence[int]) -> Run:
    """Statistics of all devices along `axes`, side by side; TT-NN's gather wants all other splits even."""
    value, needs = given.values[0], split.needs(0)
    others = [(axis, word.dim) for axis, word in enumerate(needs) if isinstance(word, rules.Shard)]
    is_even = all(value.divides(needs, axis, at) for axis, at in others)
    gather = all_gather if is_even else gather_uneven

    def gathered(stats: Tensor) -> Tensor:
        for axis in reversed(axes):
            stats = gather(stats, dim, cluster_axis=axis)
        return stats

    return gathered


def _whole_dims(given: CallDescription) -> tuple[str, ...]:
    return tuple(f"dim {dim}" for dim in range(given.operands[0].rank))


# -- softmax ---------------------------------------------------------------------------------------


@own_operation("softmax_statistics", Kind.STATISTICS, cost=flops_per_element(10))
def _softmax_statistics(input_tensor: Operand, dim: int) -> Local:
    """For each row of this device's piece its maximum, and the sum of what lies above it; in float32."""
    at = dim - input_tensor.rank

    def compute(x: torch.Tensor) -> torch.Tensor:
        top = x.amax(at, keepdim=True)
        return torch.cat([top, torch.exp(x - top).sum(at, keepdim=True)], at)

    return Local(compute, rules.within(at), dtypes=(DataType.FLOAT32,))


@own_operation("softmax_by_statistics", Kind.NORM, cost=flops_per_element(10), controls="memory_config")
def _softmax_by_statistics(input_tensor: Operand, stats: Operand, dim: int) -> Local:
    at = dim - input_tensor.rank

    def compute(x: torch.Tensor, stats: torch.Tensor) -> torch.Tensor:
        tops, sums = stats.unflatten(at, (-1, 2)).unbind(at)
        top = tops.amax(at, keepdim=True)
        total = (sums * torch.exp(tops - top)).sum(at, keepdim=True)
        return torch.exp(x - top) / total

    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> rules.Placement:
        own, of_stats = at.words
        assert own is not None
        if isinstance(own, rules.Shard) and own.dim == dim:
            return own if of_stats is rules.REPLICATE else rules.LOCAL
        rules.refuse_partial(at)
        return own if own is of_stats else rules.LOCAL

    return Local(compute, rule)


def describe_softmax(given: CallDescription) -> SplitOptions:
    (operand,) = given.operands
    dim = operand.dim(given.arguments["dim"])
    labels = _whole_dims(given)
    choices = [_strict(c, dim) for c in by_labels([labels], labels, labels, names=given.short_names)]
    mixing = f"split dim {dim}"
    at = given.op.definition.signature.memory_config_at
    config = None if at is None else given.bound[at]
    plain = given.plain()

    def call(split: Split) -> Callable[..., Any]:
        axes = split.axes(mixing)
        if not axes:
            return plain

        gathered = _gathering(given, dim, split, axes)

        def run(x: Tensor) -> Tensor:
            stats = gathered(_softmax_statistics(x, dim))
            made: Tensor = _softmax_by_statistics(x, stats, dim, memory_config=config)
            return made

        return run

    return SplitOptions(choices, call, inside=_exchange(given, dim, 2, mixing))


def _strict(choice: Choice, dim: int) -> Choice:
    """Filler along the dim that is mixed would take part."""
    mixes = choice.name == f"split dim {dim}"
    return Choice(choice.name, choice.needs, choice.gives, takes_uneven=not mixes)


# -- norms -----------------------------------------------------------------------------------------


def describe_norm(given: CallDescription) -> SplitOptions:
    """Over the last dim. Split there, by TT-NN's own two halves: statistics, gathered, and the norm by them."""
    name, x = given.op.name, given.operands[0]
    dim, labels = x.rank - 1, _whole_dims(given)
    mixing = f"split dim {dim}"
    operands = [
        labels if operand.name in ("input_tensor", "residual_input_tensor") else _row_labels(operand, dim)
        for operand in given.operands
    ]
    choices = [_strict(c, dim) for c in by_labels(operands, labels, labels, names=given.short_names)]
    columns = TILE_SIZE * (2 if name == "layer_norm" else 1)
    return SplitOptions(
        choices,
        _norm_call(given, dim, mixing),
        inside=_exchange(given, dim, columns, mixing),
    )


def _row_labels(weight: Operand, dim: int) -> Labels:
    """A weight holds one row, in whatever form: its first dim of several elements runs along the row."""
    first = next((d for d, n in enumerate(weight.shape) if n > 1), None)
    return tuple(f"dim {dim}" if d == first else None for d in range(weight.rank))


def _norm_call(given: CallDescription, dim: int, mixing: str) -> Callable[[Split], Callable[..., Any]]:
    name, names, plain = given.op.name, given.names, given.plain()
    before, after = OPERATIONS[f"{name}_pre_all_gather"], OPERATIONS[f"{name}_post_all_gather"]
    add = OPERATIONS["add"]
    signature = given.op.definition.signature
    options = {
        key: value
        for key, value in signature.named(list(given.bound), range(len(signature.names))).items()
        if key in ("epsilon", "memory_config") and value is not None
    }

    def call(split: Split) -> Callable[..., Any]:
        axes = split.axes(mixing)
        if not axes:
            return plain

        gathered = _gathering(given, dim, split, axes)

        def run(*tensors: Tensor) -> Tensor:
            named = dict(zip(names, tensors, strict=True))
            x, residual = named.pop("input_tensor"), named.pop("residual_input_tensor", None)
            if residual is not None:
                x = add(x, residual)
            stats = gathered(before(x, dtype=DataType.FLOAT32))
            made: Tensor = after(x, stats, **named, **options)
            return made

        return run

    return call


softmax = Unified("softmax", describe_softmax, shape_of_first)
layer_norm = Unified("layer_norm", describe_norm, shape_of_first)
rms_norm = Unified("rms_norm", describe_norm, shape_of_first)
