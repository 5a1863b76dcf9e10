"""Splits fused QKV rows into attention heads (nlp_create_qkv_heads) and concatenates heads back. No arithmetic.

A row split over devices holds each device's own heads: [q0 k0 v0 | q1 k1 v1 | ...], which is how a
tensor-parallel model lays out its fused projection. A split of the row is thus a split of the heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from softmesh.cores import CoreRangeSet
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.hardware.memory_config import BufferType, MemoryConfig, TensorMemoryLayout
from softmesh.kinds import Kind
from softmesh.ops.attention.head_shards import (
    decode_shards,
    in_tiles,
    joined_shards,
    on_cores_in_order,
)
from softmesh.ops.golden import golden_attention as golden
from softmesh.ops.golden import golden_composite
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.dtype import TILE_SIZE

_OPTIONS: dict[str, Any] = {"kind": Kind.HEADS, "cost": moves_bytes, "precision": "data"}


def moved_placement(at: rules.Situation, index: int, dims: Mapping[int, int], output: int = 0) -> rules.Placement:
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


def moved_dims_rule(dims: Mapping[int, int]) -> rules.Rule:
    return rules.SingleRule(lambda at: moved_placement(at, 0, dims), dim_labels.moved(dims.get))


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


@operation(
    _CREATE,
    **_OPTIONS,
    native="NlpCreateHeadsDeviceOperation",
    controls="memory_config output_tensors",
    needs_tile=True,
    cuts_columns=True,
    results="tuple[Tensor, Tensor, Tensor]",
)
@placed("Split by batch or sequence where the input is; otherwise Local.")
@with_reference(golden.create_heads)
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
    queries come from `input` alone, keys and values from `input_kv`. A sharded row has one key head on each core:
    its queries, then its key, then its value. No key heads at all leave k and v empty.

    >>> x = split(4, 1, 32, 256, dim=0)
    >>> q, k, v = ttnn.experimental.nlp_create_qkv_heads(
    ...     x, num_heads=2, num_kv_heads=1, transpose_k_heads=False
    ... )
    >>> q.shape, k.shape, ttnn.placements(q)
    (Shape([1, 2, 32, 64]), Shape([1, 1, 32, 64]), (Replicate, Shard(0)))
    """
    if kv_tied:
        raise NotModelled(f"{_CREATE}: kv_tied is not modelled: pass keys and values as input_kv.")
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    width = _check_fused(input, input_kv, num_heads, kv_heads)
    cut = by_groups if kv_heads and input.spec.memory_config.is_sharded() else one_after_another

    def compute(x: torch.Tensor, kv: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        pairs = None if kv is None else split_heads(kv, width)
        q, k, v = cut(split_heads(x, width), pairs, num_heads, kv_heads)
        return q, k.transpose(-2, -1) if transpose_k_heads else k, v

    @rules.labelled_each(dim_labels.spelled("users _ _ _, users _ _ _ -> users _ _ _"))
    def rule(at: rules.Situation) -> list[rules.Placement]:
        source = 0 if input_kv is None else 1
        plain = {0: 0, 2: 2, 3: 1}
        turned = plain | {2: 3} if transpose_k_heads else plain
        return [
            moved_placement(at, 0, plain),
            moved_placement(at, source, turned, 1),
            moved_placement(at, source, plain, 2),
        ]

    return Local(compute, rule)


def one_after_another(
    heads: torch.Tensor, pairs: torch.Tensor | None, q_heads: int, kv_heads: int
) -> tuple[torch.Tensor, ...]:
    """All queries, all keys, all values."""
    if pairs is None:
        return heads.split((q_heads, kv_heads, kv_heads), -3)
    return heads, *pairs.split((kv_heads, kv_heads), -3)


def by_groups(heads: torch.Tensor, pairs: torch.Tensor | None, q_heads: int, kv_heads: int) -> tuple[torch.Tensor, ...]:
    """For each key head: its queries, then its key, then its value."""
    if pairs is not None:
        return heads, *pairs.unflatten(-3, (kv_heads, 2)).unbind(-3)
    group = q_heads // kv_heads
    q, k, v = heads.unflatten(-3, (kv_heads, group + 2)).split((group, 1, 1), -3)
    return q.flatten(-4, -3), k.squeeze(-3), v.squeeze(-3)


def split_heads(x: torch.Tensor, width: int) -> torch.Tensor:
    """(..., b, 1, s, heads * width) -> (..., b, heads, s, width)"""
    return x.squeeze(-3).unflatten(-1, (-1, width)).transpose(-3, -2)


def _check_fused(fused: Operand, kv: Operand | None, heads: int, kv_heads: int) -> int:
    for operand in (fused, kv):
        if operand is not None:
            check_rank_4(_CREATE, operand, "[batch, 1, sequence, features]")
            if operand.shape[1] != 1:
                raise MeshError(f"{_CREATE}: dim 1 of {operand.name} {list(operand.shape)} must be 1.")
    if kv_heads < 0 or (kv_heads and heads % kv_heads):
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


@operation(
    "experimental.nlp_concat_heads",
    **_OPTIONS,
    native="NLPConcatHeadsDeviceOperation",
    controls="memory_config",
    needs_tile=True,
)
@with_reference(golden.concat_heads)
def nlp_concat_heads(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, 1, s, heads * width]"""
    check_rank_4("experimental.nlp_concat_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(
        lambda x: x.transpose(-3, -2).flatten(-2).unsqueeze(-3),
        moved_dims_rule({0: 0, 1: 3, 2: 2}),
        shards=lambda _: [joined_shards(input_tensor.spec)],
    )


@operation("transformer.concatenate_heads", **_OPTIONS, controls="memory_config", needs_tile=True)
@with_reference(golden_composite.concatenate_heads)
def concatenate_heads(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, s, heads * width]"""
    check_rank_4("transformer.concatenate_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(
        lambda x: x.transpose(-3, -2).flatten(-2),
        moved_dims_rule({0: 0, 1: 2, 2: 1}),
        shards=lambda _: [joined_shards(input_tensor.spec)],
    )


# -- one new token of each user --------------------------------------------------------------------

_CREATE_DECODE = "experimental.nlp_create_qkv_heads_decode"
_CONCAT_DECODE = "experimental.nlp_concat_heads_decode"


@operation(
    _CREATE_DECODE,
    **_OPTIONS,
    native="NLPCreateQKVHeadsDecodeDeviceOperation",
    controls="memory_config output_tensors",
    cuts_columns=True,
    results="tuple[Tensor, Tensor, Tensor]",
)
def nlp_create_qkv_heads_decode(
    input_tensor: Operand,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    batch_offset: Operand | None = None,
    slice_size: int | None = None,
    overlap_qk_coregrid: bool = True,
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

    @rules.labelled_each(
        dim_labels.moved({0: 0, 2: 1}.get, passes="") if batch_offset is None else dim_labels.unlabelled
    )
    def rule(at: rules.Situation) -> list[rules.Placement]:
        if isinstance(at.words[1], rules.Partial):
            raise rules.UsesPartial(1)
        own = at.words[1] is not None and at.words[1] is not rules.REPLICATE
        kept = {0: 0, 3: 2} if batch_offset is not None else {0: 0, 2: 1, 3: 2}
        return [rules.LOCAL if own else moved_placement(at, 0, kept, output) for output in range(3)]

    users = input_tensor.shape[2] if slice_size is None else slice_size
    return Local(compute, rule, shards=lambda grid: decode_shards(users, counts, width, grid, overlap_qk_coregrid))


def _check_users_slice(fused: Operand, offset: Operand | None, size: int | None) -> None:
    if (offset is None) != (size is None):
        raise ArgumentError(f"{_CREATE_DECODE}: batch_offset and slice_size are given together or not at all.")
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


@operation(
    _CONCAT_DECODE, **_OPTIONS, native="NLPConcatHeadsDecodeDeviceOperation", controls="memory_config output_tensor"
)
def nlp_concat_heads_decode(
    input_tensor: Operand, *, num_heads: int, sub_core_grids: CoreRangeSet | None = None
) -> Local:
    """[1, users, heads, width] -> [1, 1, users, num_heads * width]; heads beyond `num_heads` are padding.

    Fewer than 32 users fill up a tile: the result has 32 rows. They lie in L1, a head on each core.
    """
    check_rank_4(_CONCAT_DECODE, input_tensor, "[1, users, heads, width]")
    shape = input_tensor.shape
    if shape[0] != 1 or not 0 < num_heads <= shape[2]:
        raise MeshError(
            f"{_CONCAT_DECODE}: input_tensor {list(shape)} must be [1, users, heads, width] with num_heads={num_heads} "
            "heads or more."
        )
    missing = max(TILE_SIZE - shape[1], 0)

    def compute(x: torch.Tensor) -> torch.Tensor:
        rows = x[..., :num_heads, :].flatten(-2).unsqueeze(-3)
        return torch.nn.functional.pad(rows, (0, 0, 0, missing))

    moved = {0: 0, 2: 3} if missing else {0: 0, 1: 2, 2: 3}
    shard = [in_tiles(shape[1]), in_tiles(shape[3])]
    return Local(
        compute,
        moved_dims_rule(moved),
        memory_config=MemoryConfig(TensorMemoryLayout.WIDTH_SHARDED, BufferType.L1),
        shards=lambda grid: [on_cores_in_order(num_heads, shard, grid, sub_core_grids)],
    )
