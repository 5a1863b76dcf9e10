"""Collectives by two ways: over the host, or over the fabric.

    mode="host"     read back, reduce in the order of the devices in fp32, round once, write to all
    mode="fabric"   the collective itself: at memory speed, or, with `numerics`, hop by hop

Results agree within one rounding of the dtype for each device that adds. Each is an operation, with the checks,
placements, warnings and commands of TT-NN's own; only the arithmetic differs. They are not names of TT-NN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from softmesh.arguments import knows_its_names, refused
from softmesh.collectives import core
from softmesh.collectives.choice import ways_of
from softmesh.collectives.collective import Across, Collective, CollectivePlanner
from softmesh.collectives.groups import Group
from softmesh.collectives.spelling import across
from softmesh.collectives.stepwise import Arithmetic, OverHost, Stepwise
from softmesh.hardware import Topology
from softmesh.ops.cost import moves_bytes
from softmesh.ops.definition import Definition
from softmesh.ops.operand import Operand
from softmesh.ops.signature import Signature
from softmesh.tensor.tensor import Tensor

_MODES = ("host", "fabric")
_NUMERICS = ("chip", "fp32")


@knows_its_names
def all_reduce(
    tensor: Tensor,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Tensor:
    """The sum over a group. `numerics="chip"` rounds at each hop of the schedule, "fp32" once at its end."""
    wishes = {"cluster_axis": cluster_axis, "topology": topology, "num_links": num_links}
    if _is_plain(mode, numerics):
        return _one(core.all_reduce(tensor, **wishes))
    return _one(_all_reduce(tensor, mode, numerics=numerics, **wishes))


@knows_its_names
def all_gather(
    tensor: Tensor,
    dim: int = 0,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Tensor:
    """Every member's piece, side by side along `dim`."""
    wishes = {"cluster_axis": cluster_axis, "topology": topology, "num_links": num_links}
    if _is_plain(mode, numerics):
        return _one(core.all_gather(tensor, dim, **wishes))
    return _one(_all_gather(tensor, dim, mode, numerics=numerics, **wishes))


@knows_its_names
def reduce_scatter(
    tensor: Tensor,
    dim: int,
    mode: str = "fabric",
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Tensor:
    """To each member its chunk, along `dim`, of the sum over the group."""
    wishes = {"cluster_axis": cluster_axis, "topology": topology, "num_links": num_links}
    if _is_plain(mode, numerics):
        return _one(core.reduce_scatter(tensor, dim, **wishes))
    return _one(_reduce_scatter(tensor, dim, mode, numerics=numerics, **wishes))


def _is_plain(mode: object, numerics: object) -> bool:
    return isinstance(mode, str) and mode == "fabric" and numerics is None


def _one(result: Any) -> Tensor:
    assert isinstance(result, Tensor)
    return result


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


class _ByMode(Collective):
    planner = _ModePlanner


def _by_mode(define: Callable[..., Across]) -> _ByMode:
    name = f"collectives.{define.__name__.removeprefix('_')}"
    signature = Signature(name, define, [], [])
    return _ByMode(Definition(name, define, signature, moves_bytes, "data"))  # type: ignore[arg-type]


@_by_mode
def _all_reduce(
    tensor: OperandOnMesh,
    mode: str,
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Across:
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = across(core.all_reduce)(tensor, cluster_axis=cluster_axis)
    return _computed(plain, mode, lambda group: arithmetic(group).summed)


@_by_mode
def _all_gather(
    tensor: OperandOnMesh,
    dim: int,
    mode: str,
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Across:
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = across(core.all_gather)(tensor, dim, cluster_axis=cluster_axis)
    at = dim % tensor.rank
    return _computed(plain, mode, lambda group: _along(arithmetic(group).gathered, at))


@_by_mode
def _reduce_scatter(
    tensor: OperandOnMesh,
    dim: int,
    mode: str,
    *,
    cluster_axis: int | None = None,
    numerics: str | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
) -> Across:
    arithmetic = _arithmetic(tensor, mode, numerics, topology, num_links)
    plain = across(core.reduce_scatter)(tensor, dim, cluster_axis=cluster_axis)
    at = dim % tensor.rank
    return _computed(plain, mode, lambda group: _along(arithmetic(group).scattered, at))


def _arithmetic(
    tensor: OperandOnMesh, mode: str, numerics: str | None, topology: Topology | None, num_links: int | None
) -> Callable[[Group], Arithmetic]:
    """How a group computes, once it is known."""
    if mode not in _MODES:
        raise refused(tensor.op, f"mode must be 'host' or 'fabric', got {mode!r}")
    if numerics is None:
        return OverHost
    if numerics not in _NUMERICS:
        raise refused(tensor.op, f"numerics must be 'chip' or 'fp32', got {numerics!r}")
    if mode == "host":
        raise refused(
            tensor.op, "numerics is about the hops of a fabric; mode='host' adds in fp32 and rounds once"
        )
    return lambda group: Stepwise(
        group, ways_of(group, tensor.tensor, topology, num_links), tensor.dtype, numerics
    )


def _along(compute: Callable[[torch.Tensor, int], torch.Tensor], dim: int) -> Callable[..., torch.Tensor]:
    return lambda data: compute(data, dim)


def _computed(plain: Across, mode: str, arithmetic: Callable[[Group], Callable[..., torch.Tensor]]) -> Across:
    """The collective itself, with another arithmetic."""
    return replace(
        plain,
        move=lambda group: replace(plain.move(group), compute=arithmetic(group)),
        needs_fabric=mode != "host",
    )
