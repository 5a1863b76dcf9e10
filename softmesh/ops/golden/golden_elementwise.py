"""Golden functions of unary and binary element-wise ops and of activations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.errors import MeshError
from softmesh.hardware import GeluVariant, UnaryWithParam
from softmesh.ops.golden.golden_functions import InOrder, reference_of, rounds_once

Tensor = torch.Tensor


@rounds_once
def golden_gelu(
    input_tensor: Tensor, variant: GeluVariant = GeluVariant.Accurate, approximate: str | None = None
) -> Tensor:
    if variant is GeluVariant.Tanh or approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input_tensor + 0.044715 * input_tensor**3)
        return 0.5 * input_tensor * (1 + torch.tanh(inner))
    return 0.5 * input_tensor * (1 + torch.erf(input_tensor / math.sqrt(2)))


@rounds_once
def golden_leaky_relu(input_tensor: Tensor, negative_slope: float) -> Tensor:
    return torch.where(input_tensor > 0, input_tensor, input_tensor * negative_slope)


@rounds_once
def golden_elu(input_tensor: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(input_tensor > 0, input_tensor, alpha * torch.expm1(input_tensor))


@rounds_once
def golden_celu(input_tensor: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(input_tensor > 0, input_tensor, alpha * torch.expm1(input_tensor / alpha))


@rounds_once
def golden_selu(input_tensor: Tensor, scale: float = 1.0507, alpha: float = 1.67326) -> Tensor:
    return scale * golden_elu(input_tensor, alpha)


@rounds_once
def golden_softplus(input_tensor: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return F.softplus(input_tensor, beta, threshold)


@rounds_once
def golden_clamp(input_tensor: Tensor, min: Any = None, max: Any = None) -> Tensor:
    result = input_tensor
    for bound, pick in ((min, torch.maximum), (max, torch.minimum)):
        if bound is not None:
            result = pick(result, torch.as_tensor(bound, dtype=input_tensor.dtype))
    return result


@rounds_once
def golden_round(input_tensor: Tensor, decimals: int = 0) -> Tensor:
    return torch.round(input_tensor, decimals=decimals)


@rounds_once
def golden_hardtanh(input_tensor: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return torch.clamp(input_tensor, min_val, max_val)


@rounds_once
def golden_hardshrink(input_tensor: Tensor, lambd: float = 0.5) -> Tensor:
    return input_tensor * (torch.abs(input_tensor) > lambd)


@rounds_once
def golden_softshrink(input_tensor: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.sign(input_tensor) * torch.relu(torch.abs(input_tensor) - lambd)


@rounds_once
def golden_threshold(input_tensor: Tensor, threshold: float, value: float) -> Tensor:
    return torch.where(input_tensor > threshold, input_tensor, value)


@rounds_once
def golden_heaviside(input_tensor: Tensor, value: float) -> Tensor:
    return torch.heaviside(input_tensor, torch.tensor(value, dtype=input_tensor.dtype))


@rounds_once
def golden_logit(input_tensor: Tensor, eps: float | None = None) -> Tensor:
    x = input_tensor
    if eps is not None:
        x = torch.where(x < eps, eps, torch.where(x > 1 - eps, 1 - eps, x))
    return torch.log(x / (1 - x))


@rounds_once
def golden_softcap(input_tensor: Tensor, beta: float) -> Tensor:
    return beta * torch.tanh(input_tensor / beta)


@rounds_once
def golden_relu_max(input_tensor: Tensor, upper_limit: float) -> Tensor:
    return torch.relu(torch.clamp(input_tensor, max=upper_limit))


@rounds_once
def golden_relu_min(input_tensor: Tensor, lower_limit: float) -> Tensor:
    return torch.clamp(input_tensor, min=lower_limit)


@rounds_once
def golden_rpow(input_tensor: Tensor, exponent: float) -> Tensor:
    return torch.pow(exponent, input_tensor)


@rounds_once
def golden_xielu(input_tensor: Tensor, alpha_p: float = 0.8, alpha_n: float = 0.8) -> Tensor:
    x = input_tensor
    above = alpha_p * x * x + x / 2
    below = (torch.expm1(torch.clamp(x, max=-1e-6)) - x) * alpha_n + x / 2
    return torch.where(x > 0, above, below)


@rounds_once
def golden_multigammaln(input_tensor: Tensor) -> Tensor:
    return torch.special.multigammaln(input_tensor, 4)


@rounds_once
def golden_polygamma(input_tensor: Tensor, k: int) -> Tensor:
    return torch.special.polygamma(k, input_tensor)


@rounds_once
def golden_polyval(input_tensor_a: Tensor, coeffs: Sequence[float]) -> Tensor:
    powers = range(len(coeffs) - 1, -1, -1)
    terms = [c * input_tensor_a**power for c, power in zip(coeffs, powers, strict=True)]
    return torch.stack(terms).sum(0)


@rounds_once
def golden_alt_complex_rotate90(input_tensor: Tensor) -> Tensor:
    pairs = torch.view_as_complex(input_tensor.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * 1j).flatten(-2)


_CHAIN_LINKS: dict[str, Callable[..., Tensor]] = {
    "elu": golden_elu,
    "gelu": lambda x, variant=0: golden_gelu(x, GeluVariant(int(variant))),
    **dict.fromkeys(("gelu_tanh", "gelu_approx"), lambda x: golden_gelu(x, GeluVariant.Tanh)),
    "leaky_relu": golden_leaky_relu,
    "power": torch.pow,
    "power_iterative": torch.pow,
}


def activated(x: Tensor, activation: Any) -> Tensor:
    """One link of a chain: a name, a UnaryOpType, or one with its parameters."""
    params: Sequence[float] = ()
    if not isinstance(activation, str):
        known = UnaryWithParam.of(activation)
        activation, params = known.op_type.name.lower(), known.params
    name = str(activation)
    function = _CHAIN_LINKS.get(name) or reference_of(name)
    if function is None:
        raise MeshError(f"the golden functions know no activation {name!r}.")
    inner = function.function if isinstance(function, InOrder) else function
    result: Tensor = inspect.unwrap(inner)(x, *params)
    return result


def _chained(x: Tensor, activations: Sequence[Any]) -> Tensor:
    for link in activations:
        x = activated(x, link)
    return x


@rounds_once
def golden_unary_chain(input_tensor: Tensor, ops_chain: Sequence[Any]) -> Tensor:
    return _chained(input_tensor, ops_chain)


# -- two in ------------------------------------------------------------------------------------------------


def as_tensors(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """A number counts as a tensor of the other's dtype."""
    kind = (a if isinstance(a, Tensor) else b).dtype
    return torch.as_tensor(a, dtype=a.dtype if isinstance(a, Tensor) else kind), torch.as_tensor(
        b, dtype=b.dtype if isinstance(b, Tensor) else kind
    )


