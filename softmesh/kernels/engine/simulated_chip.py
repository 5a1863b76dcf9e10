"""Simulated chips of a launch: the cores and DRAM banks behind NoC addresses.

One SimulatedChip stands for a whole range of the mesh, or for a single device; all memory of a chip is reached from
it. LaunchState has all chips of a launch, and the buffer table and the scheduler that they share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import torch

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError, NotModelled
from softmesh.hardware import RoutingDirection
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.engine.buffer_view import BufferView, MeshSlice
from softmesh.kernels.engine.conflicts import Findings
from softmesh.kernels.engine.leftovers import SemaphoreWaits
from softmesh.kernels.engine.memory_order import Access
from softmesh.kernels.engine.noc_address import NocCoord
from softmesh.kernels.engine.page_contents import Content
from softmesh.kernels.engine.scheduler import DevicesDiffer, Scheduler
from softmesh.kernels.engine.tensor_view import BufferTable, Find
from softmesh.kernels.engine.touched_bytes import TouchedBytes
from softmesh.kernels.engine.worker_core import Core, L1BufferRegion, StrictL1
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange
from softmesh.runtime.device import MeshDevice

if TYPE_CHECKING:
    from softmesh.kernels.engine.fabric_links import Link
    from softmesh.kernels.engine.fifo import RemoteFifo

_IN_L1 = (BufferType.L1, BufferType.L1_SMALL)


class DramBank:
    """One bank of one chip, as a place to read from and write to."""

    def __init__(self, chip: SimulatedChip, bank: int) -> None:
        self.chip = chip
        self.bank = bank
        self.touched = TouchedBytes(self)

    def __str__(self) -> str:
        return f"DRAM bank {self.bank}"

    def what_is_at(self, address: int) -> tuple[str, bool]:
        memory = self.chip.memory(BufferType.DRAM, address)
        place = memory.paged.page_at(self.bank, address)
        page = "" if place is None else f"page {place[0]} of "
        return f"{page}the DRAM buffer at {memory.paged.address}", False

    def content_at(self, address: int) -> Content | None:
        dtype = self.chip.memory(BufferType.DRAM, address).dtype
        return None if dtype is None else Content(dtype, is_packed=False)

    def read(self, address: int, size: int, access: Access | None = None) -> torch.Tensor:
        memory = self.chip.memory(BufferType.DRAM, address)
        memory.check_written(self.chip.is_strict)
        access = access or self.chip.scheduler.access()
        if access is not None:
            self.touched.read(access, address, size)
        return memory.read(self.chip.mesh_slice, self.bank, address, size)

    def write(self, address: int, values: torch.Tensor, access: Access | None = None) -> None:
        memory = self.chip.memory(BufferType.DRAM, address)
        access = access or self.chip.scheduler.access()
        if access is not None:
            self.touched.write(access, address, values.shape[-1])
        memory.write(self.chip.mesh_slice, self.bank, address, values)


class SimulatedChip:
    def __init__(self, launch_state: LaunchState, mesh_slice: MeshSlice, strict: bool) -> None:
        mesh = launch_state.mesh
        self.launch_state = launch_state
        self.mesh = mesh
        self.mesh_slice = mesh_slice
        self.buffer_table = launch_state.buffer_table
        self.scheduler = launch_state.scheduler
        self.is_strict = strict
        self.rank = mesh.shape.dims()
        self.links: dict[tuple[RoutingDirection, int], Link] = {}  # to other chips, that kernels have asked for
        self.remote_fifos: dict[tuple[int, CoreCoord], RemoteFifo] = {}  # by buffer and sender
        self._cores: dict[CoreCoord, Core] = {}
        self._banks: dict[int, DramBank] = {}
        self._l1_banks: dict[CoreCoord, int] = {}
        self._grid, self._first_worker, self._num_banks = launch_state.facts

    @property
    def name(self) -> str:
        start, end = self.mesh_slice.place.start, self.mesh_slice.place.end
        if start == end:
            return f"device {tuple(start)}"
        return f"devices {tuple(start)} to {tuple(end)}"

    @property
    def covers_many_devices(self) -> bool:
        return self.mesh_slice.covers_many_devices

    def core(self, place: CoreCoord) -> Core:
        """By its logical place."""
        if place not in self._cores:
            self._cores[place] = core = Core(self, place)
            core.strict = StrictL1(core) if self.is_strict else None
        return self._cores[place]

    def cores(self) -> Iterable[Core]:
        """Those that a program, or a transfer, has come to."""
        return self._cores.values()

    def drop_references(self) -> None:
        for core in self._cores.values():
            core.drop_references()
        for bank in self._banks.values():
            bank.touched.drop_references()
        for held in (self._cores, self._banks, self.links, self.remote_fifos):
            held.clear()

    def at(self, place: NocCoord) -> Core | DramBank:
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

    def memory(self, buffer_type: BufferType, address: int) -> BufferView:
        memory = self.buffer_table.at(buffer_type, address)
        if memory is None:
            raise MeshError(
                f"{buffer_type.name} address {address} belongs to no live buffer or tensor. Was it deallocated, or "
                "is the address not the one that buffer.address() or tensor.buffer_address() gives?"
            )
        return memory

    def l1_buffer(self, core: Core, address: int) -> L1BufferRegion | None:
        """The part of a buffer in L1 that this core holds."""
        for buffer_type in _IN_L1:
            memory = self.buffer_table.at(buffer_type, address)
            if memory is not None:
                bank = self._l1_bank(core.place)
                return L1BufferRegion(memory, self.mesh_slice, bank, core.place, self.mesh.torch_device)
        return None

    def _l1_bank(self, place: CoreCoord) -> int:
        if place not in self._l1_banks:
            (self._l1_banks[place],) = self.mesh.allocator().get_bank_ids_from_logical_core(BufferType.L1, place)
        return self._l1_banks[place]


class ChipFacts(NamedTuple):
    """What all chips of a mesh have in common."""

    grid: CoreCoord  # worker cores
    first_worker: CoreCoord  # where they begin on the NoC
    num_banks: int  # of DRAM

    @classmethod
    def of(cls, mesh: MeshDevice) -> ChipFacts:
        first = mesh.worker_core_from_logical_core(CoreCoord(0, 0))
        return cls(mesh.compute_with_storage_grid_size(), first, mesh.dram_grid_size().x)


def mesh_slice_of(mesh: MeshDevice, place: MeshCoordinateRange) -> MeshSlice:
    """A part of the mesh, as a part of what this process holds of it."""
    block = mesh.block
    if block is None:
        return MeshSlice(place, tuple(mesh.shape), (0,) * mesh.shape.dims())
    return MeshSlice(place, block.shape, block.origin)


class LaunchState:
    def __init__(self, mesh: MeshDevice, facts: ChipFacts, find: Find) -> None:
        self.mesh = mesh
        self.facts = facts
        self.scheduler = Scheduler()
        self.buffer_table = BufferTable(find)
        self.findings = Findings()
        self.waits = SemaphoreWaits()
        self._chips: dict[MeshCoordinate, SimulatedChip] = {}  # by the first of their devices

    def chips(self) -> Iterable[SimulatedChip]:
        return self._chips.values()

    def add(self, mesh_slice: MeshSlice, strict: bool) -> SimulatedChip:
        chip = self._chips[mesh_slice.place.start] = SimulatedChip(self, mesh_slice, strict)
        return chip

    def store(self) -> None:
        """The launch went well: what it did is there to stay."""
        self.buffer_table.store()
        for chip in self._chips.values():
            for fifo in chip.remote_fifos.values():
                fifo.store_positions()

    def drop_references(self) -> None:
        """Let go of everything, at once: what runs in greenlets is not always found by the garbage collector."""
        for chip in self._chips.values():
            chip.drop_references()
        self._chips.clear()
        self.findings.drop_references()
        self.scheduler.drop_references()

    def device(self, coordinate: MeshCoordinate, strict: bool) -> SimulatedChip:
        """A single device; one that runs no program is memory to others."""
        found = self._chips.get(coordinate)
        if found is not None and not found.covers_many_devices:
            return found
        if any(
            chip.covers_many_devices and chip.mesh_slice.place.contains(coordinate) for chip in self._chips.values()
        ):
            raise DevicesDiffer
        if not self.mesh.get_view().is_local(coordinate):
            raise NotModelled(
                f"Device {tuple(coordinate)} belongs to another process, and kernels reach only devices of their "
                "own. Use a collective or a socket between processes."
            )
        return self.add(mesh_slice_of(self.mesh, MeshCoordinateRange(coordinate, coordinate)), strict)
