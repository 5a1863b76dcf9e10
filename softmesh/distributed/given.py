"""One call of a unified op, seen whole: the plain op of that name on one device that held it all.

A unified op means what the plain op means on whole values. So the plain op checks the arguments, before anything is
moved, and tells the shape, dtype and layout of the result; what is left to say is how the work can be split.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from softmesh.distributed.layouts import Extents, Layout, Value, described
from softmesh.distributed.operands import is_respelled, layout_of, value_of
from softmesh.errors import ArgumentError, NotModelled, SoftmeshError
from softmesh.ops.operand import Operand
from softmesh.ops.plan import Local
from softmesh.ops.planning import Planner
from softmesh.ops.registry import Operation
from softmesh.ops.remote import form_only
from softmesh.perf.link_costs import Line
from softmesh.placement.distribution import HOST
from softmesh.runtime.device import MeshDevice
from softmesh.systems.chip import Chip
from softmesh.tensor.dtype import facts
from softmesh.tensor.memory import DRAM_MEMORY_CONFIG
from softmesh.tensor.spec import TensorSpec, make_spec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_NOWHERE = torch.device("meta")


@dataclass(frozen=True)
class Given:
    """What the description of an op sees: `operands` are the tensors, whole, in the order of the signature."""

    op: Operation
    bound: tuple[Any, ...]  # the arguments, one for each name; stand-ins for the tensors
    arguments: dict[str, Any]  # those that the definition has, tensors as whole Operands
    operands: tuple[Operand, ...]
    names: tuple[str, ...]  # of the operands
    values: tuple[Value, ...]
    layouts: tuple[Layout, ...]  # sizes of uneven splits included
    respelled: tuple[bool, ...]  # operands whose leading dims are not the mesh's axes
    results: tuple[TensorSpec, ...]
    container: type | None  # of several results
    local: Local
    mesh: Extents
    chip: Chip
    lines: tuple[Line, ...]

    @property
    def result(self) -> TensorSpec:
        return self.results[0]

    @property
    def shape(self) -> Extents:
        """Of the whole result."""
        return tuple(self.results[0].shape)

    def plain(self, **instead: Any) -> Callable[..., Any]:
        """The plain op as it was called, to be given tensors; `instead` changes arguments by name."""
        return _caller(self.op, self.bound, instead)


class _Rehearsal(Planner):
    """A call planned on stand-ins: the values of none are looked at."""

    def _operand(self, name: str, value: Any) -> Any:
        found = super()._operand(name, value)
        return found._replace(on_host=False) if isinstance(found, Operand) else found

    def _computation(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        return form_only(compute)

    def described(self) -> dict[str, Any]:
        return self._described()


def given_of(op: Operation, bound: list[Any], device: MeshDevice, lines: tuple[Line, ...]) -> Given:
    signature, mesh = op.definition.signature, tuple(device.shape)
    _check_can_be_unified(op, bound)
    tensors, names = tensors_of(op, bound)
    layouts = tuple(layout_of(op.name, tensor) for tensor in tensors)
    values = tuple(value_of(tensor, layout, mesh) for tensor, layout in zip(tensors, layouts, strict=True))
    stand_ins = [_stand_in(t, v.shape) for t, v in zip(tensors, values, strict=True)]
    waiting = iter(stand_ins)
    whole = list(bound)
    for at in signature.operand_at:
        whole[at] = _with_tensors(bound[at], waiting)
    data = [stand.view_data() if isinstance(stand, Tensor) else stand for stand in _flat(signature, whole)]
    rehearsal = _Rehearsal(op.definition, whole, stand_ins, data, None)
    try:
        plan, _ = rehearsal.build()
    except SoftmeshError as error:
        held = "; ".join(
            f"{name} {list(v.shape)} ({described(layout)})"
            for name, v, layout in zip(names, values, layouts, strict=True)
        )
        raise type(error)(f"{error} distributed.{op.name} got the whole values {held}.") from error
    arguments = rehearsal.described()
    return Given(
        op,
        tuple(whole),
        arguments,
        tuple(Operand(op.name, name, t.spec) for name, t in zip(names, stand_ins, strict=True)),
        names,
        values,
        layouts,
        tuple(map(is_respelled, tensors)),
        tuple(output.spec for output in plan.outputs),
        plan.container,
        op.definition.define(**arguments),
        mesh,
        device.system.chip,
        lines,
    )


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


def _flat(signature: Any, values: Sequence[Any]) -> list[Any]:
    """The operands as the registry counts them."""
    found: list[Any] = []
    for at in signature.operand_at:
        found += values[at] if isinstance(values[at], list | tuple) else [values[at]]
    return found


def _with_tensors(value: Any, stand_ins: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_tensors(item, stand_ins) for item in value]
    return next(stand_ins) if isinstance(value, Tensor) else value


def _stand_in(tensor: Tensor, shape: Extents) -> Tensor:
    """A tensor of the whole shape on the host, without values."""
    spec = make_spec(shape, tensor.dtype, tensor.layout, DRAM_MEMORY_CONFIG, tensor.tile)
    data = torch.empty((1,) * HOST.lead + shape, dtype=facts(tensor.dtype).storage, device=_NOWHERE)
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
            f"distributed.{op.name}: where its result lies is part of the plan: leave {op.definition.signature.names[at]} "
            "out, and ask for a placement with output_topology."
        )


def _caller(op: Operation, bound: Sequence[Any], instead: dict[str, Any]) -> Callable[..., Any]:
    """`op` with all but its tensors bound: leading tensors by position, others by name."""
    signature = op.definition.signature
    lead = 0
    while lead < signature.positional and isinstance(bound[lead], Tensor):
        lead += 1
    names = signature.names
    others = {name: value for name, value in zip(names[lead:], bound[lead:], strict=True)}
    others |= instead
    defaults = dict(zip(names, signature.defaults, strict=True))
    fixed = {
        name: value
        for name, value in others.items()
        if value is not inspect.Parameter.empty and not (value is defaults[name] and name not in instead)
    }
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
