"""softmesh's own all_reduce, all_gather and reduce_scatter with a choice of mode: over the host, or over the fabric.

    mode="host"     read back, reduce in the order of the devices in fp32, round once, write to all
    mode="fabric"   the collective itself: at memory speed, or, with `numerics`, hop by hop along its schedule

A second API beside TT-NN's (`ttnn_collectives`): `softmesh.collectives.all_reduce` and so on, not names of TT-NN.
Results agree within one rounding of the dtype for each device that adds. Each is an operation, with the checks,
placements, warnings and commands of TT-NN's own; only the arithmetic differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, cast

import torch

from softmesh.arguments import refused
from softmesh.collectives import torch_expressions, ttnn_collectives
from softmesh.collectives.collective_operation import CollectivePlanner, collective_definition
from softmesh.collectives.collective_spec import CollectiveSpec
from softmesh.collectives.device_groups import Group
from softmesh.collectives.fabric_topology import GroupLinks, group_links
from softmesh.collectives.overload_signatures import definition_of
from softmesh.collectives.schedules.executor import run
from softmesh.collectives.schedules.generators import schedule_for
from softmesh.collectives.schedules.language import Schedule
from softmesh.diagnosis.refusal import CallRefused, refused_call
from softmesh.dispatch.call_cache import Call, bound_values
from softmesh.dispatch.definition import Arguments, Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.signature import Signature
from softmesh.errors import ArgumentError
from softmesh.hardware import Topology
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.tensor import Tensor

# The arithmetic of both modes, twins of the fast path (`torch_expressions`): member by member on the host, or hop by
# hop along a schedule. Data has the leading dims of `group.dist`; groups run side by side, as one tensor. What comes
# out is stored once where all members of a group agree. `dim` counts dims of a piece, from the front.


class Arithmetic(Protocol):
    """One way to compute the collectives of a group."""

    def gathered(self, data: torch.Tensor, dim: int) -> torch.Tensor: ...
    def summed(self, data: torch.Tensor) -> torch.Tensor: ...
    def scattered(self, data: torch.Tensor, dim: int) -> torch.Tensor: ...


class OverHost:
    """Read back, add in the order of the devices in fp32 (whole numbers exactly), write to all."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def gathered(self, data: torch.Tensor, dim: int) -> torch.Tensor:
        joined = torch.cat(list(self.group.members(data.cpu())), _from_end(data, self.group, dim))
        return _stored_once(joined, self.group).to(data.device)

    def summed(self, data: torch.Tensor) -> torch.Tensor:
        first, *others = self.group.members(data.cpu())
        total = first.to(torch.float32 if data.is_floating_point() else torch.int64)
        for member in others:
            total = total + member.to(total.dtype)
        return _stored_once(total, self.group).to(data.device)

    def scattered(self, data: torch.Tensor, dim: int) -> torch.Tensor:
        return torch_expressions.dealt(self.summed(data), self.group, dim)


class Stepwise:
    """`numerics="chip"` rounds each partial sum to the dtype as it is formed, as the chip does.

    `"fp32"` lets them travel in fp32 and rounds once.
    """

    def __init__(self, group: Group, ways: GroupLinks, dtype: DataType, numerics: str) -> None:
        self.group = group
        self.ways = ways
        self.rounding = _hop_rounding(dtype)
        self.travels = torch.float32 if numerics == "fp32" else None

    def gathered(self, data: torch.Tensor, dim: int) -> torch.Tensor:
        held = run(self._schedule("all_gather"), [[member] for member in self.group.members(data)])
        pieces = [held[0, piece] for piece in range(self.group.size)]
        return _stored_once(torch.cat(pieces, _from_end(data, self.group, dim)), self.group)

    def summed(self, data: torch.Tensor) -> torch.Tensor:
        schedule = self._schedule("all_reduce")
        members = self.group.members(data)
        held = self._run(schedule, [list(m.reshape(-1).tensor_split(schedule.pieces)) for m in members])
        total = torch.cat([held[0, piece] for piece in range(schedule.pieces)])
        return _stored_once(total.reshape(members[0].shape), self.group)

    def scattered(self, data: torch.Tensor, dim: int) -> torch.Tensor:
        at = _from_end(data, self.group, dim)
        chunks = [list(member.chunk(self.group.size, at)) for member in self.group.members(data)]
        held = self._run(self._schedule("reduce_scatter"), chunks)
        own = torch.stack([held[device, device] for device in range(self.group.size)])
        return _one_each(own, self.group)

    def _schedule(self, name: str) -> Schedule:
        return schedule_for(name, self.ways.shape, self.ways.wraps, self.ways.links)

    def _run(self, schedule: Schedule, inputs: list[list[torch.Tensor]]) -> dict[tuple[int, int], torch.Tensor]:
        return run(schedule, inputs, accumulate=self.travels, round_to=self.rounding)


