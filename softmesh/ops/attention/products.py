"""The two products of attention by themselves, for one new token of each user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.ops.attention.checks import check_groups, own_keys
from softmesh.placement import rules
from softmesh.tensor.dtype import TILE_SIZE

_PLAIN = "experimental.attn_matmul"
_GROUPED = "experimental.group_attn_matmul"
_CACHED = "experimental.attn_matmul_from_cache"
_OPTIONS: dict[str, Any] = {
    "tuning": "compute_with_storage_grid_size compute_kernel_config",
    "needs_tile": True,
    "floats_only": True,
}


def by_user(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a (..., rows, heads, users, inner) @ b (..., users, kv_heads, inner, columns): each user by its own matrix."""
    rows, kv_heads = a.shape[-4], b.shape[-3]
    queries = a.movedim(-2, -4).transpose(-3, -2)  # users, heads, rows, inner
    grouped = queries.unflatten(-3, (kv_heads, -1)).flatten(-3, -2)
    found = (grouped @ b).unflatten(-2, (-1, rows)).flatten(-4, -3)
    return found.transpose(-3, -2).movedim(-4, -2)


def _product(op: str, a: Operand, b: Operand, inner: int) -> None:
    for operand in (a, b):
        if operand.rank != 4:
            raise MeshError(f"{op}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
    if a.shape[2] != b.shape[0] or a.shape[3] != inner:
        raise MeshError(
            f"{op}: {a.name} {list(a.shape)} is [rows, heads, users, inner] and {b.name} {list(b.shape)} [users, "
            f"kv_heads, inner, columns]: they must agree in users, and have an inner dim of {inner}."
        )
    check_groups(op, a.shape[1], b.shape[1])


def _rule(columns: int) -> rules.Rule:
    """Users and heads of both operands, columns of the second (its dim `columns`)."""
    inner = own_keys(
        rules.along({0: [(0, 0)], 1: [(0, 1), (1, 1)], 2: [(0, 2), (1, 0)], 3: [(1, columns)]}), 1
    )

    def rule(at: rules.Situation) -> Sequence[rules.Placement]:
        """Both split along what is summed: each device has a part of the sum."""
        if at.words[0] is rules.Shard(3) and at.words[1] is rules.Shard(5 - columns):
            return [rules.Partial("sum")]
        return cast(Sequence[rules.Placement], inner(at))

    return rule


@operation(_PLAIN, **_OPTIONS, controls="memory_config dtype output_tensor")
def attn_matmul(input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
    """[rows, heads, users, inner] @ [users, 1, inner, columns] -> [rows, heads, users, columns]"""
    a, b = input_tensor_a, input_tensor_b
    _product(_PLAIN, a, b, b.shape[2] if b.rank == 4 else 0)
    if b.shape[1] != 1:
        raise MeshError(f"{_PLAIN}: {b.name} {list(b.shape)} must have one head; use ttnn.{_GROUPED}.")
    return Local(by_user, _rule(columns=3), cost=matmul_cost(a.shape[3]))


@operation(_GROUPED, **_OPTIONS, controls="memory_config dtype optional_output_tensor")
def group_attn_matmul(input_tensor_a: Operand, input_tensor_b: Operand) -> Local:
    """[rows, heads, users, inner] @ [users, kv_heads, inner, columns]: heads share their group's matrix."""
    a, b = input_tensor_a, input_tensor_b
    _product(_GROUPED, a, b, b.shape[2] if b.rank == 4 else 0)
    return Local(by_user, _rule(columns=3), cost=matmul_cost(a.shape[3]))


@operation(_CACHED, **_OPTIONS, controls="memory_config dtype output_tensor")
def attn_matmul_from_cache(
    input_tensor_a: Operand, input_tensor_b: Operand, *, num_tokens: int, transpose_hw: bool
) -> Local:
    """attn_matmul with the first `num_tokens` rows (rounded up to a tile) of a cache [users, 1, length, width].

    Transposed, they are the columns that queries are multiplied with; else the rows that are weighed.
    """
    a, b = input_tensor_a, input_tensor_b
    tokens = -(-num_tokens // TILE_SIZE) * TILE_SIZE
    if b.rank != 4 or not 0 < num_tokens <= tokens <= b.shape[2]:
        raise MeshError(
            f"{_CACHED}: num_tokens={num_tokens} must lie within the rows of the cache {list(b.shape)}, in tiles."
        )
    _product(_CACHED, a, b, b.shape[3] if transpose_hw else tokens)

    def compute(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows = b[..., :tokens, :]
        return by_user(a, rows.transpose(-2, -1) if transpose_hw else rows)

    inner = own_keys(rules.along({0: [(0, 0)], 1: [(0, 1), (1, 1)], 2: [(0, 2), (1, 0)]}), 1)
    own_columns = own_keys(
        rules.along({0: [(0, 0)], 1: [(0, 1), (1, 1)], 2: [(0, 2), (1, 0)], 3: [(1, 3)]}), 1
    )
    return Local(compute, inner if transpose_hw else own_columns, cost=matmul_cost(a.shape[3]))
