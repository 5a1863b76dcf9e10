"""l1_loss and mse_loss; var_hw, std_hw, normalize_hw and normalize_global."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware.enums import LossReductionMode
from softmesh.kinds import Kind
from softmesh.ops.golden import golden_training as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import LOCAL, Placement, Shard


def _loss(op: str, function: Callable[[torch.Tensor], torch.Tensor], a: Operand, b: Operand, mode: Any) -> Local:
    if a.shape != b.shape:
        raise MeshError(f"{op}: {list(a.shape)} and {list(b.shape)} must be of one shape.")
    dims = [d - a.rank for d in range(a.rank)]

    def compute(reference: torch.Tensor, prediction: torch.Tensor) -> torch.Tensor:
        each = function(reference - prediction)
        if mode is LossReductionMode.NONE or not dims:
            return each
        summed = each.sum(dims, keepdim=True)
        return summed / each.shape[-a.rank :].numel() if mode is LossReductionMode.MEAN else summed

    kind = "avg" if mode is LossReductionMode.MEAN else "sum"
    over = dim_labels.moved(lambda dim: None, sums=dict.fromkeys(range(a.rank), kind), passes="", of_all=True)

    @rules.labelled(dim_labels.aligned() if mode is LossReductionMode.NONE else over)
    def rule(at: rules.Situation) -> Placement:
        word = rules.elementwise(at._replace(out_shapes=(a.shape,)))
        if mode is LossReductionMode.NONE or not isinstance(word, Shard):
            return word
        return rules.reducing(kind, dims, True)(rules.Situation((word,), (a.shape,), at.out_shapes))

    return Local(compute, rule)


_LOSS: dict[str, Any] = {
    "part_work": part_work.TAKES_LOSS,
    "kind": Kind.LOSS,
    "cost": flops_per_element(3),
    "controls": "memory_config output_tensor",
    "floats_only": True,
}


@operation(**_LOSS)
@with_reference(golden.loss(torch.abs))
def l1_loss(
    input_reference: Operand, input_prediction: Operand, *, reduction: LossReductionMode = LossReductionMode.NONE
) -> Local:
    """|a - b|: each, or their mean or sum on each device."""
    return _loss("l1_loss", torch.abs, input_reference, input_prediction, reduction)


@operation(**_LOSS)
@with_reference(golden.loss(torch.square))
def mse_loss(
    input_reference: Operand, input_prediction: Operand, *, reduction: LossReductionMode = LossReductionMode.NONE
) -> Local:
    """(a - b)^2: each, or their mean or sum on each device."""
    return _loss("mse_loss", torch.square, input_reference, input_prediction, reduction)


# -- over the last two dims, or over all ---------------------------------------------------------------

_OVER: dict[str, Any] = {"cost": flops_per_element(4), "controls": "memory_config", "floats_only": True}


def _matrix(operand: Operand) -> list[int]:
    if operand.rank < 2:
        raise MeshError(f"{operand.op}: {operand.name} {list(operand.shape)} must have two dims or more.")
    return [-2, -1]


@operation(kind=Kind.REDUCTION, part_work=part_work.TAKES_MEAN, **_OVER)
@with_reference(golden.over_matrices(torch.var))
def var_hw(input_tensor: Operand) -> Local:
    """The mean squared distance from the mean of each matrix."""
    dims = _matrix(input_tensor)
    return Local(lambda x: x.var(dims, correction=0, keepdim=True), rules.reducing(None, dims, True))


@operation(kind=Kind.REDUCTION, part_work=part_work.TAKES_MEAN, **_OVER)
@with_reference(golden.over_matrices(torch.std))
def std_hw(input_tensor: Operand) -> Local:
    """The square root of `var_hw`."""
    dims = _matrix(input_tensor)
    return Local(lambda x: x.std(dims, correction=0, keepdim=True), rules.reducing(None, dims, True))


def _normalized(dims: list[int]) -> Local:
    def compute(x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dims, keepdim=True)
        return centred / centred.square().mean(dims, keepdim=True).sqrt()

    @rules.labelled(dim_labels.aligned(without=dims))
    def rule(at: rules.Situation) -> Placement:
        word = rules.elementwise(at)
        touched = {d % len(at.out_shape) for d in dims}
        return LOCAL if isinstance(word, Shard) and word.dim in touched else word

    return Local(compute, rule)


@operation(kind=Kind.NORM, **_OVER)
@with_reference(golden.normalize_hw)
def normalize_hw(input_tensor: Operand) -> Local:
    """Each matrix with mean 0 and deviation 1."""
    return _normalized(_matrix(input_tensor))


@operation(kind=Kind.NORM, **_OVER)
@with_reference(golden.normalize_global)
def normalize_global(input_tensor: Operand) -> Local:
    """All values of a device with mean 0 and deviation 1."""
    return _normalized([d - input_tensor.rank for d in range(input_tensor.rank)])
