"""Generated calls of the LLM families; attention, heads and caches have laws of their own in tests/unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from op_calls import APPROXIMATE, CALLS, TESTED_ELSEWHERE, Call, Entry, Splits, extents, shapes
from strategies import Extents, Like

import softmesh as ttnn
from softmesh.dispatch.operation import Operation

APPROXIMATE.update(
    {
        "experimental.attn_matmul",
        "experimental.dit_layernorm_post_allgather",
        "experimental.dit_rms_norm_unary_fused",
        "experimental.group_attn_matmul",
        "scale_mask_softmax",
        "transformer.attention_softmax",
        "experimental.rotary_embedding",
        "experimental.rotary_embedding_hf",
        "experimental.rotary_embedding_llama",
    }
)
TESTED_ELSEWHERE.update(
    {
        "experimental.attn_matmul_from_cache",
        "experimental.concatenate_heads",
        "experimental.create_qkv_heads",
        "experimental.create_qkv_heads_from_separate_tensors",
        "experimental.deepseek_prefill.pack_scaled_fp8_kv_cache",
        "experimental.deepseek_prefill.per_token_cast_back",
        "experimental.deepseek_prefill.per_token_cast_to_fp8",
        "experimental.deepseek_prefill.rotary_embedding_indexed",
        "experimental.deepseek_prefill.update_padded_kv_cache",
        "experimental.deepseek_prefill.zero_padded_kv_cache",
        "experimental.dit_layernorm_pre_allgather",
        "experimental.indexer_score_dsa",
        "experimental.nlp_create_qkv_heads_falcon7b",
        "experimental.nlp_create_qkv_heads_segformer",
        "experimental.nlp_create_qkv_heads_vit",
        "experimental.paged_fill_cache",
        "experimental.paged_fused_update_cache",
        "experimental.paged_update_cache",
        "experimental.split_query_key_value_and_split_heads",
        "experimental.repeat_and_interleave_eltwise_mul",
        "experimental.rotary_embedding_llama_fused_qk",
        "kv_cache.fill_cache_for_user_",
        "kv_cache.update_cache_for_token_",
        "manual_seed",
        "plus_one",
        "sampling",
        "scale_causal_mask_hw_dims_softmax_in_place",
        "scale_mask_softmax_in_place",
        "softmax_in_place",
        "transformer.attention_softmax_",
        "transformer.chunk_gated_delta_rule",
        "transformer.chunked_flash_mla_prefill",
        "transformer.chunked_scaled_dot_product_attention",
        "transformer.flash_mla_prefill",
        "transformer.flash_multi_latent_attention_decode",
        "transformer.joint_scaled_dot_product_attention",
        "transformer.paged_flash_multi_latent_attention_decode",
        "transformer.paged_scaled_dot_product_attention_decode",
        "transformer.ring_distributed_scaled_dot_product_attention",
        "transformer.ring_joint_scaled_dot_product_attention",
        "transformer.ring_mla",
        "transformer.sparse_sdpa",
        "transformer.sparse_sdpa_msa",
        "transformer.split_query_key_value_and_split_heads",
    }
)


# -- softmax of masked scores ----------------------------------------------------------------------


def masked(scale: str, mask: str, causal: str) -> Entry:
    """By the op's names of its arguments."""

    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        shape = draw(shapes(2, 4))
        is_causal = draw(st.booleans())
        front = [draw(st.sampled_from([1, n])) for n in shape[:-2]]
        mask_shape = (*front, shape[-2] if is_causal else 1, shape[-1])
        options = {causal: is_causal} | ({scale: 4} if draw(st.booleans()) else {})

        def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
            more = {mask: tensors[1]} if len(tensors) > 1 else {}
            return op(tensors[0], **more, **options)

        rank = len(shape)
        if draw(st.integers(0, 3)) == 0:
            return Call((Like(shape, dtype),), run, {d: (d,) for d in range(rank)})
        splits: Splits = {d: (d, d) for d in range(rank - 2)}
        splits[rank - 2] = (rank - 2, rank - 2 if is_causal else None)
        return Call((Like(shape, dtype), Like(mask_shape, dtype)), run, splits)

    return entry


CALLS["scale_mask_softmax"] = masked("scale", "mask", "is_causal_mask")
CALLS["transformer.attention_softmax"] = masked("head_size", "attention_mask", "causal_mask")


# -- parts of a batch ------------------------------------------------------------------------------


def _sums(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(3, 5))
    dims = sorted(draw(st.sets(st.integers(0, len(shape) - 3), min_size=1)))
    return Call((Like(shape, dtype, values="whole"),), lambda op, tensors, wanted: op(*tensors, dims=dims))


CALLS["experimental.fast_reduce_nc"] = _sums


def _replaced(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(2, 4))
    dim = draw(st.integers(0, len(shape) - 1))
    ids = Like((1, 1, 1, 1), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, f"below {shape[dim]}")
    likes = (ids, Like(shape, dtype), Like((*shape[:dim], 1, *shape[dim + 1 :]), dtype))
    splits: Splits = {d: (None, d, d) for d in range(len(shape)) if d != dim}
    return Call(likes, lambda op, tensors, wanted: op(*tensors, dim=dim), splits, tiles_only=True)


