"""A tensor as its pictures see it: placement and names, no values.

Taken from a live tensor by `placed`, or made from a mapper alone by `planned`: what a picture needs
can be known without the memory of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from softmesh.errors import ArgumentError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution, Extents, mesh_coordinates, whole
from softmesh.placement.mappers import TensorToMesh
from softmesh.placement.topology import TTPlacement
from softmesh.placement.words import LOCAL, Partial, Placement, Replicate, Shard
from softmesh.report.planes import device_count, grid_text
from softmesh.report.slices import Cutting, cut
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.tensor import StorageType, Tensor


@dataclass(frozen=True)
class PlacedTensor:
    """`device_ids` is empty where no device is known: on the host, or once deallocated.

    `held` are the coordinates the tensor itself stands for: all of them, except for one shard taken
    out by `get_device_tensors`, which is shown at its place among the others.
    """

    dist: Distribution
    local_shape: Extents
    dtype: DataType
    layout: Layout
    storage: StorageType
    tt_placements: tuple[TTPlacement, ...]
    device_ids: Mapping[MeshCoordinate, int]
    held: frozenset[MeshCoordinate]

    @cached_property
    def cutting(self) -> Cutting:
        return cut(self.dist, self.local_shape)

    @property
    def is_whole(self) -> bool:
        """Whether the pieces make one tensor; not where an axis is Local."""
        return not any(piece.own for piece in self.cutting.pieces)

    def title(self) -> str:
        """`Tensor [1, 1, 64, 256] on a mesh of 2x4`."""
        what = f"Tensor {list(self.cutting.shape)}" if self.is_whole else f"Pieces {list(self.local_shape)}"
        return f"{what} on a mesh of {grid_text(self.dist.mesh)}"

    def summary(self) -> str:
        """`each of the 8 devices holds [1, 1, 32, 64] (bfloat16, TILE, on device)`."""
        holding, devices = len(self.held), device_count(self.dist.mesh)
        if holding < math.prod(self.dist.mesh):
            who = f"{holding} of {devices} {'holds' if holding == 1 else 'hold'}"
        else:
            who = f"each of the {devices} holds" if holding > 1 else "its one device holds"
        kind = f"{self.dtype.name.lower()}, {self.layout.name}, on {self.storage.name.lower()}"
        return f"{who} {list(self.local_shape)} ({kind})"

    def untold_words(self) -> list[str]:
        """The placements that TT-NN has no word for."""
        words = (word for word in self.dist.placements if word is LOCAL or isinstance(word, Partial))
        return list(dict.fromkeys(map(repr, words)))

    def axis_names(self) -> list[str]:
        """What to call each axis of the grid: rows and columns where it is the mesh itself."""
        grid, mesh = self.dist.grid, self.dist.mesh
        if len(grid) == 1:
            return ["devices"]
        if len(grid) == 2 and grid == mesh:
            return ["rows", "columns"]
        return [f"axis {axis}" if grid == mesh else f"grid axis {axis}" for axis in range(len(grid))]

    def axes_explained(self) -> list[tuple[str, Placement, str]]:
        """For someone who meets the words first here: axis, word, and what its devices hold."""
        explained = []
        split: set[int] = set()
        for name, n, word in zip(self.axis_names(), self.dist.grid, self.dist.placements, strict=True):
            if n > 1:  # an axis of one device does nothing
                explained.append((f"{name} ({n})", word, _meaning(word, split)))
            if isinstance(word, Shard):
                split.add(word.dim)
        return explained


def _meaning(word: Placement, already_split: set[int]) -> str:
    if isinstance(word, Replicate):
        return "all hold the same"
    if isinstance(word, Shard):
        return f"each holds its part of {'that part' if word.dim in already_split else f'dim {word.dim}'}"
    if isinstance(word, Partial):
        return f"each holds a contribution; the value is their {word.op}: all_reduce or reduce_scatter is to come"
    return "each holds something of its own; together they make no one value"


def placed(tensor: Tensor) -> PlacedTensor:
    if not isinstance(tensor, Tensor):
        kind = type(tensor)
        raise ArgumentError(
            "visualize_tensor(): incompatible function arguments: expected a ttnn.Tensor, "
            f"got {kind.__module__}.{kind.__name__}. Make one with ttnn.from_torch(...)."
        )
    held = tensor.mesh_coordinates()
    topology = tensor.tensor_topology()
    is_one_of_many = topology.mesh_coords() != list(held)
    dist = whole(tensor.storage.dist if is_one_of_many else tensor.view_distribution())
    return PlacedTensor(
        dist,
        tuple(tensor.shape),
        tensor.dtype,
        tensor.layout,
        tensor.storage_type(),
        tuple(topology.placements()),
        _device_ids(tensor, dist),
        frozenset(held),
    )


def _device_ids(tensor: Tensor, dist: Distribution) -> dict[MeshCoordinate, int]:
    device = tensor.device()
    if device is None or tuple(device.shape) != dist.mesh:  # reshaped since: its ids may stand elsewhere
        return {}
    return dict(zip(mesh_coordinates(dist.mesh), device.all_device_ids, strict=True))


def planned(
    shape: Sequence[int], mapper: TensorToMesh, ids: Sequence[int], dtype: DataType, layout: Layout
) -> PlacedTensor:
    """What `from_torch(zeros(shape), dtype, device=mesh, mesh_mapper=mapper)` would look like."""
    pieces, dist, topology = mapper.split(torch.empty(tuple(shape), device="meta"))
    return PlacedTensor(
        dist,
        tuple(pieces.shape[len(topology.placements()) :]),
        dtype,
        layout,
        StorageType.DEVICE,
        tuple(topology.placements()),
        dict(zip(MeshShape(dist.mesh).coordinates(), ids, strict=True)),
        frozenset(dist.coordinates()),
    )
