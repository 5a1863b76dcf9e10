"""moreh_nll_loss: the negative log-likelihood of classes, and its gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.definition import Arguments
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.signature import Signature
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.device_batches import delivered_alone, on_each_device
from softmesh.placement import rules
from softmesh.tensor.tensor import Tensor

_REDUCTIONS = ("none", "sum", "mean")


def _weights(target: torch.Tensor, weight: torch.Tensor | None, classes: int, ignored: int) -> torch.Tensor:
    """What each target counts: the weight of its class, nothing where it is to be ignored or is no class."""
    known = (target != ignored) & (target >= 0) & (target < classes)
    each = known.float()
    return each if weight is None else each * weight.reshape(-1)[target.clamp(0, classes - 1)]


@operation(
    kind=Kind.LOSS,
    rule=rules.opaque,
    part_work=part_work.TAKES_LOSS,
    cost=flops_per_element(2),
    controls="output_tensor memory_config",
    tuning="divisor_tensor compute_kernel_config",
)
def moreh_nll_loss(
    input_tensor: Operand,
    target_tensor: Operand,
    reduction: str,
    *,
    weight_tensor: Operand | None = None,
    ignore_index: int = -100,
) -> Local:
    """-input[n, target[n], ...], weighed by class; each one, their sum, or their mean by weight."""
    if reduction not in _REDUCTIONS:
        raise MeshError(f"moreh_nll_loss: reduction={reduction!r} must be one of {', '.join(_REDUCTIONS)}.")
    if input_tensor.rank < 2 or target_tensor.shape != (input_tensor.shape[0], *input_tensor.shape[2:]):
        raise MeshError(
            f"moreh_nll_loss: target_tensor {list(target_tensor.shape)} must have the shape of input_tensor "
            f"{list(input_tensor.shape)} without its dim 1, the classes."
        )
    classes = input_tensor.shape[1]

    def one(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        target = target.long()
        weights = _weights(target, weight, classes, ignore_index)
        picked = x.float().gather(1, target.clamp(0, classes - 1).unsqueeze(1)).squeeze(1)
        each = -picked * weights
        if reduction == "none":
            return each
        return each.sum() if reduction == "sum" else each.sum() / weights.sum()

    return Local(
        on_each_device(one, input_tensor, target_tensor, weight_tensor),
        dtypes=(input_tensor.dtype,),
        fills_target=True,
    )


def _with_classes(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """How many classes there are, from the tensors that have one value for each."""
    gradient, weight = kwargs.get("input_grad_tensor"), kwargs.get("weight_tensor")
    if isinstance(gradient, Tensor) and len(gradient.shape) > 1:
        return args, kwargs | {"classes": gradient.shape[1]}
    if isinstance(weight, Tensor):
        return args, kwargs | {"classes": math.prod(weight.shape)}
    raise MeshError(f"{signature.op}: how many classes there are is not known: give input_grad_tensor.")


_BACKWARD: dict[str, Any] = {
    "kind": Kind.ELEMENTWISE,
    "cost": flops_per_element(2),
    "controls": "memory_config",
    "rearrange": _with_classes,
    "provided": ("classes",),
    "reads": "output_grad_tensor",
    "writes": "input_grad_tensor",
    "present": delivered_alone("input_grad_tensor"),
}


def _gradient(
    target: Operand, gradient: Operand, weight: Operand | None, classes: int, ignored: int, *, is_mean: bool
) -> Local:
    def one(place: torch.Tensor, grad: torch.Tensor, factors: torch.Tensor | None) -> torch.Tensor:
        place = place.long()
        weights = _weights(place, factors, classes, ignored)
        each = -weights * (grad.reshape(()) if gradient.shape != target.shape else grad).float()
        each = each / weights.sum() if is_mean else each
        chosen = torch.nn.functional.one_hot(place.clamp(0, classes - 1), classes).movedim(-1, 1)
        return chosen * each.unsqueeze(1)

    compute = on_each_device(one, target, gradient, weight)
    return Local(compute, rules.opaque, dtypes=(gradient.dtype,), layouts=(gradient.layout,))


@operation(**_BACKWARD, tuning="input_grad_tensor divisor_tensor compute_kernel_config", rule=rules.opaque)
def moreh_nll_loss_backward(
    target_tensor: Operand,
    output_grad_tensor: Operand,
    reduction_mean: bool,
    *,
    weight_tensor: Operand | None = None,
    ignore_index: int = -100,
    classes: int = 0,
) -> Local:
    """The gradient of what moreh_nll_loss summed or averaged, of the shape of `input_grad_tensor`."""
    operands = target_tensor, output_grad_tensor, weight_tensor
    return _gradient(*operands, classes, ignore_index, is_mean=reduction_mean)


@operation(**_BACKWARD, tuning="input_grad_tensor compute_kernel_config", rule=rules.opaque)
def moreh_nll_loss_unreduced_backward(
    target_tensor: Operand,
    output_grad_tensor: Operand,
    *,
    weight_tensor: Operand | None = None,
    ignore_index: int = -100,
    classes: int = 0,
) -> Local:
    """The gradient of what moreh_nll_loss left apart, of the shape of `input_grad_tensor`."""
    operands = target_tensor, output_grad_tensor, weight_tensor
    return _gradient(*operands, classes, ignore_index, is_mean=False)
