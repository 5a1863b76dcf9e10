"""Which devices work together: the leading axes of a mesh tensor that run through a group."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from softmesh.errors import MeshError
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import (
    Distribution,
    Extents,
    common_refinement,
    distribution,
    mesh_coordinates,
    refine,
    split_axes,
)
from softmesh.placement.pieces import pieces_at, regrid
from softmesh.placement.words import LOCAL, REPLICATE, Placement


@dataclass(frozen=True)
class Group:
    """`dist` spells the operand's leading dims so that `axes` of them run through each group of `size`."""

    dist: Distribution
    axes: tuple[int, ...]
    cluster_axis: int | None

    @property
    def size(self) -> int:
        return math.prod(self.extents)

    @property
    def extents(self) -> Extents:
        return tuple(self.dist.grid[axis] for axis in self.axes)

    @property
    def lead(self) -> int:
        return self.dist.lead

    def words_with(self, word: Placement) -> tuple[Placement, ...]:
        """The operand's words, with `word` along the group."""
        return tuple(word if axis in self.axes else own for axis, own in enumerate(self.dist.placements))

    def full(self, data: torch.Tensor) -> torch.Tensor:
        """The data with the group's axes at their full extents; what is stored once is not copied."""
        extents = list(data.shape)
        for axis in self.axes:
            extents[axis] = self.dist.grid[axis]
        return data.expand(extents)


def group_of(dist: Distribution, cluster_axis: int | None) -> Group:
    """The groups along a mesh axis; without one, all devices that hold the tensor."""
    spelled = _along_the_mesh(dist)
    if cluster_axis is None:
        return Group(spelled, tuple(range(spelled.lead)), None)
    if spelled.coords is None and spelled.grid != dist.mesh:
        return Group(spelled, tuple(split_axes(dist.mesh, spelled.grid)[cluster_axis]), cluster_axis)
    return Group(spelled, (cluster_axis,), cluster_axis)


def _along_the_mesh(dist: Distribution) -> Distribution:
    """The same pieces under leading dims that split the mesh's own axes."""
    if dist.coords is None:
        fine = common_refinement(dist.grid, dist.mesh)
        if fine is not None:
            return refine(dist, fine)
        word: Placement = REPLICATE if dist.is_replicated else LOCAL
        return distribution(dist.mesh, dist.mesh, (word,) * len(dist.mesh), None, dist.label)
    coords = tuple(coord for coord in mesh_coordinates(dist.mesh) if coord in set(dist.coords))
    ranges = [sorted({tuple(coord)[axis] for coord in coords}) for axis in range(len(dist.mesh))]
    grid = tuple(map(len, ranges))
    if math.prod(grid) != len(coords):
        raise MeshError(
            f"The tensor lies on {len(coords)} devices of {MeshShape(dist.mesh)} that form no rectangle "
            f"({coords[0]} ... {coords[-1]}): a collective needs whole rows and columns of them."
        )
    word = REPLICATE if dist.is_replicated else LOCAL
    return distribution(dist.mesh, grid, (word,) * len(grid), coords, dist.label)


def spread(data: torch.Tensor, dist: Distribution, group: Group) -> torch.Tensor:
    """The operand's data under the leading dims of its group."""
    spelled = group.dist
    if dist.grid == spelled.grid and dist.coords == spelled.coords:
        return data
    if dist.coords is None and spelled.coords is None and common_refinement(dist.grid, dist.mesh) is not None:
        return regrid(data, dist, spelled.grid)
    local = data.shape[dist.lead :]
    if dist.is_replicated:
        return data.reshape(*spelled.extents, *local)
    return pieces_at(data, dist, spelled.coordinates()).reshape(*spelled.extents, *local)
