"""All chips of one launch, and the memories and turns they share."""

from __future__ import annotations

from softmesh.errors import NotModelled
from softmesh.kernels.engine.chip import Chip
from softmesh.kernels.engine.memories import Box, Find, Memories
from softmesh.kernels.engine.scheduler import Scheduler
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange
from softmesh.runtime.device import MeshDevice


class Fleet:
    def __init__(self, mesh: MeshDevice, find: Find, *, remembers: bool) -> None:
        self.mesh = mesh
        self.scheduler = Scheduler()
        self.memories = Memories(find, remembers)
        self._chips: dict[MeshCoordinate, Chip] = {}  # by the first of their devices

    def box(self, place: MeshCoordinateRange) -> Box:
        block = self.mesh.block
        if block is None:
            return Box(place, tuple(self.mesh.shape), (0,) * self.mesh.shape.dims())
        return Box(place, block.shape, block.origin)

    def add(self, place: MeshCoordinateRange, strict: bool) -> Chip:
        chip = self._chips[place.start] = Chip(self, place, strict)
        return chip

    def device(self, coordinate: MeshCoordinate, strict: bool) -> Chip:
        """A single device; one that runs no program is memory to others."""
        if coordinate in self._chips:
            return self._chips[coordinate]
        if not self.mesh.get_view().is_local(coordinate):
            raise NotModelled(
                f"Device {tuple(coordinate)} belongs to another process, and kernels reach only devices of their "
                "own. Use a collective or a socket between processes."
            )
        return self.add(MeshCoordinateRange(coordinate, coordinate), strict)
