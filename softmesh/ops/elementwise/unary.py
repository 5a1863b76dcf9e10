"""Unary element-wise ops: a table of those without parameters (relu, exp), definitions of the others (clamp, elu)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.dispatch.program_keys import elementwise_program
from softmesh.errors import MeshError
from softmesh.hardware import GeluVariant, SigmoidMode
from softmesh.kinds import Kind
from softmesh.native.gpu_kernels import gpu_gelu
from softmesh.ops import gradients
from softmesh.ops.golden import golden_elementwise as golden
from softmesh.ops.golden.golden_functions import InOrder, rounds_once, with_reference
from softmesh.placement import rules
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import DataType

TorchFunction = Callable[[torch.Tensor], torch.Tensor]
_CONTROLS = "memory_config output_tensor queue_id"  # and no dtype: typecast is an op of its own
_TUNING = "sub_core_grids"
_APPROXIMABLE = "sub_core_grids fast_and_approximate_mode"


class Unary(NamedTuple):
    """`steps` is the arithmetic for one element: `exp`, whose time was measured, counts 20, and others beside it."""

    function: TorchFunction
    steps: int = 1
    rule: rules.Rule = rules.elementwise
    tuning: str = _TUNING
    integers: bool = False  # makes sense of whole numbers too
    kind: Kind = Kind.ELEMENTWISE
    gradient: gradients.Rule | None = gradients.by_its_backward
    reference: Callable[..., torch.Tensor] | None = None  # None: torch's function of the same name
    example: str = """
>>> y = ttnn.{}(split(8, 64, dim=1))
>>> y.shape, ttnn.placements(y)
(Shape([8, 16]), (Replicate, Shard(1)))
"""


def _float(function: TorchFunction) -> TorchFunction:
    """For what takes several torch calls: widen once, so that the chip's single rounding is kept."""
    return lambda x: function(x.float())


_NEAR_ZERO = 1e-3


def _tanhshrink(x: torch.Tensor) -> torch.Tensor:
    """x - tanh(x), which are nearly equal near 0: there by the first terms of its series."""
    cube = x * x * x
    return torch.where(x.abs() < _NEAR_ZERO, cube / 3 - 2 * cube * x * x / 15, x - torch.tanh(x))


# Single torch kernels compute bfloat16 in fp32 inside and round once, as the chip does.
_LEAST_EXPONENT = -126  # the chip has no numbers nearer to 0 but 0
_I1_BOUND = 88.5  # where TT-NN stops

