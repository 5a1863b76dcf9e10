"""Activations fused into other ops: by name ("gelu"), by UnaryOpType, or with parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from softmesh.errors import ArgumentError, did_you_mean
from softmesh.hardware import GeluVariant, UnaryOpType, UnaryWithParam
from softmesh.ops.unary import UNARY, gelu_function

Activation = str | UnaryOpType | UnaryWithParam

_SIMPLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: entry.function for name, entry in UNARY.items()},
    "gelu": gelu_function(GeluVariant.Accurate),
    "gelu_approx": gelu_function(GeluVariant.Tanh),
    "gelu_tanh": gelu_function(GeluVariant.Tanh),
    "sigmoid": torch.sigmoid,
    "recip": torch.reciprocal,
}
_WITH_PARAMETER: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "power": torch.pow,
    "relu_max": lambda x, limit: x.clamp(0, limit),
    "relu_min": lambda x, limit: x.clamp_min(limit),
    "rsub": lambda x, value: value - x,
    "add_unary_sfpu": torch.add,
    "sub_unary_sfpu": torch.sub,
    "mul_unary_sfpu": torch.mul,
    "div_unary_sfpu": torch.div,
}


def activation_function(activation: Activation, op: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The torch function, or an error that names the nearest known activation."""
    parameters: Sequence[float] = ()
    if isinstance(activation, UnaryWithParam):
        name, parameters = activation.op_type.name.lower(), activation.params
    elif isinstance(activation, UnaryOpType):
        name = activation.name.lower()
    else:
        name = str(activation)
    if name in _WITH_PARAMETER and parameters:
        with_parameter, value = _WITH_PARAMETER[name], parameters[0]
        return lambda x: with_parameter(x, value)
    if name not in _SIMPLE:
        known = [*_SIMPLE, *_WITH_PARAMETER]
        raise ArgumentError(f"{op}: activation {activation!r} is not known.{did_you_mean(name, known)}")
    return _SIMPLE[name]


def activations(several: Sequence[Activation], op: str) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """One after the other; None where there are none."""
    functions = [activation_function(one, op) for one in several]
    if not functions:
        return None

    def run(x: torch.Tensor) -> torch.Tensor:
        for function in functions:
            x = function(x)
        return x

    return run
