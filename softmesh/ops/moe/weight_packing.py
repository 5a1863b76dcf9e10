"""Packs experts' weights in the order in which a ring of cores reads them from DRAM: torch tensors in and out.

A core has a share of the columns of each matrix, in whole tiles, and reads them in blocks four tiles wide:
two tiles of w0 with those of w1 beside them, or four of w2. The rows of w2 are in the order in which the
other cores' parts of the activations arrive, its own first. Shares are filled up with zeros to one size.

TT-NN's kernels fix this order and no document does: the blocks, the ring and the sizes follow its public
constants, which cores get the odd tiles is chosen here. `moe_compute` reads what these functions make.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from softmesh.arguments import checked_ints, reject_unknown_keywords
from softmesh.errors import MeshError, NotModelled

TILE = 32
BLOCK_TILES_H = 7
DEFAULT_TILES_PER_TXN = 14
ALT_TILES_PER_TXN = 20
W0_W1_BLOCK_TILES_W = 4
W0_W1_HALF_BLOCK_TILES_W = 2
W0_W1_TXNS_PER_BLOCK = 2
W2_TILES_PER_A2A_ITER_W = 4
W2_HALF_A2A_ITER_TILES_W = 2
_BLOCK_WIDTH = W0_W1_BLOCK_TILES_W * TILE


class PackingOrder(NamedTuple):
    """Where each packed element comes from: rows (cores, 1, rows, 1) and columns (cores, blocks, 1, width).

    Numbers one past the end stand for zeros.
    """

    rows: torch.Tensor
    columns: torch.Tensor


def whole_tiles(op: str, name: str, extent: int) -> int:
    if extent < 1 or extent % TILE:
        raise MeshError(f"{op}: {name}={extent} must be a positive multiple of {TILE}: cores share whole tiles.")
    return extent // TILE


def shared_tiles(tiles: int, cores: int) -> list[int]:
    """How many of `tiles` each core gets; the odd ones are spread along the ring.

    >>> shared_tiles(8, 3)
    [2, 3, 3]
    """
    return [(core + 1) * tiles // cores - core * tiles // cores for core in range(cores)]


def last_blocks(tiles: int, cores: int) -> list[tuple[int, int]]:
    """For each core the tiles in its last block of w2, and the zero tiles that fill it; all blocks before are full."""
    width = W2_TILES_PER_A2A_ITER_W
    shares = shared_tiles(tiles, cores)
    full = _blocks(max(shares), width) - 1
    return [(share - full * width, width - share + full * width) for share in shares]


def _blocks(tiles: int, width: int) -> int:
    return -(-tiles // width)


def padded_rows(tiles: int, tiles_per_txn: int = DEFAULT_TILES_PER_TXN) -> int:
    """Rows of tiles filled up to whole blocks, each read in two transactions."""
    height = tiles_per_txn * W0_W1_TXNS_PER_BLOCK // W0_W1_BLOCK_TILES_W
    return _blocks(tiles, height) * height


def w0_w1_blocks(shares: Sequence[int]) -> int:
    return _blocks(max(shares), W0_W1_HALF_BLOCK_TILES_W)


def _starts(shares: Sequence[int]) -> list[int]:
    return [sum(shares[:core]) for core in range(len(shares))]


def _tile_columns(first: torch.Tensor) -> torch.Tensor:
    """Numbers of tiles -> numbers of columns, one more dim."""
    return first.unsqueeze(-1) * TILE + torch.arange(TILE)


@lru_cache(maxsize=64)
def w0_w1_order(height: int, width: int, shares: tuple[int, ...], tiles_per_txn: int) -> PackingOrder:
    """Of the columns of w0 and w1 side by side: 2 * width of them."""
    blocks, tiles = w0_w1_blocks(shares), sum(shares)
    own = torch.arange(blocks * W0_W1_HALF_BLOCK_TILES_W)
    tile = torch.tensor(_starts(shares)).unsqueeze(1) + own
    is_there = own < torch.tensor(shares).unsqueeze(1)
    pairs = torch.stack([tile, tile + tiles], -1)  # of w0 and of w1
    columns = torch.where(is_there[..., None, None], _tile_columns(pairs), 2 * width)
    rows = torch.arange(padded_rows(_blocks(height, TILE), tiles_per_txn) * TILE).clamp(max=height)
    return PackingOrder(rows.reshape(1, 1, -1, 1), columns.reshape(len(shares), blocks, 1, _BLOCK_WIDTH))


@lru_cache(maxsize=64)
def w2_order(height: int, width: int, shares: tuple[int, ...], tiles_per_txn: int) -> PackingOrder:
    """`shares` are those of w0 and w1: the rows of w2 arrive by them. A bias is the row after the last tile."""
    cores = len(shares)
    own = shared_tiles(width // TILE, cores)
    blocks = _blocks(max(own), W2_TILES_PER_A2A_ITER_W)
    place = torch.arange(blocks * W2_TILES_PER_A2A_ITER_W)
    tile = torch.tensor(_starts(own)).unsqueeze(1) + place
    is_there = place < torch.tensor(own).unsqueeze(1)
    columns = torch.where(is_there.unsqueeze(-1), _tile_columns(tile), width)
    rows = torch.stack([_arriving(core, height, shares, tiles_per_txn) for core in range(cores)])
    return PackingOrder(rows.reshape(cores, 1, -1, 1), columns.reshape(cores, blocks, 1, _BLOCK_WIDTH))


def _arriving(core: int, height: int, shares: tuple[int, ...], tiles_per_txn: int) -> torch.Tensor:
    """The numbers of rows as core `core` reads them: its own part, then those of the cores before it in the ring."""
    starts, cores = _starts(shares), len(shares)
    parts = [
        torch.arange(starts[i] * TILE, (starts[i] + shares[i]) * TILE)
        for i in ((core - step) % cores for step in range(cores))
    ]
    data = torch.cat(parts)
    total = padded_rows(_blocks(height, TILE), tiles_per_txn) * TILE
    rest = torch.arange(len(data), total).clamp(max=height)
    return torch.cat([data, rest])


def packed(matrix: torch.Tensor, order: PackingOrder) -> torch.Tensor:
    """(..., L, E, height, width) -> (..., cores, L, E, blocks, rows, 128)"""
    framed = torch.nn.functional.pad(matrix, (0, 1, 0, 1))
    on = matrix.device
    return framed[..., order.rows.to(on), order.columns.to(on)].movedim(-4, -6)


def unpacked(weights: torch.Tensor, order: PackingOrder, height: int, width: int) -> torch.Tensor:
    """What was packed: (..., cores, L, E, blocks, rows, 128) -> (..., L, E, height, width)."""
    cores, blocks, _, block_width = order.columns.shape
    columns = order.columns.flatten()
    place = torch.empty(width + 1, dtype=torch.long)
    place[columns] = torch.arange(len(columns))
    place = place[:width]
    core, block, offset = (
        place // (blocks * block_width),
        place // block_width % blocks,
        place % block_width,
    )
    rows = order.rows[:, 0, :, 0].expand(cores, -1)
    row = torch.empty(cores, height + 1, dtype=torch.long)
    row.scatter_(1, rows, torch.arange(rows.shape[1]).expand(cores, -1))
    on = weights.device
    core, block, offset = core.to(on), block.to(on), offset.to(on)
    return weights.movedim(-6, -4)[..., core, block, row.to(on)[core, :height].T, offset]


def with_bias(matrix: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """(..., H, W) with the bias (..., W) as one more row."""
    return torch.cat([matrix, bias.unsqueeze(-2)], -2)


def w0_w1_packed(
    w0: torch.Tensor, w1: torch.Tensor, shares: Sequence[int], tiles_per_txn: int = DEFAULT_TILES_PER_TXN
) -> torch.Tensor:
    height, width = w0.shape[-2:]
    return packed(torch.cat([w0, w1], -1), w0_w1_order(height, width, tuple(shares), tiles_per_txn))


def w2_packed(w2: torch.Tensor, shares: Sequence[int], tiles_per_txn: int = DEFAULT_TILES_PER_TXN) -> torch.Tensor:
    height, width = w2.shape[-2:]
    return packed(w2, w2_order(height, width, tuple(shares), tiles_per_txn))


# -- the public functions, for torch tensors ---------------------------------------------------------


def check_matrices(where: str, given: dict[str, Sequence[int]], wanted: Sequence[int]) -> None:
    """The shapes of weights are those that L, E, K and N say."""
    for name, shape in given.items():
        if list(shape) != list(wanted):
            raise MeshError(f"{where}: {name} is {list(shape)}, and L, E, K and N say {list(wanted)}.")


def _checked_shares(where: str, shard_map: Sequence[int], tiles: int) -> list[int]:
    shares = checked_ints(where, "shard_map", shard_map)
    if sum(shares) != tiles or min(shares, default=-1) < 0:
        raise MeshError(f"{where}: the shard map {shares} must share out {tiles} tiles of the intermediate size.")
    return shares


@reject_unknown_keywords
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


@reject_unknown_keywords
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


@reject_unknown_keywords
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


@reject_unknown_keywords
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
