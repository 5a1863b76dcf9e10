"""MeshWorkload: which program runs on which rectangle of a mesh.

Knows ranges, finalisation and sub-devices. Knows nothing of kernels: a program is anything that can be
checked, compiled and launched on a range. What the first enqueue finds out is kept for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from softmesh.arguments import checked, described, refused
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshCoordinateRange, MeshShape

if TYPE_CHECKING:
    from softmesh.runtime.buffers.paged_memory import PagedMemory
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.queues.command_queue import MeshCommandQueue
    from softmesh.runtime.queues.sub_devices import Manager


class Touched(NamedTuple):
    """The memories that a launch read and wrote, for those who observe the stream of commands."""

    reads: tuple[PagedMemory, ...] = ()
    writes: tuple[PagedMemory, ...] = ()


class RunnableProgram(Protocol):
    """One chip's program, run on every chip of a range."""

    def validate(self, mesh: MeshDevice) -> None:
        """Raise where the program cannot run on this mesh as it stands; asked before every launch."""
        ...

    def compile(self, mesh: MeshDevice) -> None:
        """Asked once, when the workload is first enqueued; nothing may be added to the program afterwards."""
        ...

    def sub_device_cores(self) -> CoreRangeSet:
        """All cores it has kernels on."""
        ...

    def launch(
        self, mesh: MeshDevice, coordinate_range: MeshCoordinateRange, queue: MeshCommandQueue
    ) -> Touched | None:
        """Run to the end on every device of the range."""
        ...


Part = tuple[MeshCoordinateRange, RunnableProgram]
Run = Callable[["MeshDevice", "MeshCommandQueue"], "Touched | None"]


@runtime_checkable
class Freezes(Protocol):
    """A program that can hand out a copy with the arguments it has now: a trace replays those."""

    def frozen(self) -> RunnableProgram: ...


@runtime_checkable
class RunsWithOthers(Protocol):
    """A program whose kernels may wait for kernels on other ranges of the same workload.

    `plan_together` of the first one is then asked once for all of them, and what it returns is called at every
    launch, in place of `launch` one by one.
    """

    def plan_together(self, mesh: MeshDevice, parts: Sequence[Part]) -> Run: ...


# What makes a program of something else that `add_program` may be given; None where it is not of that kind.
CONVERTERS: list[Callable[[object], RunnableProgram | None]] = []


class _Fit(NamedTuple):
    """A workload was found to fit a mesh: true for as long as it has this shape and its cores are divided so."""

    mesh_id: int
    shape: MeshShape
    manager: Manager
    sub_device: int  # that all programs run on

    def holds_for(self, mesh: MeshDevice) -> bool:
        is_same = self.shape is mesh.shape and self.manager is mesh.sub_devices.active
        return is_same and self.mesh_id == mesh.id()


