"""TensorSpec: everything about a tensor's piece on one device but its values."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, overload

from softmesh.arguments import checked, checked_ints, refused
from softmesh.cores import CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.enums import ShardShapeAlignment
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    NdShardSpec,
    ShardDistributionStrategy,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.hardware.shape import Shape
from softmesh.tensor.dtype import DataType, Layout, element_size
from softmesh.tensor.shard_rules import (
    check_dtype,
    check_shards,
    config_of_a_tensor,
    physical_shape,
    row_alignment,
)
from softmesh.tensor.tile import DEFAULT_TILE, Tile, padded_shape

if TYPE_CHECKING:
    import torch

    from softmesh.tensor.footprint import Footprint

_ALIGNMENT = {BufferType.DRAM: 32}
_L1_ALIGNMENT = 16
_RECOMMENDED_ROW_BYTES = 64
# The three forms of the constructor, told apart by what comes after the layout.
_FORMS: dict[type, tuple[str, ...]] = {
    BufferType: ("buffer_type", "tile"),
    TensorMemoryLayout: ("memory_layout", "shard_spec", "buffer_type", "tile"),
    NdShardSpec: ("nd_shard_spec", "buffer_type", "tile"),
}


class TensorSpec:
    """Shape, dtype, layout, memory config and tile of one piece. Compares by value.

    >>> TensorSpec([3, 40], DataType.BFLOAT16, Layout.TILE).padded_shape
    Shape([32, 64])
    """

    __slots__ = (
        "_footprint",
        "_hash",
        "dtype",
        "layout",
        "memory_config",
        "pad_value",
        "padded_shape",
        "room",
        "shape",
        "tile",
    )

    shape: Shape
    dtype: DataType
    layout: Layout
    memory_config: MemoryConfig
    tile: Tile
    padded_shape: Shape
    pad_value: float  # what the padding holds
    room: torch.Tensor | None  # of padded_shape, where the padding holds more than one number
    _footprint: Footprint | None  # kept by tensor.footprint

    @overload
    def __init__(
        self,
        shape: Sequence[int],
        dtype: DataType,
        layout: Layout,
        buffer_type: BufferType = BufferType.DRAM,
        tile: Tile | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        shape: Sequence[int],
        dtype: DataType,
        layout: Layout,
        memory_layout: TensorMemoryLayout,
        shard_spec: ShardSpec | None = None,
        buffer_type: BufferType = BufferType.DRAM,
        tile: Tile | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        shape: Sequence[int],
        dtype: DataType,
        layout: Layout,
        nd_shard_spec: NdShardSpec,
        buffer_type: BufferType = BufferType.DRAM,
        tile: Tile | None = None,
    ) -> None: ...
    def __init__(self, shape: Sequence[int], dtype: DataType, layout: Layout, *memory: Any, **named: Any) -> None:
        given = _by_name(memory, named)
        config = _memory_config(given)
        extents = Shape(checked_ints("TensorSpec", "shape", shape))
        self._fill(extents, dtype, layout, config, given.get("tile"))
        self.check()

    def _fill(
        self, shape: Shape, dtype: DataType, layout: Layout, memory_config: MemoryConfig, tile: Tile | None
    ) -> None:
        checked("TensorSpec", "layout", layout, Layout, "ttnn.TILE_LAYOUT or ttnn.ROW_MAJOR_LAYOUT")
        checked("TensorSpec", "dtype", dtype, DataType, "a ttnn dtype such as ttnn.bfloat16")
        self.shape, self.dtype, self.layout = shape, dtype, layout
        self.tile = DEFAULT_TILE if tile is None else checked("TensorSpec", "tile", tile, Tile, "a ttnn.Tile")
        self.padded_shape = Shape(padded_shape(tuple(shape), layout, self.tile, row_alignment(memory_config)))
        self.memory_config = config_of_a_tensor(memory_config, self.padded_shape)
        self.pad_value, self.room = 0.0, None
        self._footprint = None
        self._hash = hash((shape, dtype, layout, self.memory_config, self.tile))

    def check(self, tries_row_major: bool = False) -> None:
        """Refuse shards that the tensor cannot have (see `shard_rules`)."""
        check_shards(self.shape, self.dtype, self.layout, self.memory_config, self.tile, tries_row_major)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TensorSpec):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.shape == other.shape
            and self.padded_shape == other.padded_shape
            and self.pad_value == other.pad_value
            and self.room is other.room
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

    def page_shape(self) -> tuple[int, int]:
        """Height and width of one page in elements: a tile, a row, or a row of a shard."""
        if self.layout is Layout.TILE:
            return self.tile.height, self.tile.width
        shard = _shard_shape(self.memory_config)
        width = self.padded_shape[-1] if shard is None else shard[-1]
        return 1, width

    def page_size(self) -> int:
        """Bytes of one page."""
        if self.layout is Layout.TILE:
            return self.tile.get_tile_size(self.dtype)
        return self.page_shape()[1] * element_size(self.dtype)

    def num_pages(self) -> int:
        height, width = self.page_shape()
        if not self.volume() or not width:
            return 0
        *rows, columns = self.padded_shape
        return math.prod(rows) // height * -(-columns // width)

    def aligned_page_size(self) -> int:
        alignment = _ALIGNMENT.get(self.memory_config.buffer_type, _L1_ALIGNMENT)
        return -(-self.page_size() // alignment) * alignment

    def bytes(self) -> int:
        """Bytes of one piece in device memory, tile padding included."""
        return self.num_pages() * self.page_size()

    def with_memory_config(self, memory_config: MemoryConfig) -> TensorSpec:
        made = make_spec(tuple(self.shape), self.dtype, self.layout, memory_config, self.tile)
        is_plain = self.padded_shape == made.padded_shape and not self.pad_value
        return made if is_plain else made.padded_to(self.padded_shape, self.pad_value, self.room)

    def padded_to(self, padded: Sequence[int], pad_value: float, room: torch.Tensor | None = None) -> TensorSpec:
        """The same piece with room around it that the layout alone would not leave."""
        made = copy.copy(self)
        made.padded_shape = Shape(padded)
        made.pad_value, made.room = pad_value, room
        made._footprint = None
        return made

    @overload
    def sharded(
        self,
        shard_shape: Sequence[int],
        grid: CoreRangeSet,
        shard_alignment: ShardShapeAlignment = ShardShapeAlignment.RECOMMENDED,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
        shard_distribution_strategy: ShardDistributionStrategy = ShardDistributionStrategy.ROUND_ROBIN_1D,
    ) -> TensorSpec: ...
    @overload
    def sharded(
        self,
        shard_shape: NdShardSpec,
        grid: ShardShapeAlignment | None = None,
        shard_alignment: ShardShapeAlignment = ShardShapeAlignment.RECOMMENDED,
    ) -> TensorSpec: ...
    def sharded(
        self,
        shard_shape: Sequence[int] | NdShardSpec,
        grid: CoreRangeSet | ShardShapeAlignment | None = None,
        shard_alignment: ShardShapeAlignment | None = ShardShapeAlignment.RECOMMENDED,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
        shard_distribution_strategy: ShardDistributionStrategy = ShardDistributionStrategy.ROUND_ROBIN_1D,
    ) -> TensorSpec:
        """In shards of this shape, or of an NdShardSpec, rounded up as the alignment says."""
        if isinstance(shard_shape, NdShardSpec):
            cut = shard_shape.copy()
            shard_alignment = grid if isinstance(grid, ShardShapeAlignment) else shard_alignment
        else:
            shape = checked_ints("sharded", "shard_shape", shard_shape)
            cores = checked("sharded", "grid", grid, CoreRangeSet, "a CoreRangeSet")
            cut = NdShardSpec(shape, cores, orientation, shard_distribution_strategy)
        cut.shard_shape = self._aligned_shard(cut.shard_shape, shard_alignment or ShardShapeAlignment.RECOMMENDED)
        return self.with_memory_config(MemoryConfig(self.memory_config.buffer_type, cut))

    def _aligned_shard(self, shape: Sequence[int], alignment: ShardShapeAlignment) -> list[int]:
        checked("sharded", "shard_alignment", alignment, ShardShapeAlignment, "a ttnn.ShardShapeAlignment")
        extents = list(shape)
        units = [1] * len(extents)
        if self.layout is Layout.TILE:
            units[-2:] = self.tile.tile_shape[-len(units) :] if units else []
        elif alignment is ShardShapeAlignment.RECOMMENDED and units:
            units[-1] = _RECOMMENDED_ROW_BYTES // element_size(self.dtype)
        rounded = [-(-n // unit) * unit for n, unit in zip(extents, units, strict=True)]
        if alignment is ShardShapeAlignment.NONE and rounded != extents:
            raise MeshError(
                f"sharded: a shard of {extents} is not made of whole {units[-2:]} units of {self.layout}: give "
                f"{rounded}, or ttnn.ShardShapeAlignment.REQUIRED."
            )
        return rounded

    def sharded_across_dims(
        self,
        dims: Sequence[int],
        grid: CoreRangeSet,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    ) -> TensorSpec:
        """One slice of each of `dims` per shard, the other dims whole."""
        split = self._dims("sharded_across_dims", dims)
        shape = [1 if i in split else n for i, n in enumerate(self.padded_shape)]
        return self.sharded(shape, grid, orientation=orientation)

    def sharded_across_dims_except(
        self,
        dims: Sequence[int],
        grid: CoreRangeSet,
        orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    ) -> TensorSpec:
        kept = self._dims("sharded_across_dims_except", dims)
        others = [d for d in range(len(self.padded_shape)) if d not in kept]
        return self.sharded_across_dims(others, grid, orientation)

    def _dims(self, where: str, dims: Sequence[int]) -> set[int]:
        rank = len(self.padded_shape)
        given = checked_ints(where, "dims", dims)
        for dim in given:
            if not -rank <= dim < rank:
                raise MeshError(
                    f"ShapeBase[] index out of range. {dim} not in [{-max(rank, 4)}, {rank}): {where} of {self.shape}."
                )
        return {d % rank for d in given}

    def height_sharded(
        self, grid: CoreRangeSet, orientation: ShardOrientation = ShardOrientation.ROW_MAJOR
    ) -> TensorSpec:
        cores = checked("height_sharded", "grid", grid, CoreRangeSet, "a CoreRangeSet")
        height, width = physical_shape(self.padded_shape)
        shape = [_parted("height_sharded", height, cores.num_cores()), width]
        return self.sharded(shape, cores, ShardShapeAlignment.REQUIRED, orientation)

    def width_sharded(
        self, grid: CoreRangeSet, orientation: ShardOrientation = ShardOrientation.ROW_MAJOR
    ) -> TensorSpec:
        cores = checked("width_sharded", "grid", grid, CoreRangeSet, "a CoreRangeSet")
        height, width = physical_shape(self.padded_shape)
        shape = [height, _parted("width_sharded", width, cores.num_cores())]
        return self.sharded(shape, cores, ShardShapeAlignment.REQUIRED, orientation)

    def block_sharded(
        self, grid: CoreRange | CoreRangeSet, orientation: ShardOrientation = ShardOrientation.ROW_MAJOR
    ) -> TensorSpec:
        ranges = CoreRangeSet([grid]) if isinstance(grid, CoreRange) else grid
        cores = checked("block_sharded", "grid", ranges, CoreRangeSet, "a CoreRange or a CoreRangeSet")
        if cores.size() != 1:
            raise MeshError(f"Block sharding requires a single CoreRange, got {cores}.")
        box = cores.bounding_box().grid_size()
        rows, cols = (box.y, box.x) if orientation is ShardOrientation.ROW_MAJOR else (box.x, box.y)
        height, width = physical_shape(self.padded_shape)
        shape = [_parted("block_sharded", height, rows), _parted("block_sharded", width, cols)]
        strategy = ShardDistributionStrategy.GRID_2D
        return self.sharded(shape, cores, ShardShapeAlignment.RECOMMENDED, orientation, strategy)


def _shard_shape(memory_config: MemoryConfig) -> Sequence[int] | None:
    if memory_config.interleaved:
        return None
    nd, flat = memory_config.nd_shard_spec, memory_config.shard_spec
    if nd is not None:
        return tuple(nd.shard_shape)
    return None if flat is None else flat.shape


def _parted(where: str, extent: int, parts: int) -> int:
    """The extent of one of `parts` shards."""
    if not parts:
        raise refused(where, "grid must hold at least one core")
    return -(-extent // parts)


def _by_name(memory: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """What follows the layout in any of the three forms of the constructor, by name."""
    names = _FORMS.get(type(memory[0]), ()) if memory else ()
    known = {name for form in _FORMS.values() for name in form}
    twice = set(names[: len(memory)]) & named.keys()
    if len(memory) > len(names) or not named.keys() <= known or twice:
        raise refused(
            "TensorSpec",
            "after shape, dtype and layout come (buffer_type, tile), (memory_layout, shard_spec, buffer_type, "
            f"tile) or (nd_shard_spec, buffer_type, tile); got {[*map(repr, memory), *named]}",
        )
    return dict(zip(names, memory, strict=False)) | named


def _memory_config(given: dict[str, Any]) -> MemoryConfig:
    buffer_type = given.get("buffer_type", BufferType.DRAM)
    if given.get("nd_shard_spec") is not None:
        return MemoryConfig(buffer_type, given["nd_shard_spec"])
    if given.get("memory_layout") is not None:
        return MemoryConfig(given["memory_layout"], buffer_type, given.get("shard_spec"))
    return _interleaved(checked("TensorSpec", "buffer_type", buffer_type, BufferType, "a ttnn.BufferType"))


@cache
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
    spec = TensorSpec.__new__(TensorSpec)
    spec._fill(Shape(shape), dtype, layout, memory_config, tile)
    check_dtype(dtype, layout)
    return spec
