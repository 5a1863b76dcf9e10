"""Between one row of features for each token and separate attention heads. No arithmetic.

A row split over devices holds each device's own heads: [q0 k0 v0 | q1 k1 v1 | ...], which is how a
tensor-parallel model lays out its fused projection. A split of the row is thus a split of the heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.placement import rules

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}


def moved(at: rules.Situation, index: int, dims: Mapping[int, int], output: int = 0) -> rules.Placement:
    """The word of a result for which dim d of operand `index` has become dim `dims[d]`."""
    word, shape = at.words[index], at.shapes[index]
    if isinstance(word, rules.Partial):
        return word
    if not isinstance(word, rules.Shard):
        return rules.REPLICATE
    if word.dim not in dims:
        return rules.LOCAL
    assert shape is not None
    target = dims[word.dim]
    is_same = shape[word.dim] == at.out_shapes[output][target]
    return word.at(target) if is_same or word.size is None else rules.LOCAL


def moving(dims: Mapping[int, int]) -> rules.Rule:
    return lambda at: moved(at, 0, dims)


def check_rank_4(op: str, operand: Operand, form: str) -> None:
    if operand.rank != 4:
        raise MeshError(f"{op}: {operand.name} must be {form}, got {list(operand.shape)}.")


def head_width(op: str, operand: Operand, heads: int) -> int:
    """The width of each of `heads` heads that make up the operand's last dim."""
    total = operand.shape[-1]
    if heads < 1 or total % heads:
        raise MeshError(
            f"{op}: the last dim of {operand.name} {list(operand.shape)} does not hold {heads} heads (queries, keys "
            "and values) of one width: num_heads and num_kv_heads are those of each device."
        )
    return total // heads


# -- whole sequences -------------------------------------------------------------------------------

_CREATE = "experimental.nlp_create_qkv_heads"