UNARY: dict[str, Unary] = {
    "abs": Unary(torch.abs, integers=True),
    "acos": Unary(torch.acos, 8),
    "acosh": Unary(torch.acosh, 8),
    "asin": Unary(torch.asin, 8),
    "asinh": Unary(torch.asinh, 8),
    "atan": Unary(torch.atan, 8),
    "atanh": Unary(torch.atanh, 8),
    "bitwise_not": Unary(torch.bitwise_not, integers=True, example=""),
    "cbrt": Unary(
        _float(lambda x: x.sign() * x.abs().pow(1 / 3)), 8, reference=lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3)
    ),
    "ceil": Unary(torch.ceil, integers=True),
    "cos": Unary(torch.cos, 16),
    "cosh": Unary(lambda x: torch.cosh(x.double()), 20),  # fp32 inside would end before the result does
    "deg2rad": Unary(torch.deg2rad, rule=rules.linear),
    "digamma": Unary(torch.digamma, 16),
    "eqz": Unary(lambda x: x == 0, integers=True, kind=Kind.COMPARISON, reference=lambda x: torch.eq(x, 0)),
    "erf": Unary(torch.erf, 24, tuning=_APPROXIMABLE),
    "erfc": Unary(torch.erfc, 24),
    "erfinv": Unary(torch.erfinv, 16),
    "exp": Unary(torch.exp, 20, tuning=_APPROXIMABLE),
    "exp2": Unary(lambda x: torch.where(x < _LEAST_EXPONENT, 0.0, torch.exp2(x)), 20),
    "expm1": Unary(torch.expm1, 20),
    "floor": Unary(torch.floor, integers=True),
    "frac": Unary(torch.frac),
    "gez": Unary(lambda x: x >= 0, integers=True, kind=Kind.COMPARISON, reference=lambda x: torch.ge(x, 0)),
    "gtz": Unary(lambda x: x > 0, integers=True, kind=Kind.COMPARISON, reference=lambda x: torch.gt(x, 0)),
    "hardmish": Unary(
        _float(lambda x: x * (x + 2.8).clamp(0, 5) / 5), 4, reference=lambda x: x * torch.clamp(x + 2.8, 0.0, 5.0) / 5
    ),
    "hardsigmoid": Unary(F.hardsigmoid, 3, reference=lambda x: torch.clamp(x / 6 + 0.5, 0, 1)),
    "hardswish": Unary(F.hardswish, 4, reference=lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1)),
    "i0": Unary(torch.i0, 16),
    "i1": Unary(lambda x: torch.special.i1(x.clamp(-_I1_BOUND, _I1_BOUND)), 16, reference=torch.special.i1),
    "identity": Unary(
        torch.clone, 0, rules.keeping, integers=True, gradient=gradients.passed_on, reference=torch.clone
    ),
    "isfinite": Unary(torch.isfinite, integers=True, kind=Kind.COMPARISON),
    "isinf": Unary(torch.isinf, integers=True, kind=Kind.COMPARISON),
    "isnan": Unary(torch.isnan, integers=True, kind=Kind.COMPARISON),
    "isneginf": Unary(torch.isneginf, integers=True, kind=Kind.COMPARISON),
    "isposinf": Unary(torch.isposinf, integers=True, kind=Kind.COMPARISON),
    "lez": Unary(lambda x: x <= 0, integers=True, kind=Kind.COMPARISON, reference=lambda x: torch.le(x, 0)),
    "lgamma": Unary(torch.lgamma, 16),
    "log": Unary(torch.log, 16, tuning=_APPROXIMABLE),
    "log10": Unary(torch.log10, 16, tuning=_APPROXIMABLE),
    "log1p": Unary(torch.log1p, 16, tuning=_APPROXIMABLE),
    "log2": Unary(torch.log2, 16, tuning=_APPROXIMABLE),
    "log_sigmoid": Unary(F.logsigmoid, 30, reference=lambda x: -torch.logaddexp(-x, torch.zeros_like(x))),
    "logical_not": Unary(torch.logical_not, integers=True, kind=Kind.COMPARISON),
    "ltz": Unary(lambda x: x < 0, integers=True, kind=Kind.COMPARISON, reference=lambda x: torch.lt(x, 0)),
    "mish": Unary(
        F.mish, 46, tuning=_APPROXIMABLE, reference=lambda x: x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x)))
    ),
    "neg": Unary(torch.neg, 1, rules.linear, integers=True, gradient=gradients.of_negation),
    "nez": Unary(lambda x: x != 0, integers=True, kind=Kind.COMPARISON, reference=lambda x: torch.ne(x, 0)),
    "rad2deg": Unary(torch.rad2deg, rule=rules.linear),
    "reciprocal": Unary(torch.reciprocal, 8),
    "relu": Unary(torch.relu, integers=True),
    "relu6": Unary(F.relu6, 2, integers=True, reference=lambda x: torch.clamp(x, 0, 6)),
    "rsqrt": Unary(_float(torch.rsqrt), 8, tuning=_APPROXIMABLE),
    "sign": Unary(torch.sign, integers=True),
    "signbit": Unary(torch.signbit, integers=True, kind=Kind.COMPARISON),
    "silu": Unary(F.silu, 20, reference=lambda x: x / (1 + torch.exp(-x))),
    "sin": Unary(torch.sin, 16),
    "sinh": Unary(lambda x: torch.sinh(x.double()), 20),
    "softsign": Unary(_float(F.softsign), 3, reference=lambda x: x / (1 + torch.abs(x))),
    "sqrt": Unary(torch.sqrt, 8, tuning=_APPROXIMABLE),
    "square": Unary(torch.square, integers=True),
    "swish": Unary(F.silu, 20, reference=lambda x: x / (1 + torch.exp(-x))),
    "tan": Unary(torch.tan, 16),
    "tanh": Unary(torch.tanh, 16, tuning=f"{_APPROXIMABLE} accuracy"),  # `accuracy`: of earlier releases
    "tanhshrink": Unary(lambda x: _tanhshrink(x.double()), 17, reference=lambda x: x - torch.tanh(x)),
    "trunc": Unary(torch.trunc, integers=True),
}


