"""Ops of one element at a time: operands are brought to lie alike, and contributions pass through linear ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local
from softmesh.distributed.given import Given
from softmesh.distributed.layouts import Extents
from softmesh.distributed.operands import bits
from softmesh.distributed.patterns import Split, broadcast_labels, by_labels
from softmesh.distributed.planned import Work
from softmesh.perf.chip_costs import elementwise_seconds
from softmesh.placement import rules

_EITHER, _TOGETHER, _FIRST = "either", "together", "first"
# How the op of a rule hands contributions on: those of either factor, of all terms together, of its one operand.
_CARRIES: dict[rules.Rule, str | None] = {
    rules.elementwise: None,
    rules.linear: _FIRST,
    rules.keeping: _FIRST,
    rules.additive: _TOGETHER,
    rules.multiplicative: _EITHER,
    rules.dividing: _FIRST,
}


def is_elementwise(local: Local) -> bool:
    return local.rule in _CARRIES


def shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents | None:
    """Of an element-wise op; of no other."""
    if not is_elementwise(local):
        return None
    return tuple(broadcast_shapes(*(operand.shape for operand in operands)))


def shape_of_first(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    """Of an op whose result is like its first operand."""
    return operands[0].shape


def describe_elementwise(given: Given) -> Work:
    shape = given.shape
    result = tuple(f"dim {dim}" for dim in range(len(shape)))
    choices = by_labels(
        [broadcast_labels(operand.shape, result, shape) for operand in given.operands],
        result,
        [label for label, extent in zip(result, shape, strict=True) if extent > 1],
        carries=_carries(given),
        names=given.spoken,
    )
    return Work(choices, memory_seconds(given), always(given.plain()))


def _carries(given: Given) -> tuple[frozenset[int], ...]:
    how, count = _CARRIES[given.local.rule], len(given.operands)
    numbers = len(given.op.definition.signature.operand_at) - count  # a number beside a tensor, or nothing
    if how == _EITHER:
        return tuple(frozenset({i}) for i in range(count))
    if how == _TOGETHER:
        return (frozenset(range(count)),) if not numbers else ()
    first_is_tensor = given.names[0] == given.op.definition.signature.operand_names[0]
    return (frozenset({0}),) if how == _FIRST and first_is_tensor else ()


def memory_seconds(given: Given, flops: int = 1) -> Callable[[Sequence[Extents], Extents], float]:
    """Of an op that reads its operands and writes its result, with so much arithmetic for each element."""
    chip = given.chip
    sizes = [*(value.bits for value in given.values), bits(given.result.dtype)]

    def seconds(operands: Sequence[Extents], result: Extents) -> float:
        volumes = [math.prod(shape) for shape in (*operands, result)]
        moved = sum(volume * size for volume, size in zip(volumes, sizes, strict=True)) // 8
        return elementwise_seconds(chip, flops * max(volumes), moved)

    return seconds


def always(call: Callable[..., Any]) -> Callable[[Split], Callable[..., Any]]:
    """The same call, however the work is split."""
    return lambda split: call
