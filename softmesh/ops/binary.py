"""Element by element, two in, with broadcasting; either may be a number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.errors import ArgumentError, ArgumentValueError
from softmesh.ops.activation import Activation, activations
from softmesh.placement import rules

BinaryFunction = Callable[[Any, Any], torch.Tensor]
_TUNING = "fast_and_approximate_mode sub_core_grids sub_device_id use_legacy"


class Binary(NamedTuple):
    function: BinaryFunction
    rule: rules.Rule = rules.elementwise
    steps: int = 1
    aliases: tuple[str, ...] = ()
    integer: bool = False  # wants whole numbers
    other: str | None = None  # what TT-NN calls the second where it is a number


def _tensor(value: Any, like: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=like.dtype if like.is_floating_point() else None, device=like.device)


def _tensors(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> BinaryFunction:
    """For torch functions that take no number: make the number a tensor first."""
    return lambda a, b: function(_tensor(a, b), _tensor(b, a))


def _wide(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> BinaryFunction:
    """For what takes several torch calls: widen first, round once at the end."""
    return _tensors(lambda a, b: function(a.float(), b.float()))


def _right_shift_logical(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    bits = a.element_size() * 8
    return torch.bitwise_right_shift(a.long() & (2**bits - 1), b.long()).to(a.dtype)


BINARY: dict[str, Binary] = {
    "add": Binary(operator.add, rules.additive),
    "subtract": Binary(operator.sub, rules.additive, aliases=("sub",)),
    "multiply": Binary(operator.mul, rules.multiplicative, aliases=("mul",)),
    "rsub": Binary(lambda a, b: b - a, rules.additive, other="input_b"),
    "eq": Binary(_tensors(torch.eq)),
    "ne": Binary(_tensors(torch.ne)),
    "gt": Binary(_tensors(torch.gt)),
    "ge": Binary(_tensors(torch.ge)),
    "lt": Binary(_tensors(torch.lt)),
    "le": Binary(_tensors(torch.le)),
    "logical_and": Binary(_tensors(torch.logical_and)),
    "logical_or": Binary(_tensors(torch.logical_or)),
    "logical_xor": Binary(_tensors(torch.logical_xor)),
    "maximum": Binary(_tensors(torch.maximum), other="input_b"),
    "minimum": Binary(_tensors(torch.minimum), other="input_b"),
    "squared_difference": Binary(_wide(lambda a, b: (a - b).square()), steps=2),
    "remainder": Binary(_tensors(torch.remainder), steps=4),
    "fmod": Binary(_tensors(torch.fmod), steps=4, other="scalar"),
    "atan2": Binary(_tensors(torch.atan2), steps=16),
    "hypot": Binary(_tensors(torch.hypot), steps=6),
    "logaddexp": Binary(_wide(torch.logaddexp), steps=20),
    "logaddexp2": Binary(_wide(torch.logaddexp2), steps=20),
    "xlogy": Binary(_wide(torch.xlogy), steps=10),
    "ldexp": Binary(_wide(lambda a, b: a * torch.exp2(b)), steps=9),
    "gcd": Binary(_tensors(torch.gcd), steps=32, integer=True),
    "lcm": Binary(_tensors(torch.lcm), steps=32, integer=True),
    "bitwise_and": Binary(operator.and_, integer=True, other="input_b"),
    "bitwise_or": Binary(operator.or_, integer=True, other="input_b"),
    "bitwise_xor": Binary(operator.xor, integer=True, other="input_b"),
    "bitwise_left_shift": Binary(operator.lshift, integer=True, other="input_b"),
    "bitwise_right_shift": Binary(operator.rshift, integer=True, other="input_b"),
    "logical_left_shift": Binary(operator.lshift, integer=True, other="input_b"),
    "logical_right_shift": Binary(_tensors(_right_shift_logical), integer=True),
}


def broadcast_rank(op: str, *values: object) -> int:
    return len(check_broadcast(op, [(v.name, v.shape) for v in values if isinstance(v, Operand)]))


def binary_local(
    op: str,
    entry: Binary,
    a: Value,
    b: Value,
    before_a: Sequence[Activation] = (),
    before_b: Sequence[Activation] = (),
    after: Sequence[Activation] = (),
) -> Local:
    for operand in (a, b):
        if entry.integer and isinstance(operand, Operand) and operand.is_float:
            raise ArgumentError(f"{op}: {operand.name} must hold integers, got {operand.dtype}")
    rank = broadcast_rank(op, a, b)
    first, second, last = (activations(several, op) for several in (before_a, before_b, after))
    if first is None and second is None and last is None:
        return Local(entry.function, entry.rule, broadcast_rank=rank)

    def compute(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.float() if first is None and isinstance(x, torch.Tensor) else x
        result = entry.function(x if first is None else first(x), y if second is None else second(y))
        return result if last is None else last(result.float())

    return Local(compute, rules.elementwise, broadcast_rank=rank)


def _register(name: str, entry: Binary) -> None:
    def define(
        input_tensor_a: Value,
        input_tensor_b: Value,
        *,
        activations: Sequence[Activation] = (),
        input_tensor_a_activations: Sequence[Activation] = (),
        input_tensor_b_activations: Sequence[Activation] = (),
    ) -> Local:
        return binary_local(
            name,
            entry,
            input_tensor_a,
            input_tensor_b,
            input_tensor_a_activations,
            input_tensor_b_activations,
            activations,
        )

    define.__doc__ = f"{name}, element by element, with broadcasting."
    operation(
        name,
        cost=flops_per_element(entry.steps),
        aliases=entry.aliases,
        precision="native",
        tuning=_TUNING,
        argument_aliases=None if entry.other is None else {entry.other: "input_tensor_b"},
    )(define)


for _name, _entry in BINARY.items():
    _register(_name, _entry)

_ROUNDING = (None, "trunc", "floor")


@operation(
    cost=flops_per_element(2),
    aliases=("divide",),
    precision="native",
    tuning=_TUNING,
    argument_aliases={"value": "input_tensor_b"},
)
def div(
    input_tensor_a: Value,
    input_tensor_b: Value,
    *,
    rounding_mode: str | None = None,
    activations: Sequence[Activation] = (),
    input_tensor_a_activations: Sequence[Activation] = (),
    input_tensor_b_activations: Sequence[Activation] = (),
) -> Local:
    """a / b; `rounding_mode` "trunc" or "floor" rounds the quotient."""
    if rounding_mode not in _ROUNDING:
        raise ArgumentValueError(f"div: rounding_mode must be one of {_ROUNDING}, got {rounding_mode!r}")
    rule = rules.dividing if rounding_mode is None else rules.elementwise
    entry = Binary(lambda a, b: torch.div(_tensor(a, b), b, rounding_mode=rounding_mode), rule)
    before = input_tensor_a_activations, input_tensor_b_activations
    return binary_local("div", entry, input_tensor_a, input_tensor_b, *before, activations)


@operation(cost=flops_per_element(2), precision="native", tuning=_TUNING)
def rdiv(input_tensor: Operand, value: Value, *, rounding_mode: str | None = None) -> Local:
    """value / input."""
    if rounding_mode not in _ROUNDING:
        raise ArgumentValueError(f"rdiv: rounding_mode must be one of {_ROUNDING}, got {rounding_mode!r}")
    entry = Binary(lambda a, b: torch.div(_tensor(b, a), a, rounding_mode=rounding_mode))
    return binary_local("rdiv", entry, input_tensor, value)


@operation("pow", cost=flops_per_element(16), precision="native", tuning=_TUNING)
def power(
    input_tensor: Value,
    exponent: Value,
    *,
    activations: Sequence[Activation] = (),
    input_tensor_a_activations: Sequence[Activation] = (),
    input_tensor_b_activations: Sequence[Activation] = (),
) -> Local:
    before = input_tensor_a_activations, input_tensor_b_activations
    return binary_local("pow", Binary(torch.pow), input_tensor, exponent, *before, activations)


@operation(precision="native", tuning="sub_core_grids")
def where(predicate: Operand, true_value: Value, false_value: Value) -> Local:
    """true_value where the predicate is not 0, else false_value."""
    rank = broadcast_rank("where", predicate, true_value, false_value)
    return Local(lambda p, a, b: torch.where(p != 0, a, b), rules.elementwise, broadcast_rank=rank)
