"""Placement of experts' weights: core shards and memory configs of packed weights, devices of shared experts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from softmesh.arguments import checked, checked_int, reject_unknown_keywords
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
from softmesh.ops.moe import weight_packing
from softmesh.ops.moe.weight_packing import (
    DEFAULT_TILES_PER_TXN,
    W2_TILES_PER_A2A_ITER_W,
    last_blocks,
    padded_rows,
    shared_tiles,
    w0_w1_blocks,
    whole_tiles,
)
from softmesh.runtime.device import A_MESH_DEVICE, MeshDevice

_TILE = weight_packing.TILE
_WIDTH = W2_TILES_PER_A2A_ITER_W * _TILE


class WeightCoreShardMaps(NamedTuple):
    """Tiles of the intermediate size for each core; (tiles, zero tiles) in the last block of its part of w2; banks."""

    w0_w1_shard_map: list[int]
    w2_shard_map: list[tuple[int, int]]
    dram_core_range_set: CoreRangeSet


class WeightMemoryConfigs(NamedTuple):
    w0_w1: MemoryConfig
    w2: MemoryConfig


@reject_unknown_keywords
def effective_matmul_ring_size(mesh_device: MeshDevice, bh_ring_size: int = 8) -> int:
    """The cores that share the products: one for each DRAM bank of a Wormhole chip, `bh_ring_size` on Blackhole."""
    where = "effective_matmul_ring_size"
    mesh = checked(where, "mesh_device", mesh_device, MeshDevice, A_MESH_DEVICE)
    ring = checked_int(where, "bh_ring_size", bh_ring_size)
    if ring < 1:
        raise MeshError(f"{where}: bh_ring_size must be 1 or more, got {ring}.")
    return ring if mesh.arch() is Arch.BLACKHOLE else mesh.dram_grid_size().x


@reject_unknown_keywords
def auto_output_width_shard_dim(
    hidden_size: int, tile_size: int = 32, max_dim: int = 4, matmul_ring_size: int | None = None
) -> int:
    """The most cores, up to `max_dim`, that can share a row of the output in equal numbers of tiles.

    Their number divides that of the cores around which a ring matmul hands its operands, where one is given.
    """
    least = min(hidden_size, tile_size, max_dim, 1 if matmul_ring_size is None else matmul_ring_size)
    if least < 1 or hidden_size % tile_size:
        raise MeshError(
            f"auto_output_width_shard_dim: hidden_size={hidden_size} must be whole tiles of {tile_size}, and "
            f"max_dim={max_dim} and matmul_ring_size={matmul_ring_size} 1 or more."
        )
    tiles = hidden_size // tile_size
    shared = tiles if matmul_ring_size is None else math.gcd(tiles, matmul_ring_size)
    return max(cores for cores in range(1, max_dim + 1) if shared % cores == 0)


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


@reject_unknown_keywords
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


@reject_unknown_keywords
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
    second = w2_core_rows_per_expert(hidden_size // _TILE, inner, cores, DEFAULT_TILES_PER_TXN) * cores // banks
    return WeightMemoryConfigs(
        _in_banks(dram_core_range_set, experts * first), _in_banks(dram_core_range_set, experts * second)
    )


def _in_banks(banks: CoreRangeSet, rows: int) -> MemoryConfig:
    spec = ShardSpec(banks, [rows, _WIDTH], ShardOrientation.ROW_MAJOR)
    return MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.DRAM, spec)


@reject_unknown_keywords
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


@reject_unknown_keywords
def w2_core_rows_per_expert(Ht: int, k_w2_tiles: int, num_cores: int, tiles_per_txn: int) -> int:
    """Rows, 128 elements each, of one core's part of an expert's w2."""
    blocks = -(-max(shares_of_tiles(Ht, num_cores)) // W2_TILES_PER_A2A_ITER_W)
    return blocks * padded_rows(k_w2_tiles, tiles_per_txn) * _TILE


# -- shared experts, which every token visits: the device of the nearest copy, and their weights -----


Homes = Mapping[int, Sequence[int]]  # of each shared expert: the devices that have its weights


@reject_unknown_keywords
def cluster_distance(d0: int, d1: int, mesh_shape: Sequence[int], cluster_axis: int) -> float:
    """Hops from device d0 to d1 around the ring along `cluster_axis`; infinite where they lie on different rings.

    Devices count row-major. Whether TT-NN counts the wrap-around is not documented; here it does.
    """
    rows, columns = mesh_shape
    _check_places("cluster_distance", (d0, d1), rows * columns, cluster_axis)
    first, second = divmod(d0, columns), divmod(d1, columns)
    if first[1 - cluster_axis] != second[1 - cluster_axis]:
        return math.inf
    apart = abs(first[cluster_axis] - second[cluster_axis])
    return min(apart, (rows, columns)[cluster_axis] - apart)


def _check_places(where: str, devices: Sequence[int], count: int, axis: int) -> None:
    wrong = [device for device in devices if not 0 <= device < count]
    if wrong:
        raise MeshError(f"{where}: device {wrong[0]} is none of the mesh's {count} (0 to {count - 1}).")
    if axis not in (0, 1):
        raise MeshError(f"{where}: cluster_axis must be 0 or 1, got {axis}.")


@reject_unknown_keywords
def map_shared_experts(
    expert_mapping_tensor: torch.Tensor,
    shared_expert_ids_to_devices: Homes,
    mesh_shape: Sequence[int],
    cluster_axis: int,
) -> torch.Tensor:
    """The mapping (devices, experts) with a column for each shared expert: for each device the nearest copy."""
    where = "map_shared_experts"
    mapping = checked(where, "expert_mapping_tensor", expert_mapping_tensor, torch.Tensor, "a torch tensor")
    devices = math.prod(mesh_shape)
    if mapping.dim() != 2 or mapping.shape[0] != devices:
        raise MeshError(
            f"{where}: expert_mapping_tensor must be ({devices} devices, experts), got {tuple(mapping.shape)}."
        )
    width = max([mapping.shape[1], *(expert + 1 for expert in shared_expert_ids_to_devices)])
    found = torch.zeros(devices, width, dtype=mapping.dtype)
    found[:, : mapping.shape[1]] = mapping
    for expert, homes in shared_expert_ids_to_devices.items():
        for device in range(devices):
            found[device, expert] = _nearest(expert, device, homes, mesh_shape, cluster_axis)
    return found


def _nearest(expert: int, device: int, homes: Sequence[int], shape: Sequence[int], axis: int) -> int:
    near = min(homes, key=lambda home: cluster_distance(device, home, shape, axis), default=None)
    if near is None or math.isinf(cluster_distance(device, near, shape, axis)):
        raise MeshError(
            f"map_shared_experts: shared expert {expert} has its weights on {list(homes)}, none of which device "
            f"{device} reaches along axis {axis} of {tuple(shape)}: put a copy on each group."
        )
    return near


@reject_unknown_keywords
def get_shared_experts_per_device(shared_expert_ids_to_devices: Homes, devices: int) -> list[list[int]]:
    """For each device the shared experts whose weights it has, lowest number first."""
    for homes in shared_expert_ids_to_devices.values():
        _check_places("get_shared_experts_per_device", homes, devices, 0)
    return [
        sorted(expert for expert, homes in shared_expert_ids_to_devices.items() if device in homes)
        for device in range(devices)
    ]


Weights = Mapping[int, torch.Tensor]


@reject_unknown_keywords
def add_shared_expert_weights(
    routed_w0: torch.Tensor,
    routed_w1: torch.Tensor,
    routed_w2: torch.Tensor,
    shared_w0: Weights,
    shared_w1: Weights,
    shared_w2: Weights,
    shared_expert_ids_to_device: Homes,
    num_devices: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(L, experts, height, width) of all devices: each one's routed experts, and behind them its shared ones."""
    lists = get_shared_experts_per_device(shared_expert_ids_to_device, num_devices)
    if len({len(experts) for experts in lists}) != 1:
        raise MeshError(
            f"add_shared_expert_weights: the devices have {[len(experts) for experts in lists]} shared experts: "
            "give each device equally many."
        )
    pairs = ((routed_w0, shared_w0), (routed_w1, shared_w1), (routed_w2, shared_w2))
    first, second, third = (_interleaved(routed, shared, lists) for routed, shared in pairs)
    return first, second, third


def _interleaved(routed: torch.Tensor, shared: Weights, lists: Sequence[Sequence[int]]) -> torch.Tensor:
    if routed.dim() != 4 or routed.shape[1] % len(lists):
        raise MeshError(
            f"add_shared_expert_weights: routed weights {tuple(routed.shape)} must be (layers, experts, height, "
            f"width) with equally many experts for each of {len(lists)} devices."
        )
    missing = sorted({expert for experts in lists for expert in experts} - shared.keys())
    if missing:
        raise MeshError(f"add_shared_expert_weights: there are no weights for shared expert {missing[0]}.")
    layers, _, height, width = routed.shape
    parts = []
    for own, experts in zip(routed.chunk(len(lists), 1), lists, strict=True):
        parts += [own, *(shared[expert].reshape(layers, 1, height, width) for expert in experts)]
    return torch.cat(parts, 1)