def _register(name: str, entry: Unary) -> Operation:
    def define(input_tensor: Operand) -> Local:
        return Local(entry.function)

    with_reference(InOrder(rounds_once(entry.reference) if entry.reference else getattr(torch, name)))(define)
    define.__doc__ = f"{name}, element by element.\n{entry.example.format(name)}"
    return operation(
        name,
        kind=entry.kind,
        rule=entry.rule,
        native="UnaryDeviceOperation",
        gradient=entry.gradient,
        torch=name if hasattr(torch, name) or hasattr(F, name) else "",
        cost=flops_per_element(entry.steps),
        precision="native",
        controls=_CONTROLS,
        tuning=entry.tuning,
        floats_only=not entry.integers,
        program_key=elementwise_program,
    )(define)


for _name, _entry in UNARY.items():
    _register(_name, _entry)


@cache
def gelu_function(variant: GeluVariant) -> TorchFunction:
    approximate = "tanh" if variant is GeluVariant.Tanh else "none"

    def gelu_of(x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:
            found = gpu_gelu(x) if approximate == "none" else None
            return F.gelu(x, approximate=approximate) if found is None else found
        made = F.gelu(x, approximate=approximate)
        if not made.is_cpu or made.sum().isfinite():
            return made
        return torch.where(made.isnan(), x.clamp_min(0), made)  # torch's kernel makes NaN of infinities

    return gelu_of


@operation(
    kind=Kind.ELEMENTWISE,
    gradient=gradients.by_its_backward,
    native="UnaryDeviceOperation",
    cost=flops_per_element(20),
    precision="native",
    floats_only=True,
    controls=_CONTROLS,
    tuning=_APPROXIMABLE,
    program_key=elementwise_program,
)
@with_reference(golden.golden_gelu)
def gelu(input_tensor: Operand, *, variant: GeluVariant = GeluVariant.Accurate) -> Local:
    """x * Phi(x); `variant` Tanh takes the tanh form. The fast mode's table is not modelled: exact here.

    >>> y = ttnn.gelu(split(8, 64, dim=1))
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    return Local(gelu_function(variant))


@operation(
    kind=Kind.ELEMENTWISE,
    torch="sigmoid",
    gradient=gradients.by_its_backward,
    native="UnaryDeviceOperation",
    cost=flops_per_element(18),
    precision="native",
    floats_only=True,
    controls=_CONTROLS,
    tuning=_TUNING,
    program_key=elementwise_program,
)
@with_reference(InOrder(torch.sigmoid))
def sigmoid(input_tensor: Operand, *, vector_mode: int = 4, mode: SigmoidMode = SigmoidMode.Accurate) -> Local:
    """1 / (1 + exp(-x)); the approximate mode's table is not modelled: exact here.

    >>> y = ttnn.sigmoid(split(8, 64, dim=1))
    >>> y.shape, ttnn.placements(y)
    (Shape([8, 16]), (Replicate, Shard(1)))
    """
    return Local(torch.sigmoid)


@operation(
    kind=Kind.ELEMENTWISE,
    cost=flops_per_element(18),
    precision="native",
    floats_only=True,
    controls=_CONTROLS,
    tuning=_APPROXIMABLE,
    positional="fast_and_approximate_mode",
)
@with_reference(InOrder(rounds_once(lambda x: 1 / (1 + torch.exp(-x)))))
def sigmoid_accurate(input_tensor: Operand) -> Local:
    return Local(torch.sigmoid)


@operation(
    kind=Kind.ELEMENTWISE,
    native="UnaryDeviceOperation",
    precision="native",
    controls=_CONTROLS,
    tuning=_TUNING,
    program_key=elementwise_program,
)
@with_reference(golden.golden_leaky_relu)
def leaky_relu(input_tensor: Operand, negative_slope: float) -> Local:
    if not input_tensor.is_float:
        return Local(lambda x: torch.where(x < 0, x * negative_slope, x.double()))
    return Local(lambda x: F.leaky_relu(x, negative_slope))


@operation(
    kind=Kind.ELEMENTWISE,
    native="UnaryDeviceOperation",
    cost=flops_per_element(21),
    precision="native",
    floats_only=True,
    controls=_CONTROLS,
    tuning=_TUNING,
    program_key=elementwise_program,
)
@with_reference(golden.golden_elu)
def elu(input_tensor: Operand, *, alpha: float = 1.0) -> Local:
    return Local(lambda x: F.elu(x, alpha))


@operation(
    kind=Kind.ELEMENTWISE, native="UnaryDeviceOperation", precision="native", aliases=("clip",), controls=_CONTROLS
)
@with_reference(golden.golden_clamp)
def clamp(input_tensor: Operand, min: Value | None = None, max: Value | None = None) -> Local:
    """Into [min, max]; each bound a number, a tensor, or None for no bound."""
    if min is None and max is None:
        raise MeshError(
            "Only one of 'min' or 'max' can be None. Please provide one value: clamp without bounds changes nothing."
        )
    tensors = [(o.name, o.shape) for o in (input_tensor, min, max) if isinstance(o, Operand)]
    rank = len(check_broadcast("clamp", tensors))
    return Local(_clamped, broadcast_rank=rank)


def _clamped(x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    bounds = [bound.shape for bound in (low, high) if isinstance(bound, torch.Tensor)]
    # torch derives a clamp only where the values are as large as the result
    return torch.clamp(x.expand(broadcast_shapes(x.shape, *bounds)) if bounds else x, low, high)


@operation(
    "round",
    kind=Kind.ELEMENTWISE,
    native="UnaryDeviceOperation",
    precision="native",
    controls=_CONTROLS,
    tuning=_TUNING,
)
@with_reference(golden.golden_round)
def round_(input_tensor: Operand, *, decimals: int = 0) -> Local:
    return Local(lambda x: torch.round(x, decimals=decimals))


@operation(
    kind=Kind.ELEMENTWISE,
    native="UnaryDeviceOperation",
    cost=flops_per_element(30),
    precision="native",
    floats_only=True,
    controls=_CONTROLS,
    tuning=_TUNING,
    program_key=elementwise_program,
)
@with_reference(golden.golden_softplus)
def softplus(input_tensor: Operand, *, beta: float = 1.0, threshold: float = 20.0) -> Local:
    return Local(lambda x: F.softplus(x, beta, threshold))


# -- functions of one value and a few numbers: hardtanh, threshold, softcap -------------------------
#
# Ops by themselves, and links of `unary_chain`. Each is one rounding here; where TT-NN composes one of other ops
# it rounds after each, and its last bit may differ.


_BELOW_ZERO = -1e-6  # up to here the negative side of xielu follows exp
_XIELU_SLOPE = 0.5
_MULTIGAMMA_ORDER = 4
_MAX_POLYGAMMA = 10


def selu_function(x: torch.Tensor, scale: float, alpha: float) -> torch.Tensor:
    return scale * torch.where(x > 0, x, alpha * torch.expm1(x))


def xielu_function(x: torch.Tensor, alpha_p: float, alpha_n: float) -> torch.Tensor:
    below = alpha_n * (torch.expm1(x.clamp_max(_BELOW_ZERO)) - x)
    return torch.where(x > 0, alpha_p * x.square(), below) + _XIELU_SLOPE * x


def heaviside_function(x: torch.Tensor, value: float) -> torch.Tensor:
    return torch.where(x == 0, value, (x > 0).to(x.dtype))


def logit_function(x: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    return torch.logit(x, eps)


def _logit_in_bfloat16(x: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """1 - x, x / (1 - x) and its logarithm, each rounded, as TT-NN composes them.

    Where `eps` is above a half, the lower bound is the greater one, and as in torch it is looked at first.
    """
    inside = x
    if eps is not None:
        inside = torch.where(x < eps, eps, torch.where(x > 1 - eps, 1 - eps, x))
    rest = (1 - inside).bfloat16().float()
    return torch.log((inside / rest).bfloat16().float())


def softcap_function(x: torch.Tensor, beta: float) -> torch.Tensor:
    return beta * torch.tanh(x / beta)


def rotate90(x: torch.Tensor) -> torch.Tensor:
    """Pairs (a, b) along the last dim, read as a + bi, times i: (-b, a)."""
    pairs = x.unflatten(-1, (-1, 2))
    return torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)


def _of_kind(x: torch.Tensor, limit: float) -> float:
    """Whole beside whole numbers, so that torch compares them exactly."""
    return limit if x.is_floating_point() else int(limit)


def multigammaln_function(x: torch.Tensor) -> torch.Tensor:
    """Of order 4: log(pi) * 4 * 3 / 4 + the sum of lgamma(x - i / 2)."""
    total = torch.full_like(x, _MULTIGAMMA_ORDER * (_MULTIGAMMA_ORDER - 1) / 4 * math.log(math.pi))
    for i in range(_MULTIGAMMA_ORDER):
        total = total + torch.lgamma(x - i / 2)
    return total


# By the names of UnaryOpType, in lower case, with their parameters in TT-NN's order.
PARAMETRIC: dict[str, Callable[..., torch.Tensor]] = {
    "add_unary_sfpu": torch.add,
    "celu": F.celu,
    "clamp_tss": torch.clamp,
    "div_unary_sfpu": torch.div,
    "elu": F.elu,
    "fill": torch.full_like,
    "fmod": torch.fmod,
    "hardshrink": F.hardshrink,
    "hardtanh": F.hardtanh,
    "heaviside": heaviside_function,
    "leaky_relu": F.leaky_relu,
    "logit": logit_function,
    "mac_tss": lambda x, factor, addend: x * factor + addend,
    "maximum": lambda x, value: x.clamp_min(value),
    "minimum": lambda x, value: x.clamp_max(value),
    "mul_unary_sfpu": torch.mul,
    "polygamma": lambda x, k: torch.polygamma(int(k), x),
    "power": torch.pow,
    "power_iterative": torch.pow,
    "prelu_sfpu": F.leaky_relu,
    "rdiv": lambda x, value: value / x,
    "relu_max": lambda x, limit: x.clamp(0, _of_kind(x, limit)),
    "relu_min": lambda x, limit: x.clamp_min(_of_kind(x, limit)),
    "remainder": torch.remainder,
    "round": lambda x, decimals: torch.round(x, decimals=int(decimals)),
    "rpow": lambda x, base: torch.pow(base, x),
    "rsub": lambda x, value: value - x,
    "selu": selu_function,
    "softcap": softcap_function,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "sub_unary_sfpu": torch.sub,
    "threshold": F.threshold,
    "unary_eq": lambda x, value: (x == value).to(x.dtype),
    "unary_ge": lambda x, value: (x >= value).to(x.dtype),
    "unary_gt": lambda x, value: (x > value).to(x.dtype),
    "unary_le": lambda x, value: (x <= value).to(x.dtype),
    "unary_lt": lambda x, value: (x < value).to(x.dtype),
    "unary_ne": lambda x, value: (x != value).to(x.dtype),
    "where_tss": lambda x, yes, no: torch.where(x != 0, yes, no),
    "xielu": xielu_function,
}

_unary = partial(
    operation,
    kind=Kind.ELEMENTWISE,
    native="UnaryDeviceOperation",
    controls="memory_config output_tensor",
    tuning="sub_core_grids",
    floats_only=True,
    program_key=elementwise_program,
)
_plain = partial(operation, kind=Kind.ELEMENTWISE, controls="memory_config", floats_only=True)


def _local(name: str, *parameters: Any) -> Local:
    function = PARAMETRIC[name]
    return Local(lambda x: function(x, *parameters))


@_unary(cost=flops_per_element(21))
@with_reference(golden.golden_celu)
def celu(input_tensor: Operand, *, alpha: float = 1.0) -> Local:
    """x above 0, alpha * (exp(x / alpha) - 1) below."""
    return _local("celu", alpha)


@_unary(cost=flops_per_element(2))
@with_reference(golden.golden_hardtanh)
def hardtanh(input_tensor: Operand, *, min_val: float = -1.0, max_val: float = 1.0) -> Local:
    return _local("hardtanh", min_val, max_val)


@_unary(cost=flops_per_element(22))
@with_reference(golden.golden_selu)
def selu(input_tensor: Operand, *, scale: float = 1.0507, alpha: float = 1.67326) -> Local:
    return _local("selu", scale, alpha)


@_unary(cost=flops_per_element(2))
@with_reference(golden.golden_softshrink)
def softshrink(input_tensor: Operand, *, lambd: float = 0.5) -> Local:
    """Nearer to 0 by lambd; 0 within lambd of it."""
    return _local("softshrink", lambd)


@_unary(cost=flops_per_element(2))
@with_reference(golden.golden_hardshrink)
def hardshrink(input_tensor: Operand, *, lambd: float = 0.5) -> Local:
    """0 within lambd of 0, else as it is."""
    return _local("hardshrink", lambd)


@_unary()
@with_reference(golden.golden_threshold)
def threshold(input_tensor: Operand, threshold: float, value: float) -> Local:
    """x where it is above `threshold`, else `value`."""
    return _local("threshold", threshold, value)


@_unary()
@with_reference(golden.golden_heaviside)
def heaviside(input_tensor: Operand, value: float) -> Local:
    """0 below 0, 1 above, `value` at 0."""
    return _local("heaviside", value)


@_unary(cost=flops_per_element(40))
@with_reference(golden.golden_rpow)
def rpow(input_tensor: Operand, exponent: float) -> Local:
    """`exponent` to the power of x: TT-NN's name for the base."""
    return _local("rpow", exponent)


@_unary(floats_only=False)
@with_reference(golden.golden_relu_max)
def relu_max(input_tensor: Operand, upper_limit: float) -> Local:
    return _local("relu_max", upper_limit)


@_unary(floats_only=False)
@with_reference(golden.golden_relu_min)
def relu_min(input_tensor: Operand, lower_limit: float) -> Local:
    return _local("relu_min", lower_limit)


@_unary(cost=flops_per_element(18))
@with_reference(golden.golden_softcap)
def softcap(input_tensor: Operand, beta: float) -> Local:
    """beta * tanh(x / beta)."""
    if beta == 0:
        raise MeshError("softcap: beta must not be 0.")
    return _local("softcap", beta)


@_unary(cost=flops_per_element(10))
@with_reference(golden.golden_logit)
def logit(input_tensor: Operand, *, eps: float | None = None) -> Local:
    """log(x / (1 - x)), of x clamped to [eps, 1 - eps] where eps is given."""
    if input_tensor.dtype is DataType.BFLOAT16:
        return Local(lambda x: _logit_in_bfloat16(x, eps))
    return _local("logit", eps)


@_unary(cost=flops_per_element(12))
@with_reference(golden.golden_xielu)
def xielu(input_tensor: Operand, *, alpha_p: float = 0.8, alpha_n: float = 0.8) -> Local:
    """alpha_p x^2 + x/2 above 0, alpha_n (expm1(min(x, -1e-6)) - x) + x/2 below."""
    return _local("xielu", alpha_p, alpha_n)


@_unary(rule=rules.linear, native="")
@with_reference(golden.golden_alt_complex_rotate90)
def alt_complex_rotate90(input_tensor: Operand) -> Local:
    """Pairs (real, imaginary) along the last dim, multiplied by i."""
    if not input_tensor.rank or input_tensor.shape[-1] % 2:
        raise MeshError(
            f"alt_complex_rotate90: the last dim of {list(input_tensor.shape)} must hold pairs: an even extent."
        )
    return Local(rotate90)


@_plain(cost=flops_per_element(64))
@with_reference(golden.golden_multigammaln)
def multigammaln(input_tensor: Operand) -> Local:
    """The logarithm of the multivariate gamma function of order 4, as TT-NN has it."""
    return Local(multigammaln_function)


@_plain(native="UnaryDeviceOperation", cost=flops_per_element(32))
@with_reference(golden.golden_polygamma)
def polygamma(input_tensor: Operand, k: int) -> Local:
    """The k-th derivative of digamma, k from 1 to 10."""
    if not 1 <= k <= _MAX_POLYGAMMA:
        raise MeshError(f"polygamma: k={k} must be between 1 and {_MAX_POLYGAMMA}.")
    return _local("polygamma", k)


@_plain(cost=flops_per_element(8))
@with_reference(golden.golden_polyval)
def polyval(input_tensor_a: Operand, coeffs: Sequence[float]) -> Local:
    """The polynomial with these coefficients, that of the highest power first."""
    if not coeffs:
        raise MeshError("polyval: coeffs is empty: give one coefficient at least.")

    def compute(x: torch.Tensor) -> torch.Tensor:
        total = torch.full_like(x, coeffs[0])
        for coefficient in coeffs[1:]:
            total = total * x + coefficient
        return total

    return Local(compute)
