"""Collectives by hand, as functions of a group's data: member by member on the host, or hop by hop along a schedule.

The twins of the fast path. Data has the leading dims of `group.dist`; groups run side by side, as one tensor.
What comes out is stored once where all members of a group agree. `dim` counts dims of a piece, from the front.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from softmesh.collectives import expressions
from softmesh.collectives.choice import Ways
from softmesh.collectives.executor import run
from softmesh.collectives.groups import Group
from softmesh.collectives.schedule import Schedule
from softmesh.collectives.schedules import schedule_for
from softmesh.tensor.dtype import DataType, facts


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
        joined = torch.cat(_members(data.cpu(), self.group), _from_end(data, self.group, dim))
        return _stored_once(joined, self.group).to(data.device)

    def summed(self, data: torch.Tensor) -> torch.Tensor:
        first, *others = _members(data.cpu(), self.group)
        total = first.to(torch.float32 if data.is_floating_point() else torch.int64)
        for member in others:
            total = total + member.to(total.dtype)
        return _stored_once(total, self.group).to(data.device)

    def scattered(self, data: torch.Tensor, dim: int) -> torch.Tensor:
        return expressions.dealt(self.summed(data), self.group, dim)


class Stepwise:
    """`numerics="chip"` rounds each partial sum to the dtype as it is formed, as the chip does.

    `"fp32"` lets them travel in fp32 and rounds once.
    """

    def __init__(self, group: Group, ways: Ways, dtype: DataType, numerics: str) -> None:
        self.group = group
        self.ways = ways
        self.rounding = _hop_rounding(dtype)
        self.travels = torch.float32 if numerics == "fp32" else None

    def gathered(self, data: torch.Tensor, dim: int) -> torch.Tensor:
        held = run(self._schedule("all_gather"), [[member] for member in _members(data, self.group)])
        pieces = [held[0, piece] for piece in range(self.group.size)]
        return _stored_once(torch.cat(pieces, _from_end(data, self.group, dim)), self.group)

    def summed(self, data: torch.Tensor) -> torch.Tensor:
        schedule = self._schedule("all_reduce")
        members = _members(data, self.group)
        held = self._run(schedule, [list(m.reshape(-1).tensor_split(schedule.pieces)) for m in members])
        total = torch.cat([held[0, piece] for piece in range(schedule.pieces)])
        return _stored_once(total.reshape(members[0].shape), self.group)

    def scattered(self, data: torch.Tensor, dim: int) -> torch.Tensor:
        at = _from_end(data, self.group, dim)
        chunks = [list(member.chunk(self.group.size, at)) for member in _members(data, self.group)]
        held = self._run(self._schedule("reduce_scatter"), chunks)
        own = torch.stack([held[device, device] for device in range(self.group.size)])
        return _one_each(own, self.group)

    def _schedule(self, name: str) -> Schedule:
        return schedule_for(name, self.ways.shape, self.ways.wraps, self.ways.links)

    def _run(
        self, schedule: Schedule, inputs: list[list[torch.Tensor]]
    ) -> dict[tuple[int, int], torch.Tensor]:
        return run(schedule, inputs, accumulate=self.travels, round_to=self.rounding)


def _members(data: torch.Tensor, group: Group) -> list[torch.Tensor]:
    """What each member holds, in the order of the devices, all groups together: (other leading dims, *local)."""
    rest = [d for d in range(data.ndim) if d not in group.axes]
    whole = group.full(data).permute(*group.axes, *rest)
    return list(whole.reshape(group.size, *whole.shape[len(group.axes) :]))


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
