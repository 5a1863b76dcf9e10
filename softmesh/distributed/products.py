"""Products that plan their own communication: any placement of the operands, any placement of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.plan import Local
from softmesh.distributed.given import Given
from softmesh.distributed.layouts import Extents, is_whole
from softmesh.distributed.operands import bits
from softmesh.distributed.own_ops import own_operation
from softmesh.distributed.patterns import Choice, Labels, Split, broadcast_labels, by_labels
from softmesh.distributed.planned import Work
from softmesh.distributed.unified import Unified
from softmesh.ops.activation import Activation, activation_function
from softmesh.perf.chip_costs import matmul_seconds
from softmesh.placement import rules


def describe_product(given: Given) -> Work:
    """a @ b, with a bias and an activation behind it."""
    arguments = given.arguments
    transpose_a, transpose_b = arguments["transpose_a"], arguments["transpose_b"]
    activation = arguments.get("activation")
    shapes = [operand.shape for operand in given.operands]
    choices = product_choices(shapes, transpose_a, transpose_b, given.spoken)
    whole = given.plain()
    bare = whole if activation is None else given.plain(activation=None)

    def call(split: Split) -> Callable[..., Any]:
        return whole if is_whole(split.gives) else bare

    return Work(
        choices,
        _seconds(given, transpose_a),
        call,
        after=None if activation is None else lambda tensor: _activated(tensor, activation),
    )


def _shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    a, b, *bias = (operand.shape for operand in operands)
    m, n = a[-1 if arguments["transpose_a"] else -2], b[-2 if arguments["transpose_b"] else -1]
    return tuple(broadcast_shapes((*a[:-2], 1, 1), (*b[:-2], 1, 1), (m, n), *bias))


def product_choices(
    shapes: Sequence[Extents], transpose_a: bool, transpose_b: bool, names: Sequence[str] | None = None
) -> tuple[Choice, ...]:
    """a (..., m, k) @ b (..., k, n), leading dims broadcast; a third shape is that of the bias."""
    a, b = shapes[:2]
    m, n = a[-1 if transpose_a else -2], b[-2 if transpose_b else -1]
    rank = max(len(shape) for shape in shapes)
    lead = [1] * (rank - 2)
    for shape in shapes:
        for back in range(3, len(shape) + 1):
            lead[-back + 2] = max(lead[-back + 2], shape[-back])
    batch = tuple(f"batch {i}" for i in range(rank - 2))

    def labels(shape: Extents, last: Labels) -> Labels:
        return (*broadcast_labels(shape[:-2], batch, lead), *last)

    result = (*batch, "m", "n")
    of_a = labels(a, ("k", "m") if transpose_a else ("m", "k"))
    of_b = labels(b, ("n", "k") if transpose_b else ("k", "n"))
    operands = [of_a, of_b]
    operands += [broadcast_labels(bias, result, (*lead, m, n)) for bias in shapes[2:]]
    split = [label for label, extent in zip(batch, lead, strict=True) if extent > 1]
    return by_labels(
        operands,
        result,
        [*split, "m", "n", "k"],
        carries=(frozenset({0}), frozenset({1})),
        terms=frozenset(range(2, len(shapes))),
        names=names,
    )


def _seconds(given: Given, transpose_a: bool) -> Callable[[Sequence[Extents], Extents], float]:
    chip = given.chip
    sizes = [*(value.bits for value in given.values), bits(given.result.dtype)]

    def seconds(operands: Sequence[Extents], result: Extents) -> float:
        inner = operands[0][-2 if transpose_a else -1]
        moved = sum(math.prod(s) * b for s, b in zip((*operands, result), sizes, strict=True)) // 8
        return matmul_seconds(chip, math.prod(result[:-2]), result[-2], inner, result[-1], moved)

    return seconds


@own_operation("activation", cost=flops_per_element(8))
def _activated(input_tensor: Operand, activation: Activation) -> Local:
    return Local(activation_function(activation, "activation"), rules.elementwise)


_SHORT = {"a": "input_tensor_a", "b": "input_tensor_b"}
matmul = Unified("matmul", describe_product, _shape_of, _SHORT)
linear = Unified("linear", describe_product, _shape_of, _SHORT)
