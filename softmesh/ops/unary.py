"""Element by element, one tensor in: a table for what has no parameters, definitions for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.hardware import GeluVariant, SigmoidMode
from softmesh.placement import rules

TorchFunction = Callable[[torch.Tensor], torch.Tensor]
_TUNING = "sub_core_grids"
_APPROXIMABLE = "sub_core_grids fast_and_approximate_mode"


class Unary(NamedTuple):
    """`steps` is the arithmetic for one element, as a rough count."""

    function: TorchFunction
    steps: int = 1
    rule: rules.Rule = rules.elementwise
    tuning: str = _TUNING
    integers: bool = False  # makes sense of whole numbers too


def _float(function: TorchFunction) -> TorchFunction:
    """For what takes several torch calls: widen once, so that the chip's single rounding is kept."""
    return lambda x: function(x.float())


# Single torch kernels compute bfloat16 in fp32 inside and round once, as the chip does.
UNARY: dict[str, Unary] = {
    "abs": Unary(torch.abs, integers=True),
    "acos": Unary(torch.acos, 8),
    "acosh": Unary(torch.acosh, 8),
    "asin": Unary(torch.asin, 8),
    "asinh": Unary(torch.asinh, 8),
    "atan": Unary(torch.atan, 8),
    "atanh": Unary(torch.atanh, 8),
    "bitwise_not": Unary(torch.bitwise_not, integers=True),
    "cbrt": Unary(_float(lambda x: x.sign() * x.abs().pow(1 / 3)), 8),
    "ceil": Unary(torch.ceil, integers=True),
    "cos": Unary(torch.cos, 8),
    "cosh": Unary(torch.cosh, 8),
    "deg2rad": Unary(torch.deg2rad, rule=rules.linear),
    "digamma": Unary(torch.digamma, 16),
    "eqz": Unary(lambda x: x == 0, integers=True),
    "erf": Unary(torch.erf, 8, tuning=_APPROXIMABLE),
    "erfc": Unary(torch.erfc, 8),
    "erfinv": Unary(torch.erfinv, 16),
    "exp": Unary(torch.exp, 8, tuning=_APPROXIMABLE),
    "exp2": Unary(torch.exp2, 8),
    "expm1": Unary(torch.expm1, 8),
    "floor": Unary(torch.floor, integers=True),
    "frac": Unary(torch.frac),
    "gez": Unary(lambda x: x >= 0, integers=True),
    "gtz": Unary(lambda x: x > 0, integers=True),
    "hardmish": Unary(_float(lambda x: x * (x + 2.8).clamp(0, 5) / 5), 4),
    "hardsigmoid": Unary(F.hardsigmoid, 3),
    "hardswish": Unary(F.hardswish, 4),
    "i0": Unary(torch.i0, 16),
    "i1": Unary(torch.special.i1, 16),
    "identity": Unary(torch.clone, 0, rules.keeping, integers=True),
    "isfinite": Unary(torch.isfinite, integers=True),
    "isinf": Unary(torch.isinf, integers=True),
    "isnan": Unary(torch.isnan, integers=True),
    "isneginf": Unary(torch.isneginf, integers=True),
    "isposinf": Unary(torch.isposinf, integers=True),
    "lez": Unary(lambda x: x <= 0, integers=True),
    "lgamma": Unary(torch.lgamma, 16),
    "log": Unary(torch.log, 8, tuning=_APPROXIMABLE),
    "log10": Unary(torch.log10, 8, tuning=_APPROXIMABLE),
    "log1p": Unary(torch.log1p, 8, tuning=_APPROXIMABLE),
    "log2": Unary(torch.log2, 8, tuning=_APPROXIMABLE),
    "log_sigmoid": Unary(F.logsigmoid, 10),
    "logical_not": Unary(torch.logical_not, integers=True),
    "ltz": Unary(lambda x: x < 0, integers=True),
    "mish": Unary(F.mish, 16, tuning=_APPROXIMABLE),
    "neg": Unary(torch.neg, 1, rules.linear, integers=True),
    "nez": Unary(lambda x: x != 0, integers=True),
    "rad2deg": Unary(torch.rad2deg, rule=rules.linear),
    "reciprocal": Unary(torch.reciprocal, 2),
    "relu": Unary(torch.relu, integers=True),
    "relu6": Unary(F.relu6, 2, integers=True),
    "rsqrt": Unary(_float(torch.rsqrt), 4, tuning=_APPROXIMABLE),
    "sign": Unary(torch.sign, integers=True),
    "signbit": Unary(torch.signbit, integers=True),
    "silu": Unary(F.silu, 9),
    "sin": Unary(torch.sin, 8),
    "sinh": Unary(torch.sinh, 8),
    "softsign": Unary(_float(F.softsign), 3),
    "sqrt": Unary(torch.sqrt, 4, tuning=_APPROXIMABLE),
    "square": Unary(torch.square, integers=True),
    "swish": Unary(F.silu, 9),
    "tan": Unary(torch.tan, 8),
    "tanh": Unary(torch.tanh, 8, tuning=_APPROXIMABLE),
    "tanhshrink": Unary(_float(F.tanhshrink), 9),
    "trunc": Unary(torch.trunc, integers=True),
}


