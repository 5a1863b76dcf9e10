"""L1 memory of a program: circular buffer configs, semaphores, and the allocation of circular buffers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.cores import CoreCoord, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware import SubDeviceId
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.data_formats import dtype_of
from softmesh.kernels.engine.fifo import Format, checked_page_size
from softmesh.runtime.buffers.global_buffers import GlobalCircularBuffer
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice

MOST_SEMAPHORES = 16  # of one core


@dataclass(frozen=True)
class Semaphore:
    id: int
    cores: CoreRangeSet
    initial_value: int


MOST_INDEXES = 64
_WORD = 4


class CircularBufferConfig:
    """`CircularBufferConfig(total_size, {index: format}).set_page_size(index, bytes)`.

    Several indexes share the memory; each counts its own pages in it. With a globally allocated address the
    memory is that of a buffer or tensor in L1, and nothing is copied.
    """

    def __init__(self, total_size: int, data_format_spec: Mapping[int, object] | None = None) -> None:
        self.total_size = _checked_size("CircularBufferConfig", "total_size", total_size)
        self.dtypes: dict[int, DataType] = {}
        self.page_sizes: dict[int, int] = {}
        self.tiles: dict[int, Tile] = {}
        self.remote_dtypes: dict[int, DataType] = {}  # of indexes that see a global circular buffer
        self.remote_page_sizes: dict[int, int] = {}
        self.address: int | None = None  # of the L1 buffer whose memory it is
        self.address_offset = 0
        for index, format in (data_format_spec or {}).items():
            self.set_data_format(index, format)

    def __repr__(self) -> str:
        dtypes = self.dtypes | self.remote_dtypes
        pages = self.page_sizes | self.remote_page_sizes
        indexes = [f"{index}: {dtype.name} in pages of {pages.get(index, '?')}" for index, dtype in dtypes.items()]
        return f"CircularBufferConfig({self.total_size} bytes; {', '.join(indexes) or 'no index'})"

    def set_data_format(self, buffer_index: int, data_format: object) -> CircularBufferConfig:
        index = _checked_index("CircularBufferConfig", buffer_index)
        self.dtypes[index] = dtype_of("CircularBufferConfig", data_format)
        return self

    def set_page_size(self, buffer_index: int, page_size: int) -> CircularBufferConfig:
        index = self._known("set_page_size", buffer_index)
        size = _checked_size("set_page_size", "page_size", page_size)
        check_pages(self.total_size, size)
        if size % _WORD:
            raise MeshError(
                f"Page size must be divisible by sizeof(uint32_t) because buffers hold uint32_t values: {size}."
            )
        self.page_sizes[index] = size
        return self

    def set_tile_dims(self, buffer_index: int, tile: Tile) -> CircularBufferConfig:
        index = self._known("set_tile_dims", buffer_index)
        self.tiles[index] = checked("set_tile_dims", "tile", tile, Tile, "a ttnn.Tile")
        return self

    def index(self, buffer_index: int) -> IndexBuilder:
        """`config.index(i).set_data_format(format).set_page_size(bytes)`."""
        return IndexBuilder(self, _checked_index("CircularBufferConfig", buffer_index))

    def remote_index(self, buffer_index: int) -> RemoteIndexBuilder:
        """The same for an index under which kernels see a global circular buffer."""
        return RemoteIndexBuilder(self, _checked_index("CircularBufferConfig", buffer_index))

    def set_total_size(self, total_size: int) -> CircularBufferConfig:
        size = _checked_size("set_total_size", "total_size", total_size)
        for page_size in self.page_sizes.values():
            check_pages(size, page_size)
        self.total_size = size
        return self

    def set_globally_allocated_address(
        self, buffer: MeshBuffer | Tensor, address_offset: int = 0
    ) -> CircularBufferConfig:
        """Use the memory of this buffer or tensor in L1."""
        self.address = l1_address("set_globally_allocated_address", buffer)
        self.address_offset = address_offset
        return self

    def formats(self) -> list[Format]:
        missing = [index for index in self.dtypes if index not in self.page_sizes]
        missing += [index for index in self.remote_dtypes if index not in self.remote_page_sizes]
        if missing or not (self.dtypes or self.remote_dtypes):
            what = f"index {missing[0]} has no page size" if missing else "it has no index"
            raise MeshError(f"A circular buffer is incomplete: {what}. Call set_page_size(index, bytes).")
        return [
            Format(index, dtype, self.page_sizes[index], self.tiles.get(index, DEFAULT_TILE))
            for index, dtype in self.dtypes.items()
        ]

    def indexes(self) -> set[int]:
        """Local and remote."""
        return self.dtypes.keys() | self.remote_dtypes.keys()

    def _known(self, call: str, buffer_index: int) -> int:
        index = _checked_index(call, buffer_index)
        if index not in self.dtypes:
            raise MeshError(
                f"Illegal circular buffer index {index}. {call} can only be called for the indexes it has a data "
                f"format for: {sorted(self.dtypes)}."
            )
        return index


class IndexBuilder:
    """One index of a config; each call returns it again."""

    def __init__(self, config: CircularBufferConfig, index: int) -> None:
        self._config = config
        self._index = index

    def set_data_format(self, data_format: object) -> IndexBuilder:
        self._config.set_data_format(self._index, data_format)
        return self

    def set_page_size(self, page_size: int) -> IndexBuilder:
        self._config.set_page_size(self._index, page_size)
        return self

    def set_tile_dims(self, tile: Tile) -> IndexBuilder:
        self._config.set_tile_dims(self._index, tile)
        return self


class RemoteIndexBuilder:
    """One index of a config under which kernels see a global circular buffer."""

    def __init__(self, config: CircularBufferConfig, index: int) -> None:
        self._config = config
        self._index = index

    def set_data_format(self, data_format: object) -> RemoteIndexBuilder:
        self._config.remote_dtypes[self._index] = dtype_of("CircularBufferConfig", data_format)
        return self

    def set_page_size(self, page_size: int) -> RemoteIndexBuilder:
        size = _checked_size("set_page_size", "page_size", page_size)
        self._config.remote_page_sizes[self._index] = checked_page_size("set_page_size", size)
        self._config.remote_dtypes.setdefault(self._index, DataType.UINT32)
        return self


class CircularBuffer:
    """A config on cores; `address` is the same on all of them once the program is laid out."""

    def __init__(
        self, cores: CoreRangeSet, config: CircularBufferConfig, shared: GlobalCircularBuffer | None = None
    ) -> None:
        """`shared`: the global circular buffer whose memory it is, and that its remote indexes see."""
        self.cores = cores
        self.places = corerange_to_cores(cores)
        self.config = config
        self.shared = shared
        self.address = 0
        _check_shared(self)
        if shared is not None:
            config.address = shared.buffer_address()

    def copy(self) -> CircularBuffer:
        made = CircularBuffer(self.cores, copy.deepcopy(self.config), self.shared)
        made.address = self.address
        return made

    @property
    def is_static(self) -> bool:
        """Whether its memory is taken when the program is laid out, not a buffer's."""
        return self.config.address is None

    @property
    def end(self) -> int:
        return self.address + self.config.total_size


