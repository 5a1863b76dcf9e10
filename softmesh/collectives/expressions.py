"""The fast path: a collective is a reduction, a transpose or a reshape of the data's leading dims.

Nothing here loops over devices. `dim` counts dims of the piece on each device, from the front; the data
has the leading dims of `group.dist`, of extent 1 where the devices agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from softmesh.collectives.groups import Group
from softmesh.collectives.sums import adder
from softmesh.runtime.reused_results import filled_from

Move = Callable[[torch.Tensor], torch.Tensor]


def gathering(group: Group, dim: int, *, backwards: bool = False) -> Move:
    """Every member's piece side by side along `dim`: the group's axes fold into it."""
    lead = group.lead
    seen: torch.Size | None = None
    whole: list[int] = []
    order: list[int] = []
    shape: list[int] = []

    def gather(data: torch.Tensor) -> torch.Tensor:
        nonlocal seen, whole, order, shape
        if data.shape != seen:
            seen = data.shape
            whole, shape = list(seen), list(seen)
            for axis in group.axes:
                whole[axis], shape[axis] = group.dist.grid[axis], 1
            shape[lead + dim] *= group.size
            order = _before(group, lead + dim, data.ndim)
        spread = data.expand(whole)
        return filled_from((spread.flip(group.axes) if backwards else spread).permute(order), shape)

    return gather


def gathered(data: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    return gathering(group, dim)(data)


def _before(group: Group, place: int, rank: int) -> list[int]:
    """The order of dims that puts the group's axes right before the dim at `place`."""
    others = [axis for axis in range(rank) if axis not in group.axes]
    at = others.index(place)
    return [*others[:at], *group.axes, *others[at:]]


def summing(group: Group) -> Move:
    """The sum over the group, stored once. Members that hold the same count as often as they are."""
    extents = group.dist.extents
    distinct = [axis for axis in group.axes if extents[axis] > 1]
    alike = group.size // math.prod(extents[axis] for axis in distinct)
    add: Move | None = None

    def total(data: torch.Tensor) -> torch.Tensor:
        nonlocal add
        if add is None:
            add = adder(data.shape, data.dtype, distinct) if distinct else lambda same: same
        found = add(data)
        return found if alike == 1 else found * alike

    return total


def dealing_out(group: Group, dim: int) -> Move:
    """What all members hold, dealt out: member g keeps chunk g along `dim`. A view."""
    at = group.lead + dim
    seen: torch.Size | None = None
    cut: list[int] = []
    shape: list[int] = []

    def deal(data: torch.Tensor) -> torch.Tensor:
        nonlocal seen, cut, shape
        if data.shape != seen:
            seen = data.shape
            cut = [*seen[:at], *group.extents, seen[at] // group.size, *seen[at + 1 :]]
            shape = list(seen)
            for axis, n in zip(group.axes, group.extents, strict=True):
                shape[axis] = n
            shape[at] //= group.size
        pieces = data.reshape(cut)
        for i, axis in enumerate(group.axes):
            pieces = pieces.transpose(axis, at + i)
        return pieces.reshape(shape)

    return deal


def dealt(data: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    return dealing_out(group, dim)(data)


def partitioned(data: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    """Member g keeps chunk g of its own piece along `dim`. A view."""
    if all(data.shape[axis] == 1 for axis in group.axes):
        return dealt(data, group, dim)
    lead = group.lead
    at = lead + dim
    whole = group.full(data)
    cut = whole.reshape(
        *whole.shape[:at], *group.extents, whole.shape[at] // group.size, *whole.shape[at + 1 :]
    )
    for i, axis in reversed(list(enumerate(group.axes))):
        cut = cut.diagonal(dim1=axis, dim2=at + i).movedim(-1, axis)
    return cut


def picked(data: torch.Tensor, group: Group, index: Sequence[int]) -> torch.Tensor:
    """The piece of one member of each group (`index` along the group's axes), for all members. A view."""
    for axis, at in zip(group.axes, index, strict=True):
        if data.shape[axis] > 1:
            data = data.narrow(axis, at, 1)
    return data


def exchanged(data: torch.Tensor, group: Group, in_dim: int, out_dim: int) -> torch.Tensor:
    """Each member cuts its piece along `out_dim`, sends chunk i to member i, and joins what comes along `in_dim`."""
    return partitioned(gathered(data, group, in_dim), group, out_dim)
