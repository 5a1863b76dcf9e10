"""In-place element-wise ops, which overwrite their first operand: `add_`, `multiply_`, `eq_` and the like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import Operation, operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.dispatch.roles import Role
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.elementwise.activations import Activation
from softmesh.ops.elementwise.binary import BINARY, Binary, binary_local, gelu_of_sum
from softmesh.placement import rules
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import facts

_TUNING = "fast_and_approximate_mode sub_core_grids sub_device_id"
_OPTIONS: dict[str, Any] = {"controls": "", "precision": "data", "tuning": _TUNING}

# What TT-NN calls the two operands: it has it both ways.
_BY_TENSOR = ("add", "subtract")
_BY_LETTER = (
    *("multiply", "rsub", "ldexp", "logaddexp", "logaddexp2", "squared_difference"),
    *("eq", "ne", "gt", "ge", "lt", "le", "logical_and", "logical_or", "logical_xor"),
)
_ALIASES = {"subtract": ("sub_",), "multiply": ("mul_",), "divide": ("div_",)}
IN_PLACE: dict[str, Binary] = {
    **{name: BINARY[name] for name in (*_BY_TENSOR, *_BY_LETTER)},
    "divide": Binary(torch.div, rules.dividing, steps=2),
    "bias_gelu": Binary(gelu_of_sum, steps=14),
}


def _alike(x: torch.Tensor, y: Any, has_blocks: bool) -> tuple[torch.Tensor, Any]:
    """Two dtypes as one: fp32 where one of them is a float, else the wider. One is computed in as it is.

    Of block floats fp32 too: what they are held in would round a result that is to be rounded to blocks alone.
    """
    if has_blocks:
        return x.float(), y.float() if isinstance(y, torch.Tensor) else y
    if not isinstance(y, torch.Tensor) or x.dtype is y.dtype:
        return x, y
    has_floats = x.is_floating_point() or y.is_floating_point()
    wide = torch.float32 if has_floats else max(x.dtype, y.dtype, key=lambda dtype: dtype.itemsize)
    return x.to(wide), y.to(wide)


def overwriting(local: Local, target: Operand) -> Local:
    """The same computation, rounded as the first operand's dtype does, and written over it."""
    dtype, rank = target.dtype, target.rank

    def compute(x: torch.Tensor, *others: Any) -> torch.Tensor:
        values = local.compute(x, *others)
        if rank:
            return x.copy_(round_to(values, dtype))
        return x.copy_(round_to(values.unsqueeze(-1), dtype).squeeze(-1))

    return replace(local, compute=compute)


@cache
def written_over(op: Operation) -> Operation:
    """The same op, whose result goes into its first operand."""
    plain = op.definition

    @wraps(plain.define)
    def define(**arguments: Any) -> Local:
        local, target = plain.define(**arguments), arguments[plain.signature.names[0]]
        wide = replace(local, compute=lambda *operands: local.compute(*map(_widened, operands)))
        return replace(overwriting(wide, target), dtypes=None)

    roles = {**plain.roles, plain.signature.operand_names[0]: Role.UPDATES}
    return Operation(replace(plain, define=define, precision="data", roles=roles))


def _widened(operand: Any) -> Any:
    return operand.float() if isinstance(operand, torch.Tensor) and operand.is_floating_point() else operand


def _local(op: str, entry: Binary, a: Operand, b: Value, *several: Sequence[Activation]) -> Local:
    if isinstance(b, Operand):
        shape = check_broadcast(op, [(a.name, a.shape), (b.name, b.shape)])
        if shape != a.shape:
            raise MeshError(
                f"{op}: the result {list(shape)} does not fit into {a.name} {list(a.shape)}, where it would go: "
                f"use ttnn.{op.removesuffix('_')}, which makes a new tensor."
            )
    local = binary_local(op, entry, a, b, *several)
    has_blocks = any(isinstance(one, Operand) and facts(one.dtype).is_block for one in (a, b))
    return overwriting(replace(local, compute=lambda x, y: local.compute(*_alike(x, y, has_blocks))), a)


def _by_tensor(op: str, entry: Binary) -> Callable[..., Local]:
    def define(
        input_tensor_a: Operand,
        input_tensor_b: Value,
        *,
        activations: Sequence[Activation] = (),
        input_tensor_a_activations: Sequence[Activation] = (),
        input_tensor_b_activations: Sequence[Activation] = (),
    ) -> Local:
        before = input_tensor_a_activations, input_tensor_b_activations
        return _local(op, entry, input_tensor_a, input_tensor_b, *before, activations)

    return define


def _by_letter(op: str, entry: Binary) -> Callable[..., Local]:
    def define(
        input_a: Operand,
        input_b: Value,
        *,
        activations: Sequence[Activation] = (),
        input_tensor_a_activations: Sequence[Activation] = (),
        input_tensor_b_activations: Sequence[Activation] = (),
    ) -> Local:
        before = input_tensor_a_activations, input_tensor_b_activations
        return _local(op, entry, input_a, input_b, *before, activations)

    return define


def _register(name: str, entry: Binary) -> None:
    op = f"{name}_"
    is_by_tensor = name in _BY_TENSOR
    define = (_by_tensor if is_by_tensor else _by_letter)(op, entry)
    define.__doc__ = f"{name} of both, written into the first; returns it."
    written = "input_tensor_a" if is_by_tensor else "input_a"
    cost = flops_per_element(entry.steps)
    names: dict[str, Any] = {"same_as": name, "native": "BinaryNgDeviceOperation", "aliases": _ALIASES.get(name, ())}
    operation(op, kind=entry.kind, rule=entry.rule, cost=cost, updates=written, **names, **_OPTIONS)(define)


for _name, _entry in IN_PLACE.items():
    _register(_name, _entry)


@operation(
    "logical_not_",
    kind=Kind.COMPARISON,
    same_as="logical_not",
    controls="memory_config",
    precision="data",
    updates="input_tensor",
)
def logical_not(input_tensor: Operand) -> Local:
    """1 where it was 0, else 0."""
    return overwriting(Local(torch.logical_not), input_tensor)
