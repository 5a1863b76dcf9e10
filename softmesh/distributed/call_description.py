"""`CallDescription`: one call of a unified op on whole values, with the shapes that the plain op infers for it.

A unified op means what the plain op means on whole values. So the plain op checks the arguments, before anything is
moved, and tells the shape, dtype and layout of the result; what is left to say is how the work can be split.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from softmesh.cost.link_costs import Line
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.plan import Local
from softmesh.dispatch.planner import Planner
from softmesh.dispatch.shape_only import form_only
from softmesh.dispatch.signature import BoundCall
from softmesh.distributed.layouts import (
    Extents,
    Layout,
    Value,
    bits,
    described,
    has_other_grid,
    layout_of,
    value_of,
)
from softmesh.errors import ArgumentError, NotModelled, SoftmeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, L1_MEMORY_CONFIG, BufferType, MemoryConfig
from softmesh.placement.distribution import HOST
from softmesh.runtime.device import MeshDevice
from softmesh.systems.chip import Chip
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.dtype import Layout as TensorLayout
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile

_NOWHERE = torch.device("meta")


@dataclass(frozen=True)
class CallDescription:
    """What the description of an op sees: `operands` are the tensors, whole, in the order of the signature."""

    name: str  # of the unified op
    op: Operation
    bound: tuple[Any, ...]  # the arguments, one for each name; stand-ins for the tensors
    arguments: dict[str, Any]  # those that the definition has, tensors as whole Operands
    operands: tuple[Operand, ...]
    names: tuple[str, ...]  # of the operands
    values: tuple[Value, ...]
    layouts: tuple[Layout, ...]  # sizes of uneven splits included
    regridded: tuple[bool, ...]  # operands whose leading dims are not the mesh's axes
    results: tuple[TensorSpec, ...]
    made: tuple[Value, ...]  # of the results
    container: type | None  # of several results
    local: Local
    mesh: Extents
    chip: Chip
    lines: tuple[Line, ...]
    is_spread: bool  # whether this process holds only a block of the mesh

    @property
    def short_names(self) -> tuple[str, ...]:
        """The names of the operands as a plan says them: `a` for `input_tensor_a`."""
        return tuple("input" if name == "input_tensor" else name.removeprefix("input_tensor_") for name in self.names)

    @property
    def result(self) -> TensorSpec:
        return self.results[0]

    @property
    def shape(self) -> Extents:
        """Of the whole result."""
        return tuple(self.results[0].shape)

    def plain(self, op: Operation | None = None, /, **instead: Any) -> Callable[..., Any]:
        """The plain op as it was called, or one with the same arguments, to be given tensors.

        `instead` changes arguments by name.
        """
        return _caller(self.op, op or self.op, self.bound, instead)


# The shape of the whole result, of a definition, its arguments and its operands; None where it must be tried.
ShapeOf = Callable[[Local, dict[str, Any], Sequence[Operand]], Extents | None]


class Form(NamedTuple):
    """What a call would make: the specs of its results, whole, and what holds several of them."""

    local: Local
    arguments: dict[str, Any]
    results: tuple[TensorSpec, ...]
    container: type | None


class _ShapeInference(Planner):
    """A call planned on stand-ins: the values of none are looked at."""

    def form(self, operands: Sequence[Operand], shape_of: ShapeOf) -> Form:
        self._check_forms()
        arguments = self._described()
        local = self.op.local(arguments)
        shape = shape_of(local, arguments, operands)
        if shape is None:  # torch takes a second to get ready for tensors without values
            plan, _ = self.build()
            return Form(local, arguments, tuple(output.spec for output in plan.outputs), plan.container)
        return Form(local, arguments, tuple(self._out_specs(local, [shape])), None)

    def _operand(self, name: str, value: Any) -> Any:
        found = super()._operand(name, value)
        return found._replace(on_host=False) if isinstance(found, Operand) else found

    def _computation(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        return form_only(compute)


def describe_call(
    called: str,
    op: Operation,
    bound: list[Any],
    device: MeshDevice,
    lines: tuple[Line, ...],
    shape_of: ShapeOf,
) -> CallDescription:
    mesh = tuple(device.shape)
    _check_can_be_unified(op, bound)
    tensors, _ = tensors_of(op, bound)
    layouts = tuple(layout_of(called, tensor) for tensor in tensors)
    values = [value_of(tensor, layout, mesh) for tensor, layout in zip(tensors, layouts, strict=True)]
    stand_ins = [
        blank_tensor(value.shape, tensor.dtype, tensor.layout, tensor.tile, _interleaved(tensor.spec))
        for tensor, value in zip(tensors, values, strict=True)
    ]
    whole = with_stand_ins(op, bound, stand_ins)
    told = describe_whole(called, op, whole, layouts, mesh, device.system.chip, lines, shape_of)
    is_spread = device.block is not None
    return replace(told, regridded=tuple(map(has_other_grid, tensors)), is_spread=is_spread)


def describe_whole(
    called: str,
    op: Operation,
    whole: list[Any],
    layouts: tuple[Layout, ...],
    mesh: Extents,
    chip: Chip,
    lines: tuple[Line, ...],
    shape_of: ShapeOf,
) -> CallDescription:
    """Of arguments whose tensors are blank and whole, as `blank_tensor` makes them; no mesh need be open."""
    tensors, names = tensors_of(op, whole)
    values = tuple(_value(tensor.spec, mesh) for tensor in tensors)
    operands = tuple(Operand(op.name, name, t.spec) for name, t in zip(names, tensors, strict=True))
    try:
        call = BoundCall(op.definition.signature, whole)
        form = _ShapeInference(op.definition, call).form(operands, shape_of)
    except SoftmeshError as error:
        held = zip(names, values, layouts, strict=True)
        told = "; ".join(f"{name} {list(v.shape)} ({described(layout)})" for name, v, layout in held)
        raise type(error)(f"{error} distributed.{called} got the whole values {told}.") from error
    return CallDescription(
        called,
        op,
        tuple(whole),
        form.arguments,
        operands,
        names,
        values,
        layouts,
        (False,) * len(tensors),
        form.results,
        tuple(_value(spec, mesh) for spec in form.results),
        form.container,
        form.local,
        mesh,
        chip,
        lines,
        False,
    )


def _value(spec: TensorSpec, mesh: Extents) -> Value:
    """Return the whole value of a stand-in, or of what is made of one: pieces of it are in L1 if it is."""
    return Value(tuple(spec.shape), bits(spec.dtype), mesh, l1_limit=sys.maxsize if _is_in_l1(spec) else 0)


def _is_in_l1(spec: TensorSpec) -> bool:
    return spec.memory_config.buffer_type is BufferType.L1


def _interleaved(spec: TensorSpec) -> MemoryConfig:
    return L1_MEMORY_CONFIG if _is_in_l1(spec) else DRAM_MEMORY_CONFIG


def with_stand_ins(op: Operation, bound: Sequence[Any], stand_ins: Sequence[Tensor]) -> list[Any]:
    """The arguments, with these in the places of their tensors."""
    waiting = iter(stand_ins)
    whole = list(bound)
    for at in op.definition.signature.operand_at:
        whole[at] = _with_tensors(bound[at], waiting)
    return whole


def tensors_of(op: Operation, bound: Sequence[Any]) -> tuple[list[Tensor], tuple[str, ...]]:
    """The tensors among the arguments, and what they are called."""
    tensors: list[Tensor] = []
    names: list[str] = []
    signature = op.definition.signature
    for at in signature.operand_at:
        several = isinstance(bound[at], list | tuple)
        for i, item in enumerate(bound[at] if several else [bound[at]]):
            if isinstance(item, Tensor):
                tensors.append(item)
                names.append(f"{signature.names[at]}[{i}]" if several else signature.names[at])
    return tensors, tuple(names)


def _with_tensors(value: Any, stand_ins: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_tensors(item, stand_ins) for item in value]
    return next(stand_ins) if isinstance(value, Tensor) else value


def blank_tensor(
    shape: Extents,
    dtype: DataType,
    layout: TensorLayout,
    tile: Tile = DEFAULT_TILE,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
) -> Tensor:
    """A tensor of the whole shape on the host, without values."""
    spec = make_spec(shape, dtype, layout, memory_config, tile)
    data = torch.empty((1,) * HOST.lead + shape, dtype=facts(dtype).storage, device=_NOWHERE)
    return Tensor.make(Storage(data, HOST, None), spec)


def _check_can_be_unified(op: Operation, bound: Sequence[Any]) -> None:
    if op.definition.writes:
        raise NotModelled(
            f"distributed.{op.name}: it changes its operand in place, and a placement that moved would be a copy: use "
            f"ttnn.{op.name} on operands that lie together."
        )
    at = op.definition.signature.output_at
    if at is not None and bound[at] is not None:
        raise ArgumentError(
            f"distributed.{op.name}: where its result lies is part of the plan: leave "
            f"{op.definition.signature.names[at]} out, and ask for a placement with output_topology."
        )


def _caller(given: Operation, op: Operation, bound: Sequence[Any], instead: dict[str, Any]) -> Callable[..., Any]:
    """`op` with all but its tensors bound as `given` was called: leading tensors by position, others by name."""
    told, own = given.definition.signature, op.definition.signature
    lead = 0
    while lead < told.positional and isinstance(bound[lead], Tensor):
        lead += 1
    fixed = {
        name: value
        for name, value, default in zip(told.names, bound, told.defaults, strict=True)
        if value is not default and name in own.names and name not in told.names[:lead]
    }
    fixed |= instead
    later = [name for name, value in fixed.items() if _holds_tensors(value)]
    if not later:
        return (lambda *tensors: op(*tensors, **fixed)) if fixed else op

    def call(*tensors: Tensor) -> Any:
        rest = iter(tensors[lead:])
        named = {name: _with_tensors(fixed[name], rest) for name in later}
        return op(*tensors[:lead], **(fixed | named))

    return call


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(item, Tensor) for item in value)
    return isinstance(value, Tensor)