def _register(name: str, entry: Unary) -> Operation:
    def define(input_tensor: Operand) -> Local:
        return Local(entry.function, entry.rule)

    define.__doc__ = f"{name}, element by element."
    return operation(
        name,
        cost=flops_per_element(entry.steps),
        precision="native",
        tuning=entry.tuning,
        floats_only=not entry.integers,
    )(define)


for _name, _entry in UNARY.items():
    _register(_name, _entry)


def gelu_function(variant: GeluVariant) -> TorchFunction:
    approximate = "tanh" if variant is GeluVariant.Tanh else "none"
    return lambda x: F.gelu(x, approximate=approximate)


@operation(cost=flops_per_element(12), precision="native", floats_only=True, tuning=_APPROXIMABLE)
def gelu(input_tensor: Operand, *, variant: GeluVariant = GeluVariant.Accurate) -> Local:
    """x * Phi(x); `variant` Tanh takes the tanh form. The fast mode's table is not modelled: exact here."""
    return Local(gelu_function(variant), rules.elementwise)


@operation(cost=flops_per_element(8), precision="native", floats_only=True, tuning=_TUNING)
def sigmoid(
    input_tensor: Operand, *, vector_mode: int = 4, mode: SigmoidMode = SigmoidMode.Accurate
) -> Local:
    """1 / (1 + exp(-x)); the approximate mode's table is not modelled: exact here."""
    return Local(torch.sigmoid, rules.elementwise)


@operation(
    cost=flops_per_element(8),
    precision="native",
    floats_only=True,
    tuning=_APPROXIMABLE,
    positional="fast_and_approximate_mode",
)
def sigmoid_accurate(input_tensor: Operand) -> Local:
    return Local(torch.sigmoid, rules.elementwise)


@operation(precision="native", floats_only=True, tuning=_TUNING)
def leaky_relu(input_tensor: Operand, negative_slope: float) -> Local:
    return Local(lambda x: F.leaky_relu(x, negative_slope), rules.elementwise)


@operation(cost=flops_per_element(9), precision="native", floats_only=True, tuning=_TUNING)
def elu(input_tensor: Operand, *, alpha: float = 1.0) -> Local:
    return Local(lambda x: F.elu(x, alpha), rules.elementwise)


@operation(precision="native", aliases=("clip",))
def clamp(input_tensor: Operand, min: Value | None = None, max: Value | None = None) -> Local:
    """Into [min, max]; each bound a number, a tensor, or None for no bound."""
    tensors = [(o.name, o.shape) for o in (input_tensor, min, max) if isinstance(o, Operand)]
    rank = len(check_broadcast("clamp", tensors))
    return Local(_clamped, rules.elementwise, broadcast_rank=rank)


def _clamped(x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    bounds = [bound.shape for bound in (low, high) if isinstance(bound, torch.Tensor)]
    # torch derives a clamp only where the values are as large as the result
    return torch.clamp(x.expand(broadcast_shapes(x.shape, *bounds)) if bounds else x, low, high)


@operation("round", precision="native", tuning=_TUNING)
def round_(input_tensor: Operand, *, decimals: int = 0) -> Local:
    return Local(lambda x: torch.round(x, decimals=decimals), rules.elementwise)


@operation(cost=flops_per_element(10), precision="native", floats_only=True, tuning=_TUNING)
def softplus(input_tensor: Operand, *, beta: float = 1.0, threshold: float = 20.0) -> Local:
    return Local(lambda x: F.softplus(x, beta, threshold), rules.elementwise)