def _stored_once(values: torch.Tensor, group: Group) -> torch.Tensor:
    """Back under the leading dims of the group, with extent 1 along it."""
    for axis in sorted(group.axes):
        values = values.unsqueeze(axis)
    return values


def _one_each(values: torch.Tensor, group: Group) -> torch.Tensor:
    """Back under the leading dims of the group, from one value for each member, in front."""
    spread_out = values.reshape(*group.extents, *values.shape[1:])
    return spread_out.movedim(tuple(range(len(group.axes))), group.axes).contiguous()


def _from_end(data: torch.Tensor, group: Group, dim: int) -> int:
    return group.lead + dim - data.ndim


def _hop_rounding(dtype: DataType) -> Callable[[torch.Tensor], torch.Tensor]:
    """Block floats travel as bfloat16; everything else as itself."""
    storage = facts(dtype).storage
    if facts(dtype).is_block:
        return lambda values: values.to(torch.bfloat16).to(storage)
    return lambda values: values.to(storage)


_MODES = ("host", "fabric")
_NUMERICS = ("chip", "fp32")


class OperandOnMesh(Operand):
    """An operand whose way over the links of its mesh matters to its values. Lives as long as the planning."""

    tensor: Tensor


class _ModePlanner(CollectivePlanner):
    def _operand(self, name: str, value: Any) -> Any:
        plain = super()._operand(name, value)
        if not isinstance(value, Tensor):
            return plain
        operand = OperandOnMesh(*plain)
        operand.tensor = value
        return operand


class _ByMode(Operation):
    """The fabric without `numerics` is TT-NN's own collective; the rest is planned here."""

    def __init__(self, definition: Definition, own: Operation) -> None:
        super().__init__(definition)
        self._own = own

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call | None) -> Any:
        given = self._bound(args, kwargs)
        tensor, mode, numerics = given.pop("tensor"), given.pop("mode"), given.pop("numerics")
        if isinstance(mode, str) and mode == "fabric" and numerics is None:
            try:
                return self._own(tensor, **{name: value for name, value in given.items() if value is not None})
            except CallRefused as error:
                cause = cast(ArgumentError, error.__cause__)
                raise refused_call(self.__name__, self._signature, cause, args, kwargs) from error
        device = tensor.device()
        if _is_over_host([mode]) and device is not None and device.is_open:
            device.note_read(self.__name__, None, blocking=True)
            device.note_write(self.__name__, None)
            call = None  # what it reads and writes is noted each time
        return super().invoke(args, kwargs, call)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = dict(zip(self._signature.names, bound_values(self.definition, args, kwargs), strict=True))
        if not isinstance(given["tensor"], Tensor):
            raise refused(
                self.name,
                f"it needs a ttnn.Tensor, got {type(given['tensor']).__name__}. Make one with "
                "ttnn.from_torch(..., device=mesh_device)",
            )
        return given