CALLS["indexed_fill"] = _replaced


# -- rotary embeddings -----------------------------------------------------------------------------


def _angles(shape: Extents, dtype: ttnn.DataType) -> tuple[Like, Like]:
    return (Like(shape, dtype, values="unit"),) * 2


def rows(width: int, **options: Any) -> Entry:
    """Whole sequences [b, heads, s, width]."""

    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        b, heads, s, length = draw(extents), draw(extents), draw(extents), draw(st.integers(0, 1))
        likes = (Like((b, heads, s, width), dtype), *_angles((1, 1, s + length, width), dtype))
        splits: Splits = {d: (d, d, d) if n == 1 else (d, None, None) for d, n in ((0, b), (1, heads))}
        splits[2] = (2, None, None) if options else (2, 2, 2)
        return Call(likes, lambda op, tensors, wanted: op(*tensors, **options), splits, tiles_only=True)

    return entry


def users(width: int) -> Entry:
    """One token of each user, [1, users, heads, width]."""

    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        count, heads = draw(extents), draw(extents)
        likes = (Like((1, count, heads, width), dtype), *_angles((1, count, 1, width), dtype))
        splits: Splits = {1: (1, 1, 1), 2: (2, None, None)}
        return Call(likes, lambda op, tensors, wanted: op(*tensors, is_decode_mode=True), splits, tiles_only=True)

    return entry


def either(first: Entry, second: Entry) -> Entry:
    return lambda draw, dtype: (first if draw(st.booleans()) else second)(draw, dtype)


def with_matrix(entry: Entry) -> Entry:
    def more(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        call = entry(draw, dtype)
        splits: Splits = {d: (*dims, None) for d, dims in call.splits.items()} | {3: (3, 3, 3, None)}
        likes = (*call.operands, Like((1, 1, 32, 32), dtype, values="unit"))
        return Call(likes, call.run, splits, tiles_only=True)

    return more


CALLS["experimental.rotate_half"] = lambda draw, dtype: Call(
    (Like((draw(extents), draw(extents), draw(extents), 64), dtype),),
    splits={d: (d,) for d in range(3)},
    tiles_only=True,
)
CALLS["experimental.rotary_embedding"] = either(rows(64), rows(64, token_index=0))
CALLS["experimental.rotary_embedding_hf"] = either(rows(64), users(64))
CALLS["experimental.rotary_embedding_llama"] = with_matrix(either(rows(32), users(32)))


# -- other steps of models -------------------------------------------------------------------------

CALLS["experimental.dit_rms_norm_unary_fused"] = CALLS["rms_norm"]
CALLS["experimental.dit_layernorm_post_allgather"] = CALLS["layer_norm_post_all_gather"]


def _scan(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    rows, columns = draw(extents), draw(extents)
    line = Like((1, 1, rows, columns), dtype, values="whole")
    return Call((line, line, Like((1, 1, 1, columns), dtype, values="whole")), splits={3: (3, 3, 3)})


def _columns(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    like = Like((1, 1, draw(extents), 32 * draw(extents)), dtype, values="whole")
    return Call(
        (like,),
        splits={d: (d,) for d in range(4)},
        reference=lambda values: values[0].unflatten(-1, (-1, 32)).sum(-1),
    )


def _largest(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = draw(shapes(1))
    k = draw(st.integers(1, shape[-1]))
    splits: Splits = {d: (d,) for d in range(len(shape) - 1)}
    return Call((Like(shape, dtype),), lambda op, tensors, wanted: op(*tensors, k=k), splits)


def by_user(kv_heads: st.SearchStrategy[int]) -> Entry:
    """[rows, heads, users, inner] @ [users, kv_heads, inner, columns]"""

    def entry(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        rows, users, inner, columns, shared = (draw(extents) for _ in range(5))
        matrices = draw(kv_heads)
        likes = (
            Like((rows, matrices * shared, users, inner), dtype, values="whole"),
            Like((users, matrices, inner, columns), dtype, values="whole"),
        )
        splits: Splits = {0: (0, None), 1: (1, 1), 2: (2, 0), 3: (None, 3)}

        def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
            """Several devices with a matrix each are, as a whole, groups."""
            one = tensors[1].shape[1] == 1
            return (op if one else ttnn.experimental.group_attn_matmul)(*tensors, compute_with_storage_grid_size=(8, 8))

        return Call(likes, run, splits, summed=(3, 2), tiles_only=True)

    return entry


CALLS["experimental.prefix_scan"] = _scan
CALLS["experimental.hc_sum_reduce"] = _columns
CALLS["experimental.topk_large_indices"] = _largest
CALLS["experimental.attn_matmul"] = by_user(st.just(1))
CALLS["experimental.group_attn_matmul"] = by_user(extents)
