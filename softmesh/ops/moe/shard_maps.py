"""Which core gets which part of the experts' weights, and which memory they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from softmesh.arguments import checked, checked_int, knows_its_names
from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware import Arch
from softmesh.hardware.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from softmesh.ops.moe import packing
from softmesh.ops.moe.packing import (
    DEFAULT_TILES_PER_TXN,
    W2_TILES_PER_A2A_ITER_W,
    last_blocks,
    padded_rows,
    shared_tiles,
    w0_w1_blocks,
    whole_tiles,
)
from softmesh.runtime.device import MeshDevice

_TILE = packing.TILE
_WIDTH = W2_TILES_PER_A2A_ITER_W * _TILE
A_MESH_DEVICE = "a MeshDevice: open one with ttnn.open_mesh_device(ttnn.MeshShape(rows, cols))"


class WeightCoreShardMaps(NamedTuple):
    """Tiles of the intermediate size for each core; (tiles, zero tiles) in the last block of its part of w2; banks."""

    w0_w1_shard_map: list[int]
    w2_shard_map: list[tuple[int, int]]
    dram_core_range_set: CoreRangeSet


class WeightMemoryConfigs(NamedTuple):
    w0_w1: MemoryConfig
    w2: MemoryConfig


@knows_its_names
def effective_matmul_ring_size(mesh_device: MeshDevice, bh_ring_size: int = 8) -> int:
    """The cores that share the products: one for each DRAM bank of a Wormhole chip, `bh_ring_size` on Blackhole."""
    where = "effective_matmul_ring_size"
    mesh = checked(where, "mesh_device", mesh_device, MeshDevice, A_MESH_DEVICE)
    ring = checked_int(where, "bh_ring_size", bh_ring_size)
    if ring < 1:
        raise MeshError(f"{where}: bh_ring_size must be 1 or more, got {ring}.")
    return ring if mesh.arch() is Arch.BLACKHOLE else mesh.dram_grid_size().x


@knows_its_names
def auto_output_width_shard_dim(hidden_size: int, tile_size: int = 32, max_dim: int = 4) -> int:
    """The most cores, up to `max_dim`, that can share a row of the output in equal numbers of tiles."""
    if hidden_size < 1 or tile_size < 1 or hidden_size % tile_size or max_dim < 1:
        raise MeshError(
            f"auto_output_width_shard_dim: hidden_size={hidden_size} must be whole tiles of {tile_size}, and "
            f"max_dim={max_dim} 1 or more."
        )
    tiles = hidden_size // tile_size
    return max(cores for cores in range(1, max_dim + 1) if tiles % cores == 0)


def shares_of_tiles(total_tiles: int, num_cores: int) -> list[int]:
    """Tiles of w0 and w1 for each core."""
    _check_cores("_shard_tiles", total_tiles, num_cores)
    return shared_tiles(total_tiles, num_cores)


def last_blocks_of_w2(total_tiles: int, num_cores: int) -> list[tuple[int, int]]:
    """(tiles, zero tiles) in the last block of each core's part of w2."""
    _check_cores("_w2_shard_tiles", total_tiles, num_cores)
    return last_blocks(total_tiles, num_cores)


def _check_cores(where: str, tiles: int, cores: int) -> None:
    if tiles < 1 or cores < 1:
        raise MeshError(f"{where}: {tiles} tiles for {cores} cores: both must be 1 or more.")


@knows_its_names
def get_weight_core_shard_maps(
    mesh_device: MeshDevice, hidden_size: int, intermediate_size: int
) -> WeightCoreShardMaps:
    """How the cores of each device of a mesh share the weights. Which core gets an odd tile is chosen here."""
    where = "get_weight_core_shard_maps"
    cores = effective_matmul_ring_size(mesh_device)
    hidden = whole_tiles(where, "hidden_size", hidden_size)
    inner = whole_tiles(where, "intermediate_size", intermediate_size)
    banks = [CoreCoord(core % mesh_device.dram_grid_size().x, 0) for core in range(cores)]
    unique = dict.fromkeys(banks)
    return WeightCoreShardMaps(
        shared_tiles(inner, cores),
        last_blocks(hidden, cores),
        CoreRangeSet([CoreRange(bank, bank) for bank in unique]),
    )


@knows_its_names
def get_weight_mem_configs(
    num_layers: int,
    experts_per_device: int,
    hidden_size: int,
    intermediate_size: int,
    w0_w1_shard_map: Sequence[int],
    w2_shard_map: Sequence[tuple[int, int]],
    dram_core_range_set: CoreRangeSet,
    has_bias: bool = False,
) -> WeightMemoryConfigs:
    """Where packed weights lie: in DRAM, the part of each core in a bank of its own."""
    where = "get_weight_mem_configs"
    cores, banks = len(w0_w1_shard_map), dram_core_range_set.num_cores()
    hidden = whole_tiles(where, "hidden_size", hidden_size) + has_bias
    inner = whole_tiles(where, "intermediate_size", intermediate_size) + has_bias
    if len(w2_shard_map) != cores or num_layers < 1 or experts_per_device < 1:
        raise MeshError(
            f"{where}: {cores} cores share w0 and w1, and {len(w2_shard_map)} share w2; {num_layers} layers of "
            f"{experts_per_device} experts. Give maps of one length, and at least one layer and expert."
        )
    experts = num_layers * experts_per_device
    first = w0_w1_bank_rows_per_expert(hidden, sum(w0_w1_shard_map), cores, banks)
    second = (
        w2_core_rows_per_expert(hidden_size // _TILE, inner, cores, DEFAULT_TILES_PER_TXN) * cores // banks
    )
    return WeightMemoryConfigs(
        _in_banks(dram_core_range_set, experts * first), _in_banks(dram_core_range_set, experts * second)
    )


def _in_banks(banks: CoreRangeSet, rows: int) -> MemoryConfig:
    spec = ShardSpec(banks, [rows, _WIDTH], ShardOrientation.ROW_MAJOR)
    return MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.DRAM, spec)


@knows_its_names
def w0_w1_bank_rows_per_expert(
    k_dram_tiles: int,
    Nt: int,
    num_cores: int,
    num_banks: int | None = None,
    tiles_per_txn: int = DEFAULT_TILES_PER_TXN,
) -> int:
    """Rows, 128 elements each, that one expert's w0 and w1 take in a bank."""
    blocks = w0_w1_blocks(shares_of_tiles(Nt, num_cores))
    banks = num_cores if num_banks is None else num_banks
    return blocks * padded_rows(k_dram_tiles, tiles_per_txn) * _TILE * num_cores // banks


@knows_its_names
def w2_core_rows_per_expert(Ht: int, k_w2_tiles: int, num_cores: int, tiles_per_txn: int) -> int:
    """Rows, 128 elements each, of one core's part of an expert's w2."""
    blocks = -(-max(shares_of_tiles(Ht, num_cores)) // W2_TILES_PER_A2A_ITER_W)
    return blocks * padded_rows(k_w2_tiles, tiles_per_txn) * _TILE
