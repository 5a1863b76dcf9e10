"""Gated linear units: the first half of the last dim times a function of the second half."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware import GeluVariant
from softmesh.ops.unary import gelu_function
from softmesh.placement import rules
from softmesh.tensor.dtype import TILE_SIZE

GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "glu": torch.sigmoid,
    "reglu": torch.relu,
    "swiglu": F.silu,
}


def _gated(op: str, operand: Operand, dim: int, gate: Callable[[torch.Tensor], torch.Tensor]) -> Local:
    last = operand.rank - 1
    if operand.dim(dim) != last:
        raise MeshError(
            f"last dim GLU only supported at this time: {op} got dim={dim} for {list(operand.shape)}: bring the dim to "
            "the end with ttnn.transpose."
        )
    if operand.shape[last] // 2 % TILE_SIZE or operand.shape[last] % 2:
        raise MeshError(
            f"Split tensor dimension should be in full tile: {op} of {list(operand.shape)} needs halves of whole tiles "
            f"of {TILE_SIZE}."
        )

    def compute(x: torch.Tensor) -> torch.Tensor:
        values, gates = x.chunk(2, -1)
        return values * gate(gates)

    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        return rules.LOCAL if isinstance(at.word, rules.Shard) and at.word.dim == last else at.word

    return Local(compute, rule)


def _register(name: str, gate: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def define(input_tensor: Operand, dim: int = -1) -> Local:
        return _gated(name, input_tensor, dim, gate)

    define.__doc__ = (
        "The first half of the last dim, gated by the second. TT-NN also rounds the gate by itself."
    )
    operation(name, cost=flops_per_element(9), controls="memory_config", floats_only=True)(define)


for _name, _gate in GATES.items():
    _register(_name, _gate)


@operation(cost=flops_per_element(13), controls="memory_config", floats_only=True)
def geglu(input_tensor: Operand, dim: int = -1, *, variant: GeluVariant = GeluVariant.Accurate) -> Local:
    """The first half of the last dim times gelu of the second; `variant` as in gelu."""
    return _gated("geglu", input_tensor, dim, gelu_function(variant))
