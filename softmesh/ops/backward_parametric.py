"""Gradients of functions of one tensor and a few numbers, and of gelu in its variants."""

from __future__ import annotations

from typing import Any

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentValueError
from softmesh.hardware import GeluVariant
from softmesh.ops.backward import backward, derivatives, derived
from softmesh.ops.parametric import PARAMETRIC
from softmesh.ops.unary import gelu_function


def _parametric(name: str, grad: Operand, x: Operand, *parameters: Any) -> Local:
    return derived(f"{name}_bw", lambda values: PARAMETRIC[name](values, *parameters), grad, x)


@backward("gelu", into=("input_grad",), steps=20)
def gelu_bw(
    grad_tensor: Operand, input_tensor: Operand, *, variant: GeluVariant = GeluVariant.Accurate
) -> Local:
    return derived("gelu_bw", gelu_function(variant), grad_tensor, input_tensor)


@operation(
    "experimental.gelu_bw",
    cost=flops_per_element(20),
    controls="memory_config output_tensor",
    floats_only=True,
)
def experimental_gelu_bw(grad_tensor: Operand, input_tensor: Operand, *, approximate: str = "none") -> Local:
    """As `gelu_bw`, by itself and not in a list; `approximate` is "none" or "tanh"."""
    if approximate not in ("none", "tanh"):
        raise ArgumentValueError(
            f'experimental.gelu_bw: approximate must be "none" or "tanh", got {approximate!r}'
        )
    gelu = gelu_function(GeluVariant.Tanh if approximate == "tanh" else GeluVariant.Accurate)
    local = derived("experimental.gelu_bw", gelu, grad_tensor, input_tensor)
    return Local(lambda grad, x: derivatives(gelu, grad, [x])[0], local.rule)


@backward("celu")
def celu_bw(grad_tensor: Operand, input_tensor: Operand, *, alpha: float = 1.0) -> Local:
    return _parametric("celu", grad_tensor, input_tensor, alpha)


@backward("elu")
def elu_bw(grad_tensor: Operand, input_tensor: Operand, *, alpha: float = 1.0) -> Local:
    return _parametric("elu", grad_tensor, input_tensor, alpha)


@backward("hardshrink", steps=2)
def hardshrink_bw(grad_tensor: Operand, input_tensor: Operand, *, lambd: float = 0.5) -> Local:
    return _parametric("hardshrink", grad_tensor, input_tensor, lambd)


@backward("softshrink", steps=2)
def softshrink_bw(grad_tensor: Operand, input_tensor: Operand, *, lambd: float = 0.5) -> Local:
    return _parametric("softshrink", grad_tensor, input_tensor, lambd)


@backward("hardtanh", steps=2)
def hardtanh_bw(grad_tensor: Operand, input_tensor: Operand, *, min: float = -1.0, max: float = 1.0) -> Local:
    return _parametric("hardtanh", grad_tensor, input_tensor, min, max)


@backward("leaky_relu", steps=2)
def leaky_relu_bw(grad_tensor: Operand, input_tensor: Operand, *, negative_slope: float = 0.01) -> Local:
    return _parametric("leaky_relu", grad_tensor, input_tensor, negative_slope)


@backward("logiteps")
def logiteps_bw(grad_tensor: Operand, input_tensor: Operand, *, eps: float = 0.0) -> Local:
    return _parametric("logit", grad_tensor, input_tensor, eps)


@backward("softplus")
def softplus_bw(
    grad_tensor: Operand, input_tensor: Operand, *, beta: float = 1.0, threshold: float = 20.0
) -> Local:
    return _parametric("softplus", grad_tensor, input_tensor, beta, threshold)


@backward("threshold", steps=2)
def threshold_bw(grad_tensor: Operand, input_tensor: Operand, min: float, max: float) -> Local:
    """The gradient where the input is above `min`, the threshold; `max` is the value put in the place of the others."""
    return _parametric("threshold", grad_tensor, input_tensor, min, max)


@backward("polygamma", steps=32)
def polygamma_bw(grad_tensor: Operand, input_tensor: Operand, n: int) -> Local:
    return _parametric("polygamma", grad_tensor, input_tensor, n)


@backward("pow", into=("input_grad",), steps=16)
def pow_bw(grad_tensor: Operand, input_tensor: Operand, exponent: float) -> Local:
    return _parametric("power", grad_tensor, input_tensor, exponent)


@backward("rpow", steps=16)
def rpow_bw(grad_tensor: Operand, input_tensor: Operand, exponent: float) -> Local:
    return _parametric("rpow", grad_tensor, input_tensor, exponent)
