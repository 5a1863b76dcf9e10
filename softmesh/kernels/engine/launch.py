"""Launches of programs on ranges of a mesh: one simulation for a whole range, or one for each device where they differ.

Values carry the mesh dims, so one run serves every device of a range. When a kernel reads a number that is
not the same on all of them, or sends to another chip, what was written is discarded and the launch starts
again with a run for each device, all of them under one scheduler. A program remembers that it came to this.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.engine.buffer_view import MeshSlice
from softmesh.kernels.engine.byte_overlay import single_torch_thread
from softmesh.kernels.engine.dst_registers import Registers, capacity_of
from softmesh.kernels.engine.fifo import Fifo, Format, remote_end_of
from softmesh.kernels.engine.leftovers import remember, tell_open_connections, tell_undrained
from softmesh.kernels.engine.scheduler import DevicesDiffer, KernelsStuck, KernelThread
from softmesh.kernels.engine.simulated_chip import (
    ChipFacts,
    LaunchState,
    SimulatedChip,
    mesh_slice_of,
)
from softmesh.kernels.engine.transfers import DelayedTransfers, Transfers
from softmesh.kernels.engine.worker_core import CircularBufferRegion, Core, SemaphoreRegion
from softmesh.kernels.program.kernel import ComputeConfig, Kernel, Processor
from softmesh.kernels.program.l1_allocation import MOST_SEMAPHORES, CircularBuffer
from softmesh.mesh import MeshCoordinateRange
from softmesh.placement.placements import REPLICATE
from softmesh.runtime.buffers.mesh_memory import MemoryWithLayout, owner_at
from softmesh.runtime.buffers.paged_memory import PagedMemory
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.untracked_pool import UntrackedPool
from softmesh.runtime.queues.workload import Touched
from softmesh.strictness import doubt, is_strict
from softmesh.tensor.device_pages import TensorBytes

if TYPE_CHECKING:
    from softmesh.kernels.program.program import Program
    from softmesh.processes.rank_grid import RankGrid

_SEMAPHORE_BYTES = 16


Parts = Sequence[tuple[MeshCoordinateRange, "Program"]]


class Launch:
    """Programs on their ranges of a mesh, as far as that is known before they run; may be run many times.

    Holds no mesh, for workloads keep it.
    """

    def __init__(self, mesh: MeshDevice, parts: Parts) -> None:
        if isinstance(mesh.memory.pools[BufferType.DRAM], UntrackedPool):
            raise MeshError(
                "Kernels find memory by its address, and SOFTMESH_MEMORY=off gives none: set track or enforce."
            )
        local = mesh.get_view().get_local_mesh_coord_range()
        places = ((place.intersection(local), program) for place, program in parts)
        self._facts = ChipFacts.of(mesh)
        self._own = [(mesh_slice_of(mesh, place), program) for place, program in places if place is not None]
        self._is_alike = len(parts) == 1 and parts[0][0].shape().mesh_size() == mesh.shape.mesh_size()
        self._many = [program for mesh_slice, program in self._own if mesh_slice.covers_many_devices]
        self._each: list[tuple[MeshSlice, Program]] | None = None  # device by device, once that was needed

    def run(self, mesh: MeshDevice, known: Sequence[MemoryWithLayout] = ()) -> Touched:
        """`known`: memories that need not be looked for by their address."""
        touched = self._run(mesh, known)
        if is_strict():
            _doubt_old_addresses(mesh, [program for _, program in self._own], touched)
        if mesh.ranks is not None and self._is_alike:
            _note_apart(touched, mesh.ranks.split_axes(range(mesh.shape.dims())))
        elif mesh.ranks is not None:
            _note_apart_everywhere(mesh, mesh.ranks, touched)
        return touched

    def _run(self, mesh: MeshDevice, known: Sequence[MemoryWithLayout]) -> Touched:
        if not any(program.kernels for _, program in self._own):
            return Touched()
        if self._many and not any(program.runs_per_device for program in self._many):
            try:
                return _run(self._prepared(mesh, self._own, known))
            except DevicesDiffer:
                for program in self._many:
                    program.runs_per_device = True
        return _run(self._prepared(mesh, self._device_by_device(mesh), known))

    def _device_by_device(self, mesh: MeshDevice) -> list[tuple[MeshSlice, Program]]:
        if self._each is None:
            self._each = [
                (mesh_slice_of(mesh, MeshCoordinateRange(device, device)), program)
                for mesh_slice, program in self._own
                for device in mesh_slice.place
            ]
        return self._each

    def _prepared(
        self,
        mesh: MeshDevice,
        parts: Sequence[tuple[MeshSlice, Program]],
        known: Sequence[MemoryWithLayout],
    ) -> LaunchState:
        launch_state = LaunchState(mesh, self._facts, functools.partial(owner_at, mesh))
        for memory in known:
            launch_state.buffer_table.add(memory)
        for mesh_slice, program in parts:
            _load_program(launch_state.add(mesh_slice, program.is_strict), program)
        return launch_state


def _doubt_old_addresses(mesh: MeshDevice, programs: Sequence[Program], touched: Touched) -> None:
    """Warn of memory that was allocated after a kernel had been given its address: the kernel meant another tensor."""
    kernels = [kernel for program in programs for kernel in program.kernels if not kernel.is_frozen]
    for memory in {(one.buffer_type, one.address): one for one in (*touched.reads, *touched.writes)}.values():
        allocation = mesh.memory.at(memory.buffer_type, memory.address)
        if allocation is None:
            continue
        for kernel in kernels:
            given = [set_at for set_at, words in kernel.words() if memory.address in words]
            if given and max(given) < allocation.number:
                doubt(
                    f"Kernel {kernel.name} ({kernel.site}) uses address {memory.address} of "
                    f"{memory.buffer_type.name}, which it was given before {memory!r} was allocated there: what lay "
                    "there then was freed. Give the kernel the address of the tensor that it is to use "
                    "(SetRuntimeArgs) before each launch, or keep the tensor.",
                )


def _note_apart(touched: Touched, axes: Sequence[int]) -> None:
    """All devices ran one program: what it wrote differs between processes where something it read does."""
    apart = [axis for axis in axes if any(_may_differ(memory, axis) for memory in touched.reads)]
    for memory in touched.writes if apart else ():
        if isinstance(memory, TensorBytes):
            memory.tensor.storage.note_apart(apart)


def _note_apart_everywhere(mesh: MeshDevice, ranks: RankGrid, touched: Touched) -> None:
    """Some devices ran another program or none, and their processes learn here what was written elsewhere."""
    own = {(memory.buffer_type.name, memory.address) for memory in touched.writes if isinstance(memory, TensorBytes)}
    told = ranks.context.allgather_bytes(json.dumps(sorted(own)).encode(), op="a launch on a part of the mesh")
    for buffer_type, address in {(kind, at) for message in told for kind, at in json.loads(bytes(message))}:
        memory = owner_at(mesh, BufferType[buffer_type], address)
        if isinstance(memory, TensorBytes):
            memory.tensor.storage.note_apart(range(mesh.shape.dims()))


def _may_differ(memory: PagedMemory, axis: int) -> bool:
    """Whether devices along the axis hold other bytes."""
    if not isinstance(memory, TensorBytes):
        return True
    dist = memory.tensor.storage.dist
    return axis >= dist.lead or dist.placements[axis] is not REPLICATE


def _run(launch_state: LaunchState) -> Touched:
    try:
        with single_torch_thread():
            _run_kernels(launch_state)
            _tell(launch_state)
            left = launch_state.waits.values()
            launch_state.buffer_table.write_back()
        launch_state.store()
        remember(left)
        return launch_state.buffer_table.touched()
    finally:
        launch_state.drop_references()


def _run_kernels(launch_state: LaunchState) -> None:
    try:
        launch_state.scheduler.run()
    except KernelsStuck as error:
        error.args = ("\n".join([str(error), *launch_state.findings.possible_causes()]),)
        raise


def _tell(launch_state: LaunchState) -> None:
    """What went well here, and would not on every run of a chip."""
    launch_state.findings.tell()
    launch_state.waits.tell()
    tell_undrained(launch_state.chips())
    tell_open_connections(launch_state.chips())


def _load_program(chip: SimulatedChip, program: Program) -> None:
    """Give a chip everything its program has: circular buffers, semaphores, threads."""
    for buffer in program.circular_buffers:
        formats = buffer.config.formats()
        for place in buffer.places:
            _add_circular_buffer(chip.core(place), buffer, formats)
            if buffer.shared is not None:
                for index, page_size in buffer.config.remote_page_sizes.items():
                    end = remote_end_of(chip, buffer.shared, place, index, page_size)
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
        core.add_region(CircularBufferRegion(core, name, buffer.address, size))
    for format in formats:
        core.fifos[format.index] = Fifo(
            core, format, buffer.address, size // format.page_size, is_aliased=not buffer.is_static
        )


def _add_semaphore(core: Core, id: int, value: int) -> None:
    """They lie at the end of the kernels' configuration, below the memory of circular buffers."""
    size = MOST_SEMAPHORES * _SEMAPHORE_BYTES
    start = core.chip.mesh.memory.get_base_allocator_addr(BufferType.L1) - size
    if not core.semaphores:
        core.add_region(SemaphoreRegion("semaphores", start, size, core.chip.rank, core.chip.mesh.torch_device))
    core.semaphores[id] = start + id * _SEMAPHORE_BYTES
    core.store(core.semaphores[id], value)
    core.signals.note(core.semaphores[id], value, {})  # whoever is content with that has waited for nobody


def _thread(chip: SimulatedChip, kernel: Kernel, place: CoreCoord) -> KernelThread:
    thread = KernelThread(chip.scheduler, chip.core(place), kernel, kernel.args.get(place, ()))
    config = kernel.config
    if kernel.processor is not Processor.TRISC:
        thread.transfers = DelayedTransfers(thread) if chip.is_strict else Transfers(thread)
    elif isinstance(config, ComputeConfig):
        count = capacity_of(is_fp32=config.fp32_dest_acc_en, is_full_sync=config.dst_full_sync_en)
        thread.registers = Registers(count)
    return thread
