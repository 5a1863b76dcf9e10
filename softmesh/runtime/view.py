"""MeshDeviceView: the coordinates of a mesh, and which of them are this process's own."""

from __future__ import annotations

from softmesh.arguments import checked, checked_int
from softmesh.errors import MeshError
from softmesh.fabric.lines import line_through, perimeter
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshShape
from softmesh.runtime.holding import HERE, Holding

_SIDES = 2
A_COORDINATE = "a MeshCoordinate such as ttnn.MeshCoordinate(0, 0)"


class MeshDeviceView:
    def __init__(self, shape: MeshShape, holding: Holding = HERE) -> None:
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
            raise MeshError(
                f"{method}: {self._shape} has {self._shape.dims()} axes, and it takes rows and columns."
            )
        return int(self._shape[0]), int(self._shape[1])
