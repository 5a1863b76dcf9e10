"""How the result of a collective is placed: the true word for each axis, and the label TT-NN gives it."""

from __future__ import annotations

import math

from softmesh.collectives.groups import Group
from softmesh.mesh import MeshShape
from softmesh.placement.distribution import Distribution, Extents, distribution
from softmesh.placement.topology import PlacementReplicate, PlacementShard, TensorTopology, topology_of
from softmesh.placement.words import LOCAL, REPLICATE, Placement, Shard


def replicating(group: Group, gathers: int | None = None, label: Extents | None = None) -> Distribution:
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


def dealing(group: Group, dim: int, *, from_one_value: bool) -> Distribution:
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


def keeping(group: Group) -> Distribution:
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


def label_by_rule(
    group: Group, dist: Distribution, word: Placement, *, combines: bool = True
) -> TensorTopology | None:
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
    if group.cluster_axis is None:
        return TensorTopology(MeshShape([group.size]), placements[:1], dist.coordinates())
    return TensorTopology(MeshShape(group.dist.mesh), placements, dist.coordinates())
