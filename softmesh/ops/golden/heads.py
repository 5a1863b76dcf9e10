"""References of the heads that attention works on, and of rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from softmesh.ops.golden.table import reference


def _heads(x: Tensor, counts: Sequence[int]) -> tuple[Tensor, ...]:
    """[b, s, features] as [b, heads, s, width] of each count."""
    return x.unflatten(-1, (sum(counts), -1)).transpose(1, 2).split(list(counts), 1)


@reference("transformer.split_query_key_value_and_split_heads")
def _split_heads(
    input_tensor: Tensor,
    kv_input_tensor: Tensor | None = None,
    num_heads: int = 1,
    num_kv_heads: int | None = None,
    transpose_key: bool = True,
) -> tuple[Tensor, ...]:
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    row = input_tensor if kv_input_tensor is None else torch.cat([input_tensor, kv_input_tensor], -1)
    q, k, v = _heads(row, (num_heads, kv_heads, kv_heads))
    return q, k.transpose(2, 3) if transpose_key else k, v


@reference("experimental.nlp_create_qkv_heads")
def _create_heads(
    input: Tensor,
    input_kv: Tensor | None = None,
    num_heads: int = 1,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
) -> tuple[Tensor, ...]:
    kv = None if input_kv is None else input_kv.squeeze(1)
    return _split_heads(input.squeeze(1), kv, num_heads, num_kv_heads, transpose_k_heads)


@reference("experimental.nlp_concat_heads", "experimental.concatenate_heads")
def _concat_heads(input_tensor: Tensor) -> Tensor:
    return input_tensor.transpose(1, 2).flatten(-2).unsqueeze(1)


# -- rotary embeddings -----------------------------------------------------------------------------


@reference("experimental.rotary_embedding", "experimental.rotary_embedding_hf")
def _by_halves(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    token_index: int | None = None,
    is_decode_mode: bool = False,
) -> Tensor:
    rows = 1 if is_decode_mode else input_tensor.shape[2]
    at = slice(0, rows) if token_index is None else slice(token_index, token_index + 1)
    first, second = input_tensor.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return input_tensor * cos_cache[:, :, at] + turned * sin_cache[:, :, at]


@reference("experimental.rotary_embedding_llama")
def _by_matrix(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
    is_decode_mode: bool = False,
) -> Tensor:
    rows = 1 if is_decode_mode else input_tensor.shape[2]
    turned = (input_tensor.unflatten(-1, (-1, 32)) @ trans_mat[0, 0, :32]).flatten(-2)
    return input_tensor * cos_cache[:, :, :rows] + turned * sin_cache[:, :, :rows]
