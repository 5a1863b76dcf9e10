"""What the operands of rotary embeddings must look like, and how a split of them splits the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.tensor.dtype import TILE_SIZE


def check_caches(op: str, x: Operand, cos: Operand, sin: Operand, rows: int, multiple: int) -> None:
    check_width(op, x, cos, sin, multiple)
    for cache in (cos, sin):
        if cache.shape[0] not in (1, x.shape[0]) or cache.shape[1] not in (1, x.shape[1]):
            raise MeshError(
                f"{op}: {cache.name} {list(cache.shape)} must be [1, 1, length, width]; x is {list(x.shape)}."
            )
        if cache.shape[2] < rows:
            raise MeshError(
                f"{op}: {cache.name} {list(cache.shape)} has fewer rows than the {rows} positions of {x.name} "
                f"{list(x.shape)} on each device."
            )


def check_users(op: str, x: Operand, cos: Operand, sin: Operand, multiple: int) -> None:
    check_width(op, x, cos, sin, multiple)
    for cache in (cos, sin):
        if cache.shape[0] != 1 or cache.shape[1] not in (1, x.shape[1]):
            raise MeshError(
                f"{op}: in decode mode {cache.name} {list(cache.shape)} must be [1, {x.shape[1]}, 1, {x.shape[3]}]: a "
                f"row for each user of {x.name} {list(x.shape)}."
            )


def check_width(op: str, x: Operand, cos: Operand, sin: Operand, multiple: int) -> None:
    for operand in (x, cos, sin):
        if operand.rank != 4:
            raise MeshError(f"{op}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
    if cos.shape != sin.shape or cos.dtype is not sin.dtype:
        raise MeshError(
            f"{op}: {cos.name} {list(cos.shape)} {cos.dtype} and {sin.name} {list(sin.shape)} {sin.dtype} must be "
            "alike."
        )
    if cos.shape[3] != x.shape[3] or x.shape[3] % multiple:
        raise MeshError(
            f"{op}: {x.name} {list(x.shape)} and {cos.name} {list(cos.shape)} must have one width, a multiple of "
            f"{multiple}."
        )


def check_matrix(op: str, matrix: Operand, users: int) -> int:
    """How many matrices there are, one below the other: one, or at least one for each user."""
    rows = matrix.shape[-2] if matrix.rank == 4 else 0
    if matrix.rank != 4 or matrix.shape[:2] != (1, 1) or matrix.shape[3] != TILE_SIZE or rows % TILE_SIZE:
        raise MeshError(f"{op}: trans_mat must be [1, 1, 32, 32], got {list(matrix.shape)}.")
    blocks = rows // TILE_SIZE
    if blocks > 1 and blocks < users:
        raise MeshError(f"{op}: trans_mat {list(matrix.shape)} holds {blocks} matrices for {users} users.")
    return blocks if users > 1 else 1


# -- placements ------------------------------------------------------------------------------------

_Pairs = list[tuple[int, int | None]]


def _along(dims: dict[int, _Pairs]) -> rules.SingleRule:
    rule = rules.along(cast(dict[int, Sequence[tuple[int, int | None]]], dims))
    return lambda at: cast(Sequence[rules.Placement], rule(at))[0]


def rows_rule(x: Operand, cos: Operand, splits_width: bool, one_row: bool = False) -> rules.SingleRule:
    """Split by batch and heads; by rows where the caches are as long as x, and so may be split alike.

    With `one_row` all rows take the same one of the caches, which are not split then.
    """
    dims: dict[int, _Pairs] = {0: [(0, 0)], 1: [(0, 1)]}
    for dim in (0, 1):
        dims[dim] += [(1, dim), (2, dim)] if cos.shape[dim] == x.shape[dim] else []
    if one_row:
        dims[2] = [(0, 2)]
    elif cos.shape[2] == x.shape[2]:
        dims[2] = [(0, 2), (1, 2), (2, 2)]
    if splits_width:
        dims[3] = [(0, 3), (1, 3), (2, 3)]
    return _along(dims)


def users_rule(splits_width: bool, own_rows: bool) -> rules.SingleRule:
    """Split by users, whose own rows of the caches are split alike, and by heads."""
    dims: dict[int, _Pairs] = {1: [(0, 1)], 2: [(0, 2)]}
    dims[1] += [(1, 1), (2, 1)] if own_rows else []
    if splits_width:
        dims[3] = [(0, 3), (1, 3), (2, 3)]
    return _along(dims)