@operation(_CREATE, **_OPTIONS, controls="memory_config output_tensors", needs_tile=True)
def nlp_create_qkv_heads(
    input: Operand,
    input_kv: Operand | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
    kv_tied: bool = False,
) -> Local:
    """[b, 1, s, (heads + 2 kv_heads) * width] -> q [b, heads, s, width], k and v [b, kv_heads, s, width].

    k comes transposed, [b, kv_heads, width, s], unless `transpose_k_heads=False`. With `input_kv` the
    queries come from `input` alone, keys and values from `input_kv`.
    """
    if kv_tied:
        raise NotModelled(f"{_CREATE}: kv_tied is not modelled: pass keys and values as input_kv.")
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    width = _check_fused(input, input_kv, num_heads, kv_heads)
    counts = (num_heads, kv_heads, kv_heads)

    def compute(x: torch.Tensor, kv: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        parts = [separate(x, width)] if kv is None else [separate(x, width), separate(kv, width)]
        q, k, v = parts[0].split(counts, -3) if kv is None else (parts[0], *parts[1].split(counts[1:], -3))
        return q, k.transpose(-2, -1) if transpose_k_heads else k, v

    def rule(at: rules.Situation) -> list[rules.Placement]:
        source = 0 if input_kv is None else 1
        plain = {0: 0, 2: 2, 3: 1}
        turned = plain | {2: 3} if transpose_k_heads else plain
        return [moved(at, 0, plain), moved(at, source, turned, 1), moved(at, source, plain, 2)]

    return Local(compute, rule)


def separate(x: torch.Tensor, width: int) -> torch.Tensor:
    """(..., b, 1, s, heads * width) -> (..., b, heads, s, width)"""
    return x.squeeze(-3).unflatten(-1, (-1, width)).transpose(-3, -2)


def _check_fused(fused: Operand, kv: Operand | None, heads: int, kv_heads: int) -> int:
    for operand in (fused, kv):
        if operand is not None:
            check_rank_4(_CREATE, operand, "[batch, 1, sequence, features]")
            if operand.shape[1] != 1:
                raise MeshError(f"{_CREATE}: dim 1 of {operand.name} {list(operand.shape)} must be 1.")
    if kv_heads < 1 or heads % kv_heads:
        raise MeshError(f"{_CREATE}: {heads} query heads cannot share {kv_heads} key heads in equal groups.")
    if kv is None:
        return head_width(_CREATE, fused, heads + 2 * kv_heads)
    width = head_width(_CREATE, fused, heads)
    if fused.shape[:3] != kv.shape[:3] or head_width(_CREATE, kv, 2 * kv_heads) != width:
        raise MeshError(
            f"{_CREATE}: input {list(fused.shape)} with {heads} heads and input_kv {list(kv.shape)} with "
            f"2 x {kv_heads} must agree in batch, sequence and width of a head."
        )
    return width


@operation("experimental.nlp_concat_heads", **_OPTIONS, controls="memory_config", needs_tile=True)
def nlp_concat_heads(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, 1, s, heads * width]"""
    check_rank_4("experimental.nlp_concat_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(lambda x: x.transpose(-3, -2).flatten(-2).unsqueeze(-3), moving({0: 0, 1: 3, 2: 2}))


@operation("transformer.concatenate_heads", **_OPTIONS, controls="memory_config", needs_tile=True)
def concatenate_heads(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, s, heads * width]"""
    check_rank_4("transformer.concatenate_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(lambda x: x.transpose(-3, -2).flatten(-2), moving({0: 0, 1: 2, 2: 1}))


# -- one new token of each user --------------------------------------------------------------------

_CREATE_DECODE = "experimental.nlp_create_qkv_heads_decode"
_CONCAT_DECODE = "experimental.nlp_concat_heads_decode"


@operation(_CREATE_DECODE, **_OPTIONS, controls="memory_config output_tensors", tuning="overlap_qk_coregrid")
def nlp_create_qkv_heads_decode(
    input_tensor: Operand,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    batch_offset: Operand | None = None,
    slice_size: int | None = None,
) -> Local:
    """[1, 1, users, (heads + 2 kv_heads) * width] -> q [1, users, heads, width], k and v [1, users, kv_heads, width].

    `batch_offset` (one int for each device) and `slice_size` take that many users from there on.
    """
    check_rank_4(_CREATE_DECODE, input_tensor, "[1, 1, users, features]")
    if input_tensor.shape[:2] != (1, 1):
        raise MeshError(
            f"{_CREATE_DECODE}: input_tensor must be [1, 1, users, features], got {list(input_tensor.shape)}."
        )
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    counts = (num_heads, kv_heads, kv_heads)
    width = head_width(_CREATE_DECODE, input_tensor, sum(counts))
    _check_users_slice(input_tensor, batch_offset, slice_size)

    def compute(x: torch.Tensor, offset: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        users = x.squeeze(-3)
        if offset is not None:
            assert slice_size is not None
            users = _users_from(users, offset, slice_size)
        return users.unflatten(-1, (-1, width)).split(counts, -2)

    def rule(at: rules.Situation) -> list[rules.Placement]:
        if isinstance(at.words[1], rules.Partial):
            raise rules.UsesPartial(1)
        own = at.words[1] is not None and at.words[1] is not rules.REPLICATE
        kept = {0: 0, 3: 2} if batch_offset is not None else {0: 0, 2: 1, 3: 2}
        return [rules.LOCAL if own else moved(at, 0, kept, output) for output in range(3)]

    return Local(compute, rule)


def _check_users_slice(fused: Operand, offset: Operand | None, size: int | None) -> None:
    if (offset is None) != (size is None):
        raise ArgumentError(
            f"{_CREATE_DECODE}: batch_offset and slice_size are given together or not at all."
        )
    if offset is not None and (offset.is_float or offset.spec.logical_volume() != 1):
        raise MeshError(
            f"{_CREATE_DECODE}: batch_offset must hold one int on each device, got {list(offset.shape)} {offset.dtype}."
        )
    if size is not None and not 0 < size <= fused.shape[2]:
        raise MeshError(f"{_CREATE_DECODE}: slice_size={size} must lie within 1 to {fused.shape[2]} users.")


def _users_from(users: torch.Tensor, offset: torch.Tensor, size: int) -> torch.Tensor:
    """`size` rows of (*mesh, 1, users, features), from each device's own offset on."""
    lead = users.dim() - 3
    first = offset.reshape(*offset.shape[:lead], 1, 1, 1).long()
    if int(first.min()) < 0 or int(first.max()) + size > users.shape[-2]:
        raise MeshError(
            f"{_CREATE_DECODE}: {size} users from batch_offset {int(first.max())} on do not lie within the "
            f"{users.shape[-2]} users of input_tensor."
        )
    rows = first + torch.arange(size, device=users.device).reshape(size, 1)
    extents = [max(a, b) for a, b in zip(users.shape[:lead], rows.shape[:lead], strict=True)]
    index = rows.expand(*extents, 1, size, users.shape[-1])
    return torch.gather(users.expand(*extents, *users.shape[lead:]), -2, index)


@operation(_CONCAT_DECODE, **_OPTIONS, controls="memory_config output_tensor", tuning="sub_core_grids")
def nlp_concat_heads_decode(input_tensor: Operand, *, num_heads: int) -> Local:
    """[1, users, heads, width] -> [1, 1, users, num_heads * width]; heads beyond `num_heads` are padding."""
    check_rank_4(_CONCAT_DECODE, input_tensor, "[1, users, heads, width]")
    shape = input_tensor.shape
    if shape[0] != 1 or not 0 < num_heads <= shape[2]:
        raise MeshError(
            f"{_CONCAT_DECODE}: input_tensor {list(shape)} must be [1, users, heads, width] with num_heads={num_heads} "
            "heads or more."
        )
    return Local(lambda x: x[..., :num_heads, :].flatten(-2).unsqueeze(-3), moving({0: 0, 1: 2, 2: 3}))
