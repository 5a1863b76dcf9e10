"""MeshDeviceView, and which processes hold the devices of a mesh: this one alone, several together, or others only.

A `Holding` is the whole answer: `ranks` and `block` are set where several processes hold the mesh and this one a
rectangular part of it; `is_remote` where others hold all of it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from softmesh.arguments import checked, checked_int
from softmesh.errors import MeshError, NotModelled
from softmesh.fabric.grid_paths import line_through, perimeter
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshShape
from softmesh.placement.distribution import Extents
from softmesh.placement.process_blocks import Block
from softmesh.processes.rank_grid import RankGrid


@dataclass(frozen=True)
class Holding:
    """`ranks` and `block` are there where several processes hold the mesh, and this one a part of it."""

    ranks: RankGrid | None = None
    block: Block | None = None
    is_remote: bool = False  # others hold all of it

    def is_local(self, place: Sequence[int]) -> bool:
        """Whether the device at this place of the mesh is this process's own."""
        return not self.is_remote and (self.block is None or self.block.contains(place))


HELD_HERE = Holding()
HELD_ELSEWHERE = Holding(is_remote=True)


def together(ranks: RankGrid, shape: Sequence[int]) -> Holding:
    return Holding(ranks, Block(tuple(shape), ranks.hosts, ranks.at))


def part(whole: Holding, start: Sequence[int], shape: Sequence[int]) -> Holding:
    """How the rectangle of this shape at `start` is held. The processes that hold it meet, where they are several."""
    block, ranks = whole.block, whole.ranks
    if block is None or ranks is None:
        return whole
    spans = [_span(first, n, extent) for first, n, extent in zip(start, shape, block.shape, strict=True)]
    hosts = tuple(map(len, spans))
    is_mine = all(at in span for at, span in zip(ranks.at, spans, strict=True))
    if math.prod(hosts) > 1:
        _check_even(block, start, shape, hosts)
    if not is_mine:
        return HELD_ELSEWHERE
    return HELD_HERE if math.prod(hosts) == 1 else together(_grid_of(ranks, spans, hosts), shape)


def _span(first: int, n: int, extent: int) -> range:
    """The processes along one axis that have some of the devices `first` to `first + n - 1`."""
    return range(first // extent, (first + n - 1) // extent + 1)


def _check_even(block: Block, start: Sequence[int], shape: Sequence[int], hosts: Extents) -> None:
    for axis, (first, n, extent) in enumerate(zip(start, shape, block.shape, strict=True)):
        portion = min(extent - first % extent, n)
        if portion * hosts[axis] != n or (hosts[axis] > 2 and portion != extent):
            raise NotModelled(
                f"Submesh {MeshShape(shape)} at {MeshCoordinate(start)} takes unequal parts of what the processes of "
                f"{MeshShape(block.mesh)} hold, {MeshShape(block.shape)} each: along axis {axis} it has devices "
                f"{first} to {first + n - 1}. Let it begin and end at multiples of {extent}, or lie within one part."
            )


_PARTS: weakref.WeakKeyDictionary[RankGrid, dict[tuple[range, ...], RankGrid]] = weakref.WeakKeyDictionary()


def _grid_of(ranks: RankGrid, spans: Sequence[range], hosts: Extents) -> RankGrid:
    """The processes of these spans as a grid of their own; the same ones meet only once."""
    if hosts == ranks.hosts:
        return ranks
    known = _PARTS.setdefault(ranks, {})
    if tuple(spans) not in known:
        members = [_number(place, ranks.hosts) for place in product(*spans)]
        known[tuple(spans)] = part = RankGrid(ranks.context.create_sub_context(members), hosts)
        part.calls.opened()  # parts of several meshes on the same processes make their calls as one
    return known[tuple(spans)]


def end_calls(ranks: RankGrid) -> None:
    """A mesh is closed: the processes that held it make no more calls together, nor do those of its parts."""
    try:
        for some in _PARTS.get(ranks, {}).values():
            end_calls(some)
    finally:
        ranks.calls.closed()


def _number(place: Sequence[int], extents: Extents) -> int:
    number = 0
    for i, n in zip(place, extents, strict=True):
        number = number * n + i
    return number


_SIDES = 2
A_COORDINATE = "a MeshCoordinate such as ttnn.MeshCoordinate(0, 0)"


class MeshDeviceView:
    def __init__(self, shape: MeshShape, holding: Holding = HELD_HERE) -> None:
        self._shape = shape
        self._holding = holding

    def shape(self) -> MeshShape:
        return self._shape

    def num_devices(self) -> int:
        """Of all processes."""
        return self._shape.mesh_size()

    def is_local(self, coord: MeshCoordinate) -> bool:
        if not self._shape.contains(checked("is_local", "coord", coord, MeshCoordinate, A_COORDINATE)):
            raise MeshError(f"Coordinate {coord} not found in mesh {self._shape}")
        return self._holding.is_local(tuple(coord))

    def get_local_mesh_coord_range(self) -> MeshCoordinateRange:
        if self._holding.is_remote:
            raise MeshError(
                f"get_local_mesh_coord_range: other processes hold all devices of this {self._shape}. Ask "
                "mesh.is_remote_only() first."
            )
        if self._holding.block is None:
            return MeshCoordinateRange(self._shape)
        own = self._holding.block.coordinates()
        return MeshCoordinateRange(own[0], own[-1])

    def contains(self, coord: MeshCoordinate) -> bool:
        return self._shape.contains(checked("contains", "coord", coord, MeshCoordinate, A_COORDINATE))

    def is_mesh_2d(self) -> bool:
        return self._shape.dims() == _SIDES

    def get_line_coordinates(self, length: int | None = None) -> list[MeshCoordinate]:
        """A walk through neighbours from (0, 0) on: through all, or as many as asked for."""
        rows, columns = self._sides("get_line_coordinates")
        wanted = rows * columns if length is None else checked_int("get_line_coordinates", "length", length)
        if not 1 <= wanted <= rows * columns:
            raise MeshError(f"get_line_coordinates: {self._shape} has no line of {wanted} devices.")
        found = line_through(rows, columns, (0, 0), wanted)
        assert found is not None  # the serpentine is always there
        return [MeshCoordinate(*place) for place in found]

    def get_ring_coordinates(self, shape: MeshShape | None = None) -> list[MeshCoordinate]:
        """The border of the mesh, or of so much of it, clockwise from (0, 0)."""
        rows, columns = self._sides("get_ring_coordinates") if shape is None else tuple(shape)
        if min(rows, columns) == 1:
            raise MeshError(f"get_ring_coordinates: the ends of a {rows}x{columns} line do not touch.")
        return [MeshCoordinate(*place) for place in perimeter(rows, columns, (0, 0))]

    def _sides(self, method: str) -> tuple[int, int]:
        if not self.is_mesh_2d():
            raise MeshError(f"{method}: {self._shape} has {self._shape.dims()} axes, and it takes rows and columns.")
        return int(self._shape[0]), int(self._shape[1])
