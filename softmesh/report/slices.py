"""Which slice of the whole tensor each device holds.

Reads a distribution and the shape of one piece. Knows nothing of values, dtypes or devices, so the
terminal and the SVG pictures are drawn from the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution, Extents
from softmesh.placement.words import LOCAL, Placement, Shard

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
        spans = (
            f"{start}:{stop}" if dim in self.split_dims else ":"
            for dim, (start, stop) in enumerate(piece.spans)
        )
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
    for coordinate, position in zip(dist.coordinates(), _positions(dist.grid), strict=True):
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


def _positions(grid: Extents) -> Iterator[Extents]:
    return product(*map(range, grid))


def _span(grid: Extents, axes: list[int], position: Extents, local: int, whole: int) -> Span:
    """Several axes that split one dim count row-major: the first is the outermost."""
    place = 0
    for axis in axes:
        place = place * grid[axis] + position[axis]
    return min(place * local, whole), min((place + 1) * local, whole)
