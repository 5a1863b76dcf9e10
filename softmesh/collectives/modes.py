"""Collectives by two ways: over the host, or over the fabric.

    mode="host"     read back, reduce in the order of the devices in fp32, round once, write to all
    mode="fabric"   the collective itself: at memory speed, or, with `numerics`, hop by hop

Results agree within one rounding of the dtype for each device that adds. Each is an operation, with the checks,
placements, warnings and commands of TT-NN's own; only the arithmetic differs. They are not names of TT-NN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch

from softmesh.arguments import refused
from softmesh.collectives import core
from softmesh.collectives.across import Across
from softmesh.collectives.choice import ways_of
from softmesh.collectives.collective import collective_definition
from softmesh.collectives.groups import Group
from softmesh.collectives.planning import CollectivePlanner
from softmesh.collectives.spelling import across
from softmesh.collectives.stepwise import Arithmetic, OverHost, Stepwise
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.compiled_call import bound_values
from softmesh.dispatch.definition import Arguments, Definition
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.refusal import CallRefused, refused_call
from softmesh.dispatch.signature import Signature
from softmesh.errors import ArgumentError
from softmesh.hardware import Topology
from softmesh.tensor.tensor import Tensor

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
                return self._own(
                    tensor, **{name: value for name, value in given.items() if value is not None}
                )
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


def _by_mode(own: Operation) -> Callable[[Callable[..., Across]], _ByMode]:
    def make(define: Callable[..., Across]) -> _ByMode:
        name = f"collectives.{define.__name__}"
        definition = collective_definition(
            name,
            define,
            Signature(name, define, [], []),
            planner=_ModePlanner,
            rearrange=_mode_second,
            over_host=_is_over_host,
            namespace="softmesh",
        )
        return _ByMode(definition, own)

    return make


@_by_mode(core.all_reduce)
def all_reduce(
    tensor: Operand,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Across:
    """The sum over a group. `numerics="chip"` rounds at each hop of the schedule, "fp32" once at its end."""
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = across(core.all_reduce)(tensor, cluster_axis=cluster_axis)
    return _computed(plain, mode, lambda group: arithmetic(group).summed)


@_by_mode(core.all_gather)
def all_gather(
    tensor: Operand,
    dim: int = 0,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Across:
    """Every member's piece, side by side along `dim`. `all_gather(tensor, "host", dim)` is understood, too."""
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = across(core.all_gather)(tensor, dim, cluster_axis=cluster_axis)
    at = dim % tensor.rank
    return _computed(plain, mode, lambda group: _along(arithmetic(group).gathered, at))


@_by_mode(core.reduce_scatter)
def reduce_scatter(
    tensor: Operand,
    dim: int,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Across:
    """To each member its chunk, along `dim`, of the sum over the group."""
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = across(core.reduce_scatter)(tensor, dim, cluster_axis=cluster_axis)
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
    return lambda group: Stepwise(group, ways_of(group, sent, topology, num_links), tensor.dtype, numerics)


def _refuse_links(op: str, wishes: dict[str, object]) -> None:
    for name, wish in wishes.items():
        if wish is not None:
            why = "adds in fp32 and rounds once" if name == "numerics" else "reads back and writes"
            raise refused(op, f"{name} is about the hops of a fabric; mode='host' uses no links: it {why}")


def _along(compute: Callable[[torch.Tensor, int], torch.Tensor], dim: int) -> Callable[..., torch.Tensor]:
    return lambda data: compute(data, dim)


def _computed(plain: Across, mode: str, arithmetic: Callable[[Group], Callable[..., torch.Tensor]]) -> Across:
    """The collective itself, with another arithmetic."""
    return replace(
        plain,
        move=lambda group: replace(plain.move(group), compute=arithmetic(group)),
        needs_fabric=mode != "host",
    )
