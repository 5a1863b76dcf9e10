"""The devices that one set of kernel threads stands for: a whole range of the mesh, or a single one.

Knows the cores and banks behind a NoC address. All memory of one chip is reached from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware import RoutingDirection
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.engine.core import Core
from softmesh.kernels.engine.memory import Box, Memory
from softmesh.kernels.engine.noc_address import Place
from softmesh.kernels.engine.regions import BufferBytes
from softmesh.kernels.engine.strict import StrictL1

if TYPE_CHECKING:
    from softmesh.kernels.engine.fleet import Fleet
    from softmesh.kernels.engine.remote_fifo import RemoteFifo
    from softmesh.kernels.fabric.link import Link

_IN_L1 = (BufferType.L1, BufferType.L1_SMALL)


class DramBank:
    """One bank of one chip, as a place to read from and write to."""

    def __init__(self, chip: Chip, bank: int) -> None:
        self.chip = chip
        self.bank = bank

    def __str__(self) -> str:
        return f"DRAM bank {self.bank}"

    def read(self, address: int, size: int) -> torch.Tensor:
        memory = self.chip.memory(BufferType.DRAM, address)
        if self.chip.is_strict:
            memory.check_written()
        return memory.read(self.chip.box, self.bank, address, size)

    def write(self, address: int, values: torch.Tensor) -> None:
        self.chip.memory(BufferType.DRAM, address).write(self.chip.box, self.bank, address, values)


class Chip:
    def __init__(self, fleet: Fleet, box: Box, strict: bool) -> None:
        mesh = fleet.mesh
        self.fleet = fleet
        self.mesh = mesh
        self.box = box
        self.memories = fleet.memories
        self.scheduler = fleet.scheduler
        self.is_strict = strict
        self.rank = mesh.shape.dims()
        self.links: dict[
            tuple[RoutingDirection, int], Link
        ] = {}  # to other chips, that kernels have asked for
        self.remote_fifos: dict[tuple[int, CoreCoord], RemoteFifo] = {}  # by buffer and sender
        self._cores: dict[CoreCoord, Core] = {}
        self._banks: dict[int, DramBank] = {}
        self._l1_banks: dict[CoreCoord, int] = {}
        self._grid, self._first_worker, self._num_banks = fleet.facts

    @property
    def name(self) -> str:
        start, end = self.box.place.start, self.box.place.end
        if start == end:
            return f"device {tuple(start)}"
        return f"devices {tuple(start)} to {tuple(end)}"

    @property
    def stands_for_many(self) -> bool:
        return self.box.stands_for_many

    def core(self, place: CoreCoord) -> Core:
        """By its logical place."""
        if place not in self._cores:
            self._cores[place] = core = Core(self, place)
            core.strict = StrictL1(core) if self.is_strict else None
        return self._cores[place]

    def dismiss(self) -> None:
        for core in self._cores.values():
            core.dismiss()
        for held in (self._cores, self._banks, self.links, self.remote_fifos):
            held.clear()

    def at(self, place: Place) -> Core | DramBank:
        """What stands at a place of the NoC: worker cores under virtual coordinates, DRAM banks in row 0."""
        x, y = place.x - self._first_worker.x, place.y - self._first_worker.y
        if 0 <= x < self._grid.x and 0 <= y < self._grid.y:
            return self.core(CoreCoord(x, y))
        if place.y == 0 and place.x < self._num_banks:
            return self.bank(BufferType.DRAM, place.x)
        last_x, last_y = self._first_worker.x + self._grid.x - 1, self._first_worker.y + self._grid.y - 1
        raise MeshError(
            f"Nothing is at NoC coordinate ({place.x}, {place.y}): worker cores are at ({self._first_worker.x}, "
            f"{self._first_worker.y}) to ({last_x}, {last_y}) (worker_core_from_logical_core gives them), DRAM banks "
            f"at (0, 0) to ({self._num_banks - 1}, 0)."
        )

    def bank(self, buffer_type: BufferType, bank: int) -> Core | DramBank:
        """By its number."""
        if buffer_type is not BufferType.DRAM:
            return self.core(self.core_of_bank(bank))
        if bank not in self._banks:
            self._banks[bank] = DramBank(self, bank)
        return self._banks[bank]

    def num_banks(self, buffer_type: BufferType) -> int:
        return self._num_banks if buffer_type is BufferType.DRAM else self._grid.x * self._grid.y

    def alignment(self, buffer_type: BufferType) -> int:
        chip = self.mesh.system.chip
        return chip.dram_alignment if buffer_type is BufferType.DRAM else chip.l1_alignment

    def core_of_bank(self, bank: int) -> CoreCoord:
        return self.mesh.allocator().get_logical_core_from_bank_id(bank)

    def memory(self, buffer_type: BufferType, address: int) -> Memory:
        memory = self.memories.at(buffer_type, address)
        if memory is None:
            raise MeshError(
                f"{buffer_type.name} address {address} belongs to no live buffer or tensor. Was it deallocated, or "
                "is the address not the one that buffer.address() or tensor.buffer_address() gives?"
            )
        return memory

    def l1_buffer(self, core: Core, address: int) -> BufferBytes | None:
        """The part of a buffer in L1 that this core holds."""
        for buffer_type in _IN_L1:
            memory = self.memories.at(buffer_type, address)
            if memory is not None:
                return BufferBytes(memory, self.box, self._l1_bank(core.place), self.mesh.torch_device)
        return None

    def _l1_bank(self, place: CoreCoord) -> int:
        if place not in self._l1_banks:
            (self._l1_banks[place],) = self.mesh.allocator().get_bank_ids_from_logical_core(
                BufferType.L1, place
            )
        return self._l1_banks[place]