def golden_pair(function: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    def golden(
        input_tensor_a: Any,
        input_tensor_b: Any,
        activations: Sequence[Any] = (),
        input_tensor_a_activations: Sequence[Any] = (),
        input_tensor_b_activations: Sequence[Any] = (),
    ) -> Tensor:
        a, b = as_tensors(input_tensor_a, input_tensor_b)
        result = function(_chained(a, input_tensor_a_activations), _chained(b, input_tensor_b_activations))
        return _chained(result, activations)

    return golden


def golden_div(input_tensor_a: Any, input_tensor_b: Any, rounding_mode: str | None = None) -> Tensor:
    a, b = as_tensors(input_tensor_a, input_tensor_b)
    if not (a.is_floating_point() or b.is_floating_point()):
        return torch.div(a, b, rounding_mode=rounding_mode)  # exact, where a float would not be
    quotient = torch.true_divide(a, b)
    return {None: lambda q: q, "floor": torch.floor, "trunc": torch.trunc}[rounding_mode](quotient)


def golden_rdiv(input_tensor: Tensor, value: Any, rounding_mode: str | None = None) -> Tensor:
    return golden_div(value, input_tensor, rounding_mode)


def golden_pow(input_tensor: Any, exponent: Any) -> Tensor:
    return torch.pow(*as_tensors(input_tensor, exponent))


def golden_where(predicate: Tensor, true_value: Any, false_value: Any) -> Tensor:
    return torch.where(predicate.bool(), true_value, false_value)


def get_golden_function_for_activation(activation: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """The torch function of an activation: a name, a UnaryOpType or a UnaryWithParam; None does nothing."""
    if activation is None:
        return lambda x: x
    activated(torch.zeros(1), activation)  # an unknown one is refused here, not when it is used
    return lambda x: activated(x, activation)
