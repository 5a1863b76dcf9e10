"""Running programs on ranges of a mesh: once for a whole range where its devices need not be told apart.

Values carry the mesh dims, so one run serves every device of a range. When a kernel reads a number that is
not the same on all of them, or speaks to another chip, what was written is forgotten and the launch starts
again with a run for each device, all of them under one scheduler. A program remembers that it came to this.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.engine.chip import Chip
from softmesh.kernels.engine.core import Core
from softmesh.kernels.engine.fifo import Fifo, Format
from softmesh.kernels.engine.fleet import ChipFacts, Fleet, box_of
from softmesh.kernels.engine.held_bytes import one_thread
from softmesh.kernels.engine.memory import Box
from softmesh.kernels.engine.processor import Processor
from softmesh.kernels.engine.regions import OwnBytes, Words
from softmesh.kernels.engine.registers import Registers, capacity_of
from softmesh.kernels.engine.remote_fifo import end_of
from softmesh.kernels.engine.thread import DevicesDiffer, KernelThread
from softmesh.kernels.engine.transfers import DelayedTransfers, Transfers
from softmesh.kernels.program.circular_buffer import CircularBuffer
from softmesh.kernels.program.configs import ComputeConfig
from softmesh.kernels.program.kernel import Kernel
from softmesh.kernels.program.semaphore import MOST_SEMAPHORES
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.buffers.finding import LaidOut, owner_at
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.pool import Uncounted
from softmesh.runtime.queues.workload import Touched

if TYPE_CHECKING:
    from softmesh.kernels.program.program import Program

_SEMAPHORE_BYTES = 16


Parts = Sequence[tuple[MeshCoordinateRange, "Program"]]


class Launch:
    """Programs on their ranges of a mesh, as far as that is known before they run; may be run many times.

    Holds no mesh, for workloads keep it.
    """

    def __init__(self, mesh: MeshDevice, parts: Parts) -> None:
        if isinstance(mesh.memory.pools[BufferType.DRAM], Uncounted):
            raise MeshError(
                "Kernels find memory by its address, and SOFTMESH_MEMORY=off gives none: set track or enforce."
            )
        local = mesh.get_view().get_local_mesh_coord_range()
        places = ((place.intersection(local), program) for place, program in parts)
        self._facts = ChipFacts.of(mesh)
        self._own = [(box_of(mesh, place), program) for place, program in places if place is not None]
        self._many = [program for box, program in self._own if box.stands_for_many]
        self._each: list[tuple[Box, Program]] | None = None  # device by device, once that was needed

    def run(self, mesh: MeshDevice, known: Sequence[LaidOut] = ()) -> Touched:
        """`known`: memories that need not be looked for by their address."""
        if not any(program.kernels for _, program in self._own):
            return Touched()
        if self._many and not any(program.runs_apart for program in self._many):
            try:
                return _run(self._manned(mesh, self._own, known))
            except DevicesDiffer:
                for program in self._many:
                    program.runs_apart = True
        return _run(self._manned(mesh, self._device_by_device(mesh), known))

    def _device_by_device(self, mesh: MeshDevice) -> list[tuple[Box, Program]]:
        if self._each is None:
            self._each = [
                (box_of(mesh, MeshCoordinateRange(device, device)), program)
                for box, program in self._own
                for device in box.place
            ]
        return self._each

    def _manned(
        self,
        mesh: MeshDevice,
        parts: Sequence[tuple[Box, Program]],
        known: Sequence[LaidOut],
    ) -> Fleet:
        fleet = Fleet(mesh, self._facts, functools.partial(owner_at, mesh))
        for memory in known:
            fleet.memories.add(memory)
        for box, program in parts:
            _man(fleet.add(box, program.is_strict), program)
        return fleet


def _run(fleet: Fleet) -> Touched:
    try:
        with one_thread():
            fleet.scheduler.run()
            fleet.memories.write_back()
        fleet.store()
        return fleet.memories.touched()
    finally:
        fleet.dismiss()


def _man(chip: Chip, program: Program) -> None:
    """Give a chip everything its program has: circular buffers, semaphores, threads."""
    for buffer in program.circular_buffers:
        formats = buffer.config.formats()
        for place in buffer.places:
            _add_circular_buffer(chip.core(place), buffer, formats)
            if buffer.shared is not None:
                for index, page_size in buffer.config.remote_page_sizes.items():
                    end = end_of(chip, buffer.shared, place, index, page_size)
                    chip.core(place).remote_ends[index] = end
    for semaphore in program.semaphores:
        for core_range in semaphore.cores.ranges():
            for place in core_range.cores():
                _add_semaphore(chip.core(place), semaphore.id, semaphore.initial_value)
    for kernel in program.kernels:
        for place in kernel.places:
            chip.scheduler.add(_thread(chip, kernel, place))


def _add_circular_buffer(core: Core, buffer: CircularBuffer, formats: Sequence[Format]) -> None:
    size = buffer.config.total_size
    if buffer.is_static:
        name = f"circular buffer {', '.join(str(format.index) for format in formats)}"
        core.add_region(OwnBytes(name, buffer.address, size, core.chip.rank, core.chip.mesh.torch_device))
    for format in formats:
        core.fifos[format.index] = Fifo(
            core, format, buffer.address, size // format.page_size, is_aliased=not buffer.is_static
        )


def _add_semaphore(core: Core, id: int, value: int) -> None:
    """They lie at the end of the kernels' configuration, below the memory of circular buffers."""
    size = MOST_SEMAPHORES * _SEMAPHORE_BYTES
    start = core.chip.mesh.memory.get_base_allocator_addr(BufferType.L1) - size
    if not core.semaphores:
        core.add_region(Words("semaphores", start, size, core.chip.rank, core.chip.mesh.torch_device))
    core.semaphores[id] = start + id * _SEMAPHORE_BYTES
    core.store(core.semaphores[id], value)


def _thread(chip: Chip, kernel: Kernel, place: CoreCoord) -> KernelThread:
    thread = KernelThread(chip.scheduler, chip.core(place), kernel, kernel.args.get(place, ()))
    config = kernel.config
    if kernel.processor is not Processor.TRISC:
        thread.transfers = DelayedTransfers(thread) if chip.is_strict else Transfers(thread)
    elif isinstance(config, ComputeConfig):
        count = capacity_of(is_fp32=config.fp32_dest_acc_en, is_full_sync=config.dst_full_sync_en)
        thread.registers = Registers(count)
    return thread
