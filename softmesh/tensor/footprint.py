"""The memory footprint of a tensor: how much of each bank it takes, with padding, page alignment and shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import TensorMemoryLayout
from softmesh.runtime.memory.allocator import Allocator
from softmesh.runtime.memory.memory_map import MemoryMap, Region
from softmesh.runtime.memory.pool import Pool
from softmesh.tensor.dtype import Layout, element_size
from softmesh.tensor.spec import TensorSpec


class Footprint(NamedTuple):
    memory_map: MemoryMap  # it holds for this one
    buffer_type: BufferType
    bytes_per_bank: int  # in whole grains of the memory
    bytes: int  # of all banks, as far as pages lie there


Room = tuple[Pool, int, int]  # bytes of each bank, and of all of them together


def room_for(spec: TensorSpec, allocator: Allocator) -> Room:
    _, buffer_type, size, requested = footprint(spec, allocator.memory_map)
    return allocator.pools[buffer_type], size, requested


def footprint(spec: TensorSpec, memory_map: MemoryMap) -> Footprint:
    """Worked out once for a spec and a map."""
    known = spec._footprint
    if known is None or known.memory_map is not memory_map:
        known = spec._footprint = _measured(spec, memory_map)
    return known


def _measured(spec: TensorSpec, memory_map: MemoryMap) -> Footprint:
    config = spec.memory_config
    region = memory_map.regions[config.buffer_type]
    if not spec.volume():
        each = total = 0
    elif config.is_sharded():
        shard, cores = _shard_shape(spec, memory_map)
        of_one = _shard_bytes(spec, shard, region)
        shards = math.prod(-(-n // m) for n, m in zip(_cut_shape(spec, shard), shard, strict=True))
        each, total = -(-shards // cores) * of_one, shards * of_one
    else:
        page, pages = _aligned(spec.page_size(), region), spec.num_pages()
        each, total = -(-pages // region.banks) * page, pages * page
    return Footprint(memory_map, config.buffer_type, -(-each // region.grain) * region.grain, total)


def _shard_shape(spec: TensorSpec, memory_map: MemoryMap) -> tuple[tuple[int, ...], int]:
    """The extents of one shard, and over how many cores shards are dealt."""
    config = spec.memory_config
    cut = config.nd_shard_spec
    if cut is not None:
        if config.buffer_type is BufferType.DRAM and any(area.end.y > 0 for area in cut.grid.ranges()):
            raise MeshError(
                "DRAM banks are 1D: bank x is core (x, 0), and a shard on another row would lie over one of these; "
                f"got the grid {cut.grid}. Keep it in row 0, inside mesh.dram_grid_size()."
            )
        return tuple(max(n, 1) for n in cut.shard_shape), max(cut.num_cores(), 1)
    flat = config.shard_spec
    if flat is not None:
        return tuple(max(n, 1) for n in flat.shape), max(flat.num_cores(), 1)
    return _even_shard(spec, memory_map), memory_map.grid[0] * memory_map.grid[1]


def _even_shard(spec: TensorSpec, memory_map: MemoryMap) -> tuple[int, int]:
    """Where nobody said how to cut, TT-NN's ops do it: evenly over the cores that there are."""
    columns, rows = memory_map.grid
    layout = spec.memory_config.memory_layout
    height, width = _two_dims(spec)
    if layout is TensorMemoryLayout.BLOCK_SHARDED:
        return -(-height // rows), -(-width // columns)
    if layout is TensorMemoryLayout.WIDTH_SHARDED:
        return height, -(-width // (columns * rows))
    return -(-height // (columns * rows)), width


def _two_dims(spec: TensorSpec) -> tuple[int, int]:
    padded = tuple(spec.padded_shape)
    return math.prod(padded[:-1]), padded[-1]


def _cut_shape(spec: TensorSpec, shard: Sequence[int]) -> tuple[int, ...]:
    """The padded shape with as many dims as the shard: leading ones folded into one, or ones put in front."""
    padded, rank = tuple(spec.padded_shape), len(shard)
    if len(padded) > rank:
        keep = len(padded) - rank + 1
        return (math.prod(padded[:keep]), *padded[keep:])
    return (1,) * (rank - len(padded)) + padded


def _shard_bytes(spec: TensorSpec, shard: Sequence[int], region: Region) -> int:
    *lead, width = shard
    if spec.layout is not Layout.TILE:
        return math.prod(lead) * _aligned(width * element_size(spec.dtype), region)
    height = lead.pop() if lead else 1
    tiles = -(-height // spec.tile.height) * -(-width // spec.tile.width)
    return math.prod(lead) * tiles * _aligned(spec.page_size(), region)


def _aligned(page: int, region: Region) -> int:
    return -(-page // region.page_alignment) * region.page_alignment


def keeps_pages(given: TensorSpec, made: TensorSpec) -> bool:
    """Whether one tensor's pages are the other's, in the same order: such a reshape moves nothing.

    So TT-NN decides: rows of one length, and where rows are in tiles, no padding between the tiles of one shape
    that the other does not have.
    """
    if (
        given.dtype is not made.dtype
        or given.layout is not made.layout
        or given.memory_config != made.memory_config
        or given.tile != made.tile
        or given.volume() != made.volume()
    ):
        return False
    (rows, width), (made_rows, made_width) = _last_two(given), _last_two(made)
    if width != made_width:
        return False
    height = given.tile.height
    return given.layout is not Layout.TILE or rows == made_rows or not (rows % height or made_rows % height)


def _last_two(spec: TensorSpec) -> tuple[int, int]:
    shape = (1, 1, *spec.shape)
    return shape[-2], shape[-1]
