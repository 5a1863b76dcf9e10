"""Gradients of what moves values: assign_bw, concat_bw, repeat_bw; and prod_bw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element, moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.device_batches import delivered, gradients_on_each_device
from softmesh.ops.golden import golden_training as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules

_OPTIONS: dict[str, Any] = {
    "kind": Kind.MOVEMENT,
    "cost": moves_bytes,
    "floats_only": True,
    "results": "list[Tensor | None]",
}
_BOTH = ("input_a_grad", "input_b_grad")
_INTO = "are_required_outputs input_a_grad input_b_grad"


def _of_assign(op: str, results: list[Any], given: dict[str, Any]) -> list[Any]:
    return delivered(*_BOTH[: len(results)])(op, results, given)


@operation(
    **_OPTIONS,
    controls="memory_config",
    tuning=_INTO,
    argument_aliases={"input_tensor": "input_tensor_a"},
    present=_of_assign,
)
@with_reference(golden.assign_bw)
def assign_bw(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Operand | None = None) -> Local:
    """[the gradient itself], once for each of the operands."""
    count = 1 if input_tensor_b is None else 2
    return Local(lambda grad, *_: [grad.clone() for _ in range(count)], _as_gradient)


@rules.labelled(dim_labels.moved(lambda dim: dim, passes=dim_labels.FIRST, of_all=True))
def _as_gradient(at: rules.Situation) -> rules.Placement:
    """Operand 0 is the gradient; the others are not read."""
    return at.word


@operation(**_OPTIONS, controls="memory_config", tuning=_INTO, present=delivered(*_BOTH))
@with_reference(golden.concat_bw)
def concat_bw(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Operand, dim: int = 0) -> Local:
    """[the part of the gradient that belongs to a, that of b]."""
    at = grad_tensor.from_end(dim)
    sizes = [input_tensor_a.shape[at], input_tensor_b.shape[at]]
    if sum(sizes) != grad_tensor.shape[at]:
        raise MeshError(
            f"concat_bw: grad_tensor {list(grad_tensor.shape)} has {grad_tensor.shape[at]} elements along dim={dim}, "
            f"the operands {sizes[0]} and {sizes[1]}."
        )

    @rules.labelled(dim_labels.moved(lambda dim: None if dim == at % grad_tensor.rank else dim, passes="", of_all=True))
    def rule(situation: rules.Situation) -> rules.Placement:
        if situation.word is rules.REPLICATE:
            return situation.word
        only = rules.Situation(situation.words[:1], situation.shapes[:1], situation.out_shapes)
        return rules.resizing([at % grad_tensor.rank])(only)

    return Local(lambda grad, *_: [part.clone() for part in grad.split(sizes, at)], rule)


@operation(**_OPTIONS, controls="memory_config", rule=rules.opaque)
@with_reference(golden.repeat_bw)
def repeat_bw(grad_tensor: Operand, input_tensor: Operand, shape: Sequence[int]) -> Local:
    """[the gradient of what was repeated `shape` times: the sum over the copies]."""
    times = [int(n) for n in shape]
    padded = (1,) * (len(times) - input_tensor.rank) + input_tensor.shape
    if len(times) < input_tensor.rank or grad_tensor.shape != tuple(n * t for n, t in zip(padded, times, strict=True)):
        raise MeshError(
            f"repeat_bw: grad_tensor {list(grad_tensor.shape)} is not {list(input_tensor.shape)} repeated by {times}."
        )

    def repeated(x: torch.Tensor) -> torch.Tensor:
        return x.repeat(times)

    return Local(gradients_on_each_device(repeated, grad_tensor, input_tensor))


@operation(
    kind=Kind.MOVEMENT,
    rule=rules.opaque,
    cost=flops_per_element(4),
    floats_only=True,
    results="list[Tensor]",
    controls="memory_config",
)
@with_reference(golden.prod_bw)
def prod_bw(grad_tensor: Operand, input_tensor: Operand, *, dim: int | None = None) -> Local:
    """[the gradient of what was multiplied along `dim`, or altogether]."""
    along = None if dim is None else input_tensor.dim(dim)
    wanted = 1 if along is None else math.prod(input_tensor.shape) // input_tensor.shape[along]
    if math.prod(grad_tensor.shape) != wanted:
        raise MeshError(
            f"prod_bw: grad_tensor {list(grad_tensor.shape)} must hold {wanted} values, as the product of "
            f"{list(input_tensor.shape)} along dim={dim} does."
        )

    def product(x: torch.Tensor) -> torch.Tensor:
        return x.prod() if along is None else x.prod(along)

    return Local(gradients_on_each_device(product, grad_tensor, input_tensor))
