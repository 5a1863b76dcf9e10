"""moreh_sgd, moreh_adam, moreh_adamw: one step of an optimizer, element by element; moreh_clip_grad_norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from softmesh.arguments import checked_function
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS, operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.program_keys import scalar_free_program_of_shapes
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.kinds import Kind
from softmesh.ops.device_batches import delivered
from softmesh.ops.moreh.reductions import norm_of_all
from softmesh.placement import rules
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import to_torch

_ADAM_OUT = "param_out exp_avg_out exp_avg_sq_out max_exp_avg_sq_out"
_STEP: dict[str, Any] = {
    "kind": Kind.OPTIMIZER,
    "cost": flops_per_element(16),
    "controls": "memory_config",
    "tuning": f"{_ADAM_OUT} compute_kernel_config",
    "floats_only": True,
    "results": "list[Tensor | None]",
    "writes": _ADAM_OUT,
    "ignores": lambda given: () if given["amsgrad"] else ("max_exp_avg_sq_in",),
    "program_key": scalar_free_program_of_shapes,
}


def _given_maximum(op: str, results: list[Any], given: dict[str, Any]) -> list[Any]:
    """The fourth result is there where amsgrad keeps maxima."""
    named = _ADAM_OUT.split()
    made = delivered(*named[: len(results)])(op, results, given)
    return made if len(made) == len(named) else [*made, None]


def _adam(
    op: str,
    operands: Sequence[Operand | None],
    numbers: tuple[float, float, float, float, float],
    step: int,
    *,
    amsgrad: bool,
    decoupled: bool,
) -> Local:
    lr, beta1, beta2, eps, decay = numbers
    if amsgrad and operands[-1] is None:
        raise MeshError(f"{op}: amsgrad=True keeps the largest second moments: give max_exp_avg_sq_in.")
    shapes = {operand.shape for operand in operands if operand is not None}
    if len(shapes) > 1:
        raise MeshError(f"{op}: all tensors must be of one shape, got {[list(shape) for shape in shapes]}.")
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    if not correction1 or not correction2:
        raise MeshError(f"{op}: step={step} must be 1 or more: the first step is number 1.")

    def compute(
        param: torch.Tensor, grad: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, most: torch.Tensor | None
    ) -> list[torch.Tensor]:
        if decoupled:
            param = param * (1 - lr * decay)
        else:
            grad = grad + decay * param
        mean = beta1 * mean + (1 - beta1) * grad
        square = beta2 * square + (1 - beta2) * grad * grad
        largest = torch.maximum(most, square) if amsgrad and most is not None else square
        divisor = largest.sqrt() / math.sqrt(correction2) + eps
        made = [param - lr / correction1 * mean / divisor, mean, square]
        return [*made, largest] if amsgrad else made

    return Local(compute, rules.elementwise)


@operation(**_STEP, present=_given_maximum)
def moreh_adam(
    param_in: Operand,
    grad: Operand,
    exp_avg_in: Operand,
    exp_avg_sq_in: Operand,
    *,
    lr: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int = 0,
    amsgrad: bool = False,
    max_exp_avg_sq_in: Operand | None = None,
) -> Local:
    """[parameters, first moments, second moments, their maxima or None] after one step of Adam."""
    operands = (param_in, grad, exp_avg_in, exp_avg_sq_in, max_exp_avg_sq_in)
    numbers = (lr, beta1, beta2, eps, weight_decay)
    return _adam("moreh_adam", operands, numbers, step, amsgrad=amsgrad, decoupled=False)


@operation(**_STEP, present=_given_maximum)
def moreh_adamw(
    param_in: Operand,
    grad: Operand,
    exp_avg_in: Operand,
    exp_avg_sq_in: Operand,
    lr: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    step: int = 0,
    amsgrad: bool = False,
    *,
    max_exp_avg_sq_in: Operand | None = None,
) -> Local:
    """As moreh_adam, with weights that decay by themselves."""
    operands = (param_in, grad, exp_avg_in, exp_avg_sq_in, max_exp_avg_sq_in)
    numbers = (lr, beta1, beta2, eps, weight_decay)
    return _adam("moreh_adamw", operands, numbers, step, amsgrad=amsgrad, decoupled=True)


def _given_momentum(op: str, results: list[Any], given: dict[str, Any]) -> list[Any]:
    made = delivered("param_out", "momentum_buffer_out")(op, results, given) if len(results) > 1 else None
    return made or [*delivered("param_out")(op, results, given), None]


def _unread_momentum(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The first step makes the momentum, and reads none."""
    return () if given["momentum"] and given["momentum_initialized"] else ("momentum_buffer_in",)


@operation(
    kind=Kind.OPTIMIZER,
    cost=flops_per_element(8),
    controls="",
    tuning="param_out momentum_buffer_out param_out_memory_config momentum_buffer_out_memory_config "
    "compute_kernel_config",
    positional="param_out momentum_buffer_out lr momentum dampening weight_decay nesterov",
    floats_only=True,
    reads="momentum_buffer_in",
    writes="param_out momentum_buffer_out",
    ignores=_unread_momentum,
    results="list[Tensor | None]",
    present=_given_momentum,
    program_key=scalar_free_program_of_shapes,
)
def moreh_sgd(
    param_in: Operand,
    grad: Operand,
    momentum_buffer_in: Operand | None = None,
    *,
    lr: float = 0.001,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    momentum_initialized: bool = False,
) -> Local:
    """[parameters, momentum or None] after one step; `momentum_initialized` says that there was one before."""
    if momentum and momentum_initialized and momentum_buffer_in is None:
        raise MeshError("moreh_sgd: momentum_initialized=True goes on from momentum_buffer_in: give that tensor.")

    def compute(param: torch.Tensor, slope: torch.Tensor, held: torch.Tensor | None) -> list[torch.Tensor]:
        slope = slope + weight_decay * param
        if not momentum:
            return [param - lr * slope]
        kept = slope
        if held is not None and momentum_initialized:
            kept = momentum * held + (1 - dampening) * slope
        return [param - lr * (slope + momentum * kept if nesterov else kept), kept]

    return Local(compute)


_EPSILON = 1e-6  # keeps the factor finite where all gradients are 0


@checked_function
def moreh_clip_grad_norm(
    inputs: Sequence[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    *,
    total_norm: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: object = None,
) -> Tensor:
    """The norm of all gradients together, on each device; they are scaled in place so that it is at most max_norm."""
    total = norm_of_all(list(inputs), float(norm_type), memory_config=memory_config)
    if error_if_nonfinite and not bool(to_torch(total).isfinite().all()):
        raise MeshError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`."
        )
    factor = OPERATIONS["div"](max_norm, OPERATIONS["add"](total, _EPSILON))
    factor = OPERATIONS["minimum"](factor, 1.0)
    for gradient in inputs:
        OPERATIONS["multiply_"](gradient, factor)
    if total_norm is None:
        return total
    return OPERATIONS["assign"](OPERATIONS["reshape"](total, list(total_norm.shape)), output_tensor=total_norm)
