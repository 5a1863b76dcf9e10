"""Program: kernels, circular buffers and semaphores for the cores of one chip, launched on every chip of a range."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware import Arch
from softmesh.kernels.engine.launch import Launch
from softmesh.kernels.program.kernel import NOC_MODE, DataMovementConfig, Kernel
from softmesh.kernels.program.l1_allocation import (
    MOST_SEMAPHORES,
    CircularBuffer,
    Semaphore,
    assign_addresses,
    check_room,
)
from softmesh.mesh import MeshCoordinateRange
from softmesh.strictness import is_strict

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.queues.command_queue import MeshCommandQueue
    from softmesh.runtime.queues.workload import Part, Run, Touched

_IDS = itertools.count(1)
_CB_INDEXES = {Arch.WORMHOLE_B0: 32, Arch.BLACKHOLE: 64}


class Program:
    """Made by `CreateProgram`. `strict` turns strict mode on or off for it; None: as SOFTMESH_STRICT says."""

    def __init__(self, strict: bool | None = None) -> None:
        self.id = next(_IDS)
        self.strict = strict
        self.kernels: list[Kernel] = []
        self.circular_buffers: list[CircularBuffer] = []
        self.semaphores: list[Semaphore] = []
        self.runs_per_device = False  # each device for itself: they differ, or speak to each other
        self._is_final = False
        self._cores = 0, CoreRangeSet([])  # those of so many kernels

    def __repr__(self) -> str:
        names = ", ".join(kernel.name for kernel in self.kernels)
        return f"Program({self.id}: {names or 'no kernels'})"

    @property
    def is_strict(self) -> bool:
        return is_strict() if self.strict is None else self.strict

    # -- building --------------------------------------------------------------------------------

    def add_kernel(self, kernel: Kernel) -> int:
        self._check_open("a kernel")
        for other in self.kernels:
            shared = _shared_core(other.cores, kernel.cores)
            if shared is not None:
                _check_processors(other, kernel, shared)
        self.kernels.append(kernel)
        return len(self.kernels) - 1

    def add_circular_buffer(self, buffer: CircularBuffer) -> int:
        self._check_open("a circular buffer")
        _check_order(buffer, buffer)
        for other in self.circular_buffers:
            if buffer.config.remote_dtypes or other.config.remote_dtypes:
                _check_order(buffer, other)
                _check_order(other, buffer)
            both = sorted(buffer.config.indexes() & other.config.indexes())
            core = _shared_core(other.cores, buffer.cores) if both else None
            if core is not None:
                raise MeshError(
                    f"Invalid circular buffer index: Cannot add circular buffer at index {both[0]} because another "
                    f"circular buffer already exists there on core {core}. Use another index."
                )
        self.circular_buffers.append(buffer)
        return len(self.circular_buffers) - 1

    def add_semaphore(self, cores: CoreRangeSet, initial_value: int, id: int | None = None) -> int:
        """The lowest id that is free on all of these cores, unless one is asked for."""
        self._check_open("a semaphore")
        used = {each.id for each in self.semaphores if _shared_core(each.cores, cores) is not None}
        number = next(i for i in itertools.count() if i not in used) if id is None else id
        if number >= MOST_SEMAPHORES or number < 0:
            raise MeshError(
                f"Unable to initialize semaphores on core range {cores}: a core has {MOST_SEMAPHORES}, ids 0 to "
                f"{MOST_SEMAPHORES - 1}, and the next would be {number}."
            )
        if number in used:
            raise MeshError(f"Semaphore id {number} is taken on core range {cores}: give another.")
        self.semaphores.append(Semaphore(number, cores, initial_value))
        return number

    def _check_open(self, what: str) -> None:
        if self._is_final:
            raise MeshError(
                f"{what[0].upper()}{what[1:]} cannot be added to program {self.id}: it has been enqueued, and with "
                "that it is final. Its runtime args and the addresses of its circular buffers may change; for the "
                "rest make another."
            )

    # -- running ---------------------------------------------------------------------------------

    def sub_device_cores(self) -> CoreRangeSet:
        """Worked out once for the kernels there are."""
        count, cores = self._cores
        for kernel in self.kernels[count:]:
            cores = cores.merge(kernel.cores)
        self._cores = len(self.kernels), cores
        return cores

    def compile(self, mesh: MeshDevice) -> None:
        self._check_cores(mesh)
        self._check_indexes(mesh)
        self._is_final = True

    def validate(self, mesh: MeshDevice) -> None:
        if not self.circular_buffers:
            return
        for buffer in self.circular_buffers:
            if buffer.shared is not None and buffer.shared.device() is not mesh:
                raise MeshError(f"{buffer.shared!r} was made on another mesh than the program runs on.")
        assign_addresses(self.circular_buffers, mesh)
        check_room(self.circular_buffers, mesh, self.id, self.sub_device_cores())

    def frozen(self) -> Program:
        """A copy with the arguments and circular buffers it has now: what a trace replays."""
        made = Program(self.strict)
        made.kernels = [kernel.copy() for kernel in self.kernels]
        made.circular_buffers = [buffer.copy() for buffer in self.circular_buffers]
        made.semaphores = list(self.semaphores)
        made.runs_per_device, made._is_final = self.runs_per_device, self._is_final
        return made

    def launch(
        self, mesh: MeshDevice, coordinate_range: MeshCoordinateRange, queue: MeshCommandQueue | None = None
    ) -> Touched:
        return Launch(mesh, [(coordinate_range, self)]).run(mesh)

    def plan_together(self, mesh: MeshDevice, parts: Sequence[Part]) -> Run:
        """How to run programs of one workload, which may wait for each other, at the same time."""
        planned = Launch(mesh, [(where, _checked_program(program)) for where, program in parts])
        return lambda mesh, queue: planned.run(mesh)

    def _check_cores(self, mesh: MeshDevice) -> None:
        size = mesh.compute_with_storage_grid_size()
        grid = CoreRange(CoreCoord(0, 0), CoreCoord(size.x - 1, size.y - 1))
        placed = [(f"Kernel {kernel.name}", kernel.cores) for kernel in self.kernels]
        placed += [("A circular buffer", buffer.cores) for buffer in self.circular_buffers]
        for what, cores in placed:
            if not grid.contains(cores):
                raise MeshError(
                    f"{what} is placed on {cores}, beyond the {size.x} x {size.y} worker cores of this mesh's chips: "
                    "compute_with_storage_grid_size() gives the grid."
                )

    def _check_indexes(self, mesh: MeshDevice) -> None:
        most = _CB_INDEXES[mesh.arch()]
        for buffer in self.circular_buffers:
            highest = max(buffer.config.indexes())
            if highest >= most:
                raise MeshError(
                    f"Buffer index ({highest}) exceeds max number of circular buffers per core ({most}) of "
                    f"{mesh.system.chip.arch_name}."
                )


def _checked_program(program: object) -> Program:
    if not isinstance(program, Program):
        raise MeshError(f"A workload of kernels runs programs of CreateProgram() only, and {program!r} is not one.")
    return program


def _shared_core(one: CoreRangeSet, other: CoreRangeSet) -> CoreCoord | None:
    """A core that is in both."""
    if not any(a.overlaps(b) for a in one.ranges() for b in other.ranges()):
        return None
    return next(core for core in corerange_to_cores(one) if other.contains(core))


def _check_order(one: CircularBuffer, other: CircularBuffer) -> None:
    """On each core, indexes that see global circular buffers come after the others."""
    local, remote = max(one.config.dtypes, default=-1), min(other.config.remote_dtypes, default=None)
    if remote is not None and local >= remote and _shared_core(one.cores, other.cores) is not None:
        raise MeshError(
            f"Circular buffer indices overlap: {local} is a local index and {remote} a remote one, on cores of "
            f"{one.cores}. Local CB indexes must be lower than remote ones: give the remote one a higher index."
        )


def _check_processors(one: Kernel, other: Kernel, core: CoreCoord) -> None:
    if one.processor is other.processor:
        raise MeshError(
            f"Kernel creation failure: Cannot create kernel {other.name} because core {core} already runs {one.name} "
            f"on {one.processor.name}. A core has one kernel for each of BRISC, NCRISC and compute: put it on another."
        )
    if not isinstance(one.config, DataMovementConfig) or not isinstance(other.config, DataMovementConfig):
        return
    dedicated = NOC_MODE.DM_DEDICATED_NOC in (one.config.noc_mode, other.config.noc_mode)
    if dedicated and one.config.noc is other.config.noc:
        raise MeshError(
            f"Illegal NOC usage: data movement kernels on logical core range {CoreRange(core, core)} cannot use the "
            f"same NOC, doing so results in hangs! {one.name} and {other.name} both use {one.config.noc}: give one "
            "of them the other."
        )
