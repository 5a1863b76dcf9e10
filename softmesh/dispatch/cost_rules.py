"""Cost rules of ops: arithmetic, and bytes in and out of memory, for one device."""

from __future__ import annotations

import math
from collections.abc import Sequence

from softmesh.dispatch.plan import CostRule
from softmesh.runtime.commands import Cost
from softmesh.tensor.spec import TensorSpec


def moves_bytes(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Cost:
    """No arithmetic: every operand read once, every result written once."""
    return Cost(0, sum(spec.bytes() for spec in (*inputs, *outputs)))


def flops_per_element(count: int) -> CostRule:
    """`count` operations for each element of the largest operand or result."""

    def cost(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Cost:
        elements = max((spec.logical_volume() for spec in (*inputs, *outputs)), default=0)
        return Cost(count * elements, moves_bytes(inputs, outputs).bytes)

    return cost


def matmul_cost(inner: int) -> CostRule:
    """A multiply and an add for each of `inner` products of each result element."""

    def cost(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Cost:
        return Cost(2 * inner * math.prod(outputs[0].shape), moves_bytes(inputs, outputs).bytes)

    return cost
