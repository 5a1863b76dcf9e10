"""Programs as TT-NN describes them: the parts of one chip's program, and which ranges of a mesh run which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from softmesh.arguments import checked
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.kernels.descriptors.circular_buffer import CBDescriptor
from softmesh.kernels.descriptors.kernel import KernelDescriptor
from softmesh.mesh import MeshCoordinateRange
from softmesh.native_enum import NativeEnum


class CoreType(NativeEnum):
    """Kinds of cores of a chip. Kernels run on WORKER ones."""

    ARC = 0
    DRAM = 1
    ACTIVE_ETH = 2
    IDLE_ETH = 3
    PCIE = 4
    TENSIX = 5
    ROUTER_ONLY = 6
    SECURITY = 7
    L2CPU = 8
    DISPATCH = 9
    HARVESTED = 10
    ETH = 11
    WORKER = 12
    COUNT = 13
    UNSPECIFIED = 14


@dataclass
class SemaphoreDescriptor:
    id: int = 0
    core_type: CoreType = CoreType.WORKER
    core_ranges: CoreRangeSet = field(default_factory=lambda: CoreRangeSet([]))
    initial_value: int = 0


class ProgramDescriptor:
    """Kernels, semaphores and circular buffers of the program of one chip."""

    def __init__(
        self,
        kernels: Sequence[KernelDescriptor] = (),
        semaphores: Sequence[SemaphoreDescriptor] = (),
        cbs: Sequence[CBDescriptor] = (),
    ) -> None:
        self.kernels = list(kernels)
        self.semaphores = list(semaphores)
        self.cbs = list(cbs)
        self.custom_program_hash: int | None = None
        self.speaks_to_others = False  # it has connections to other chips


class MeshProgramDescriptor:
    """A program for each of some ranges of a mesh: `descriptor[range] = program_descriptor`."""

    def __init__(self, mesh_programs: Mapping[MeshCoordinateRange, ProgramDescriptor] | None = None) -> None:
        self._programs: dict[MeshCoordinateRange, ProgramDescriptor] = {}
        for place, program in (mesh_programs or {}).items():
            self[place] = program

    def __setitem__(self, key: MeshCoordinateRange, value: ProgramDescriptor) -> None:
        where = "MeshProgramDescriptor"
        checked(where, "key", key, MeshCoordinateRange, "a ttnn.MeshCoordinateRange")
        checked(where, "value", value, ProgramDescriptor, "a ttnn.ProgramDescriptor")
        self._programs[self._known(key) or key] = value

    def __getitem__(self, key: MeshCoordinateRange) -> ProgramDescriptor:
        known = self._known(key)
        if known is None:
            raise MeshError(f"MeshProgramDescriptor has no program for {key}.")
        return self._programs[known]

    def __contains__(self, key: MeshCoordinateRange) -> bool:
        return self._known(key) is not None

    def __iter__(self) -> Iterator[tuple[MeshCoordinateRange, ProgramDescriptor]]:
        return iter(self._programs.items())

    def _known(self, key: MeshCoordinateRange) -> MeshCoordinateRange | None:
        same = (place for place in self._programs if place.contains(key) and key.contains(place))
        return next(same, None)


def merge_program_descriptors(descriptors: Sequence[ProgramDescriptor]) -> ProgramDescriptor:
    """One program with the parts of all; they must not want the same cores for the same thing."""
    made = ProgramDescriptor()
    for one in descriptors:
        made.kernels += one.kernels
        made.semaphores += one.semaphores
        made.cbs += one.cbs
        made.speaks_to_others |= one.speaks_to_others
    return made


def compute_program_descriptor_hash(program_descriptor: ProgramDescriptor) -> int:
    """The same for programs that differ in their runtime arguments at most."""
    if program_descriptor.custom_program_hash is not None:
        return program_descriptor.custom_program_hash
    kernels = tuple(
        (
            kernel.kernel_source,
            kernel.core_ranges,
            tuple(kernel.compile_time_args),
            tuple(kernel.named_compile_time_args),
            tuple(kernel.defines),
            repr(vars(kernel.config)) if kernel.config else None,
        )
        for kernel in program_descriptor.kernels
    )
    buffers = tuple(
        (
            cb.total_size,
            cb.core_ranges,
            tuple((f.buffer_index, f.data_format, f.page_size) for f in cb.format_descriptors),
            tuple((f.buffer_index, f.data_format, f.page_size) for f in cb.remote_format_descriptors),
        )
        for cb in program_descriptor.cbs
    )
    semaphores = tuple(
        (each.id, each.core_ranges, each.initial_value) for each in program_descriptor.semaphores
    )
    return hash((kernels, buffers, semaphores))
