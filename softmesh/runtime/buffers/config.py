"""How a buffer lies on a mesh (the same everywhere, or in shards) and in the memory of each chip: values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from softmesh.arguments import checked, checked_int, refused
from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.hardware.dispatch import SubDeviceId
from softmesh.hardware.memory_config import ShardOrientation
from softmesh.runtime.buffers.chip_shards import BufferShardingArgs
from softmesh.runtime.buffers.shape_2d import Shape2D, shape_2d


class MeshBufferLayout(Enum):
    REPLICATED = 0
    SHARDED = 1


@dataclass(frozen=True)
class BufferRegion:
    """`size` bytes of a buffer from `offset` on, in whole pages."""

    offset: int
    size: int

    def pages(self, page_size: int, num_pages: int) -> slice:
        """The pages it covers, of a buffer that has so many."""
        offset = checked_int("BufferRegion", "offset", self.offset)
        size = checked_int("BufferRegion", "size", self.size)
        if offset % page_size or size % page_size:
            raise MeshError(
                f"Region {self} must begin and end at a page: offset and size are multiples of the page size, "
                f"{page_size} bytes."
            )
        if offset < 0 or size < 0 or offset + size > num_pages * page_size:
            raise MeshError(
                f"Region {self} lies outside the buffer, which has {num_pages * page_size} bytes on each device."
            )
        return slice(offset // page_size, (offset + size) // page_size)


@dataclass(frozen=True)
class ReplicatedBufferConfig:
    """The same `size` bytes on each device."""

    size: int

    def __post_init__(self) -> None:
        if checked_int("ReplicatedBufferConfig", "size", self.size) < 0:
            raise refused(
                "ReplicatedBufferConfig", f"size counts bytes and cannot be negative, got {self.size}"
            )


@dataclass(frozen=True)
class ShardedBufferConfig:
    """A 2-D array of datums, cut into shards; a zero in `shard_shape` replicates along that dim.

    What a datum is, the sizes say: `global_size` bytes for height * width of them.
    """

    global_size: int
    global_buffer_shape: Shape2D
    shard_shape: Shape2D
    shard_orientation: ShardOrientation = ShardOrientation.ROW_MAJOR

    def __post_init__(self) -> None:
        where = "ShardedBufferConfig"
        size = checked_int(where, "global_size", self.global_size)
        checked(
            where, "shard_orientation", self.shard_orientation, ShardOrientation, "a ttnn.ShardOrientation"
        )
        for name in ("global_buffer_shape", "shard_shape"):
            object.__setattr__(self, name, shape_2d(where, name, getattr(self, name)))
        if size < 0 or 0 in self.global_buffer_shape:
            raise refused(
                where,
                f"global_size {size} and global_buffer_shape {self.global_buffer_shape} must be positive",
            )
        if size % (self.global_buffer_shape.height * self.global_buffer_shape.width):
            raise MeshError(
                f"global_size {size} bytes cannot be shared by {self.global_buffer_shape} datums: a datum has a whole "
                "number of bytes."
            )
        height, width = self.physical_shard_shape()
        if self.global_buffer_shape.height % height or self.global_buffer_shape.width % width:
            raise MeshError(
                f"Global buffer shape must be aligned with the shard shape: {self.global_buffer_shape} does not divide "
                f"into shards of {Shape2D(height, width)}. Pad the buffer or choose another shard shape."
            )

    def replicated_dims(self) -> tuple[bool, bool]:
        return self.shard_shape.height == 0, self.shard_shape.width == 0

    def physical_shard_shape(self) -> Shape2D:
        """What a device holds: the whole extent of a dim that is not cut."""
        return Shape2D(
            self.shard_shape.height or self.global_buffer_shape.height,
            self.shard_shape.width or self.global_buffer_shape.width,
        )

    def shard_grid(self) -> Shape2D:
        """How many shards stand below and beside each other."""
        height, width = self.physical_shard_shape()
        return Shape2D(self.global_buffer_shape.height // height, self.global_buffer_shape.width // width)

    def compute_datum_size_bytes(self) -> int:
        return self.global_size // (self.global_buffer_shape.height * self.global_buffer_shape.width)


MeshBufferConfig = ReplicatedBufferConfig | ShardedBufferConfig


@dataclass(frozen=True)
class DeviceLocalBufferConfig:
    """The part of a mesh buffer on each chip."""

    page_size: int = 0
    buffer_type: BufferType = BufferType.DRAM
    sharding_args: BufferShardingArgs = field(default_factory=BufferShardingArgs)
    bottom_up: bool | None = None
    sub_device_id: SubDeviceId | None = None

    def __post_init__(self) -> None:
        where = "DeviceLocalBufferConfig"
        if checked_int(where, "page_size", self.page_size) < 0:
            raise refused(where, f"page_size counts bytes and cannot be negative, got {self.page_size}")
        checked(
            where, "buffer_type", self.buffer_type, BufferType, "a ttnn.BufferType such as BufferType.DRAM"
        )
        if self.sharding_args is None:
            object.__setattr__(self, "sharding_args", BufferShardingArgs())
        checked(where, "sharding_args", self.sharding_args, BufferShardingArgs, "a BufferShardingArgs")
        if self.sub_device_id is not None:
            checked(where, "sub_device_id", self.sub_device_id, SubDeviceId, "a ttnn.SubDeviceId")
