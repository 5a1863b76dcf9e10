"""All chips of one launch, and the memories and turns they share."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.cores import CoreCoord
from softmesh.errors import NotModelled
from softmesh.kernels.engine.chip import Chip
from softmesh.kernels.engine.memories import Find, Memories
from softmesh.kernels.engine.memory import Box
from softmesh.kernels.engine.scheduler import Scheduler
from softmesh.kernels.engine.thread import DevicesDiffer
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange
from softmesh.runtime.device import MeshDevice


class ChipFacts(NamedTuple):
    """What all chips of a mesh have in common."""

    grid: CoreCoord  # worker cores
    first_worker: CoreCoord  # where they begin on the NoC
    num_banks: int  # of DRAM

    @classmethod
    def of(cls, mesh: MeshDevice) -> ChipFacts:
        first = mesh.worker_core_from_logical_core(CoreCoord(0, 0))
        return cls(mesh.compute_with_storage_grid_size(), first, mesh.dram_grid_size().x)


def box_of(mesh: MeshDevice, place: MeshCoordinateRange) -> Box:
    """A part of the mesh, as a part of what this process holds of it."""
    block = mesh.block
    if block is None:
        return Box(place, tuple(mesh.shape), (0,) * mesh.shape.dims())
    return Box(place, block.shape, block.origin)


class Fleet:
    def __init__(self, mesh: MeshDevice, facts: ChipFacts, find: Find) -> None:
        self.mesh = mesh
        self.facts = facts
        self.scheduler = Scheduler()
        self.memories = Memories(find)
        self._chips: dict[MeshCoordinate, Chip] = {}  # by the first of their devices

    def add(self, box: Box, strict: bool) -> Chip:
        chip = self._chips[box.place.start] = Chip(self, box, strict)
        return chip

    def store(self) -> None:
        """The launch went well: what it did is there to stay."""
        self.memories.store()
        for chip in self._chips.values():
            for fifo in chip.remote_fifos.values():
                fifo.keep()

    def dismiss(self) -> None:
        """Let go of everything, at once: what runs in greenlets is not always found by the garbage collector."""
        for chip in self._chips.values():
            chip.dismiss()
        self._chips.clear()
        self.scheduler.dismiss()

    def device(self, coordinate: MeshCoordinate, strict: bool) -> Chip:
        """A single device; one that runs no program is memory to others."""
        found = self._chips.get(coordinate)
        if found is not None and not found.stands_for_many:
            return found
        if any(chip.stands_for_many and chip.box.place.contains(coordinate) for chip in self._chips.values()):
            raise DevicesDiffer
        if not self.mesh.get_view().is_local(coordinate):
            raise NotModelled(
                f"Device {tuple(coordinate)} belongs to another process, and kernels reach only devices of their "
                "own. Use a collective or a socket between processes."
            )
        return self.add(box_of(self.mesh, MeshCoordinateRange(coordinate, coordinate)), strict)
