"""TensorSpec: everything about a tensor's piece on one device but its values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.tensor.dtype import DataType, Layout, element_size, facts, tile_size
from softmesh.tensor.memory import (
    DRAM_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    NdShardSpec,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.tensor.shape import Shape
from softmesh.tensor.tile import DEFAULT_TILE, Tile, padded_shape

_ALIGNMENT = {BufferType.DRAM: 32}
_L1_ALIGNMENT = 16


class TensorSpec:
    """Shape, dtype, layout, memory config and tile of one piece. Compares by value.

    >>> TensorSpec([3, 40], DataType.BFLOAT16, Layout.TILE).padded_shape
    Shape([32, 64])
    """

    __slots__ = ("shape", "dtype", "layout", "memory_config", "tile", "padded_shape", "_hash")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DataType,
        layout: Layout,
        buffer_type: BufferType = BufferType.DRAM,
        tile: Tile | None = None,
        *,
        memory_layout: TensorMemoryLayout | None = None,
        shard_spec: ShardSpec | None = None,
        nd_shard_spec: NdShardSpec | None = None,
        memory_config: MemoryConfig | None = None,
    ) -> None:
        if facts(dtype).is_block and layout is not Layout.TILE:
            raise MeshError(
                f"Layout must be Layout::TILE for bfloat8_b or bfloat4_b! Got {layout} for {dtype}: pass "
                "layout=ttnn.TILE_LAYOUT or choose another dtype."
            )
        if memory_config is None:
            if nd_shard_spec is not None:
                memory_config = MemoryConfig(buffer_type, nd_shard_spec)
            elif memory_layout is not None:
                memory_config = MemoryConfig(memory_layout, buffer_type, shard_spec)
            else:
                memory_config = _interleaved(buffer_type)
        self.shape = Shape(shape)
        self.dtype = dtype
        self.layout = layout
        self.memory_config = memory_config
        self.tile = tile or DEFAULT_TILE
        self.padded_shape = Shape(padded_shape(tuple(shape), layout, self.tile))
        self._hash = hash((self.shape, dtype, layout, memory_config, self.tile))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TensorSpec):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.shape == other.shape
            and self.dtype is other.dtype
            and self.layout is other.layout
            and self.memory_config == other.memory_config
            and self.tile == other.tile
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return (
            f"TensorSpec(shape={self.shape}, dtype={self.dtype}, layout={self.layout}, "
            f"memory_config={self.memory_config}, tile={self.tile})"
        )

    def volume(self) -> int:
        return math.prod(self.padded_shape)

    def logical_volume(self) -> int:
        return math.prod(self.shape)

    def page_size(self) -> int:
        """Bytes of one page: a tile, or a row."""
        if self.layout is Layout.TILE:
            height, width = self.tile.tile_shape
            return tile_size(self.dtype) * height * width // 1024
        return (self.padded_shape[-1] if len(self.padded_shape) else 1) * element_size(self.dtype)

    def num_pages(self) -> int:
        if self.layout is Layout.TILE:
            height, width = self.tile.tile_shape
            return self.volume() // (height * width)
        width = self.padded_shape[-1] if len(self.padded_shape) else 1
        return self.volume() // width if width else 0

    def aligned_page_size(self) -> int:
        alignment = _ALIGNMENT.get(self.memory_config.buffer_type, _L1_ALIGNMENT)
        return -(-self.page_size() // alignment) * alignment

    def bytes(self) -> int:
        """Bytes of one piece in device memory, tile padding included."""
        return self.num_pages() * self.page_size()

    def with_memory_config(self, memory_config: MemoryConfig) -> TensorSpec:
        return make_spec(tuple(self.shape), self.dtype, self.layout, memory_config, self.tile)

    def sharded(
        self,
        shard_shape: Sequence[int],
        grid: CoreRangeSet,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
        buffer_type: BufferType = BufferType.L1,
    ) -> TensorSpec:
        return self.with_memory_config(
            MemoryConfig(buffer_type, NdShardSpec(Shape(shard_shape), grid, orientation))
        )

    def sharded_across_dims(
        self,
        dims: Sequence[int],
        grid: CoreRangeSet,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    ) -> TensorSpec:
        """One slice of each of `dims` per shard, the other dims whole."""
        split = {d % len(self.padded_shape) for d in dims}
        units = self._shard_units()
        shape = [units[i] if i in split else n for i, n in enumerate(self.padded_shape)]
        return self.sharded(shape, grid, orientation)

    def sharded_across_dims_except(
        self,
        dims: Sequence[int],
        grid: CoreRangeSet,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    ) -> TensorSpec:
        kept = {d % len(self.padded_shape) for d in dims}
        others = [d for d in range(len(self.padded_shape)) if d not in kept]
        return self.sharded_across_dims(others, grid, orientation)

    def _shard_units(self) -> list[int]:
        """The smallest legal shard extent of each dim: 1, or the tile's in the last two."""
        units = [1] * len(self.padded_shape)
        if self.layout is Layout.TILE:
            units[-2:] = self.tile.tile_shape
        return units

    def height_sharded(
        self, grid: CoreRangeSet, orientation: ShardOrientation = ShardOrientation.ROW_MAJOR
    ) -> TensorSpec:
        return self._sharded_2d(TensorMemoryLayout.HEIGHT_SHARDED, grid, orientation, grid.num_cores(), 1)

    def width_sharded(
        self, grid: CoreRangeSet, orientation: ShardOrientation = ShardOrientation.ROW_MAJOR
    ) -> TensorSpec:
        return self._sharded_2d(TensorMemoryLayout.WIDTH_SHARDED, grid, orientation, 1, grid.num_cores())

    def block_sharded(
        self, grid: CoreRangeSet, orientation: ShardOrientation = ShardOrientation.ROW_MAJOR
    ) -> TensorSpec:
        box = grid.bounding_box().grid_size()
        rows, cols = (box.y, box.x) if orientation is ShardOrientation.ROW_MAJOR else (box.x, box.y)
        return self._sharded_2d(TensorMemoryLayout.BLOCK_SHARDED, grid, orientation, rows, cols)

    def _sharded_2d(
        self,
        memory_layout: TensorMemoryLayout,
        grid: CoreRangeSet,
        orientation: ShardOrientation,
        rows: int,
        cols: int,
    ) -> TensorSpec:
        height, width = math.prod(self.padded_shape[i] for i in range(len(self.padded_shape) - 1)), 1
        width = self.padded_shape[len(self.padded_shape) - 1]
        unit_h, unit_w = self._shard_units()[-2:] if len(self.padded_shape) > 1 else (1, 1)
        shard = [
            -(-height // (rows * unit_h)) * unit_h,
            -(-width // (cols * unit_w)) * unit_w,
        ]
        return self.with_memory_config(
            MemoryConfig(memory_layout, BufferType.L1, ShardSpec(grid, shard, orientation))
        )


@lru_cache(maxsize=None)
def _interleaved(buffer_type: BufferType) -> MemoryConfig:
    return MemoryConfig(TensorMemoryLayout.INTERLEAVED, buffer_type)


@lru_cache(maxsize=16384)
def make_spec(
    shape: tuple[int, ...],
    dtype: DataType,
    layout: Layout,
    memory_config: MemoryConfig = DRAM_MEMORY_CONFIG,
    tile: Tile = DEFAULT_TILE,
) -> TensorSpec:
    """A TensorSpec, the same object for the same parts."""
    return TensorSpec(shape, dtype, layout, tile=tile, memory_config=memory_config)
