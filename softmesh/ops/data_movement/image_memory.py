"""Memory configs of what convolutions and pools make of images: L1 shards of images in L1, else DRAM.

TT-NN takes the input's shards, those that were asked for, or chooses a scheme by what its kernels need of L1. Here the
one that occupies most cores is chosen, height before block before width; for some sizes its choice is another.
"""

from __future__ import annotations

from typing import NamedTuple

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet, num_cores_to_corerangeset
from softmesh.hardware import Op2DL1Full, Op2DSliceConfig
from softmesh.hardware.memory_config import (
    DRAM_MEMORY_CONFIG,
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.strictness import warn_or_raise
from softmesh.tensor.dtype import TILE_SIZE, Layout

_HEIGHT, _BLOCK = TensorMemoryLayout.HEIGHT_SHARDED, TensorMemoryLayout.BLOCK_SHARDED
_WIDTH = TensorMemoryLayout.WIDTH_SHARDED
_ROW_STEP = 8  # channels, of which a row-major shard holds multiples


class Extents(NamedTuple):
    """Of the matrix that is made: a row for each pixel, a column for each output channel."""

    rows: int
    out_channels: int


class Sharding(NamedTuple):
    """How a result in L1 is to be cut: as its input is where no scheme is named."""

    layout: Layout
    scheme: TensorMemoryLayout | None = None
    may_move: bool = False  # to other cores than the input's
    is_transposed: bool = False  # blocks: channels go down the columns of cores
    row_step: int = TILE_SIZE  # rows, of which a shard in row-major order holds multiples

    @property
    def rows_together(self) -> int:
        """Rows that no shards part."""
        return TILE_SIZE if self.layout is Layout.TILE else self.row_step


class _Cores(NamedTuple):
    """Among how many cores rows and channels are dealt."""

    rows: int
    channels: int

    @property
    def occupied(self) -> int:
        return self.rows * self.channels


def stays_in_l1(images: MemoryConfig, slice_config: Op2DSliceConfig | None) -> bool:
    """Whether input and result are whole in L1; otherwise slices of them are, one after the other."""
    if slice_config is None:
        return images.buffer_type is not BufferType.DRAM
    return slice_config.slice_type is Op2DL1Full


def asked_memory(op: str, in_l1: bool, asked: MemoryConfig | None) -> MemoryConfig | None:
    """What was asked for, where it counts."""
    if in_l1 or not isinstance(asked, MemoryConfig):
        return asked
    if asked != DRAM_MEMORY_CONFIG:
        warn_or_raise(
            f"{op}: memory_config is ignored: the input comes from DRAM or the host, is worked on in slices, and the "
            "result goes to DRAM, interleaved. Move it with ttnn.to_memory_config, or bring the input to L1 first.",
        )
    return None


def memory_in_l1(images: MemoryConfig, wanted: Sharding, extents: Extents, grid: CoreCoord) -> MemoryConfig:
    """The shards of a result that stays in L1, on a chip with such a grid of cores."""
    held = images.shard_spec
    scheme = wanted.scheme or (images.memory_layout if held is not None else None)
    if held is not None and scheme is images.memory_layout and not wanted.may_move:
        return _on_cores_of(held, images.memory_layout, extents, wanted)
    scheme = scheme or max((_HEIGHT, _BLOCK, _WIDTH), key=lambda one: _dealt(one, extents, grid, wanted).occupied)
    cores = _dealt(scheme, extents, grid, wanted)
    orientation = ShardOrientation.COL_MAJOR if wanted.is_transposed else ShardOrientation.ROW_MAJOR
    if scheme is _BLOCK:
        across, down = (cores.rows, cores.channels) if wanted.is_transposed else (cores.channels, cores.rows)
        where = CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(across - 1, down - 1))])
    else:
        where, orientation = num_cores_to_corerangeset(cores.occupied, grid, row_wise=True), ShardOrientation.ROW_MAJOR
    return _shards(scheme, where, orientation, cores, extents, wanted)


def _dealt(scheme: TensorMemoryLayout, extents: Extents, grid: CoreCoord, wanted: Sharding) -> _Cores:
    rows, channels = -(-extents.rows // wanted.rows_together), -(-extents.out_channels // TILE_SIZE)
    if scheme is _HEIGHT:
        return _Cores(_evenly(rows, grid.x * grid.y), 1)
    if scheme is _WIDTH:
        return _Cores(1, _divisor(channels, grid.x * grid.y))
    most_rows, most_channels = (grid.x, grid.y) if wanted.is_transposed else (grid.y, grid.x)
    return _Cores(_evenly(rows, most_rows), _divisor(channels, most_channels))


def _evenly(parts: int, most: int) -> int:
    """As many cores as have a part, where all but the last have the same number of them."""
    each = -(-parts // most)
    return -(-parts // each)


def _divisor(tiles: int, most: int) -> int:
    return next(n for n in range(min(tiles, most), 0, -1) if tiles % n == 0)


def _on_cores_of(held: ShardSpec, scheme: TensorMemoryLayout, extents: Extents, wanted: Sharding) -> MemoryConfig:
    """On the cores that hold the input."""
    count = held.grid.num_cores()
    if scheme is _BLOCK:
        end = held.grid.bounding_box().grid_size()
        by_row = held.orientation is ShardOrientation.ROW_MAJOR
        cores = _Cores(end.y, end.x) if by_row else _Cores(end.x, end.y)
    else:
        cores = _Cores(count, 1) if scheme is _HEIGHT else _Cores(1, count)
    return _shards(scheme, held.grid, held.orientation, cores, extents, wanted)


def _shards(
    scheme: TensorMemoryLayout,
    where: CoreRangeSet,
    orientation: ShardOrientation,
    cores: _Cores,
    extents: Extents,
    wanted: Sharding,
) -> MemoryConfig:
    is_tiled = wanted.layout is Layout.TILE
    height = _up(-(-extents.rows // cores.rows), wanted.rows_together)
    if scheme is _WIDTH and not is_tiled:
        height = extents.rows
    width = _up(-(-extents.out_channels // cores.channels), TILE_SIZE if is_tiled else _ROW_STEP)
    if scheme is _HEIGHT and not is_tiled:
        width = extents.out_channels
    return MemoryConfig(scheme, BufferType.L1, ShardSpec(where, [height, width], orientation))


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
