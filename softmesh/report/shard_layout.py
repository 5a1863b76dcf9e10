"""The slice of a tensor that each device of a mesh holds, as data that all pictures are drawn from.

`planes` lays a mesh of any rank out in rows and columns, one plane for each leading index. `cut` reads a distribution
and the shape of one piece, and knows nothing of values or devices. A `PlacedTensor` is taken from a live tensor by
`placed`, or made from a mapper alone by `planned`: no memory of a tensor is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch

from softmesh.errors import ArgumentError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.placement.distribution import Distribution, Extents, mesh_coordinates, whole
from softmesh.placement.placements import LOCAL, Partial, Placement, Replicate, Shard
from softmesh.placement.tensor_topology import TTPlacement
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.mappers import TensorToMesh
from softmesh.tensor.tensor import StorageType, Tensor


@dataclass(frozen=True)
class Plane:
    """`first` is the row-major place in the mesh of the plane's first device."""

    label: str
    rows: int
    columns: int
    first: int


def planes(shape: Extents) -> list[Plane]:
    """One for a mesh of one or two axes, without a label.

    >>> [plane.label for plane in planes((2, 3, 4))]
    ['[0, :, :]', '[1, :, :]']
    """
    rows, columns = shape[-2:] if len(shape) > 1 else (1, shape[0])
    leading = product(*map(range, shape[:-2]))
    return [Plane(_label(index), rows, columns, number * rows * columns) for number, index in enumerate(leading)]


def _label(index: Extents) -> str:
    return f"[{', '.join(map(str, index))}, :, :]" if index else ""


def grid_text(shape: Extents) -> str:
    """`2x4`."""
    return "x".join(map(str, shape))


def coordinate_text(coordinate: Extents) -> str:
    """`(0, 3)`."""
    return f"({', '.join(map(str, coordinate))})"


def device_count(shape: Extents) -> str:
    count = math.prod(shape)
    return f"{count} device" if count == 1 else f"{count} devices"


Span = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """What one device holds: a span of each dim, and its place along the Local axes, if there are any.

    Pieces with equal `content` are pieces of the same slice. Along a Partial axis they are
    contributions to it, along a Replicate axis copies of it. `position` is where in the grid it sits.
    """

    coordinate: MeshCoordinate
    position: Extents
    spans: tuple[Span, ...]
    own: Extents

    @property
    def content(self) -> tuple[tuple[Span, ...], Extents]:
        return self.spans, self.own


@dataclass(frozen=True)
class Cutting:
    """A whole tensor, and the pieces it was cut into."""

    shape: Extents
    split_dims: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def slice_text(self, piece: Piece) -> str:
        """As one would index the whole tensor: `[:, 0:32]`, a bare colon for a dim that is not split."""
        spans = (f"{start}:{stop}" if dim in self.split_dims else ":" for dim, (start, stop) in enumerate(piece.spans))
        return f"[{', '.join(spans)}]"

    def groups(self) -> dict[MeshCoordinate, int]:
        """A number for each coordinate, the same where the slice is; counted in order of appearance."""
        numbers: dict[tuple[tuple[Span, ...], Extents], int] = {}
        return {piece.coordinate: numbers.setdefault(piece.content, len(numbers)) for piece in self.pieces}


def cut(dist: Distribution, local_shape: Extents) -> Cutting:
    """The pieces of a tensor distributed like this, each of `local_shape`.

    >>> from softmesh.placement.distribution import distribution
    >>> halves = cut(distribution((1, 2), (1, 2), (Shard(1), Shard(1))), (32, 32))
    >>> halves.shape, [halves.slice_text(piece) for piece in halves.pieces]
    ((32, 64), ['[:, 0:32]', '[:, 32:64]'])
    """
    dims = range(len(local_shape))
    axes = [_axes_that_split(dist, dim) for dim in dims]
    shape = tuple(_whole_extent(dist, axes[dim], local_shape[dim]) for dim in dims)
    own_axes = [axis for axis, word in enumerate(dist.placements) if _is_own(word, len(local_shape))]
    pieces = []
    for coordinate, position in zip(dist.coordinates(), product(*map(range, dist.grid)), strict=True):
        spans = tuple(_span(dist.grid, axes[dim], position, local_shape[dim], shape[dim]) for dim in dims)
        pieces.append(Piece(coordinate, position, spans, tuple(position[axis] for axis in own_axes)))
    return Cutting(shape, tuple(dim for dim in dims if axes[dim]), tuple(pieces))


def _axes_that_split(dist: Distribution, dim: int) -> list[int]:
    return [axis for axis, word in enumerate(dist.placements) if isinstance(word, Shard) and word.dim == dim]


def _is_own(word: Placement, rank: int) -> bool:
    """Scalars taken together say Shard(0) and have no dim 0: each is a value of its own."""
    return word is LOCAL or (isinstance(word, Shard) and word.dim >= rank)


def _whole_extent(dist: Distribution, axes: list[int], local: int) -> int:
    """All pieces side by side; less where the last of an uneven split are filled up."""
    words = [dist.placements[axis] for axis in axes]
    true = [word.size for word in words if isinstance(word, Shard) and word.size is not None]
    return min([local * math.prod(dist.grid[axis] for axis in axes), *true])


def _span(grid: Extents, axes: list[int], position: Extents, local: int, whole: int) -> Span:
    """Several axes that split one dim count row-major: the first is the outermost."""
    place = 0
    for axis in axes:
        place = place * grid[axis] + position[axis]
    return min(place * local, whole), min((place + 1) * local, whole)


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

    def unnamed_placements(self) -> list[str]:
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
