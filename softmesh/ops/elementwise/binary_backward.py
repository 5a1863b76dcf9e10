"""Gradients of binary and ternary ops: `mul_bw`, `div_bw`, `where_bw`, `lerp_bw`, and those with a number operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentValueError
from softmesh.hardware import GeluVariant
from softmesh.ops.elementwise.binary import BINARY, check_rounding
from softmesh.ops.elementwise.unary import gelu_function
from softmesh.ops.elementwise.unary_backward import backward, derived, linear_in_gradient
from softmesh.ops.golden import golden_training as golden
from softmesh.ops.golden.golden_functions import GradientOf, with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed

_OF_BOTH = ("input_grad", "other_grad")
_BY_LETTER = ("input_a_grad", "input_b_grad")
_SPELLINGS = {"input_tensor_a": "input_tensor", "scalar": "other_tensor"}

# (a, b), both tensors
PAIRS: dict[str, Callable[..., torch.Tensor]] = {
    **{name: BINARY[name].function for name in ("atan2", "hypot", "ldexp", "logaddexp", "logaddexp2", "xlogy")},
    "max": torch.maximum,
    "min": torch.minimum,
    "squared_difference": BINARY["squared_difference"].function,
}
# (a, b) of which b may be a number
WITH_NUMBERS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
}
REMAINDERS: dict[str, Callable[..., torch.Tensor]] = {"fmod": torch.fmod, "remainder": torch.remainder}


_FORWARD = {"max": "maximum", "min": "minimum"}  # the ops of two tensors


def _register_pair(name: str, function: Callable[..., torch.Tensor]) -> None:
    def define(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
        return derived(f"{name}_bw", function, grad_tensor, input_tensor_a, input_tensor_b)

    define.__doc__ = f"[the gradient of a, that of b], of {name}."
    backward(name)(with_reference(GradientOf(_FORWARD.get(name, name)))(define))


def _register_with_number(name: str, function: Callable[..., torch.Tensor]) -> None:
    def define(grad_tensor: Operand, input_tensor: Operand, other_tensor: Value) -> Local:
        return derived(f"{name}_bw", function, grad_tensor, input_tensor, other_tensor)

    define.__doc__ = f"The gradients of {name}: of both tensors, or of the one beside a number."
    backward(name, into=_OF_BOTH, spellings=_SPELLINGS, steps=2)(define)


def _register_remainder(name: str, function: Callable[..., torch.Tensor]) -> None:
    def define(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Value) -> Local:
        return derived(f"{name}_bw", function, grad_tensor, input_tensor_a, input_tensor_b)

    define.__doc__ = f"The gradients of {name}: of both tensors, or of the one beside a number."
    backward(name, spellings={"scalar": "input_tensor_b"}, steps=4)(define)


for _name, _function in PAIRS.items():
    _register_pair(_name, _function)
for _name, _function in WITH_NUMBERS.items():
    _register_with_number(_name, _function)
for _name, _function in REMAINDERS.items():
    _register_remainder(_name, _function)


@backward("div", into=_OF_BOTH, spellings=_SPELLINGS, steps=4)
def div_bw(grad_tensor: Operand, input_tensor: Operand, other_tensor: Value, rounding_mode: str | None = None) -> Local:
    """Of a / b; with a rounding mode 0, a rounded quotient being flat."""
    check_rounding("div_bw", rounding_mode)
    return derived(
        "div_bw",
        lambda a, b: torch.div(a, b, rounding_mode=rounding_mode),
        grad_tensor,
        input_tensor,
        other_tensor,
    )


@backward("rdiv", steps=4)
@with_reference(GradientOf("rdiv", {"scalar": "value"}))
def rdiv_bw(grad_tensor: Operand, input_tensor: Operand, scalar: float, *, rounding_mode: str | None = None) -> Local:
    """Of scalar / x."""
    check_rounding("rdiv_bw", rounding_mode)

    def divided(x: torch.Tensor) -> torch.Tensor:
        return torch.div(torch.full_like(x, scalar), x, rounding_mode=rounding_mode)

    return derived("rdiv_bw", divided, grad_tensor, input_tensor)


@backward("div_no_nan", steps=2)
@with_reference(GradientOf("div_no_nan", {"scalar": "input_tensor_b"}))
def div_no_nan_bw(grad_tensor: Operand, input_tensor: Operand, scalar: float) -> Local:
    """Of x / scalar, and 0 where the scalar is 0."""
    factor = 0.0 if scalar == 0 else 1 / scalar
    return derived("div_no_nan_bw", lambda x: x * factor, grad_tensor, input_tensor)


@backward("rsub", into=_OF_BOTH, spellings={"input_tensor_a": "input_tensor", "input_tensor_b": "other_tensor"})
def rsub_bw(grad_tensor: Operand, input_tensor: Operand, other_tensor: Operand) -> Local:
    """Of b - a."""
    return derived("rsub_bw", lambda a, b: b - a, grad_tensor, input_tensor, other_tensor)


@backward("addalpha", into=_BY_LETTER, steps=2)
def addalpha_bw(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Operand, alpha: float = 1.0) -> Local:
    """Of a + alpha * b."""
    return derived("addalpha_bw", lambda a, b: a + alpha * b, grad_tensor, input_tensor_a, input_tensor_b)


@backward("subalpha", into=_OF_BOTH, steps=2)
def subalpha_bw(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Operand, alpha: float = 1.0) -> Local:
    """Of a - alpha * b."""
    return derived("subalpha_bw", lambda a, b: a - alpha * b, grad_tensor, input_tensor_a, input_tensor_b)


@backward("bias_gelu", spellings={"input_tensor": "input_tensor_a", "bias": "input_tensor_b"}, steps=24)
def bias_gelu_bw(
    grad_tensor: Operand,
    input_tensor_a: Operand,
    input_tensor_b: Value,
    *,
    variant: GeluVariant = GeluVariant.Accurate,
    approximate: str | None = None,
) -> Local:
    """Of gelu(a + b); `approximate` "tanh" or "none" is the older way to name the variant."""
    if approximate not in (None, "none", "tanh"):
        raise ArgumentValueError(f'bias_gelu_bw: approximate must be "none" or "tanh", got {approximate!r}')
    gelu = gelu_function(GeluVariant.Tanh if approximate == "tanh" else variant)
    return derived("bias_gelu_bw", lambda a, b: gelu(a + b), grad_tensor, input_tensor_a, input_tensor_b)


def _register_clamp(name: str) -> None:
    def define(
        grad_tensor: Operand,
        input_tensor: Operand,
        min: Value | None = None,
        max: Value | None = None,
    ) -> Local:
        derived(f"{name}_bw", torch.clamp, grad_tensor, input_tensor, min, max)

        def compute(grad: torch.Tensor, x: torch.Tensor, low: Any, high: Any) -> list[torch.Tensor]:
            inside = torch.ones_like(x, dtype=torch.bool)
            inside = inside if low is None else inside & (x >= low)
            inside = inside if high is None else inside & (x <= high)
            return [torch.where(inside, grad, 0.0)]

        return Local(compute)

    define.__doc__ = "[the gradient where the input lies within the bounds, 0 elsewhere]."
    backward(name, steps=3)(with_reference(GradientOf(name, wanted=(0, 1)))(define))


for _name in ("clamp", "clip"):
    _register_clamp(_name)


@backward("where", into=_BY_LETTER, steps=2)
@with_reference(GradientOf("where", wanted=(1, None)))
def where_bw(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Operand, input_tensor_c: Operand) -> Local:
    """Of where(a, b, c): the gradients of b and c."""

    def compute(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(a != 0, grad, 0.0), torch.where(a != 0, 0.0, grad)]

    derived("where_bw", torch.where, grad_tensor, input_tensor_a, input_tensor_b, input_tensor_c)
    return Local(compute)


@backward("lerp", spellings={"scalar": "input_tensor_c"}, steps=4)
def lerp_bw(grad_tensor: Operand, input_tensor_a: Operand, input_tensor_b: Operand, input_tensor_c: Value) -> Local:
    """Of a + c * (b - a): the gradients of a, b and, where it is a tensor, c."""
    operands = (input_tensor_a, input_tensor_b, input_tensor_c)
    return derived("lerp_bw", lambda a, b, w: a + w * (b - a), grad_tensor, *operands)


def _register_third(
    name: str, steps: int, formula: str, function: Callable[[Any, Any, Any, float], torch.Tensor]
) -> None:
    def define(
        grad_tensor: Operand,
        input_tensor_a: Operand,
        input_tensor_b: Operand,
        input_tensor_c: Operand,
        alpha: float,
    ) -> Local:
        operands = (input_tensor_a, input_tensor_b, input_tensor_c)
        return derived(f"{name}_bw", lambda a, b, c: function(a, b, c, alpha), grad_tensor, *operands)

    define.__doc__ = f"Of {formula}."
    backward(name, steps=steps)(with_reference(GradientOf(name, {"alpha": "value"}))(define))


_register_third("addcmul", 4, "a + alpha * b * c", lambda a, b, c, alpha: a + alpha * b * c)
_register_third("addcdiv", 6, "a + alpha * b / c", lambda a, b, c, alpha: a + alpha * b / c)


@backward("fill", into=("input_grad",), steps=1)
@placed("Local where the operands are split: each device has a sum of its own.")
@with_reference(golden.fill_bw)
def fill_bw(grad_tensor: Operand, input_tensor: Operand) -> Local:
    """[the sum of the gradient on each device, everywhere]."""
    dims = [d - grad_tensor.rank for d in range(grad_tensor.rank)]

    def compute(grad: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        return [(grad.sum(dims, keepdim=True) if dims else grad).expand_as(grad)]

    @rules.labelled(dim_labels.unlabelled)
    def rule(at: rules.Situation) -> rules.Placement:
        word = linear_in_gradient(at)
        return rules.LOCAL if isinstance(word, rules.Shard) else word

    return Local(compute, rule)
