"""Buffer configs: how a buffer is replicated or sharded over a mesh, and how its pages are sharded over a chip's banks.

Values only: shapes, shard specs, distribution specs and regions, checked when they are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from softmesh.arguments import checked, checked_int, refused
from softmesh.cores import CoreCoord, CoreRangeSet, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import (
    ShardDistributionStrategy,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)


class Shape2D(NamedTuple):
    height: int
    width: int

    def __repr__(self) -> str:
        return f"({self.height}, {self.width})"


def shape_2d(where: str, name: str, value: object) -> Shape2D:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise refused(where, f"{name} must be Shape2D(height, width), got {value!r}")
    height, width = (checked_int(where, name, extent) for extent in value)
    if height < 0 or width < 0:
        raise refused(where, f"{name} cannot be negative, got {value!r}")
    return Shape2D(height, width)


def _within(at: int, across: int, rows: int, columns: int) -> bool:
    row, column = divmod(at, across)
    return row < rows and column < columns


@dataclass(frozen=True)
class BufferDistributionSpec:
    """Shards of any rank, counted in pages, dealt to cores (DRAM: bank x is core x-0)."""

    tensor_shape_in_pages: tuple[int, ...]
    shard_shape_in_pages: tuple[int, ...]
    cores: tuple[CoreCoord, ...]
    strategy: ShardDistributionStrategy = ShardDistributionStrategy.ROUND_ROBIN_1D
    grid_columns: int = 0  # of cores, for GRID_2D

    def __post_init__(self) -> None:
        tensor, shard = self.tensor_shape_in_pages, self.shard_shape_in_pages
        if len(tensor) != len(shard) or not tensor or min(shard) < 1:
            raise MeshError(
                f"Shards of {list(shard)} pages cannot cut a tensor of {list(tensor)}: both have the same rank, and a "
                "shard at least one page."
            )
        if not self.cores:
            raise MeshError("A sharded buffer needs at least one core to lie on.")

    @classmethod
    def dealt(
        cls,
        tensor_shape_in_pages: tuple[int, ...],
        shard_shape_in_pages: tuple[int, ...],
        grid: CoreRangeSet,
        orientation: ShardOrientation,
        strategy: ShardDistributionStrategy,
    ) -> BufferDistributionSpec:
        """On the cores of a grid, row by row or column by column."""
        row_wise = orientation is ShardOrientation.ROW_MAJOR
        cores = tuple(corerange_to_cores(grid, row_wise=row_wise))
        columns = 0
        if cores and strategy is ShardDistributionStrategy.GRID_2D:
            box = grid.bounding_box().grid_size()
            columns = box.x if row_wise else box.y
        return cls(tuple(tensor_shape_in_pages), tuple(shard_shape_in_pages), cores, strategy, columns)

    def shard_grid(self) -> tuple[int, ...]:
        """How many shards there are along each dim; the last ones may be partly empty."""
        pairs = zip(self.tensor_shape_in_pages, self.shard_shape_in_pages, strict=True)
        return tuple(-(-n // m) for n, m in pairs)

    def core_of(self, shard: int) -> CoreCoord:
        """Where a shard lies, counted row-major over the grid of shards."""
        if self.strategy is ShardDistributionStrategy.GRID_2D:
            row, column = divmod(shard, self.shard_grid()[-1])
            return self.cores[row * self.grid_columns + column]
        if self.strategy is ShardDistributionStrategy.CONTIGUOUS_1D:
            count = math.prod(self.shard_grid())
            return self.cores[shard // -(-count // len(self.cores))]
        return self.cores[shard % len(self.cores)]

    def cores_with_shards(self) -> list[CoreCoord]:
        """Those that hold something, in the order in which they are dealt shards."""
        grid = self.shard_grid()
        if self.strategy is not ShardDistributionStrategy.GRID_2D:
            return list(self.cores[: math.prod(grid)])
        rows, columns = math.prod(grid[:-1]), grid[-1]
        return [core for at, core in enumerate(self.cores) if _within(at, self.grid_columns, rows, columns)]


@dataclass(frozen=True)
class ShardSpecBuffer:
    """2-D shards: as the tensor counts them, and the pages they are made of."""

    tensor_shard_spec: ShardSpec
    page_shape: Shape2D
    tensor2d_shape_in_pages: Shape2D

    def __post_init__(self) -> None:
        where = "ShardSpecBuffer"
        checked(where, "tensor_shard_spec", self.tensor_shard_spec, ShardSpec, "a ttnn.ShardSpec")
        for name in ("page_shape", "tensor2d_shape_in_pages"):
            object.__setattr__(self, name, shape_2d(where, name, getattr(self, name)))
        shard = self.tensor_shard_spec.shape
        if 0 in self.page_shape or any(n % m for n, m in zip(shard, self.page_shape, strict=True)):
            raise MeshError(f"Shard shape {shard} must be a whole number of pages of {self.page_shape} elements.")

    @property
    def grid(self) -> CoreRangeSet:
        return self.tensor_shard_spec.grid

    def shape_in_pages(self) -> Shape2D:
        height, width = self.tensor_shard_spec.shape
        return Shape2D(height // self.page_shape.height, width // self.page_shape.width)

    def distribution(self, layout: TensorMemoryLayout) -> BufferDistributionSpec:
        """The same shards, dealt to the cores of the grid as the layout says: no more than one to each."""
        is_block = layout is TensorMemoryLayout.BLOCK_SHARDED
        dealt = BufferDistributionSpec.dealt(
            self.tensor2d_shape_in_pages,
            self.shape_in_pages(),
            self.grid,
            self.tensor_shard_spec.orientation,
            ShardDistributionStrategy.GRID_2D if is_block else ShardDistributionStrategy.ROUND_ROBIN_1D,
        )
        if math.prod(dealt.shard_grid()) > len(dealt.cores):
            raise MeshError(
                f"{self.tensor2d_shape_in_pages} pages make {math.prod(dealt.shard_grid())} shards of "
                f"{self.shape_in_pages()} pages, and there are {len(dealt.cores)} cores: make the shards larger or "
                "give more cores."
            )
        return dealt


@dataclass(frozen=True)
class BufferShardingArgs:
    """Which core (or DRAM bank) of a chip holds which pages; without any, pages are interleaved over all banks."""

    shard_spec: ShardSpecBuffer | BufferDistributionSpec | None = None
    buffer_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED

    def __post_init__(self) -> None:
        is_sharded = self.buffer_layout is not TensorMemoryLayout.INTERLEAVED
        if isinstance(self.shard_spec, BufferDistributionSpec) and not is_sharded:
            object.__setattr__(self, "buffer_layout", TensorMemoryLayout.ND_SHARDED)
        elif is_sharded != (self.shard_spec is not None):
            raise MeshError(
                f"{self.buffer_layout} and shard_spec={self.shard_spec} contradict each other: a sharded layout needs "
                "a ShardSpecBuffer, an interleaved one has none."
            )

    def distribution(self) -> BufferDistributionSpec | None:
        spec = self.shard_spec
        return spec.distribution(self.buffer_layout) if isinstance(spec, ShardSpecBuffer) else spec


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
            raise refused("ReplicatedBufferConfig", f"size counts bytes and cannot be negative, got {self.size}")


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
        checked(where, "shard_orientation", self.shard_orientation, ShardOrientation, "a ttnn.ShardOrientation")
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
        checked(where, "buffer_type", self.buffer_type, BufferType, "a ttnn.BufferType such as BufferType.DRAM")
        if self.sharding_args is None:
            object.__setattr__(self, "sharding_args", BufferShardingArgs())
        checked(where, "sharding_args", self.sharding_args, BufferShardingArgs, "a BufferShardingArgs")
        if self.sub_device_id is not None:
            checked(where, "sub_device_id", self.sub_device_id, SubDeviceId, "a ttnn.SubDeviceId")
