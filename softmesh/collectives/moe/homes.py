"""Which expert a device finds where: TT-NN's mapping (devices, experts), asked for all devices at once.

Row d is the view of device d: the device, counted row-major over the mesh, whose copy of each expert its tokens
go to. A device that has an expert's weights sends to itself.
"""

from __future__ import annotations

import math

import torch

from softmesh.collectives.expressions import gathered
from softmesh.collectives.groups import Group
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.mesh import MeshShape


class HomesByView:
    """`mapping` is (..., devices, experts) on every device, or (..., 1, experts): each device's own row."""

    def __init__(self, op: str, group: Group, mapping: Operand) -> None:
        mesh = MeshShape(group.dist.mesh)
        self._op = op
        self._group = group
        self._grid = group.dist.grid
        self._rank = mapping.rank
        self.experts = mapping.shape[-1] if mapping.rank else 0
        self._rows = mapping.spec.logical_volume() // max(self.experts, 1)
        if mapping.rank < 2 or self._rows not in (1, mesh.mesh_size()):
            raise MeshError(
                f"{op}: {mapping.name} must be [devices, experts] with a row for each of the {mesh.mesh_size()} "
                f"devices of {mesh}, or on each device its own row alone; got {list(mapping.shape)}."
            )
        numbers = [mesh.index(coord) for coord in group.dist.coordinates()]
        self._own = torch.tensor(numbers).reshape(self._grid)
        self.members = _members(self._own, group)

    def own(self, like: torch.Tensor) -> torch.Tensor:
        """(*grid): each device's number."""
        return self._own.to(like.device)

    def _held(self, mapping: torch.Tensor) -> torch.Tensor:
        """(*axes, rows, experts)"""
        return mapping.reshape(*mapping.shape[: mapping.dim() - self._rank], self._rows, self.experts)

    def by_source(self, mapping: torch.Tensor) -> torch.Tensor:
        """(*grid, members of the group, experts): where each member sends."""
        rows = self._held(mapping)
        if self._rows == 1:
            rows = gathered(rows, self._group, 0)
            return rows.expand(*self._grid, *rows.shape[-2:])
        return self._views(rows, self.members)

    def own_view(self, mapping: torch.Tensor) -> torch.Tensor:
        """(*grid, experts)"""
        rows = self._held(mapping)
        if self._rows == 1:
            return rows.squeeze(-2).expand(*self._grid, self.experts)
        return self._views(rows, self._own.unsqueeze(-1)).squeeze(-2)

    def _views(self, rows: torch.Tensor, devices: torch.Tensor) -> torch.Tensor:
        """The rows of `devices` (*grid, n) as every device has them: (*grid, n, experts)."""
        index = devices.to(rows.device).unsqueeze(-1).expand(*devices.shape, self.experts)
        return rows.expand(*self._grid, self._rows, self.experts).gather(-2, index)

    def homes_of(self, mapping: torch.Tensor, chosen: torch.Tensor, name: str) -> torch.Tensor:
        """chosen (*axes, tokens of all members in order, K) -> (*grid, tokens, K): the device of each choice."""
        self._check_known(chosen, name)
        tokens, k = chosen.shape[-2:]
        numbers = chosen.long().expand(*self._grid, tokens, k)
        in_turn = numbers.reshape(*self._grid, self.members.shape[-1], -1)
        return self.by_source(mapping).gather(-1, in_turn).reshape(*self._grid, tokens, k)

    def _check_known(self, chosen: torch.Tensor, name: str) -> None:
        highest = int(chosen.max()) if chosen.numel() else 0
        if highest >= self.experts:
            raise MeshError(
                f"{self._op}: {name} names expert {highest}, and the mapping has {self.experts} experts: their numbers "
                f"run from 0 to {self.experts - 1}."
            )

    def is_near(self, mapping: torch.Tensor, chosen: torch.Tensor, name: str) -> torch.Tensor:
        """chosen (*axes, tokens, K) of the device itself -> (*grid, tokens, K): whether its group has the expert."""
        self._check_known(chosen, name)
        view = self.own_view(mapping)
        in_group = (view.unsqueeze(-1) == self.members.to(view.device).unsqueeze(-2)).any(-1)
        tokens, k = chosen.shape[-2:]
        flat = chosen.long().expand(*self._grid, tokens, k).flatten(-2)
        return in_group.gather(-1, flat).unflatten(-1, (tokens, k))


def _members(numbers: torch.Tensor, group: Group) -> torch.Tensor:
    """(*grid, size): the numbers of all members of each device's group, in order."""
    others = [axis for axis in range(numbers.dim()) if axis not in group.axes]
    rows = numbers.permute(*others, *group.axes).flatten(len(others))  # (*others, size)
    shape = [1 if axis in group.axes else n for axis, n in enumerate(numbers.shape)]
    return rows.reshape(*shape, math.prod(group.extents)).expand(*numbers.shape, -1)
