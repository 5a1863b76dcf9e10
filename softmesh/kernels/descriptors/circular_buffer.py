"""Circular buffers as TT-NN describes them: of their own memory, or of a sharded tensor's."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.kernels.formats import datatype_to_dataformat_converter, dtype_of
from softmesh.runtime.buffers.global_circular_buffer import GlobalCircularBuffer
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.tile import DEFAULT_TILE, Tile


class TileDescriptor:
    """`TileDescriptor(height, width, transpose=False)`, or of a ttnn.Tile."""

    def __init__(
        self, height: int | Tile | TileDescriptor = 32, width: int = 32, transpose: bool = False
    ) -> None:
        given = height.tile() if isinstance(height, TileDescriptor) else height
        if not isinstance(given, Tile):
            given = Tile((given, width), transpose)
        self.height, self.width, self.transpose = given.height, given.width, given.transpose_of_faces

    def tile(self) -> Tile:
        return Tile((self.height, self.width), self.transpose)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileDescriptor) and vars(self) == vars(other)

    __hash__ = object.__hash__


class CBFormatDescriptor:
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


class CBDescriptor:
    """A circular buffer of so many bytes; `format_descriptors` gives its indexes."""

    def __init__(
        self,
        total_size: int = 0,
        core_ranges: CoreRangeSet | None = None,
        format_descriptors: Sequence[CBFormatDescriptor] = (),
    ) -> None:
        self.total_size = total_size
        self.core_ranges = CoreRangeSet([]) if core_ranges is None else core_ranges
        self.format_descriptors = list(format_descriptors)
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
    address = checked(
        "get_cb_address", "descriptor", descriptor, CBDescriptor, "a ttnn.CBDescriptor"
    ).buffer_address()
    if address is None:
        raise MeshError(
            "get_cb_address: this circular buffer is no tensor's memory, and gets its address at launch."
        )
    return address
