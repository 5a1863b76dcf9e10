"""SpecProgram: a card's program (`ProgramSpec`, with its arguments) as one that a mesh of `ttnn` runs.

`MeshWorkload.add_program` takes what `enqueue_mesh_workload` takes, so that one workload serves both kinds of meshes:
cards, whose drivers compile the spec, and a `ttnn` mesh, where its Python kernels work on the buffers and tensors that
lie at the addresses they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.drivers.heap import region_of
from softmesh.drivers.launches import chosen_cores, core_args
from softmesh.drivers.protocol import Args, DriverInfo, Handle, MemoryKind, ProgramSpec, Xy, data_sheet
from softmesh.drivers.python_kernels import Core, Counter, Fifo, Pages, run_cooperatively
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.enums import BufferType
from softmesh.kernels.engine.buffer_view import MeshSlice
from softmesh.kernels.engine.simulated_chip import mesh_slice_of
from softmesh.kernels.engine.tensor_view import BufferTable
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.buffers.mesh_memory import owner_at
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.workload import CONVERTERS, Touched

_KINDS = {"dram": BufferType.DRAM, "l1": BufferType.L1}


class SpecProgram:
    """One `ProgramSpec` with its arguments, as a program of a workload."""

    def __init__(self, spec: ProgramSpec, args: Args = ()) -> None:
        self.spec, self.args = spec, args

    @classmethod
    def of(cls, given: Any) -> SpecProgram | None:
        """Of a spec, or of a spec and its arguments; None of anything else."""
        if isinstance(given, ProgramSpec):
            return cls(given)
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], ProgramSpec):
            return cls(*given)
        return None

    def validate(self, mesh: MeshDevice) -> None:
        for role, kernel in self.spec.kernels.items():
            if not callable(kernel):
                raise ArgumentError(
                    f"the {role} of program {self.spec.name!r} must be a function of a Core on a ttnn mesh, got a "
                    f"{type(kernel).__name__}"
                )
        core_args(self.args, self._cores(mesh))

    def compile(self, mesh: MeshDevice) -> None:
        """Python functions run as they are."""

    def sub_device_cores(self) -> CoreRangeSet:
        cores = self.spec.cores
        if isinstance(cores, str | int):  # the first ones, as many as there are: any sub-device has those
            return CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(0, 0))])
        return CoreRangeSet([CoreRange(CoreCoord(*xy), CoreCoord(*xy)) for xy in cores])

    def launch(self, mesh: MeshDevice, coordinate_range: MeshCoordinateRange, queue: MeshCommandQueue) -> Touched:
        table = BufferTable(partial(owner_at, mesh))
        for device in coordinate_range:
            if mesh.get_view().is_local(device):
                self._run_on(mesh, _ChipBytes(table, mesh_slice_of(mesh, MeshCoordinateRange(device, device))))
        table.write_back()
        table.store()
        return table.touched()

    def _cores(self, mesh: MeshDevice) -> list[Xy]:
        grid = mesh.compute_with_storage_grid_size()
        return chosen_cores(self.spec.cores, [(x, y) for y in range(grid.y) for x in range(grid.x)])

    def _run_on(self, mesh: MeshDevice, memory: _ChipBytes) -> None:
        spec, cores = self.spec, self._cores(mesh)
        given = core_args(self.args, cores)
        info = data_sheet(mesh.system.chip, kind="ttnn", index=0, serial="")
        counters = {xy: [Counter(f"semaphore {i} of core {xy}") for i in range(spec.semaphores)] for xy in cores}
        kernels: dict[str, Callable[[], None]] = {}
        for index, xy in enumerate(cores):
            fifos = {cb.index: Fifo(cb) for cb in spec.cbs}
            core = Core(index, cores, given[index], spec.compile_args, partial(_pages, info, memory), fifos, counters)
            for role, kernel in spec.kernels.items():
                kernels[f"{role} on core {xy}"] = partial(kernel, core)
        run_cooperatively(kernels)


class _ChipBytes:
    """The memory of one chip of a mesh, under handles."""

    def __init__(self, table: BufferTable, chip: MeshSlice) -> None:
        self._table, self._chip = table, chip

    def read(self, handle: Handle, offset: int, size: int) -> bytearray:
        found = bytearray()
        for bank, address, _, length in handle.pieces(offset, size):
            held = self._view(handle.mem, address).read(self._chip, bank, address, length)
            found += bytes(held.reshape(-1)[-length:].tolist())
        return found

    def write(self, handle: Handle, offset: int, data: bytes | bytearray | memoryview) -> None:
        for bank, address, start, length in handle.pieces(offset, len(data)):
            part = bytearray(data[start - offset : start - offset + length])
            values = torch.frombuffer(part, dtype=torch.uint8).reshape(*(1,) * len(self._chip.extents), length)
            self._view(handle.mem, address).write(self._chip, bank, address, values)

    def _view(self, mem: MemoryKind, address: int) -> Any:
        found = self._table.at(_KINDS[mem], address)
        if found is None:
            raise MeshError(f"address {hex(address)} of {mem} belongs to no buffer or tensor of this mesh")
        return found


def _pages(info: DriverInfo, memory: _ChipBytes, mem: MemoryKind, banks: int | None, at: int, size: int) -> Pages:
    region = region_of(info, mem)
    return Pages(memory, mem, region if banks is None else replace(region, banks=min(banks, region.banks)), at, size)


def programs_of(workload: object) -> Sequence[tuple[object, object]] | None:
    """The ranges and programs of a MeshWorkload, with specs as they were given; None of anything else."""
    programs = getattr(workload, "get_programs", None)
    if programs is None:
        return None
    return [(where, (one.spec, one.args) if isinstance(one, SpecProgram) else one) for where, one in programs().items()]


CONVERTERS.append(SpecProgram.of)