class MeshWorkload:
    """Programs by the rectangles of a mesh they run on; what no rectangle covers runs nothing.

    From its first enqueue on it belongs to that mesh, and no program can be added; arguments of its programs
    can still be changed.
    """

    def __init__(self) -> None:
        self._programs: dict[MeshCoordinateRange, RunnableProgram] = {}
        self._mesh_id: int | None = None
        self._manager: Manager | None = None
        self._fit: _Fit | None = None
        self._run: Run | None = None

    def __repr__(self) -> str:
        return f"MeshWorkload({', '.join(f'{box}: {program!r}' for box, program in self._programs.items()) or 'empty'})"

    def add_program(self, device_range: MeshCoordinateRange, program: RunnableProgram) -> None:
        where = "add_program"
        box = checked(where, "device_range", device_range, MeshCoordinateRange, "a ttnn.MeshCoordinateRange")
        program = next((made for convert in CONVERTERS if (made := convert(program)) is not None), program)
        if not callable(getattr(program, "launch", None)):
            raise refused(where, f"program must be a Program, got {described(program)}")
        if self.is_finalised:
            raise MeshError(
                "Cannot add programs to a MeshWorkload that has been enqueued: it was compiled and laid out then. Make "
                "a new MeshWorkload."
            )
        for other in self._programs:
            if box.dims() == other.dims() and box.intersection(other) is not None:
                raise MeshError(
                    f"Program range {box} overlaps with the previously added range {other}: each device runs one "
                    "program of a workload."
                )
        self._programs[box] = program

    def get_programs(self) -> dict[MeshCoordinateRange, RunnableProgram]:
        """By range; the programs' arguments may be changed between enqueues."""
        return dict(self._programs)

    @property
    def is_finalised(self) -> bool:
        return self._mesh_id is not None

    def coordinates(self) -> list[MeshCoordinate]:
        return [coordinate for box in self._programs for coordinate in box]

    def prepare(self, mesh: MeshDevice) -> int:
        """Before each launch: check everything; the first time, compile it for good. The sub-device it runs on."""
        fit = self._fit
        if fit is None or not self.is_finalised or not fit.holds_for(mesh):
            fit = self._fitted(mesh)
        for program in self._programs.values():
            program.validate(mesh)
        if not self.is_finalised:
            for program in self._programs.values():
                program.compile(mesh)
            self._mesh_id, self._manager = mesh.id(), mesh.sub_devices.active
        return fit.sub_device

    def _fitted(self, mesh: MeshDevice) -> _Fit:
        self._check_mesh(mesh)
        self._run = None
        self._fit = _Fit(mesh.id(), mesh.shape, mesh.sub_devices.active, self._sub_device(mesh))
        return self._fit

    def _sub_device(self, mesh: MeshDevice) -> int:
        """The number of the one sub-device that all programs run on."""
        used = {0} if mesh.sub_devices.active.is_default and self._programs else set()
        for program in self._programs.values():
            used |= mesh.sub_devices.of_cores(program.sub_device_cores())
        if len(used) != 1:
            raise MeshError(
                "Programs must be executed on a single sub-device: those of this workload use "
                f"{sorted(used) or 'none'}. Make a workload for each."
            )
        return used.pop()

    def _check_mesh(self, mesh: MeshDevice) -> None:
        whole = MeshCoordinateRange(mesh.shape)
        for box in self._programs:
            if box.dims() != whole.dims() or not whole.contains(box):
                raise MeshError(f"Program range {box} lies outside the mesh, which is {mesh.shape}.")
        if self._mesh_id not in (None, mesh.id()):
            raise MeshError(
                f"MeshWorkload was first enqueued on mesh {self._mesh_id} and cannot run on mesh {mesh.id()}: make a "
                "workload for each mesh."
            )
        active = mesh.sub_devices.active
        if self._manager not in (None, active):
            assert self._manager is not None
            raise MeshError(
                f"MeshWorkload was compiled under sub-device manager {self._manager.id}, and {active.id} is loaded "
                "now: load the first again, or make a new workload."
            )

    def frozen(self) -> MeshWorkload:
        """As it is now, whatever becomes of its programs' arguments."""
        made = MeshWorkload()
        made._mesh_id, made._manager, made._fit = self._mesh_id, self._manager, self._fit
        made._programs = {
            box: program.frozen() if isinstance(program, Freezes) else program
            for box, program in self._programs.items()
        }
        return made

    def run(self, mesh: MeshDevice, queue: MeshCommandQueue) -> Touched:
        """Launch all programs, to the end."""
        if self._run is None:
            self._run = self._planned(mesh)
        return self._run(mesh, queue) or Touched()

    def _planned(self, mesh: MeshDevice) -> Run:
        parts = list(self._programs.items())
        first = parts[0][1]
        if isinstance(first, RunsWithOthers):
            return first.plan_together(mesh, parts)

        def one_by_one(mesh: MeshDevice, queue: MeshCommandQueue) -> Touched:
            touched = [program.launch(mesh, box, queue) or Touched() for box, program in parts]
            return Touched(
                tuple(memory for one in touched for memory in one.reads),
                tuple(memory for one in touched for memory in one.writes),
            )

        return one_by_one
