"""Splits fused QKV rows into attention heads (nlp_create_qkv_heads) and concatenates heads back. No arithmetic.

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
from softmesh.tensor.dtype import TILE_SIZE

_OPTIONS: dict[str, Any] = {"cost": moves_bytes, "precision": "data"}


def moved_placement(
    at: rules.Situation, index: int, dims: Mapping[int, int], output: int = 0
) -> rules.Placement:
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
    return lambda at: moved_placement(at, 0, dims)


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
    queries come from `input` alone, keys and values from `input_kv`. A sharded row has one key head on each core:
    its queries, then its key, then its value. No key heads at all leave k and v empty.
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


def by_groups(
    heads: torch.Tensor, pairs: torch.Tensor | None, q_heads: int, kv_heads: int
) -> tuple[torch.Tensor, ...]:
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


@operation("experimental.nlp_concat_heads", **_OPTIONS, controls="memory_config", needs_tile=True)
def nlp_concat_heads(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, 1, s, heads * width]"""
    check_rank_4("experimental.nlp_concat_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(lambda x: x.transpose(-3, -2).flatten(-2).unsqueeze(-3), moved_dims_rule({0: 0, 1: 3, 2: 2}))


@operation("transformer.concatenate_heads", **_OPTIONS, controls="memory_config", needs_tile=True)
def concatenate_heads(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, s, heads * width]"""
    check_rank_4("transformer.concatenate_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(lambda x: x.transpose(-3, -2).flatten(-2), moved_dims_rule({0: 0, 1: 2, 2: 1}))


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
        return [rules.LOCAL if own else moved_placement(at, 0, kept, output) for output in range(3)]

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
    return Local(
        lambda x: x[..., :num_heads, :].flatten(-2).unsqueeze(-3), moved_dims_rule({0: 0, 1: 2, 2: 3})
    )


# -- the forms of single models: BERT, Falcon, ViT, Segformer ----------------------------------------


_TILED: dict[str, Any] = {"cost": moves_bytes, "precision": "data", "needs_tile": True}
_SEQUENCES = "[batch, 1, sequence, features]"
_SPLIT = "transformer.split_query_key_value_and_split_heads"
_BERT = "experimental.split_query_key_value_and_split_heads"
_CREATE_QKV = "experimental.create_qkv_heads"
_SEPARATE = "experimental.create_qkv_heads_from_separate_tensors"
_FALCON_WIDTH, _FALCON_FEATURES = 64, 4672
_VIT_HEADS, _VIT_FEATURES = 12, 2304
_SEGFORMER_WIDTH = 32


def _check_groups(op: str, heads: int, kv_heads: int) -> None:
    if kv_heads < 1 or heads < 1 or heads % kv_heads:
        raise MeshError(f"{op}: {heads} query heads cannot share {kv_heads} key heads in equal groups.")


def _check_one(op: str, operand: Operand) -> None:
    check_rank_4(op, operand, _SEQUENCES)
    if operand.shape[1] != 1:
        raise MeshError(f"{op}: dim 1 of {operand.name} {list(operand.shape)} must be 1.")


@operation(_SPLIT, **_TILED, controls="memory_config")
def split_query_key_value_and_split_heads(
    input_tensor: Operand,
    kv_input_tensor: Operand | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_key: bool = True,
    use_falcon7b_backend: bool = False,
) -> Local:
    """[b, s, (heads + 2 kv_heads) * width] -> q [b, heads, s, width], k and v [b, kv_heads, s, width].

    k comes transposed, [b, kv_heads, width, s]; it does not with `transpose_key=False`. With `kv_input_tensor` the
    queries come from `input_tensor` alone. An interleaved row has all queries, all keys, all values; a sharded one,
    for each key head, its queries, then its key, then its value. `use_falcon7b_backend` is for rows of 4672 features:
    71 query heads of width 64, and one head each of keys and values.
    """
    if use_falcon7b_backend:
        num_heads, num_kv_heads = _falcon_heads(input_tensor, kv_input_tensor, transpose_key)
    given = [input_tensor] if kv_input_tensor is None else [input_tensor, kv_input_tensor]
    for operand in given:
        if operand.rank != 3:
            raise MeshError(f"{_SPLIT}: {operand.name} must be [b, s, features], got {list(operand.shape)}.")
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    _check_groups(_SPLIT, num_heads, kv_heads)
    many = num_heads + 2 * kv_heads if kv_input_tensor is None else num_heads
    width = head_width(_SPLIT, input_tensor, many)
    if width % TILE_SIZE:
        raise MeshError(
            f"Invalid head size: {width}. The head size must be a multiple of the tile width ({TILE_SIZE}). "
            f"{_SPLIT}: pad the heads of {list(input_tensor.shape)} to whole tiles."
        )
    if kv_input_tensor is not None and head_width(_SPLIT, kv_input_tensor, 2 * kv_heads) != width:
        raise MeshError(
            f"{_SPLIT}: input_tensor {list(input_tensor.shape)} and kv_input_tensor {list(kv_input_tensor.shape)} must "
            "agree in the width of a head."
        )

    cut = by_groups if input_tensor.spec.memory_config.is_sharded() else one_after_another

    def compute(x: torch.Tensor, kv: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        pairs = None if kv is None else _split_heads_3d(kv, width)
        q, k, v = cut(_split_heads_3d(x, width), pairs, num_heads, kv_heads)
        return q, k.transpose(-2, -1) if transpose_key else k, v

    def rule(at: rules.Situation) -> list[rules.Placement]:
        source = 0 if kv_input_tensor is None else 1
        plain = {0: 0, 1: 2, 2: 1}
        keys = plain | {1: 3} if transpose_key else plain
        return [
            moved_placement(at, 0, plain),
            moved_placement(at, source, keys, 1),
            moved_placement(at, source, plain, 2),
        ]

    return Local(compute, rule)


def _falcon_heads(fused: Operand, kv: Operand | None, turns_keys: bool) -> tuple[int, int]:
    if kv is not None or turns_keys or fused.shape[-1] != _FALCON_FEATURES:
        raise MeshError(
            f"{_SPLIT}: use_falcon7b_backend takes a row of {_FALCON_FEATURES} features and transpose_key=False; got "
            f"{list(fused.shape)}, transpose_key={turns_keys}{'' if kv is None else ' and kv_input_tensor'}."
        )
    return _FALCON_FEATURES // _FALCON_WIDTH - 2, 1


def _split_heads_3d(x: torch.Tensor, width: int) -> torch.Tensor:
    """(..., s, heads * width) -> (..., heads, s, width)"""
    return x.unflatten(-1, (-1, width)).transpose(-3, -2)


def _rule_4d(turns_keys: bool, source: int = 0) -> rules.Rule:
    plain = {0: 0, 2: 2, 3: 1}
    keys = plain | {2: 3} if turns_keys else plain
    return lambda at: [
        moved_placement(at, 0, plain),
        moved_placement(at, source, keys, 1),
        moved_placement(at, source, plain, 2),
    ]


def _split_concatenated_qkv(op: str, fused: Operand, counts: tuple[int, int, int], turns_keys: bool) -> Local:
    """All queries, all keys, all values."""
    _check_one(op, fused)
    width = head_width(op, fused, sum(counts))

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = split_heads(x, width).split(counts, -3)
        return q, k.transpose(-2, -1) if turns_keys else k, v

    return Local(compute, _rule_4d(turns_keys))


@operation(
    _BERT,
    **_TILED,
    controls="memory_config output_tensors",
    tuning="compute_with_storage_grid_size",
    positional="compute_with_storage_grid_size",
)
def split_query_key_value_and_split_heads_on_grid(input_tensor: Operand, *, num_heads: int = 16) -> Local:
    """[b, 1, s, 3 * heads * width] -> q and v [b, heads, s, width], k transposed."""
    return _split_concatenated_qkv(_BERT, input_tensor, (num_heads,) * 3, turns_keys=True)


@operation("experimental.nlp_create_qkv_heads_falcon7b", **_TILED, controls="memory_config")
def nlp_create_qkv_heads_falcon7b(input: Operand) -> Local:
    """[b, 1, s, 4672] -> 71 query heads of width 64, and one head each of keys and values."""
    op = "experimental.nlp_create_qkv_heads_falcon7b"
    _check_features(op, input, _FALCON_FEATURES)
    heads = _FALCON_FEATURES // _FALCON_WIDTH - 2
    return _split_concatenated_qkv(op, input, (heads, 1, 1), turns_keys=False)


@operation("experimental.nlp_create_qkv_heads_vit", **_TILED, controls="memory_config output_tensors")
def nlp_create_qkv_heads_vit(input: Operand) -> Local:
    """[b, 1, s, 2304] -> 12 heads of width 64 each of queries, keys and values."""
    op = "experimental.nlp_create_qkv_heads_vit"
    _check_features(op, input, _VIT_FEATURES)
    return _split_concatenated_qkv(op, input, (_VIT_HEADS,) * 3, turns_keys=False)


def _check_features(op: str, operand: Operand, features: int) -> None:
    if operand.rank == 4 and operand.shape[3] != features:
        raise MeshError(f"{op}: takes rows of {features} features, got {list(operand.shape)}.")


@operation("experimental.nlp_create_qkv_heads_segformer", **_TILED, controls="memory_config output_tensors")
def nlp_create_qkv_heads_segformer(input: Operand) -> Local:
    """[b, 1, s, heads * 32] -> [b, heads, s, 32], three times.

    One projection goes in, and programs read the first result; what the other two hold in TT-NN is not known.
    """
    op = "experimental.nlp_create_qkv_heads_segformer"
    _check_one(op, input)
    head_width(op, input, max(input.shape[3] // _SEGFORMER_WIDTH, 1))

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        heads = split_heads(x, _SEGFORMER_WIDTH)
        return heads, heads.clone(), heads.clone()

    return Local(compute, _rule_4d(turns_keys=False))


# -- queries, keys and values group by group -------------------------------------------------------


@operation(_CREATE_QKV, **_TILED, controls="memory_config output_tensors")
def create_qkv_heads(
    input: Operand, *, num_heads: int, num_kv_heads: int | None = None, transpose_k_heads: bool = True
) -> Local:
    """[b, 1, s, features], for each key head: its queries, then its key, then its value.

    Gives q [b, heads, s, width], k [b, kv_heads, width, s] (or as v, with `transpose_k_heads=False`) and v.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    _check_one(_CREATE_QKV, input)
    _check_groups(_CREATE_QKV, num_heads, kv_heads)
    width = head_width(_CREATE_QKV, input, num_heads + 2 * kv_heads)

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = by_groups(split_heads(x, width), None, num_heads, kv_heads)
        return q, k.transpose(-2, -1) if transpose_k_heads else k, v

    return Local(compute, _rule_4d(transpose_k_heads))


@operation(_SEPARATE, **_TILED, controls="memory_config output_tensors")
def create_qkv_heads_from_separate_tensors(
    input: Operand,
    input_kv: Operand,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
) -> Local:
    """q from rows of `input`; k and v from rows of `input_kv`, which has each key head beside its value head."""
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    for operand in (input, input_kv):
        _check_one(_SEPARATE, operand)
    _check_groups(_SEPARATE, num_heads, kv_heads)
    width = head_width(_SEPARATE, input, num_heads)
    if head_width(_SEPARATE, input_kv, 2 * kv_heads) != width:
        raise MeshError(
            f"{_SEPARATE}: input {list(input.shape)} and input_kv {list(input_kv.shape)} must agree in the width of "
            "a head."
        )

    def compute(x: torch.Tensor, kv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = by_groups(split_heads(x, width), split_heads(kv, width), num_heads, kv_heads)
        return q, k.transpose(-2, -1) if transpose_k_heads else k, v

    return Local(compute, _rule_4d(transpose_k_heads, source=1))


@operation(
    "experimental.concatenate_heads",
    **_TILED,
    controls="memory_config output_tensor",
    tuning="compute_with_storage_grid_size",
    positional="compute_with_storage_grid_size",
)
def concatenate_heads_on_grid(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, 1, s, heads * width]"""
    check_rank_4("experimental.concatenate_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(lambda x: x.transpose(-3, -2).flatten(-2).unsqueeze(-3), moved_dims_rule({0: 0, 1: 3, 2: 2}))
