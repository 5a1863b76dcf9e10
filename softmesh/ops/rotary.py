"""Rotary position embeddings: pairs of columns of each head, turned by an angle that grows with the position.

Two ways to pair columns: column i with column i + width/2 (`rotary_embedding`, `_hf`), or neighbours, by a
matrix that turns each tile of 32 columns (`_llama`). cos and sin are given for every column.
"""

from __future__ import annotations

from typing import Any

import torch

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.ops.rotary_operands import (
    check_caches,
    check_matrix,
    check_users,
    check_width,
    rows_rule,
    users_rule,
)
from softmesh.placement import rules
from softmesh.tensor.dtype import TILE_SIZE

_OPTIONS: dict[str, Any] = {
    "cost": flops_per_element(4),
    "precision": "data",
    "controls": "memory_config",
    "tuning": "compute_kernel_config",
    "needs_tile": True,
    "floats_only": True,
}
_HALVES = "experimental.rotary_embedding"
_HALVES_HF = "experimental.rotary_embedding_hf"
_LLAMA = "experimental.rotary_embedding_llama"
_FUSED = "experimental.rotary_embedding_llama_fused_qk"


def by_halves(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def by_matrix(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """matrix (..., 32, 32), for each tile of columns."""
    if matrix.numel() == TILE_SIZE * TILE_SIZE:
        matrix = matrix.reshape(TILE_SIZE, TILE_SIZE)  # one product, in place of one for each row of tiles
    return (x.unflatten(-1, (-1, TILE_SIZE)) @ matrix.float()).flatten(-2)


def turned(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, matrix: torch.Tensor | None = None
) -> torch.Tensor:
    wide = x.float()
    across = by_halves(wide) if matrix is None else by_matrix(wide, matrix)
    return wide * cos.float() + across * sin.float()


# -- columns i and i + width / 2 -------------------------------------------------------------------


@operation(_HALVES, **_OPTIONS)
def rotary_embedding(
    input_tensor: Operand, cos_cache: Operand, sin_cache: Operand, token_index: Value | None = None
) -> Local:
    """x * cos + [-x2, x1] * sin for x [b, heads, s, width] and caches [1, 1, length, width].

    Row i takes row i of the caches; with `token_index` all rows take that one. The result has the shape of x:
    TT-NN's has its rows padded to a tile.
    """
    rows = 1 if token_index is not None else input_tensor.shape[-2]
    check_caches(_HALVES, input_tensor, cos_cache, sin_cache, rows, 2 * TILE_SIZE)
    if token_index is not None and (isinstance(token_index, bool) or not isinstance(token_index, int)):
        raise ArgumentError(f"{_HALVES}: token_index must be an int, got {token_index!r}")
    length = cos_cache.shape[-2]

    def compute(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, index: int | None) -> torch.Tensor:
        if index is not None and not 0 <= index < length:
            raise MeshError(f"{_HALVES}: token_index={index} lies outside the {length} rows of the caches.")
        at = slice(0, rows) if index is None else slice(index, index + 1)
        return turned(x, cos[..., at, :], sin[..., at, :])

    rule = rows_rule(input_tensor, cos_cache, splits_width=False, one_row=token_index is not None)
    return Local(compute, rule)


@operation(_HALVES_HF, **_OPTIONS)
def rotary_embedding_hf(
    input_tensor: Operand, cos_cache: Operand, sin_cache: Operand, *, is_decode_mode: bool = False
) -> Local:
    """x * cos + [-x2, x1] * sin: for whole sequences as rotary_embedding, in decode mode a row for each user."""
    if is_decode_mode:
        check_users(_HALVES_HF, input_tensor, cos_cache, sin_cache, 2 * TILE_SIZE)
        rule = users_rule(splits_width=False, own_rows=cos_cache.shape[1] == input_tensor.shape[1])
    else:
        check_caches(_HALVES_HF, input_tensor, cos_cache, sin_cache, input_tensor.shape[-2], 2 * TILE_SIZE)
        rule = rows_rule(input_tensor, cos_cache, splits_width=False)
    rows = 1 if is_decode_mode else input_tensor.shape[-2]

    def compute(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return turned(x, cos[..., :rows, :], sin[..., :rows, :])

    return Local(compute, rule)


# -- neighbouring columns --------------------------------------------------------------------------


@operation(_LLAMA, **_OPTIONS)
def rotary_embedding_llama(
    input_tensor: Operand,
    cos_cache: Operand,
    sin_cache: Operand,
    trans_mat: Operand,
    *,
    is_decode_mode: bool = False,
) -> Local:
    """x * cos + (x @ trans_mat) * sin, the matrix [1, 1, 32, 32] turning each tile of 32 columns.

    For whole sequences x is [b, heads, s, width] and row i takes row i of the caches [1, 1, length, width]. In
    decode mode x is [1, users, heads, width], caches are [1, users, 1, width], and there may be a matrix for
    each user, one below the other.
    """
    rows = 1 if is_decode_mode else input_tensor.shape[-2]
    if is_decode_mode:
        check_users(_LLAMA, input_tensor, cos_cache, sin_cache, TILE_SIZE)
        rule = users_rule(splits_width=True, own_rows=cos_cache.shape[1] == input_tensor.shape[1])
    else:
        check_caches(_LLAMA, input_tensor, cos_cache, sin_cache, rows, TILE_SIZE)
        rule = rows_rule(input_tensor, cos_cache, splits_width=True)
    blocks = check_matrix(_LLAMA, trans_mat, input_tensor.shape[1] if is_decode_mode else 1)

    def compute(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        each = _matrices(matrix, blocks, x.shape[-3])
        return turned(x, cos[..., :rows, :], sin[..., :rows, :], each)

    return Local(compute, rule)


@operation(_FUSED, **_OPTIONS | {"controls": ""})
def rotary_embedding_llama_fused_qk(
    q_input_tensor: Operand,
    k_input_tensor: Operand,
    cos_cache: Operand,
    sin_cache: Operand,
    trans_mat: Operand,
) -> Local:
    """Decode mode for q [1, users, heads, width] and k [1, users, kv_heads, width] at once.

    The caches [1, 2 * users, 1, width] have the rows for q first, then those for k; so has trans_mat, unless
    it is one matrix for all.
    """
    q, k = q_input_tensor, k_input_tensor
    users = q.shape[1] if q.rank == 4 else 0
    if k.rank != 4 or q.rank != 4 or (k.shape[:2], k.shape[3]) != (q.shape[:2], q.shape[3]):
        raise MeshError(
            f"{_FUSED}: q {list(q.shape)} and k {list(k.shape)} must be [1, users, heads, width] of the same users and "
            "width."
        )
    for cache in (cos_cache, sin_cache):
        if cache.rank != 4 or cache.shape[1] != 2 * users:
            raise MeshError(
                f"{_FUSED}: {cache.name} {list(cache.shape)} must be [1, {2 * users}, 1, {q.shape[3]}]: a row for each "
                "user of q, then one for each user of k."
            )
    check_width(_FUSED, q, cos_cache, sin_cache, TILE_SIZE)
    blocks = check_matrix(_FUSED, trans_mat, 2 * users)

    def compute(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, matrix: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        each = _matrices(matrix, blocks, 2 * users)
        halves = (slice(0, users), slice(users, None))
        first, second = (
            turned(
                x, cos[..., own, :1, :], sin[..., own, :1, :], each[..., own, :, :, :] if blocks > 1 else each
            )
            for x, own in zip((q, k), halves, strict=True)
        )
        return first, second

    inner = users_rule(splits_width=True, own_rows=True)

    def both(at: rules.Situation) -> list[rules.Placement]:
        return [rules.among(at, (i, 2, 3, 4), inner) for i in range(2)]

    return Local(compute, both)


def _matrices(matrix: torch.Tensor, blocks: int, count: int) -> torch.Tensor:
    """(*axes, 1, users or 1, 1, 32, 32), to multiply (*axes, 1, users, heads, tiles, 32)."""
    if blocks == 1:
        return matrix[..., :TILE_SIZE, :].unsqueeze(-3)
    return matrix.squeeze(-3).unflatten(-2, (blocks, TILE_SIZE))[..., :count, :, :].unsqueeze(-3)
