"""Golden functions of unary and binary element-wise ops and of activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.errors import MeshError
from softmesh.hardware import BcastOpMath, GeluVariant, UnaryWithParam
from softmesh.ops.golden.golden_functions import REFERENCES, as_given, plain_references, reference

Tensor = torch.Tensor


def _of_torch(names: str) -> dict[str, Callable[..., Tensor]]:
    """Ops that torch has under the same name."""
    return {name: getattr(torch, name) for name in names.split()}


plain_references(
    _of_torch(
        "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 "
        "expm1 floor frac i0 isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not neg "
        "rad2deg reciprocal relu rsqrt sign signbit sin sinh sqrt square tan tanh trunc sigmoid"
    )
)
plain_references(
    {
        "cbrt": lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),
        "eqz": lambda x: torch.eq(x, 0),
        "gez": lambda x: torch.ge(x, 0),
        "gtz": lambda x: torch.gt(x, 0),
        "hardmish": lambda x: x * torch.clamp(x + 2.8, 0.0, 5.0) / 5,
        "hardsigmoid": lambda x: torch.clamp(x / 6 + 0.5, 0, 1),
        "hardswish": lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
        "i1": torch.special.i1,
        "identity": torch.clone,
        "lez": lambda x: torch.le(x, 0),
        "log_sigmoid": lambda x: -torch.logaddexp(-x, torch.zeros_like(x)),
        "ltz": lambda x: torch.lt(x, 0),
        "mish": lambda x: x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x))),
        "nez": lambda x: torch.ne(x, 0),
        "relu6": lambda x: torch.clamp(x, 0, 6),
        "sigmoid_accurate": lambda x: 1 / (1 + torch.exp(-x)),
        "silu": lambda x: x / (1 + torch.exp(-x)),
        "softsign": lambda x: x / (1 + torch.abs(x)),
        "swish": lambda x: x / (1 + torch.exp(-x)),
        "tanhshrink": lambda x: x - torch.tanh(x),
    }
)


@reference("gelu")
def golden_gelu(
    input_tensor: Tensor, variant: GeluVariant = GeluVariant.Accurate, approximate: str | None = None
) -> Tensor:
    if variant is GeluVariant.Tanh or approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input_tensor + 0.044715 * input_tensor**3)
        return 0.5 * input_tensor * (1 + torch.tanh(inner))
    return 0.5 * input_tensor * (1 + torch.erf(input_tensor / math.sqrt(2)))


@reference("leaky_relu")
def _leaky_relu(input_tensor: Tensor, negative_slope: float) -> Tensor:
    return torch.where(input_tensor > 0, input_tensor, input_tensor * negative_slope)


@reference("elu")
def _elu(input_tensor: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(input_tensor > 0, input_tensor, alpha * torch.expm1(input_tensor))


@reference("celu")
def _celu(input_tensor: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(input_tensor > 0, input_tensor, alpha * torch.expm1(input_tensor / alpha))


@reference("selu")
def _selu(input_tensor: Tensor, scale: float = 1.0507, alpha: float = 1.67326) -> Tensor:
    return scale * _elu(input_tensor, alpha)


@reference("softplus")
def _softplus(input_tensor: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return F.softplus(input_tensor, beta, threshold)


@reference("clamp")
def _clamp(input_tensor: Tensor, min: Any = None, max: Any = None) -> Tensor:
    result = input_tensor
    for bound, pick in ((min, torch.maximum), (max, torch.minimum)):
        if bound is not None:
            result = pick(result, torch.as_tensor(bound, dtype=input_tensor.dtype))
    return result


@reference("round")
def _round(input_tensor: Tensor, decimals: int = 0) -> Tensor:
    return torch.round(input_tensor, decimals=decimals)


@reference("hardtanh")
def _hardtanh(input_tensor: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return torch.clamp(input_tensor, min_val, max_val)


@reference("hardshrink")
def _hardshrink(input_tensor: Tensor, lambd: float = 0.5) -> Tensor:
    return input_tensor * (torch.abs(input_tensor) > lambd)


@reference("softshrink")
def _softshrink(input_tensor: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.sign(input_tensor) * torch.relu(torch.abs(input_tensor) - lambd)


@reference("threshold")
def _threshold(input_tensor: Tensor, threshold: float, value: float) -> Tensor:
    return torch.where(input_tensor > threshold, input_tensor, value)


@reference("heaviside")
def _heaviside(input_tensor: Tensor, value: float) -> Tensor:
    return torch.heaviside(input_tensor, torch.tensor(value, dtype=input_tensor.dtype))


@reference("logit")
def _logit(input_tensor: Tensor, eps: float | None = None) -> Tensor:
    x = input_tensor
    if eps is not None:
        x = torch.where(x < eps, eps, torch.where(x > 1 - eps, 1 - eps, x))
    return torch.log(x / (1 - x))


@reference("softcap")
def _softcap(input_tensor: Tensor, beta: float) -> Tensor:
    return beta * torch.tanh(input_tensor / beta)


@reference("relu_max")
def _relu_max(input_tensor: Tensor, upper_limit: float) -> Tensor:
    return torch.relu(torch.clamp(input_tensor, max=upper_limit))


@reference("relu_min")
def _relu_min(input_tensor: Tensor, lower_limit: float) -> Tensor:
    return torch.clamp(input_tensor, min=lower_limit)


@reference("rpow")
def _rpow(input_tensor: Tensor, exponent: float) -> Tensor:
    return torch.pow(exponent, input_tensor)


@reference("xielu")
def _xielu(input_tensor: Tensor, alpha_p: float = 0.8, alpha_n: float = 0.8) -> Tensor:
    x = input_tensor
    above = alpha_p * x * x + x / 2
    below = (torch.expm1(torch.clamp(x, max=-1e-6)) - x) * alpha_n + x / 2
    return torch.where(x > 0, above, below)


@reference("multigammaln")
def _multigammaln(input_tensor: Tensor) -> Tensor:
    return torch.special.multigammaln(input_tensor, 4)


@reference("polygamma")
def _polygamma(input_tensor: Tensor, k: int) -> Tensor:
    return torch.special.polygamma(k, input_tensor)


@reference("polyval")
def _polyval(input_tensor_a: Tensor, coeffs: Sequence[float]) -> Tensor:
    powers = range(len(coeffs) - 1, -1, -1)
    terms = [c * input_tensor_a**power for c, power in zip(coeffs, powers, strict=True)]
    return torch.stack(terms).sum(0)


@reference("alt_complex_rotate90")
def _alt_complex_rotate90(input_tensor: Tensor) -> Tensor:
    pairs = torch.view_as_complex(input_tensor.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * 1j).flatten(-2)


_CHAIN_LINKS: dict[str, Callable[..., Tensor]] = {
    "elu": _elu,
    "gelu": lambda x, variant=0: golden_gelu(x, GeluVariant(int(variant))),
    **dict.fromkeys(("gelu_tanh", "gelu_approx"), lambda x: golden_gelu(x, GeluVariant.Tanh)),
    "leaky_relu": _leaky_relu,
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
    function = _CHAIN_LINKS.get(name) or REFERENCES.get(name)
    if function is None:
        raise MeshError(f"the golden functions know no activation {name!r}.")
    result: Tensor = function(x, *params)
    return result


@reference("unary_chain")
def _unary_chain(input_tensor: Tensor, ops_chain: Sequence[Any]) -> Tensor:
    for link in ops_chain:
        input_tensor = activated(input_tensor, link)
    return input_tensor


# -- two in ------------------------------------------------------------------------------------------------

_PAIRS: dict[str, Callable[[Any, Any], Tensor]] = {
    **_of_torch(
        "add subtract multiply eq ne gt ge lt le logical_and logical_or logical_xor remainder fmod atan2 hypot xlogy "
        "gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift maximum minimum"
    ),
    "nextafter": torch.nextafter,
    "ldexp": lambda a, b: a * 2.0**b,
    "logaddexp": lambda a, b: torch.log(torch.exp(a) + torch.exp(b)),
    "logaddexp2": lambda a, b: torch.log2(torch.exp2(a) + torch.exp2(b)),
    "logical_left_shift": torch.bitwise_left_shift,
    "logical_right_shift": lambda a, b: ((a.long() & 0xFFFFFFFF) >> b.long()).to(a.dtype),
    "rsub": lambda a, b: b - a,
    "squared_difference": lambda a, b: (a - b) ** 2,
}


def as_tensors(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """A number counts as a tensor of the other's dtype."""
    kind = (a if isinstance(a, Tensor) else b).dtype
    return torch.as_tensor(a, dtype=a.dtype if isinstance(a, Tensor) else kind), torch.as_tensor(
        b, dtype=b.dtype if isinstance(b, Tensor) else kind
    )


