"""Gradients of unary ops, and what all `_bw` ops share: `gelu_bw(gradient, x)` is a list of its operands' gradients.

Each is torch's derivative, in fp32 with one rounding at the end; TT-NN composes them of other ops, and at kinks
(0, clamped ends, equal operands) and where a derivative is infinite its choice may be another. Gradients are per
device: nothing is reduced unless a collective does it. A gradient that is still a sum to be made stays one, since
all of these are linear in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import OPERATIONS, Operation, operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.hardware import GeluVariant
from softmesh.kinds import Kind
from softmesh.ops.elementwise.unary import PARAMETRIC, UNARY, gelu_function, multigammaln_function
from softmesh.ops.golden import golden_training as golden
from softmesh.ops.golden.golden_functions import GradientOf, with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.broadcasting import broadcast_shapes

Forward = Callable[..., torch.Tensor]
_FAR_OUT = 15.0  # from here gelu is 0 or x
_CUBIC = 0.044715  # of gelu's form with tanh


def _handed_out(into: Sequence[str]) -> Callable[[str, Any, dict[str, Any]], Any]:
    """`into` names arguments that take the gradients, in their order."""

    def present(op: str, gradients: list[Any], given: dict[str, Any]) -> list[Any]:
        required = given.get("are_required_outputs")
        if required is not None:
            _check_required(op, required, len(gradients))
            gradients = [found if yes else None for found, yes in zip(gradients, required, strict=True)]
        targets = [given[name] for name in into]
        for at, target in enumerate(targets[: len(gradients)]):
            if target is not None and gradients[at] is not None:
                gradients[at] = OPERATIONS["assign"](gradients[at], output_tensor=target)
        return gradients

    return present


def _check_required(op: str, required: object, count: int) -> None:
    if not isinstance(required, list | tuple) or len(required) != count:
        raise MeshError(
            f"{op}: are_required_outputs={required!r} must say True or False for each of the {count} gradients."
        )


def backward(
    name: str, *, into: Sequence[str] = (), spellings: Mapping[str, str] | None = None, steps: int = 12
) -> Callable[[Callable[..., Local]], Operation]:
    """Register `name` + "_bw"; its reference is the gradient of that of `name`, unless it states another."""
    choices = ("are_required_outputs",) if len(into) > 1 else ()
    register = operation(
        f"{name}_bw",
        kind=Kind.ELEMENTWISE,
        rule=linear_in_gradient,
        cost=flops_per_element(steps),
        controls="memory_config",
        tuning=" ".join((*choices, *into)),
        floats_only=True,
        argument_aliases=spellings,
        present=_handed_out(into) if into else None,
        results="list[Tensor]",
    )
    gradient = with_reference(GradientOf(name))
    return lambda define: register(define if "reference" in vars(define) else gradient(define))


def derived(op: str, function: Forward, gradient: Operand, *operands: Value | None) -> Local:
    """The gradients of those operands that are tensors, all of one shape."""
    for operand in operands:
        if isinstance(operand, Operand) and operand.shape != gradient.shape:
            raise MeshError(
                f"{op}: {operand.name} {list(operand.shape)} and grad_tensor {list(gradient.shape)} must be of one "
                "shape: gradients of broadcast operands are summed by hand."
            )
    return Local(lambda grad, *values: derivatives(function, grad, values))


def derivatives(function: Forward, grad: torch.Tensor, values: Sequence[Any]) -> list[torch.Tensor]:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    shape = broadcast_shapes(grad.shape, *(value.shape for value in tensors))
    is_derived = torch.is_grad_enabled() and any(value.requires_grad for value in (grad, *tensors))
    with torch.enable_grad():
        leaves = [_leaf(value.expand(shape), is_derived) for value in tensors]
        given = iter(leaves)
        result = function(*(next(given) if isinstance(value, torch.Tensor) else value for value in values))
    if not result.requires_grad:
        return [torch.zeros(shape, dtype=grad.dtype, device=grad.device) for _ in leaves]
    return list(
        torch.autograd.grad(
            result,
            leaves,
            grad.expand(shape),
            create_graph=is_derived,
            allow_unused=True,
            materialize_grads=True,
        )
    )


def _leaf(value: torch.Tensor, is_derived: bool) -> torch.Tensor:
    """What is derived for: itself, where a second derivative will go on from it."""
    return value if is_derived and value.requires_grad else value.detach().requires_grad_()


@placed("Split as the operands are, where their splits line up. A gradient that is a partial sum stays one.")
@rules.labelled(dim_labels.aligned(passes=dim_labels.FIRST))
def linear_in_gradient(at: rules.Situation) -> rules.Placement:
    """Linear in the gradient, operand 0, and in nothing else."""
    for index, word in enumerate(at.words[1:], 1):
        if isinstance(word, rules.Partial):
            raise rules.UsesPartial(index)
    return rules.multiplicative(at)


_UNARY = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "digamma"),
    *("erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "hardsigmoid", "hardswish", "i0"),
    *(
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_sigmoid",
        "neg",
        "rad2deg",
        "reciprocal",
        "relu",
        "relu6",
    ),
    *(
        "rsqrt",
        "sign",
        "silu",
        "sin",
        "sinh",
        "softsign",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "tanhshrink",
        "trunc",
    ),
)
_KEEPS_RESULT = ("exp", "neg", "rsqrt", "silu", "sqrt", "tanh")  # those of them that take `input_grad`
PLAIN: dict[str, Forward] = {
    **{name: UNARY[name].function for name in _UNARY},
    "fill_zero": lambda x: x * 0,
    "logit": torch.logit,
    "multigammaln": multigammaln_function,
    "round": torch.round,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
}
# Where torch's derivative takes the difference of nearly equal numbers:
_SLOPES: dict[str, Forward] = {
    "sigmoid": lambda x: torch.sigmoid(x) * torch.sigmoid(-x),
    "tanh": lambda x: 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x),
}


def _register(name: str, function: Forward) -> None:
    def define(grad_tensor: Operand, input_tensor: Operand) -> Local:
        local = derived(f"{name}_bw", function, grad_tensor, input_tensor)
        slope = _SLOPES.get(name)
        return local if slope is None else Local(lambda grad, x: [grad * slope(x)])

    define.__doc__ = f"[the gradient of {name}]."
    if name == "fill_zero":  # the gradient of no op
        with_reference(golden.fill_zero_bw)(define)
    backward(name, into=("input_grad",) if name in _KEEPS_RESULT else ())(define)


for _name, _function in PLAIN.items():
    _register(_name, _function)


# -- functions of one tensor and a few numbers, and gelu in its variants -----------------------------


def _parametric(name: str, grad: Operand, x: Operand, *parameters: Any) -> Local:
    return derived(f"{name}_bw", lambda values: PARAMETRIC[name](values, *parameters), grad, x)


@backward("gelu", into=("input_grad",), steps=20)
def gelu_bw(
    grad_tensor: Operand,
    input_tensor: Operand,
    *,
    variant: GeluVariant = GeluVariant.Accurate,
    approximate: str | None = None,
) -> Local:
    """`approximate`, "none" or "tanh", is another word for the variant."""
    chosen = variant if approximate is None else _variant("gelu_bw", approximate)
    derived("gelu_bw", gelu_function(chosen), grad_tensor, input_tensor)
    slope = gelu_slope(chosen)
    return Local(lambda grad, x: [grad * slope(x)])


def gelu_slope(variant: GeluVariant) -> Forward:
    """The derivative of gelu, to the last bits also where it is nearly 0."""
    return _slope_of_tanh_form if variant is GeluVariant.Tanh else _slope_of_gelu


def _slope_of_gelu(x: torch.Tensor) -> torch.Tensor:
    x = x.clamp(-_FAR_OUT, _FAR_OUT)  # beyond, 0 and 1; infinities would make NaN
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return torch.erfc(-x / math.sqrt(2)) / 2 + x * density


def _slope_of_tanh_form(x: torch.Tensor) -> torch.Tensor:
    x = x.clamp(-_FAR_OUT, _FAR_OUT)
    inner = math.sqrt(8 / math.pi) * (x + _CUBIC * x * x * x)
    above, below = torch.sigmoid(inner), torch.sigmoid(-inner)
    return above + x * above * below * math.sqrt(8 / math.pi) * (1 + 3 * _CUBIC * x * x)


def _variant(op: str, approximate: str) -> GeluVariant:
    if approximate not in ("none", "tanh"):
        raise ArgumentValueError(f'{op}: approximate must be "none" or "tanh", got {approximate!r}')
    return GeluVariant.Tanh if approximate == "tanh" else GeluVariant.Accurate


@operation(
    "experimental.gelu_bw",
    kind=Kind.ELEMENTWISE,
    rule=linear_in_gradient,
    cost=flops_per_element(20),
    controls="memory_config output_tensor",
    floats_only=True,
)
@with_reference(GradientOf("gelu"))
def experimental_gelu_bw(grad_tensor: Operand, input_tensor: Operand, *, approximate: str = "none") -> Local:
    """As `gelu_bw`, by itself and not in a list; `approximate` is "none" or "tanh"."""
    chosen = _variant("experimental.gelu_bw", approximate)
    slope = gelu_slope(chosen)
    derived("experimental.gelu_bw", gelu_function(chosen), grad_tensor, input_tensor)
    return Local(lambda grad, x: grad * slope(x))


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
@with_reference(GradientOf("hardtanh", {"min": "min_val", "max": "max_val"}))
def hardtanh_bw(grad_tensor: Operand, input_tensor: Operand, *, min: float = -1.0, max: float = 1.0) -> Local:
    return _parametric("hardtanh", grad_tensor, input_tensor, min, max)


@backward("leaky_relu", steps=2)
def leaky_relu_bw(grad_tensor: Operand, input_tensor: Operand, *, negative_slope: float = 0.01) -> Local:
    return _parametric("leaky_relu", grad_tensor, input_tensor, negative_slope)


@backward("logiteps")
@with_reference(GradientOf("logit"))
def logiteps_bw(grad_tensor: Operand, input_tensor: Operand, *, eps: float = 0.0) -> Local:
    return _parametric("logit", grad_tensor, input_tensor, eps)


@backward("softplus")
def softplus_bw(grad_tensor: Operand, input_tensor: Operand, *, beta: float = 1.0, threshold: float = 20.0) -> Local:
    return _parametric("softplus", grad_tensor, input_tensor, beta, threshold)


@backward("threshold", steps=2)
@with_reference(GradientOf("threshold", {"min": "threshold", "max": "value"}))
def threshold_bw(grad_tensor: Operand, input_tensor: Operand, min: float, max: float) -> Local:
    """The gradient where the input is above `min`, the threshold; `max` is the value put in the place of the others."""
    return _parametric("threshold", grad_tensor, input_tensor, min, max)


@backward("polygamma", steps=32)
@with_reference(GradientOf("polygamma", {"n": "k"}))
def polygamma_bw(grad_tensor: Operand, input_tensor: Operand, n: int) -> Local:
    return _parametric("polygamma", grad_tensor, input_tensor, n)


@backward("pow", into=("input_grad",), steps=16)
def pow_bw(grad_tensor: Operand, input_tensor: Operand, exponent: float) -> Local:
    return _parametric("power", grad_tensor, input_tensor, exponent)


@backward("rpow", steps=16)
def rpow_bw(grad_tensor: Operand, input_tensor: Operand, exponent: float) -> Local:
    return _parametric("rpow", grad_tensor, input_tensor, exponent)