def _check_shared(buffer: CircularBuffer) -> None:
    config, shared = buffer.config, buffer.shared
    if shared is None:
        if config.remote_dtypes:
            raise MeshError(
                f"Circular buffer index {min(config.remote_dtypes)} is remote, and no global circular buffer is given: "
                "call CreateCircularBuffer(program, cores, config, global_circular_buffer)."
            )
        return
    if not config.remote_dtypes:
        raise MeshError(
            "A circular buffer of a global one has a remote index: call "
            "config.remote_index(index).set_page_size(bytes)."
        )
    if not shared.all_cores().contains(buffer.cores):
        raise MeshError(
            f"Specified cores are not contained in associated GlobalCircularBuffer: {buffer.cores} are asked for, and "
            f"{shared.all_cores()} have a part in it."
        )
    if config.total_size > shared.size():
        raise MeshError(
            f"The circular buffer wants {config.total_size} bytes of a global one that has {shared.size()}: make that "
            "one larger."
        )


def l1_address(call: str, buffer: object) -> int:
    if isinstance(buffer, Tensor):
        memory, address = buffer.spec.memory_config.buffer_type, buffer.buffer_address()
    elif isinstance(buffer, MeshBuffer):
        memory, address = buffer.memory.buffer_type, buffer.address()
    else:
        raise refused(call, f"buffer must be a MeshBuffer or a tensor on a mesh, got {described(buffer)}")
    if memory is not BufferType.L1:
        raise MeshError(f"Only L1 buffers can have an associated circular buffer: this one is in {memory.name}.")
    return address


def check_pages(total_size: int, page_size: int) -> None:
    if total_size % page_size:
        raise MeshError(
            f"Total circular buffer size {total_size} B must be divisible by page size {page_size} B: make it "
            f"{-(-total_size // page_size) * page_size}."
        )


def _checked_size(where: str, name: str, value: object) -> int:
    size = checked_int(where, name, value)
    if size <= 0:
        raise MeshError(f"{where}: {name} must be above 0, got {size}.")
    return size


def _checked_index(where: str, value: object) -> int:
    index = checked_int(where, "buffer_index", value)
    if not 0 <= index < MOST_INDEXES:
        raise MeshError(f"Buffer index ({index}) exceeds max number of circular buffers per core ({MOST_INDEXES}).")
    return index


# Layout in L1: circular buffers lie from the bottom up, in order, at one address on all their cores.


def assign_addresses(buffers: Sequence[CircularBuffer], mesh: MeshDevice) -> None:
    """Give each its address."""
    base, alignment = mesh.memory.get_base_allocator_addr(BufferType.L1), mesh.system.chip.dram_alignment
    tops: dict[CoreCoord, int] = {}
    for buffer in buffers:
        if buffer.config.address is not None:
            buffer.address = buffer.config.address + buffer.config.address_offset
            continue
        top = max(tops.get(core, base) for core in buffer.places)
        buffer.address = -(-top // alignment) * alignment
        tops.update(dict.fromkeys(buffer.places, buffer.end))


def check_room(buffers: Sequence[CircularBuffer], mesh: MeshDevice, program: int, cores: CoreRangeSet) -> None:
    """Refuse circular buffers that reach beyond L1, or into the buffers and tensors that lie there."""
    static = [buffer for buffer in buffers if buffer.is_static]
    if not static:
        return
    highest = max(static, key=lambda buffer: buffer.end)
    largest = mesh.system.chip.l1_bytes
    if highest.end > largest:
        raise MeshError(
            f"Statically allocated circular buffers on core range {highest.cores} grow to {highest.end} B which is "
            f"beyond max L1 size of {largest} B. Make them smaller, or work in smaller blocks."
        )
    used = [SubDeviceId(number) for number in sorted(mesh.sub_devices.of_cores(cores))]
    lowest = mesh.lowest_occupied_compute_l1_address(used)
    if lowest is not None and highest.end > lowest:
        raise MeshError(
            f"Statically allocated circular buffers in program {program} clash with L1 buffers on core range "
            f"{highest.cores}. L1 buffer allocated at {lowest} and static circular buffer region ends at "
            f"{highest.end}. Deallocate tensors in L1 or move them to DRAM, or make the circular buffers smaller."
        )
