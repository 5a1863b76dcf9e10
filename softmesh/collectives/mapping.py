"""Which expert lives where: TT-NN's one-hot mapping (1, 1, experts, devices), asked for all devices at once.

A mapping that is not one-hot is not refused; all_to_all_dispatch tells of a chosen expert without a home. What TT-NN
then writes nowhere is undefined: the answers of an expert without a home, and of those that a device has beyond its
share. An expert of several homes gets its tokens on all of them, and the first one's answer counts.
"""

from __future__ import annotations

import math

import torch

from softmesh.collectives.groups import Group
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.lenience import warn_or_raise
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Distribution
from softmesh.placement.words import LOCAL, REPLICATE


def apart(group: Group, *, members_share: bool = False) -> Distribution:
    """Every device holds something of its own; or every group, whose members share it."""
    words = [REPLICATE if members_share and axis in group.axes else LOCAL for axis in range(group.lead)]
    return group.dist.with_placements(tuple(words))


def own_experts(own: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(*grid, E) marks -> (*grid, count) numbers of the experts on each device, and whether it has so many."""
    numbers = own.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :count]
    return numbers, own.gather(-1, numbers)


class ExpertHomes:
    """The mapping as one group's devices read it. Devices count row-major over the whole mesh."""

    def __init__(self, op: str, group: Group, shape: tuple[int, ...]) -> None:
        mesh = MeshShape(group.dist.mesh)
        self._op = op
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
        self._number_of_group, self._place_in_group = self._seats(columns)

    def _seats(self, devices: int) -> tuple[torch.Tensor, torch.Tensor]:
        """For each device of the mesh the number of its group and its place there; -1 where it has no piece."""
        group, grid = self._group, self._grid
        positions = torch.arange(math.prod(grid)).reshape(grid)
        others = [axis for axis in range(len(grid)) if axis not in group.axes]
        in_groups = positions.permute(*others, *group.axes).reshape(-1, group.size)
        numbers, places = torch.full((2, devices), -1)
        numbers[self._devices[in_groups]] = torch.arange(len(in_groups)).unsqueeze(1)
        places[self._devices[in_groups]] = torch.arange(group.size)
        return numbers, places

    def check_known(self, chosen: torch.Tensor, name: str) -> None:
        highest = int(chosen.max()) if chosen.numel() else 0
        if highest >= self.experts:
            raise MeshError(
                f"{self._op}: {name} names expert {highest}, and expert_mapping_tensor has {self.experts} experts: "
                f"their numbers run from 0 to {self.experts - 1}."
            )

    def tell_homeless(self, chosen: torch.Tensor, mapping: torch.Tensor) -> None:
        """Warn of a chosen expert that no device holds: its tokens go nowhere."""
        has_home = (mapping.reshape(-1, self.experts, mapping.shape[-1]) != 0).any(-1).any(0)
        if has_home.all():
            return
        numbers = chosen.long().unique()
        homeless = numbers[~has_home[numbers]].tolist()
        if homeless:
            warn_or_raise(
                f"{self._op}: expert {homeless[0]} is chosen, and no device holds it: row {homeless[0]} of "
                "expert_mapping_tensor is all zero. Its tokens go nowhere: give each row one 1, at its device.",
                SoftmeshWarning,
                MeshError,
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
