"""Activations fused into other ops: by name ("gelu"), by UnaryOpType, or with parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, did_you_mean
from softmesh.hardware import GeluVariant, UnaryOpType, UnaryWithParam
from softmesh.ops.parametric import PARAMETRIC, rotate90
from softmesh.ops.unary import UNARY, gelu_function
from softmesh.placement import rules

Activation = str | UnaryOpType | UnaryWithParam

_SIMPLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: entry.function for name, entry in UNARY.items()},
    **{
        name: PARAMETRIC[name]
        for name in ("celu", "elu", "hardshrink", "hardtanh", "logit", "softplus", "softshrink")
    },
    "alt_complex_rotate90": rotate90,
    "gelu": gelu_function(GeluVariant.Accurate),
    "gelu_approx": gelu_function(GeluVariant.Tanh),
    "gelu_tanh": gelu_function(GeluVariant.Tanh),
    "sigmoid": torch.sigmoid,
    "recip": torch.reciprocal,
    "logical_not_unary": torch.logical_not,
    "logsigmoid": F.logsigmoid,
    "selu": F.selu,
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
    if name in PARAMETRIC and parameters:
        function = PARAMETRIC[name]
        return lambda x: function(x, *parameters)
    if name in PARAMETRIC and name not in _SIMPLE:
        raise ArgumentError(
            f"{op}: activation {activation!r} needs its number: ttnn.UnaryWithParam(ttnn.UnaryOpType.{name.upper()}, "
            "value)."
        )
    if name not in _SIMPLE:
        known = [*_SIMPLE, *PARAMETRIC]
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
            x = x.float() if x.dtype is torch.bool else x
        return x

    return run


@operation(
    cost=flops_per_element(8),
    controls="memory_config output_tensor",
    tuning="sub_core_grids",
    floats_only=True,
)
def unary_chain(input_tensor: Operand, ops_chain: Sequence[Activation]) -> Local:
    """Unary functions one after the other, with one rounding at the end."""
    chain = activations(ops_chain, "unary_chain")
    if chain is None:
        raise ArgumentError("unary_chain: ops_chain is empty: give one ttnn.UnaryWithParam at least.")
    return Local(chain, rules.elementwise)
