"""`Group`: the devices that take part in a collective together, and how its result is placed over them.

A group is a choice of leading axes of a mesh tensor that run through its members.
"""

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
    whole,
)
from softmesh.placement.pieces import pieces_at, regrid
from softmesh.placement.placements import LOCAL, REPLICATE, Placement, Shard, placed
from softmesh.placement.tensor_topology import (
    PlacementReplicate,
    PlacementShard,
    TensorTopology,
    topology_of,
)


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

    def members(self, data: torch.Tensor) -> torch.Tensor:
        """What each member holds, in the order of the devices, all groups together: (size, other axes, *local)."""
        rest = [d for d in range(data.ndim) if d not in self.axes]
        whole = self.full(data).permute(*self.axes, *rest)
        return whole.reshape(self.size, *whole.shape[len(self.axes) :])


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


# How the result of a collective is placed: the true word for each axis, and the label TT-NN gives it.


@placed("The same on every device of the group: Replicate along `cluster_axis`, or on the whole mesh without one.")
def replicated_placement(group: Group, gathers: int | None = None, label: Extents | None = None) -> Distribution:
    """All members hold the same; `gathers` is the dim along which their pieces were joined.

    Another axis that splits the joined dim keeps its word only where its slices stay slices: it must lie
    outside the group, whose own pieces were slices of that slice.
    """
    words = list(group.words_with(REPLICATE))
    if gathers is not None:
        joined = Shard(gathers)
        nested = all(group.dist.placements[axis] is joined for axis in group.axes)
        for axis in _others(group, gathers):
            if not (nested and axis < min(group.axes)):
                words[axis] = LOCAL
    return _placed(group, words, label)


@placed("Split along `dim` over the devices of the group, in their order.")
def scattered_placement(group: Group, dim: int, *, from_one_value: bool) -> Distribution:
    """Member g holds chunk g along `dim` of what all of them shared (or, if not, of what was its own)."""
    word: Placement = Shard(dim) if from_one_value else LOCAL
    words = list(group.words_with(word))
    if from_one_value:
        outer = _others(group, dim)
        first = min(group.axes, default=group.lead)  # a group of one deals nothing out
        if any(axis > first for axis in outer):  # interleaved: no longer slices in order
            for axis in (*group.axes, *outer):
                words[axis] = LOCAL
    label = None if group.cluster_axis is not None else (group.size,)
    return _placed(group, words, label)


@placed("Local: what each device of the group gets is its own.")
def local_placement(group: Group) -> Distribution:
    """As the operand was, where values only changed places: every device has something of its own."""
    return _placed(group, list(group.words_with(LOCAL)), group.dist.label)


def _others(group: Group, dim: int) -> list[int]:
    """Axes outside the group that split `dim`."""
    return [
        axis
        for axis, word in enumerate(group.dist.placements)
        if axis not in group.axes and isinstance(word, Shard) and word.dim == dim
    ]


def _placed(group: Group, words: list[Placement], label: Extents | None) -> Distribution:
    dist = group.dist
    if label is None:
        label = dist.mesh if math.prod(dist.mesh) == math.prod(dist.grid) else dist.grid
    return distribution(dist.mesh, dist.grid, tuple(words), dist.coords, label, dist.spread)


def shares_one_value(group: Group) -> bool:
    return all(group.dist.placements[axis] is REPLICATE for axis in group.axes)


def ttnn_label(group: Group, dist: Distribution, word: Placement, *, combines: bool = True) -> TensorTopology | None:
    """TT-NN's label, where it goes by its rule and not by what the devices hold: other axes keep theirs.

    None where the true placement says the same. Some labels TT-NN cannot express, and leaves as they were:
    the outer axis of a 1-D split that is gathered, and (where it does not combine) a second split of a group.
    """
    if LOCAL not in dist.placements or LOCAL in group.dist.placements or group.dist.grid != group.dist.mesh:
        return None
    was_split = any(isinstance(group.dist.placements[axis], Shard) for axis in group.axes)
    one_dimensional = len(group.dist.label) == 1
    if (one_dimensional and word is REPLICATE) or (was_split and not combines):
        return topology_of(group.dist)
    words = group.words_with(word)
    placements = [PlacementShard(w.dim) if isinstance(w, Shard) else PlacementReplicate() for w in words]
    dist = whole(dist)
    if group.cluster_axis is None:
        return TensorTopology(MeshShape([group.size]), placements[:1], dist.coordinates())
    return TensorTopology(MeshShape(dist.mesh), placements, dist.coordinates())
