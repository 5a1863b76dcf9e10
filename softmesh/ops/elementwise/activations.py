"""Activations: fused into other ops by name ("gelu") or UnaryOpType; `unary_chain`; gated linear units (GLU)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError, did_you_mean
from softmesh.hardware import GeluVariant, UnaryOpType, UnaryWithParam
from softmesh.kinds import Kind
from softmesh.ops.elementwise.unary import PARAMETRIC, UNARY, gelu_function, rotate90
from softmesh.ops.golden import golden_composite as golden
from softmesh.ops.golden import golden_elementwise
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.dtype import TILE_SIZE

Activation = str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]

_SIMPLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: entry.function for name, entry in UNARY.items()},
    **{name: PARAMETRIC[name] for name in ("celu", "elu", "hardshrink", "hardtanh", "logit", "softplus", "softshrink")},
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


# Those that torch computes in one kernel, which takes bfloat16, computes in fp32 and rounds once.
ONE_KERNEL: dict[Callable[[torch.Tensor], torch.Tensor], str] = {
    gelu_function(GeluVariant.Accurate): "gelu",
    gelu_function(GeluVariant.Tanh): "gelu_tanh",
    F.silu: "silu",
    torch.relu: "relu",
    torch.sigmoid: "sigmoid",
    torch.tanh: "tanh",
}


def activation_function(activation: Activation, op: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The torch function, or an error that names the nearest known activation."""
    parameters: Sequence[float] = ()
    if isinstance(activation, str):
        name = activation
    else:
        known = UnaryWithParam.of(activation)
        name, parameters = known.op_type.name.lower(), known.params
    if name == "gelu" and parameters:
        return gelu_function(GeluVariant(int(parameters[0])))
    if name in PARAMETRIC and parameters:
        function = PARAMETRIC[name]
        return lambda x: function(x, *parameters)
    if name in PARAMETRIC and name not in _SIMPLE:
        raise ArgumentError(
            f"{op}: activation {activation!r} needs its number: ttnn.UnaryWithParam(ttnn.UnaryOpType.{name.upper()}, "
            "value)."
        )
    if name not in _SIMPLE:
        names = [*_SIMPLE, *PARAMETRIC]
        raise ArgumentError(f"{op}: activation {activation!r} is not known.{did_you_mean(name, names)}")
    return _SIMPLE[name]


def activations(several: Sequence[Activation], op: str) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """One after the other; None where there are none."""
    functions = [activation_function(one, op) for one in several]
    if not functions:
        return None
    if len(functions) == 1 and functions[0] in ONE_KERNEL:
        return functions[0]

    def run(x: torch.Tensor) -> torch.Tensor:
        for function in functions:
            x = function(x)
            x = x.float() if x.dtype is torch.bool else x
        return x

    return run


@operation(
    kind=Kind.ELEMENTWISE,
    native="UnaryDeviceOperation",
    cost=flops_per_element(8),
    controls="memory_config output_tensor",
    tuning="sub_core_grids",
    floats_only=True,
)
@with_reference(golden_elementwise.golden_unary_chain)
def unary_chain(input_tensor: Operand, ops_chain: Sequence[Activation]) -> Local:
    """Unary functions one after the other, with one rounding at the end."""
    chain = activations(ops_chain, "unary_chain")
    if chain is None:
        raise ArgumentError("unary_chain: ops_chain is empty: give one ttnn.UnaryWithParam at least.")
    return Local(chain)


# -- gated linear units: the first half of a dim times a function of the second half ----------------


GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "glu": torch.sigmoid,
    "reglu": torch.relu,
    "swiglu": F.silu,
}


@operation(
    kind=Kind.ELEMENTWISE,
    part_work=part_work.CUTS_PIECES,
    cost=flops_per_element(24),
    controls="memory_config",
    tuning="sub_core_grids sub_device_id",
    floats_only=True,
)
@with_reference(golden.situ_glu)
def situ_glu(gate: Operand, up: Operand, beta1: float, beta2: float) -> Local:
    """beta1 tanh(gate / beta1) sigmoid(gate) beta2 tanh(up / beta2): a gate and what it lets pass, both bounded."""
    if not beta1 or not beta2:
        raise MeshError(f"situ_glu: beta1={beta1} and beta2={beta2} divide, and must not be 0.")

    def compute(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return beta1 * torch.tanh(g / beta1) * torch.sigmoid(g) * beta2 * torch.tanh(u / beta2)

    return Local(compute, broadcast_rank=max(gate.rank, up.rank))


@placed("Split as the operand is; split along the halved dim, Local.")
def _gated(op: str, operand: Operand, dim: int, gate: Callable[[torch.Tensor], torch.Tensor]) -> Local:
    last = operand.rank - 1
    if operand.dim(dim) != last:
        raise MeshError(
            f"last dim GLU only supported at this time: {op} got dim={dim} for {list(operand.shape)}: bring the dim to "
            "the end with ttnn.transpose."
        )
    if operand.shape[last] // 2 % TILE_SIZE or operand.shape[last] % 2:
        raise MeshError(
            f"Split tensor dimension should be in full tile: {op} of {list(operand.shape)} needs halves of whole tiles "
            f"of {TILE_SIZE}."
        )

    def compute(x: torch.Tensor) -> torch.Tensor:
        values, gates = x.chunk(2, -1)
        return values * gate(gates)

    @rules.labelled(dim_labels.moved(lambda dim: None if dim == last else dim, passes=""))
    def rule(at: rules.Situation) -> rules.Placement:
        rules.refuse_partial(at)
        return rules.LOCAL if isinstance(at.word, rules.Shard) and at.word.dim == last else at.word

    return Local(compute, rule)


def _register(name: str, gate: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def define(input_tensor: Operand, dim: int = -1) -> Local:
        return _gated(name, input_tensor, dim, gate)

    with_reference(golden.gated(gate))(define)
    define.__doc__ = "The first half of the last dim, gated by the second. TT-NN also rounds the gate by itself."
    operation(
        name,
        kind=Kind.ELEMENTWISE,
        rule=_gated,
        part_work=part_work.CUTS_PIECES,
        cost=flops_per_element(9),
        controls="memory_config",
        floats_only=True,
        cuts_columns=True,
    )(define)


for _name, _gate in GATES.items():
    _register(_name, _gate)


@operation(
    kind=Kind.ELEMENTWISE,
    rule=_gated,
    part_work=part_work.CUTS_PIECES,
    cost=flops_per_element(13),
    controls="memory_config",
    floats_only=True,
    cuts_columns=True,
)
@with_reference(golden.geglu)
def geglu(input_tensor: Operand, dim: int = -1, *, variant: GeluVariant = GeluVariant.Accurate) -> Local:
    """The first half of the last dim times gelu of the second; `variant` as in gelu."""
    return _gated("geglu", input_tensor, dim, gelu_function(variant))