def _pair(function: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    @as_given
    def golden(
        input_tensor_a: Any,
        input_tensor_b: Any,
        activations: Sequence[Any] = (),
        input_tensor_a_activations: Sequence[Any] = (),
        input_tensor_b_activations: Sequence[Any] = (),
    ) -> Tensor:
        a, b = as_tensors(input_tensor_a, input_tensor_b)
        result = function(_unary_chain(a, input_tensor_a_activations), _unary_chain(b, input_tensor_b_activations))
        return _unary_chain(result, activations)

    return golden


for _name, _function in _PAIRS.items():
    REFERENCES[_name] = _pair(_function)


@reference("div", "divide")
@as_given
def _div(input_tensor_a: Any, input_tensor_b: Any, rounding_mode: str | None = None) -> Tensor:
    a, b = as_tensors(input_tensor_a, input_tensor_b)
    if not (a.is_floating_point() or b.is_floating_point()):
        return torch.div(a, b, rounding_mode=rounding_mode)  # exact, where a float would not be
    quotient = torch.true_divide(a, b)
    return {None: lambda q: q, "floor": torch.floor, "trunc": torch.trunc}[rounding_mode](quotient)


@reference("rdiv")
@as_given
def _rdiv(input_tensor: Tensor, value: Any, rounding_mode: str | None = None) -> Tensor:
    return _div(value, input_tensor, rounding_mode)


@reference("pow")
@as_given
def _pow(input_tensor: Any, exponent: Any) -> Tensor:
    return torch.pow(*as_tensors(input_tensor, exponent))


@reference("where")
@as_given
def _where(predicate: Tensor, true_value: Any, false_value: Any) -> Tensor:
    return torch.where(predicate.bool(), true_value, false_value)


_BCAST: dict[BcastOpMath, Callable[[Tensor, Tensor], Tensor]] = {
    BcastOpMath.ADD: torch.add,
    BcastOpMath.SUB: torch.sub,
    BcastOpMath.MUL: torch.mul,
}


@reference("bcast")
def _bcast(input_a: Tensor, input_b: Tensor, math_op: BcastOpMath) -> Tensor:
    """`input_b` has one row, one column or one value for each matrix, which torch repeats by itself."""
    return _BCAST[math_op](input_a, input_b)


def get_golden_function_for_activation(activation: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """The torch function of an activation: a name, a UnaryOpType or a UnaryWithParam; None does nothing."""
    if activation is None:
        return lambda x: x
    activated(torch.zeros(1), activation)  # an unknown one is refused here, not when it is used
    return lambda x: activated(x, activation)
