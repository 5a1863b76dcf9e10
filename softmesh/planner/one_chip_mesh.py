"""A mesh of one chip on which functions are captured: it has the chip's cores, and memory without end."""

from __future__ import annotations

from softmesh.fabric.system import ElasticSystem
from softmesh.mesh import MeshShape
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.allocator import Allocator
from softmesh.runtime.memory.out_of_memory import MemoryPolicy
from softmesh.systems.chip import Chip


class _OneChip(ElasticSystem):
    name = "one chip"

    def __init__(self, chip: Chip) -> None:
        super().__init__(visible=1)
        self.chip = chip


def one_chip_mesh(chip: Chip) -> MeshDevice:
    mesh = MeshDevice(MeshShape(1, 1), [0], _OneChip(chip))
    mesh.memory = Allocator(mesh.memory.memory_map, MemoryPolicy.OFF)
    return mesh
