"""The memory footprint of a tensor: how much of each bank it takes, with padding, page alignment and shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from softmesh.cores import CoreCoord, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import MemoryConfig, TensorMemoryLayout
from softmesh.runtime.buffers.buffer_config import BufferDistributionSpec
from softmesh.runtime.memory.allocator import Allocator
from softmesh.runtime.memory.memory_map import MemoryMap, Region
from softmesh.runtime.memory.pool import Pool
from softmesh.tensor.dtype import Layout, element_size
from softmesh.tensor.per_core_memory import PerCoreRoom
from softmesh.tensor.spec import TensorSpec


class Footprint(NamedTuple):
    memory_map: MemoryMap  # it holds for this one
    buffer_type: BufferType
    bytes_per_bank: int  # in whole grains of the memory
    bytes: int  # of all banks, as far as pages lie there
    banks: int  # over which it is spread


Room = tuple[Pool | PerCoreRoom, int, int]  # bytes of each bank, and of all of them together


def room_in_pool(spec: TensorSpec, allocator: Allocator) -> tuple[Pool, int, int]:
    """For values on their way, which lie at one address on all cores."""
    _, buffer_type, size, requested, _ = footprint(spec, allocator.memory_map)
    return allocator.pools[buffer_type], size, requested


def room_for(spec: TensorSpec, allocator: Allocator) -> Room:
    pool, size, requested = room_in_pool(spec, allocator)
    return pool_for(spec.memory_config, pool), size, requested


def pool_for(config: MemoryConfig, pool: Pool) -> Pool | PerCoreRoom:
    """The pool itself, but for tensors that are allocated core by core."""
    shards = config.shard_spec or config.nd_shard_spec
    if not config.per_core_allocation or shards is None:
        return pool
    return PerCoreRoom(pool, corerange_to_cores(shards.grid, row_wise=True))


def footprint(spec: TensorSpec, memory_map: MemoryMap) -> Footprint:
    """Worked out once for a spec and a map."""
    known = spec._footprint
    if known is None or known.memory_map is not memory_map:
        known = spec._footprint = _measured(spec, memory_map)
    return known


def _measured(spec: TensorSpec, memory_map: MemoryMap) -> Footprint:
    config = spec.memory_config
    region, banks = memory_map.regions[config.buffer_type], 0
    if not spec.volume():
        each = total = 0
    elif config.is_sharded():
        shard, cores = _shard_shape(spec, memory_map)
        of_one = _shard_bytes(spec, shard, region)
        shards = math.prod(-(-n // m) for n, m in zip(_cut_shape(spec, shard), shard, strict=True))
        each, total, banks = -(-shards // cores) * of_one, shards * of_one, min(cores, shards)
    elif config.buffer_type is BufferType.L1_SMALL:
        raise MeshError(
            "L1_SMALL only supports sharded allocations, see validate_num_banks: give the tensor a sharded memory "
            f"config, or {BufferType.L1}."
        )
    else:
        page, pages, banks = _aligned(spec.page_size(), region), spec.num_pages(), region.banks
        each, total = -(-pages // banks) * page, pages * page
    return Footprint(memory_map, config.buffer_type, -(-each // region.grain) * region.grain, total, banks)


def _shard_shape(spec: TensorSpec, memory_map: MemoryMap) -> tuple[tuple[int, ...], int]:
    """The extents of one shard, and over how many cores shards are dealt."""
    config = spec.memory_config
    cut = config.nd_shard_spec
    if cut is None:
        return _even_shard(spec, memory_map), memory_map.grid[0] * memory_map.grid[1]
    shape = tuple(max(n, 1) for n in cut.shard_shape)
    columns, rows = _banks(config.buffer_type, memory_map)
    if any(area.end.x >= columns or area.end.y >= rows for area in cut.grid.ranges()):
        dealt = BufferDistributionSpec.dealt(
            _cut_shape(spec, shape), shape, cut.grid, cut.orientation, cut.shard_distribution_strategy
        )
        _check_cores(dealt.cores_with_shards(), config.buffer_type, memory_map)
    return shape, max(cut.num_cores(), 1)


def _banks(buffer_type: BufferType, memory_map: MemoryMap) -> tuple[int, int]:
    """Columns and rows of the cores that have a bank: DRAM's are in a row, whose core x has bank x."""
    return (memory_map.regions[buffer_type].banks, 1) if buffer_type is BufferType.DRAM else memory_map.grid


def _check_cores(cores: Sequence[CoreCoord], buffer_type: BufferType, memory_map: MemoryMap) -> None:
    columns, rows = _banks(buffer_type, memory_map)
    count, is_dram = memory_map.regions[buffer_type].banks, buffer_type is BufferType.DRAM
    for core in cores:
        at = f"shard core ({core.x}, {core.y})"
        if is_dram and core.y:
            raise MeshError(
                f"Invalid DRAM shard grid: {at} is not on row 0. DRAM banks are 1D: bank x is core (x, 0). Keep the "
                "grid in row 0, inside mesh.dram_grid_size()."
            )
        if is_dram and core.x >= columns:
            raise MeshError(
                f"Invalid DRAM shard grid: {at} has no DRAM bank on this device, which has {count} of them. Keep the "
                "grid inside mesh.dram_grid_size()."
            )
        if core.x >= columns or core.y >= rows:
            raise MeshError(
                f"Invalid shard grid: {at} has no L1 bank on this device, which has {count} of them. Derive the shard "
                f"grid from mesh.compute_with_storage_grid_size(), which is {columns} x {rows} here."
            )


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
