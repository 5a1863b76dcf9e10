"""Golden functions of attention, QKV heads and rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """softmax(q k^T * scale + bias) v, key heads repeated for their queries; what sees nothing is 0."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1).float() for x in (k, v))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q.float() @ k.transpose(-2, -1) * factor
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, (sink * factor).expand(*scores.shape[:-1], 1)], -1)
        v = torch.nn.functional.pad(v, (0, 0, 0, 1))
    return torch.softmax(scores, -1).nan_to_num() @ v


def _reached(rows: int, keys: int, is_causal: bool, window: int | None, first: int = 0) -> Tensor | None:
    ahead = torch.arange(keys) - torch.arange(first, first + rows).unsqueeze(-1)
    if is_causal:
        return ahead <= 0 if window is None else (ahead <= 0) & (ahead > -window)
    return None if window is None else ahead.abs() <= window // 2


def prefill(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Tensor | None = None,
) -> Tensor:
    seen = _reached(input_tensor_q.shape[2], input_tensor_k.shape[2], is_causal, sliding_window_size)
    return attention(
        input_tensor_q,
        input_tensor_k,
        input_tensor_v,
        visible=seen,
        bias=attn_mask,
        scale=scale,
        sink=attention_sink,
    )


def latent_prefill(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    head_dim_v: int | Tensor | None = None,
    input_tensor_v: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:
    values = head_dim_v if isinstance(head_dim_v, Tensor) else input_tensor_v
    values = input_tensor_k[..., :head_dim_v] if values is None else values
    return prefill(input_tensor_q, input_tensor_k, values, attn_mask, is_causal, scale)


def decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    cur_pos: Sequence[int] = (),
    attention_sink: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:
    seen = None
    if is_causal:
        latest = torch.tensor(list(cur_pos)) if cur_pos_tensor is None else cur_pos_tensor
        at, latest = torch.arange(input_tensor_k.shape[2]), latest.unsqueeze(-1)
        seen = at <= latest if sliding_window_size is None else (at <= latest) & (at > latest - sliding_window_size)
        seen = seen.reshape(len(latest), 1, 1, -1)
    queries = input_tensor_q.permute(1, 2, 0, 3)
    bias = None if attn_mask is None else attn_mask.transpose(1, 2)
    sink = None if attention_sink is None else attention_sink[:, :1].reshape(1, -1, 1, 1)
    found = attention(queries, input_tensor_k, input_tensor_v, visible=seen, bias=bias, scale=scale, sink=sink)
    return found.permute(2, 0, 1, 3)


def latent_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    head_dim_v: int,
    input_tensor_v: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    cur_pos: Sequence[int] = (),
    scale: float | None = None,
) -> Tensor:
    values = input_tensor_k[..., :head_dim_v] if input_tensor_v is None else input_tensor_v
    options: dict[str, Any] = {"cur_pos_tensor": cur_pos_tensor, "cur_pos": cur_pos, "scale": scale}
    return decode(input_tensor_q, input_tensor_k, values, **options)


def _in_order(cache: Tensor, table: Tensor) -> Tensor:
    """[users, heads, positions, width] of blocks; numbers of no block are those of pages that are not read."""
    return cache[table.long().clamp(0, len(cache) - 1)].transpose(1, 2).flatten(2, 3)


def paged_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    attention_sink: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:
    k, v = (_in_order(cache, page_table_tensor) for cache in (input_tensor_k, input_tensor_v))
    options: dict[str, Any] = {"attention_sink": attention_sink, "sliding_window_size": sliding_window_size}
    return decode(input_tensor_q, k, v, is_causal, attn_mask, cur_pos_tensor, scale=scale, **options)


def chunked(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    chunk_start_idx: int | None = None,
    chunk_start_idx_tensor: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Tensor | None = None,
) -> Tensor:
    k, v = (_in_order(cache, page_table_tensor) for cache in (input_tensor_k, input_tensor_v))
    first = int(chunk_start_idx_tensor) if chunk_start_idx_tensor is not None else chunk_start_idx or 0
    seen = _reached(input_tensor_q.shape[2], k.shape[2], True, sliding_window_size, first)
    return attention(input_tensor_q, k, v, visible=seen, scale=scale, sink=attention_sink)


def joint(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    joint_tensor_q: Tensor,
    joint_tensor_k: Tensor,
    joint_tensor_v: Tensor,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    own = (input_tensor_q, input_tensor_k, input_tensor_v)
    joint = (joint_tensor_q, joint_tensor_k, joint_tensor_v)
    q, k, v = (torch.cat(pair, 2) for pair in zip(own, joint, strict=True))
    return attention(q, k, v, scale=scale).split((input_tensor_q.shape[2], joint_tensor_q.shape[2]), 2)


# -- heads and rotary embeddings ---------------------------------------------------------------------


def _heads(x: Tensor, counts: Sequence[int]) -> tuple[Tensor, ...]:
    """[b, s, features] as [b, heads, s, width] of each count."""
    return x.unflatten(-1, (sum(counts), -1)).transpose(1, 2).split(list(counts), 1)


def split_heads(
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


def create_heads(
    input: Tensor,
    input_kv: Tensor | None = None,
    num_heads: int = 1,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
) -> tuple[Tensor, ...]:
    kv = None if input_kv is None else input_kv.squeeze(1)
    return split_heads(input.squeeze(1), kv, num_heads, num_kv_heads, transpose_k_heads)


def concat_heads(input_tensor: Tensor) -> Tensor:
    return input_tensor.transpose(1, 2).flatten(-2).unsqueeze(1)


# -- rotary embeddings -----------------------------------------------------------------------------


def by_halves(
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


def by_matrix(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
    is_decode_mode: bool = False,
) -> Tensor:
    rows = 1 if is_decode_mode else input_tensor.shape[2]
    turned = (input_tensor.unflatten(-1, (-1, 32)) @ trans_mat[0, 0, :32]).flatten(-2)
    return input_tensor * cos_cache[:, :, :rows] + turned * sin_cache[:, :, :rows]
