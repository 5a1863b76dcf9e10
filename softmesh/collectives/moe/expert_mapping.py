"""Expert mappings: which device holds each expert, in TT-NN's two forms, asked for all devices at once.

The one-hot mapping (1, 1, experts, devices) is not refused where it is not one-hot; all_to_all_dispatch warns of a
chosen expert that no device holds. What TT-NN then writes nowhere is undefined: the answers of an expert without a
device, and of those that a device has beyond its share. An expert on several devices gets its tokens on all of them,
and the first one's answer counts.
"""

from __future__ import annotations

import math

import torch

from softmesh.collectives.device_groups import Group
from softmesh.collectives.torch_expressions import gathered
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Distribution
from softmesh.placement.placements import LOCAL, REPLICATE
from softmesh.strictness import warn_or_raise


def distinct_placement(group: Group, *, members_share: bool = False) -> Distribution:
    """Every device holds something of its own; or every group, whose members share it."""
    words = [REPLICATE if members_share and axis in group.axes else LOCAL for axis in range(group.lead)]
    return group.dist.with_placements(tuple(words))


def own_experts(own: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(*grid, E) marks -> (*grid, count) numbers of the experts on each device, and whether it has so many."""
    numbers = own.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :count]
    return numbers, own.gather(-1, numbers)


def check_known(op: str, chosen: torch.Tensor, name: str, mapping: str, experts: int) -> None:
    highest = int(chosen.max()) if chosen.numel() else 0
    if highest >= experts:
        raise MeshError(
            f"{op}: {name} names expert {highest}, and {mapping} has {experts} experts: their numbers run from 0 to "
            f"{experts - 1}."
        )


class OneHotExpertMapping:
    """The mapping as one group's devices read it. Devices count row-major over the whole mesh."""

    def __init__(self, op: str, group: Group, shape: tuple[int, ...]) -> None:
        mesh = MeshShape(group.dist.mesh)
        self.op = op
        self._group = group
        self._grid = group.dist.grid
        self._devices = torch.tensor([mesh.index(coord) for coord in group.dist.coordinates()])
        self.experts, columns = shape[-2:]
        if len(shape) != 4 or columns != mesh.mesh_size():
            raise MeshError(
                f"{op}: expert_mapping_tensor must be [1, 1, experts, devices] with one column for each of the "
                f"{mesh.mesh_size()} devices of {mesh}, got {list(shape)}."
            )
        if self.experts % columns:
            raise MeshError(
                f"{op}: {self.experts} experts cannot live on {columns} devices in equal numbers: "
                "add experts that no token chooses."
            )
        self.experts_per_device = self.experts // columns
        self._number_of_group, self._place_in_group = self._group_positions(columns)

    def _group_positions(self, devices: int) -> tuple[torch.Tensor, torch.Tensor]:
        """For each device of the mesh the number of its group and its place there; -1 where it has no piece."""
        group, grid = self._group, self._grid
        positions = torch.arange(math.prod(grid)).reshape(grid)
        others = [axis for axis in range(len(grid)) if axis not in group.axes]
        in_groups = positions.permute(*others, *group.axes).reshape(-1, group.size)
        numbers, places = torch.full((2, devices), -1)
        numbers[self._devices[in_groups]] = torch.arange(len(in_groups)).unsqueeze(1)
        places[self._devices[in_groups]] = torch.arange(group.size)
        return numbers, places

    def warn_unplaced(self, chosen: torch.Tensor, mapping: torch.Tensor) -> None:
        """Warn of a chosen expert that no device holds: its tokens go nowhere."""
        has_home = (mapping.reshape(-1, self.experts, mapping.shape[-1]) != 0).any(-1).any(0)
        if has_home.all():
            return
        numbers = chosen.long().unique()
        unplaced = numbers[~has_home[numbers]].tolist()
        if unplaced:
            warn_or_raise(
                f"{self.op}: expert {unplaced[0]} is chosen, and no device holds it: row {unplaced[0]} of "
                "expert_mapping_tensor is all zero. Its tokens go nowhere: give each row one 1, at its device.",
            )

    def own(self, mapping: torch.Tensor) -> torch.Tensor:
        """(*grid, E): which experts live on each device."""
        devices = self._devices.to(mapping.device)
        if mapping.numel() == self.experts * mapping.shape[-1]:  # all devices read the same
            marks = mapping.reshape(self.experts, -1)[:, devices].T
        else:
            each = mapping.expand(*self._grid, *mapping.shape[-4:]).reshape(len(devices), self.experts, -1)
            marks = each[torch.arange(len(devices), device=mapping.device), :, devices]
        return (marks != 0).reshape(*self._grid, self.experts)

    def is_own(self, mapping: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """(*grid, *chosen's own dims): whether the chosen expert lives on the device that asks."""
        lead = len(self._grid)
        local = chosen.shape[lead:]
        numbers = chosen.long().expand(*self._grid, *local)
        return self.own(mapping).gather(-1, numbers.flatten(lead)).reshape(numbers.shape)

    def slabs_of(
        self, mapping: torch.Tensor, chosen: torch.Tensor, one_per_device: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Where in the group's slabs, side by side, the chosen experts' answers are; and whether they are there.

        chosen (*groups, 1, T, S, K) -> (*groups, K, T, S). With `one_per_device` a device has one slab for
        all its experts, and answers in the slot of the lowest of them that the token chose, the first if twice.
        """
        group, on = self._group, chosen.device
        home, slot = self._home_and_slot(mapping)
        has_slab = (home >= 0) if one_per_device else (home >= 0) & (slot < self.experts_per_device)
        place = self._place_in_group.to(on)[home]
        extents = [1 if axis in group.axes else n for axis, n in enumerate(self._grid)]
        local = chosen.shape[group.lead + 1 :]
        experts = chosen.long().expand(*extents, 1, *local).squeeze(group.lead).movedim(-1, group.lead)
        at = place[experts] if one_per_device else (place * self.experts_per_device + slot)[experts]
        groups = torch.arange(math.prod(extents), device=on).reshape(*extents, 1, 1, 1)
        is_there = (self._number_of_group.to(on)[home][experts] == groups) & has_slab[experts]
        if one_per_device:
            is_there &= _is_first_of_device(home[experts], experts, group.lead)
        return torch.where(is_there, at, 0), is_there

    def _home_and_slot(self, mapping: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(E,) each: an expert's device, or -1, and its number among the experts there."""
        marks = (mapping.reshape(-1, *mapping.shape[-2:])[0] != 0).long()
        home = marks.argmax(-1)
        slot = (marks.cumsum(0) - 1).gather(1, home.unsqueeze(1)).squeeze(1)
        return torch.where(marks.any(-1), home, -1), slot


def _is_first_of_device(home: torch.Tensor, experts: torch.Tensor, dim: int) -> torch.Tensor:
    """Whether no other slot along `dim` names a lower expert of the same device, or the same one earlier."""
    slots = experts.shape[dim]
    order = torch.arange(slots, device=experts.device).reshape(slots, *(1,) * (experts.dim() - dim - 1))
    rank = experts * slots + order
    same = home.unsqueeze(dim) == home.unsqueeze(dim + 1)
    lower = rank.unsqueeze(dim) < rank.unsqueeze(dim + 1)
    return ~(same & lower).any(dim + 1)


# The mapping (devices, experts): row d is the view of device d, the device, counted row-major over the mesh, whose
# copy of each expert its tokens go to. A device that has an expert's weights sends to itself.


class PerDeviceExpertMapping:
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
        check_known(self._op, chosen, name, "the mapping", self.experts)
        tokens, k = chosen.shape[-2:]
        numbers = chosen.long().expand(*self._grid, tokens, k)
        in_turn = numbers.reshape(*self._grid, self.members.shape[-1], -1)
        return self.by_source(mapping).gather(-1, in_turn).reshape(*self._grid, tokens, k)

    def is_in_own_group(self, mapping: torch.Tensor, chosen: torch.Tensor, name: str) -> torch.Tensor:
        """chosen (*axes, tokens, K) of the device itself -> (*grid, tokens, K): whether its group has the expert."""
        check_known(self._op, chosen, name, "the mapping", self.experts)
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
