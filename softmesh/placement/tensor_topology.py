"""TensorTopology, PlacementShard, PlacementReplicate: a distribution in TT-NN's own terms.

TT-NN keeps a label and does not follow it through reshapes, transposes or reductions. Here the label
is derived from the true placement each time it is asked for; Partial and Local have no word in TT-NN
and read as PlacementReplicate (`softmesh.placements(t)` tells them apart).
"""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked, checked_all, described
from softmesh.errors import ArgumentError, MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution, common_refinement, distribution, refine, split_axes, whole
from softmesh.placement.placements import REPLICATE, Placement, Shard


class PlacementShard:
    """Split along one tensor dim. Has no value equality, as in TT-NN: compare `.dim`."""

    __slots__ = ("dim",)

    def __init__(self, dim: int, /) -> None:
        if isinstance(dim, bool) or not isinstance(dim, int):
            what = f"dim must be an int, got {described(dim)}"
            raise ArgumentError(f"PlacementShard(): incompatible function arguments: {what}")
        self.dim = dim

    def __repr__(self) -> str:
        return f"PlacementShard({self.dim})"


class PlacementReplicate:
    """The same on every device."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PlacementReplicate):
            return True
        raise ArgumentError(
            f"PlacementReplicate.__eq__(): incompatible function arguments: got {type(other).__name__}. "
            "Test with isinstance(placement, ttnn.PlacementReplicate)."
        )

    def __hash__(self) -> int:
        return hash(PlacementReplicate)

    def __repr__(self) -> str:
        return "PlacementReplicate()"


TTPlacement = PlacementShard | PlacementReplicate


class TensorTopology:
    """What `tensor.tensor_topology()` answers; compares by value."""

    __slots__ = ("_coords", "_placements", "_shape")

    def __init__(
        self,
        distribution_shape: MeshShape,
        placements: Sequence[TTPlacement],
        mesh_coords: Sequence[MeshCoordinate],
    ) -> None:
        where = "TensorTopology"
        kinds: tuple[type[TTPlacement], ...] = (PlacementShard, PlacementReplicate)
        self._shape = checked(where, "distribution_shape", distribution_shape, MeshShape, "a MeshShape")
        self._placements = checked_all(where, "placements", placements, kinds, "placements")
        self._coords = checked_all(where, "mesh_coords", mesh_coords, (MeshCoordinate,), "MeshCoordinates")

    def distribution_shape(self) -> MeshShape:
        return self._shape

    def placements(self) -> list[TTPlacement]:
        return list(self._placements)

    def mesh_coords(self) -> list[MeshCoordinate]:
        return list(self._coords)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorTopology):
            return NotImplemented
        return (
            tuple(self._shape) == tuple(other._shape)
            and list(map(repr, self._placements)) == list(map(repr, other._placements))
            and self._coords == other._coords
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        placements = ", ".join(map(repr, self._placements))
        coords = ", ".join(map(repr, self._coords))
        return (
            f"TensorTopology(distribution_shape={self._shape!r}, "
            f"placements=SmallVector([{placements}]), mesh_coords={coords})"
        )


def topology_of(dist: Distribution) -> TensorTopology:
    """The true placement in TT-NN's two words, over the distribution shape TT-NN would name: that of all processes."""
    dist = whole(dist)
    label = dist.label
    fine = common_refinement(label, dist.grid)
    if fine is None:  # the label does not cover the grid: speak of the grid itself
        label = fine = dist.grid
    words = refine(dist, fine).placements
    placements = [_as_one([words[axis] for axis in axes]) for axes in split_axes(label, fine)]
    return TensorTopology(MeshShape(label), placements, dist.coordinates())


def _as_one(words: list[Placement]) -> TTPlacement:
    shards = {word for word in words if word is not REPLICATE}
    word = shards.pop() if len(shards) == 1 else None
    return PlacementShard(word.dim) if isinstance(word, Shard) else PlacementReplicate()


def distribution_from(topology: TensorTopology, current: Distribution, rank: int) -> Distribution:
    """`current` re-labelled as a user's topology says; refused where it names other devices."""
    shape = tuple(topology.distribution_shape())
    fine = common_refinement(shape, current.grid)
    if fine is None or len(topology.placements()) != len(shape):
        raise MeshError(
            f"TensorTopology over {topology.distribution_shape()} with {len(topology.placements())} placements "
            f"does not describe this tensor, whose pieces lie on a grid {current.grid}. "
            "Give a distribution shape of the same size and one placement for each of its dims."
        )
    words: list[Placement] = list(refine(current, fine).placements)
    for axes, placement in zip(split_axes(shape, fine), topology.placements(), strict=True):
        for axis in axes:
            if words[axis] is not REPLICATE:  # what is stored once stays known as the same everywhere
                is_shard = isinstance(placement, PlacementShard)
                words[axis] = Shard(placement.dim % max(rank, 1)) if is_shard else words[axis]  # type: ignore[union-attr]
    return distribution(current.mesh, fine, tuple(words), current.coords, shape)
