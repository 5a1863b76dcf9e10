"""MeshDeviceView: the coordinates of a mesh, and which of them are this process's own."""

from __future__ import annotations

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshShape
from softmesh.runtime.holding import HERE, Holding

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
