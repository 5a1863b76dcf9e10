"""Indexing of a mesh tensor's data by device: taking out pieces, and regrouping the leading dims.

Everything here is a view unless a subset of devices is picked.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from softmesh.placement.distribution import (
    Coordinates,
    Distribution,
    Extents,
    common_refinement,
    distribution,
    refine,
    split_axes,
)
from softmesh.placement.placements import COMBINING, LOCAL, REPLICATE, Placement

_TOGETHER: dict[str, Callable[..., torch.Tensor]] = dict(
    zip(COMBINING, (torch.sum, torch.mean, torch.amax, torch.amin, torch.prod), strict=True)
)


def combined(data: torch.Tensor, axis: int, how: str) -> torch.Tensor:
    """Put the contributions along an axis together as `Partial(how)` says, fractions in float32 at least."""
    is_exact = not data.is_floating_point() and how != "avg"
    wide = data if is_exact else data.to(torch.promote_types(data.dtype, torch.float32))
    return _TOGETHER[how](wide, dim=axis, keepdim=True)


def regrid(data: torch.Tensor, dist: Distribution, fine: Extents) -> torch.Tensor:
    """The same data under finer leading dims (an axis stored once stays stored once)."""
    extents: list[int] = [1] * len(fine)
    for axes, word in zip(split_axes(dist.grid, fine), dist.placements, strict=True):
        if word is not REPLICATE:
            for axis in axes:
                extents[axis] = fine[axis]
    return data.reshape(*extents, *data.shape[dist.lead :])


def pieces_at(data: torch.Tensor, dist: Distribution, coords: Coordinates) -> torch.Tensor:
    """(len(coords), *local): the piece each of these devices holds."""
    local = data.shape[dist.lead :]
    if dist.is_replicated:
        return data.reshape(1, *local).expand(len(coords), *local)
    flat = data.expand(*dist.grid, *local).reshape(-1, *local)
    if coords == dist.coordinates():
        return flat
    position = {coord: i for i, coord in enumerate(dist.coordinates())}
    return flat[[position[coord] for coord in coords]]


def flattened(data: torch.Tensor, dist: Distribution, coords: Coordinates) -> torch.Tensor:
    """The data of `flatten(dist, coords)`: one leading dim, of extent 1 where all hold the same."""
    if dist.is_replicated:
        return data.reshape(1, *data.shape[dist.lead :])
    return pieces_at(data, dist, coords)


def along_the_mesh(data: torch.Tensor, dist: Distribution) -> tuple[torch.Tensor, Distribution]:
    """The pieces of a whole mesh with a leading dim for each of its axes, Local where no one word tells of an axis."""
    if dist.grid == dist.mesh or dist.coords is not None:
        return data, dist
    words = _words_along_the_mesh(dist)
    spelled = distribution(dist.mesh, dist.mesh, words, None, dist.label)
    local = data.shape[dist.lead :]
    full = pieces_at(data, dist, dist.coordinates()).reshape(*dist.mesh, *local)
    for axis, word in enumerate(spelled.placements):
        full = full.narrow(axis, 0, 1) if word is REPLICATE else full
    return full, spelled


def _words_along_the_mesh(dist: Distribution) -> tuple[Placement, ...]:
    fine = common_refinement(dist.grid, dist.mesh)
    if fine is None:
        return (REPLICATE if dist.is_replicated else LOCAL,) * len(dist.mesh)
    words = refine(dist, fine).placements
    groups = [{words[axis] for axis in axes} or {REPLICATE} for axes in split_axes(dist.mesh, fine)]
    return tuple(group.pop() if len(group) == 1 else LOCAL for group in groups)


def stored_index(dist: Distribution, position: int) -> tuple[int, ...]:
    """Where in the leading dims the piece of the flat grid position is stored."""
    index: list[int] = []
    for n, word in zip(reversed(dist.grid), reversed(dist.placements), strict=True):
        position, at = divmod(position, n)
        index.append(0 if word is REPLICATE else at)
    return tuple(reversed(index))