def _mode_second(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """A mode in second place is the mode, also where `dim` is expected, which is then the third."""
    if signature.names[1] == "mode" or "mode" in kwargs or len(args) < 2:
        return args, kwargs
    tensor, mode, *others = args
    if not (isinstance(mode, str) and mode in _MODES):
        return args, kwargs
    if others:
        return (tensor, others[0], mode, *others[1:]), kwargs
    return (tensor,), {**kwargs, "mode": mode}


def _is_over_host(values: list[Any]) -> bool:
    return any(isinstance(value, str) and value == "host" for value in values)


def _by_mode(own: Operation) -> Callable[[Callable[..., CollectiveSpec]], _ByMode]:
    def make(define: Callable[..., CollectiveSpec]) -> _ByMode:
        name = f"collectives.{define.__name__}"
        definition = collective_definition(
            name,
            own.definition.kind,
            define,
            Signature(name, define, [], []),
            planner=_ModePlanner,
            rearrange=_mode_second,
            over_host=_is_over_host,
            namespace="softmesh",
        )
        return _ByMode(definition, own)

    return make


@_by_mode(ttnn_collectives.all_reduce)
def all_reduce(
    tensor: Operand,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> CollectiveSpec:
    """The sum over a group. `numerics="chip"` rounds at each hop of the schedule, "fp32" once at its end."""
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = definition_of(ttnn_collectives.all_reduce)(tensor, cluster_axis=cluster_axis)
    return _computed(plain, mode, lambda group: arithmetic(group).summed)


@_by_mode(ttnn_collectives.all_gather)
def all_gather(
    tensor: Operand,
    dim: int = 0,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> CollectiveSpec:
    """Every member's piece, side by side along `dim`. `all_gather(tensor, "host", dim)` is understood, too."""
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = definition_of(ttnn_collectives.all_gather)(tensor, dim, cluster_axis=cluster_axis)
    at = dim % tensor.rank
    return _computed(plain, mode, lambda group: _along(arithmetic(group).gathered, at))


@_by_mode(ttnn_collectives.reduce_scatter)
def reduce_scatter(
    tensor: Operand,
    dim: int,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> CollectiveSpec:
    """To each member its chunk, along `dim`, of the sum over the group."""
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = definition_of(ttnn_collectives.reduce_scatter)(tensor, dim, cluster_axis=cluster_axis)
    at = dim % tensor.rank
    return _computed(plain, mode, lambda group: _along(arithmetic(group).scattered, at))


def _arithmetic(
    tensor: Operand, mode: str, numerics: str | None, topology: Topology | None, num_links: int | None
) -> Callable[[Group], Arithmetic]:
    """How a group computes, once it is known."""
    if mode not in _MODES:
        raise refused(tensor.op, f"mode must be 'host' or 'fabric', got {mode!r}")
    if numerics is not None and numerics not in _NUMERICS:
        raise refused(tensor.op, f"numerics must be 'chip' or 'fp32', got {numerics!r}")
    if mode == "host":
        _refuse_links(tensor.op, {"numerics": numerics, "topology": topology, "num_links": num_links})
        return OverHost
    assert numerics is not None  # else it is TT-NN's own
    sent = cast(OperandOnMesh, tensor).tensor
    return lambda group: Stepwise(group, group_links(group, sent, topology, num_links), tensor.dtype, numerics)


def _refuse_links(op: str, wishes: dict[str, object]) -> None:
    for name, wish in wishes.items():
        if wish is not None:
            why = "adds in fp32 and rounds once" if name == "numerics" else "reads back and writes"
            raise refused(op, f"{name} is about the hops of a fabric; mode='host' uses no links: it {why}")


def _along(compute: Callable[[torch.Tensor, int], torch.Tensor], dim: int) -> Callable[..., torch.Tensor]:
    return lambda data: compute(data, dim)


def _computed(
    plain: CollectiveSpec, mode: str, arithmetic: Callable[[Group], Callable[..., torch.Tensor]]
) -> CollectiveSpec:
    """The collective itself, with another arithmetic."""
    return replace(
        plain,
        move=lambda group: replace(plain.move(group), compute=arithmetic(group)),
        needs_fabric=mode != "host",
    )
