"""Fused QKV rows in the forms of single models: BERT, Falcon, ViT, Segformer; and by key heads. No arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.attention.head_shards import in_tiles, split_shards
from softmesh.ops.attention.qkv_heads import (
    by_groups,
    check_rank_4,
    head_width,
    moved_dims_rule,
    moved_placement,
    one_after_another,
    split_heads,
)
from softmesh.ops.golden import golden_attention as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.tensor.dtype import TILE_SIZE

_TILED: dict[str, Any] = {"kind": Kind.HEADS, "cost": moves_bytes, "precision": "data", "needs_tile": True}
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


@operation(_SPLIT, **_TILED, controls="memory_config", cuts_columns=True, results="tuple[Tensor, Tensor, Tensor]")
@with_reference(golden.split_heads)
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

    @rules.labelled_each(dim_labels.spelled("users _ _, users _ _ -> users _ _ _"))
    def rule(at: rules.Situation) -> list[rules.Placement]:
        source = 0 if kv_input_tensor is None else 1
        plain = {0: 0, 1: 2, 2: 1}
        keys = plain | {1: 3} if transpose_key else plain
        return [
            moved_placement(at, 0, plain),
            moved_placement(at, source, keys, 1),
            moved_placement(at, source, plain, 2),
        ]

    batch, rows = input_tensor.shape[0], in_tiles(input_tensor.shape[1])
    extents = [(batch * count, rows, width) for count in (num_heads, kv_heads, kv_heads)]
    cut_alike = split_shards(input_tensor.spec.memory_config.shard_spec, extents, transpose_key)
    return Local(compute, rule, shards=lambda _: cut_alike)


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
    kept = {dim: plain[dim] for dim in (0, 2) if plain[dim] == keys[dim]}

    def labels(shapes: dim_labels.Shapes, results: Sequence[dim_labels.Extents]) -> dim_labels.DimLabels:
        dims = plain if len(results) == 1 else kept
        return dim_labels.moved(dims.get, passes="", of_all=True)(shapes, results)

    @rules.labelled_each(labels)
    def rule(at: rules.Situation) -> list[rules.Placement]:
        return [
            moved_placement(at, 0, plain),
            moved_placement(at, source, keys, 1),
            moved_placement(at, source, plain, 2),
        ]

    return rule


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
    cuts_columns=True,
    results="tuple[Tensor, Tensor, Tensor]",
    tuning="compute_with_storage_grid_size",
    positional="compute_with_storage_grid_size",
)
def split_query_key_value_and_split_heads_on_grid(input_tensor: Operand, *, num_heads: int = 16) -> Local:
    """[b, 1, s, 3 * heads * width] -> q and v [b, heads, s, width], k transposed."""
    return _split_concatenated_qkv(_BERT, input_tensor, (num_heads,) * 3, turns_keys=True)


@operation(
    "experimental.nlp_create_qkv_heads_falcon7b",
    **_TILED,
    controls="memory_config",
    cuts_columns=True,
    results="tuple[Tensor, Tensor, Tensor]",
)
def nlp_create_qkv_heads_falcon7b(input: Operand) -> Local:
    """[b, 1, s, 4672] -> 71 query heads of width 64, and one head each of keys and values."""
    op = "experimental.nlp_create_qkv_heads_falcon7b"
    _check_features(op, input, _FALCON_FEATURES)
    heads = _FALCON_FEATURES // _FALCON_WIDTH - 2
    return _split_concatenated_qkv(op, input, (heads, 1, 1), turns_keys=False)


@operation(
    "experimental.nlp_create_qkv_heads_vit",
    **_TILED,
    controls="memory_config output_tensors",
    cuts_columns=True,
    results="tuple[Tensor, Tensor, Tensor]",
)
def nlp_create_qkv_heads_vit(input: Operand) -> Local:
    """[b, 1, s, 2304] -> 12 heads of width 64 each of queries, keys and values."""
    op = "experimental.nlp_create_qkv_heads_vit"
    _check_features(op, input, _VIT_FEATURES)
    return _split_concatenated_qkv(op, input, (_VIT_HEADS,) * 3, turns_keys=False)


def _check_features(op: str, operand: Operand, features: int) -> None:
    if operand.rank == 4 and operand.shape[3] != features:
        raise MeshError(f"{op}: takes rows of {features} features, got {list(operand.shape)}.")


@operation(
    "experimental.nlp_create_qkv_heads_segformer",
    **_TILED,
    controls="memory_config output_tensors",
    results="tuple[Tensor, Tensor, Tensor]",
)
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


@operation(
    _CREATE_QKV,
    **_TILED,
    native="CreateQKVHeadsDeviceOperation",
    controls="memory_config output_tensors",
    cuts_columns=True,
    results="tuple[Tensor, Tensor, Tensor]",
)
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


@operation(
    _SEPARATE,
    **_TILED,
    controls="memory_config output_tensors",
    cuts_columns=True,
    results="tuple[Tensor, Tensor, Tensor]",
)
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
@with_reference(golden.concat_heads)
def concatenate_heads_on_grid(input_tensor: Operand) -> Local:
    """[b, heads, s, width] -> [b, 1, s, heads * width]"""
    check_rank_4("experimental.concatenate_heads", input_tensor, "[batch, heads, sequence, width]")
    return Local(lambda x: x.transpose(-3, -2).flatten(-2).unsqueeze(-3), moved_dims_rule({0: 0, 1: 3, 2: 2}))
