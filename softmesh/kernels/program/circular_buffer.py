"""Circular buffers as the host describes them: how large, which indexes, and whose memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.cores import CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.kernels.engine.fifo import Format
from softmesh.kernels.formats import dtype_of
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.tensor.dtype import DataType
from softmesh.tensor.memory import BufferType
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile

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
        self.address: int | None = None  # of the L1 buffer whose memory it is
        self.address_offset = 0
        for index, format in (data_format_spec or {}).items():
            self.set_data_format(index, format)

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
        if missing or not self.dtypes:
            what = f"index {missing[0]} has no page size" if missing else "it has no index"
            raise MeshError(f"A circular buffer is incomplete: {what}. Call set_page_size(index, bytes).")
        return [
            Format(index, dtype, self.page_sizes[index], self.tiles.get(index, DEFAULT_TILE))
            for index, dtype in self.dtypes.items()
        ]

    def _known(self, call: str, buffer_index: int) -> int:
        index = _checked_index(call, buffer_index)
        if index not in self.dtypes:
            raise MeshError(
                f"Illegal circular buffer index {index}. {call} can only be called for the indexes it has a data "
                f"format for: {sorted(self.dtypes)}."
            )
        return index


class CircularBuffer:
    """A config on cores; `address` is the same on all of them once the program is laid out."""

    def __init__(self, cores: CoreRangeSet, config: CircularBufferConfig) -> None:
        self.cores = cores
        self.places = corerange_to_cores(cores)
        self.config = config
        self.address = 0

    def copy(self) -> CircularBuffer:
        made = CircularBuffer(self.cores, copy.deepcopy(self.config))
        made.address = self.address
        return made

    @property
    def is_static(self) -> bool:
        """Whether its memory is taken when the program is laid out, not a buffer's."""
        return self.config.address is None

    @property
    def end(self) -> int:
        return self.address + self.config.total_size


def l1_address(call: str, buffer: object) -> int:
    if isinstance(buffer, Tensor):
        memory, address = buffer.spec.memory_config.buffer_type, buffer.buffer_address()
    elif isinstance(buffer, MeshBuffer):
        memory, address = buffer.memory.buffer_type, buffer.address()
    else:
        raise refused(call, f"buffer must be a MeshBuffer or a tensor on a mesh, got {described(buffer)}")
    if memory is not BufferType.L1:
        raise MeshError(
            f"Only L1 buffers can have an associated circular buffer: this one is in {memory.name}."
        )
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
        raise MeshError(
            f"Buffer index ({index}) exceeds max number of circular buffers per core ({MOST_INDEXES})."
        )
    return index
