"""ProgramDescriptor and MeshProgramDescriptor, as TT-NN has them, with circular buffers (CBDescriptor)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from softmesh.arguments import ShowsFields, checked, checked_list
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.data_formats import datatype_to_dataformat_converter, dtype_of
from softmesh.kernels.program.kernel_descriptor import KernelDescriptor
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.buffers.global_buffers import GlobalCircularBuffer
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile


class TileDescriptor(ShowsFields):
    """`TileDescriptor(height, width, transpose=False)`, or of a ttnn.Tile."""

    def __init__(self, height: int | Tile | TileDescriptor = 32, width: int = 32, transpose: bool = False) -> None:
        given = height.tile() if isinstance(height, TileDescriptor) else height
        if not isinstance(given, Tile):
            given = Tile((given, width), transpose)
        self.height, self.width, self.transpose = given.height, given.width, given.transpose_of_faces

    def tile(self) -> Tile:
        return Tile((self.height, self.width), self.transpose)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileDescriptor) and vars(self) == vars(other)

    __hash__ = object.__hash__


class CBFormatDescriptor(ShowsFields):
    def __init__(
        self,
        buffer_index: int = 0,
        data_format: object = None,
        page_size: int = 0,
        tile: TileDescriptor | None = None,
    ) -> None:
        self.buffer_index = buffer_index
        self.data_format = data_format
        self.page_size = page_size
        self.tile = tile

    @property
    def data_format_as_uint8(self) -> int:
        return int(datatype_to_dataformat_converter(dtype_of("CBFormatDescriptor", self.data_format)).value)

    def tile_shape(self) -> Tile:
        return DEFAULT_TILE if self.tile is None else self.tile.tile()


class CBDescriptor(ShowsFields):
    """A circular buffer of so many bytes; `format_descriptors` gives its indexes."""

    def __init__(
        self,
        total_size: int = 0,
        core_ranges: CoreRangeSet | None = None,
        format_descriptors: Sequence[CBFormatDescriptor] = (),
    ) -> None:
        self.total_size = total_size
        self.core_ranges = CoreRangeSet([]) if core_ranges is None else core_ranges
        self.format_descriptors: list[CBFormatDescriptor] = checked_list(
            "CBDescriptor", "format_descriptors", format_descriptors, "ttnn.CBFormatDescriptor"
        )
        self.remote_format_descriptors: list[CBFormatDescriptor] = []
        self.address_offset = 0
        self.tensor: Tensor | None = None  # whose memory it uses, where it has none of its own
        self.global_circular_buffer: GlobalCircularBuffer | None = None  # or this one's

    def has_buffer(self) -> bool:
        return self.tensor is not None

    def buffer_address(self) -> int | None:
        return None if self.tensor is None else self.tensor.buffer_address() + self.address_offset

    def set_buffer_from_cb(self, other: CBDescriptor) -> None:
        self.tensor = other.tensor

    def has_global_circular_buffer(self) -> bool:
        return self.global_circular_buffer is not None

    def set_global_circular_buffer(self, global_circular_buffer: GlobalCircularBuffer) -> None:
        """Kernels see it under the indexes of `remote_format_descriptors`."""
        self.global_circular_buffer = checked(
            "CBDescriptor.set_global_circular_buffer",
            "global_circular_buffer",
            global_circular_buffer,
            GlobalCircularBuffer,
            "what ttnn.create_global_circular_buffer(...) returned",
        )


def cb_descriptor_from_sharded_tensor(
    cb_index: int,
    tensor: Tensor,
    address_offset: int = 0,
    total_size: int = 0,
    core_ranges: CoreRangeSet | None = None,
) -> CBDescriptor:
    """A circular buffer that is the tensor's own memory: each core's shard, without a copy."""
    where = "cb_descriptor_from_sharded_tensor"
    spec = checked(where, "tensor", tensor, Tensor, "a ttnn.Tensor").spec
    config = spec.memory_config
    shards = config.shard_spec
    if config.buffer_type is not BufferType.L1 or shards is None:
        raise MeshError(f"{where}: the tensor must be sharded in L1, and its memory config is {config}.")
    pages = shards.shape[0] * shards.shape[1] // (spec.tile.height * spec.tile.width)
    page_size = spec.page_size()
    made = CBDescriptor(
        total_size or pages * page_size,
        shards.grid if core_ranges is None else core_ranges,
        [CBFormatDescriptor(cb_index, spec.dtype, page_size, TileDescriptor(spec.tile))],
    )
    made.tensor, made.address_offset = tensor, address_offset
    return made


def get_cb_address(descriptor: CBDescriptor) -> int:
    """The address of the tensor's memory that it uses."""
    address = checked("get_cb_address", "descriptor", descriptor, CBDescriptor, "a ttnn.CBDescriptor").buffer_address()
    if address is None:
        raise MeshError("get_cb_address: this circular buffer is no tensor's memory, and gets its address at launch.")
    return address


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


class ProgramDescriptor(ShowsFields):
    """Kernels, semaphores and circular buffers of the program of one chip."""

    def __init__(
        self,
        kernels: Sequence[KernelDescriptor] = (),
        semaphores: Sequence[SemaphoreDescriptor] = (),
        cbs: Sequence[CBDescriptor] = (),
    ) -> None:
        where = "ProgramDescriptor"
        self.kernels: list[KernelDescriptor] = checked_list(where, "kernels", kernels, "ttnn.KernelDescriptor")
        self.semaphores: list[SemaphoreDescriptor] = checked_list(
            where, "semaphores", semaphores, "ttnn.SemaphoreDescriptor"
        )
        self.cbs: list[CBDescriptor] = checked_list(where, "cbs", cbs, "ttnn.CBDescriptor")
        self.custom_program_hash: int | None = None
        self.uses_fabric = False  # it has connections to other chips


class MeshProgramDescriptor:
    """A program for each of some ranges of a mesh: `descriptor[range] = program_descriptor`."""

    def __init__(self, mesh_programs: Mapping[MeshCoordinateRange, ProgramDescriptor] | None = None) -> None:
        self._programs: dict[MeshCoordinateRange, ProgramDescriptor] = {}
        given = dict(mesh_programs or {}) if isinstance(mesh_programs, Mapping | None) else mesh_programs
        for place, program in checked("MeshProgramDescriptor", "mesh_programs", given, dict, "a dict").items():
            self[place] = program

    def __repr__(self) -> str:
        return f"MeshProgramDescriptor({self._programs!r})"

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
        made.uses_fabric |= one.uses_fabric
    return made


def compute_program_descriptor_hash(program_descriptor: ProgramDescriptor) -> int:
    """The same for programs that differ in their runtime arguments at most."""
    where = "compute_program_descriptor_hash"
    checked(where, "program_descriptor", program_descriptor, ProgramDescriptor, "a ttnn.ProgramDescriptor")
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
    semaphores = tuple((each.id, each.core_ranges, each.initial_value) for each in program_descriptor.semaphores)
    return hash((kernels, buffers, semaphores))
