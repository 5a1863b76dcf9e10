"""The weights of experts as torch tensors, packed for `moe_compute`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.arguments import checked_ints, knows_its_names
from softmesh.errors import MeshError, NotModelled
from softmesh.ops.moe.packing import (
    DEFAULT_TILES_PER_TXN,
    last_blocks,
    w0_w1_packed,
    w2_packed,
    whole_tiles,
    with_bias,
)


def check_matrices(where: str, given: dict[str, Sequence[int]], wanted: Sequence[int]) -> None:
    """The shapes of weights are those that L, E, K and N say."""
    for name, shape in given.items():
        if list(shape) != list(wanted):
            raise MeshError(f"{where}: {name} is {list(shape)}, and L, E, K and N say {list(wanted)}.")


def _checked_shares(where: str, shard_map: Sequence[int], tiles: int) -> list[int]:
    shares = checked_ints(where, "shard_map", shard_map)
    if sum(shares) != tiles or min(shares, default=-1) < 0:
        raise MeshError(
            f"{where}: the shard map {shares} must share out {tiles} tiles of the intermediate size."
        )
    return shares


@knows_its_names
def prepare_w0_w1_tensor_for_moe_compute(
    torch_w0: torch.Tensor,
    torch_w1: torch.Tensor,
    L: int,
    E: int,
    K: int,
    N: int,
    shard_map: Sequence[int],
    num_banks: int | None = None,
    tiles_per_txn: int | None = None,
) -> torch.Tensor:
    """(L, E, K, N) twice -> (cores, L, E, blocks, rows, 128), as `moe_compute` reads them."""
    where = "prepare_w0_w1_tensor_for_moe_compute"
    check_matrices(where, {"torch_w0": torch_w0.shape, "torch_w1": torch_w1.shape}, (L, E, K, N))
    shares = _checked_shares(where, shard_map, whole_tiles(where, "N", N))
    if num_banks not in (None, len(shares)):
        raise NotModelled(
            f"{where}: num_banks={num_banks} for {len(shares)} cores is not modelled: how TT-NN deals the parts of "
            "several cores to a bank is not known. Leave num_banks out."
        )
    whole_tiles(where, "K", K)
    return w0_w1_packed(torch_w0, torch_w1, shares, tiles_per_txn or DEFAULT_TILES_PER_TXN)


@knows_its_names
def prepare_w2_tensor_for_moe_compute(
    torch_w2: torch.Tensor,
    L: int,
    E: int,
    N: int,
    K: int,
    w2_shard_map: Sequence[tuple[int, int]],
    w0_w1_shard_map: Sequence[int],
    tiles_per_txn: int | None = None,
) -> torch.Tensor:
    """(L, E, N, K) -> (cores, L, E, blocks, rows, 128), as `moe_compute` reads it."""
    where = "prepare_w2_tensor_for_moe_compute"
    check_matrices(where, {"torch_w2": torch_w2.shape}, (L, E, N, K))
    shares = _checked_w2(where, K, N, w2_shard_map, w0_w1_shard_map)
    return w2_packed(torch_w2, shares, tiles_per_txn or DEFAULT_TILES_PER_TXN)


def _checked_w2(
    where: str, hidden: int, inner: int, w2_map: Sequence[tuple[int, int]], w0_w1_map: Sequence[int]
) -> list[int]:
    shares = _checked_shares(where, w0_w1_map, whole_tiles(where, "N", inner))
    wanted = last_blocks(whole_tiles(where, "K", hidden), len(shares))
    if [tuple(pair) for pair in w2_map] != wanted:
        raise MeshError(
            f"{where}: w2_shard_map {list(w2_map)} must be what get_weight_core_shard_maps gives for a hidden size of "
            f"{hidden}: {wanted}."
        )
    return shares


@knows_its_names
def prepare_w0_w1_tensor_with_bias(
    torch_w0: torch.Tensor,
    torch_w1: torch.Tensor,
    torch_b0: torch.Tensor,
    torch_b1: torch.Tensor,
    L: int,
    E: int,
    K: int,
    N: int,
    shard_map: Sequence[int],
) -> torch.Tensor:
    """As without a bias; b0 and b1 (L, E, N) are one more row of w0 and w1."""
    where = "prepare_w0_w1_tensor_with_bias"
    check_matrices(where, {"torch_w0": torch_w0.shape, "torch_w1": torch_w1.shape}, (L, E, K, N))
    shares = _checked_shares(where, shard_map, whole_tiles(where, "N", N))
    whole_tiles(where, "K", K)
    biases = (one.reshape(L, E, N) for one in (torch_b0, torch_b1))
    first, second = (with_bias(w, b) for w, b in zip((torch_w0, torch_w1), biases, strict=True))
    return w0_w1_packed(first, second, shares)


@knows_its_names
def prepare_w2_tensor_with_bias(
    torch_w2: torch.Tensor,
    torch_b2: torch.Tensor,
    L: int,
    E: int,
    N: int,
    K: int,
    w2_shard_map: Sequence[tuple[int, int]],
    w0_w1_shard_map: Sequence[int],
) -> torch.Tensor:
    """As without a bias; b2 (L, E, K) is one more row of w2."""
    where = "prepare_w2_tensor_with_bias"
    check_matrices(where, {"torch_w2": torch_w2.shape}, (L, E, N, K))
    shares = _checked_w2(where, K, N, w2_shard_map, w0_w1_shard_map)
    return w2_packed(with_bias(torch_w2, torch_b2.reshape(L, E, K)), shares)
