"""Attention of one new token of each user over caches cut into blocks, or over keys that hold the values too."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.hardware.attention import PagedCacheGeometryOverride
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.ops.attention.by_block import attend_by_block
from softmesh.ops.attention.checks import TUNING, check_groups, check_key_heads, check_value_width
from softmesh.ops.attention.decode import (
    Data,
    DecodeStep,
    Fetch,
    check_position_tensor,
    check_positions,
    check_queries,
    check_users,
    decode_rule,
    positions,
)
from softmesh.ops.attention.kernel import group
from softmesh.ops.attention.pages import (
    check_table,
    geometry,
    positions_in_order,
    read_as,
)

_PAGED = "transformer.paged_scaled_dot_product_attention_decode"
_LATENT = "transformer.flash_multi_latent_attention_decode"
_PAGED_LATENT = "transformer.paged_flash_multi_latent_attention_decode"


def _from_pages(
    op: str, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, block: int, width: int | None = None
) -> Fetch:
    """Reads the pages that some user's position reaches. With `width`, values are the first columns of the keys."""

    def fetch(part: slice, current: Data) -> tuple[torch.Tensor, torch.Tensor]:
        first, after = part.start // block, -(-part.stop // block)
        pages = table[..., first:after].long()
        reached = torch.tensor([after], device=k.device) if current is None else current // block + 1
        needed = reached - first
        within = slice(part.start - first * block, part.stop - first * block)
        keys = positions_in_order(op, k, pages, needed)[..., within, :]
        if width is not None:
            return keys, keys[..., :width]
        return keys, positions_in_order(op, v, pages, needed)[..., within, :]

    return fetch


@operation(_PAGED, precision="data", controls="memory_config", tuning=TUNING)
def paged_scaled_dot_product_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    page_table_tensor: Operand,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    paged_cache_geometry: PagedCacheGeometryOverride | None = None,
    cache_position_modulo: int | None = None,
    spec_multi_pos_tiles: int = 0,
) -> Local:
    """q [1, users, heads, width] over k, v [blocks, kv_heads, block, width], found by page_table [users, pages].

    Positions, mask and sink are those of scaled_dot_product_attention_decode. With `cache_position_modulo`
    position p stands in place p % modulo of the user's pages, over what was there before.
    """
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    if spec_multi_pos_tiles:
        raise NotModelled(f"{_PAGED}: spec_multi_pos_tiles is not modelled: call it once for each position.")
    check_queries(_PAGED, q, k, v)
    if k.shape != v.shape:
        raise MeshError(
            f"{_PAGED}: {k.name} {list(k.shape)} and {v.name} {list(v.shape)} must have one shape."
        )
    seen_as = geometry(_PAGED, k, q.shape[3], paged_cache_geometry)
    if seen_as[3] != q.shape[3]:
        raise MeshError(f"{_PAGED}: the heads of q have width {q.shape[3]}, those of {k.name} {seen_as[3]}.")
    step = _paged_step(
        _PAGED,
        (q, page_table_tensor, attn_mask, cur_pos_tensor, attention_sink),
        seen_as,
        q.shape[3],
        (scale, sliding_window_size, is_causal, cache_position_modulo),
    )
    options = (sliding_window_size, cache_position_modulo, attention_sink)
    is_plain = is_causal and all(option is None for option in options)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        table: torch.Tensor,
        mask: Data,
        current: Data,
        sink: Data,
    ) -> torch.Tensor:
        keys, values = read_as(k, seen_as), read_as(v, seen_as)
        if is_plain and current is not None:
            step.reach(current)
            queries = group(q.select(-4, 0), -2, step.grouped)
            out = attend_by_block(queries, keys, values, table, current, step.factor)
            if out is not None:
                return step.finished(out, current, q.dim() - 4)
        fetch = _from_pages(_PAGED, keys, values, table, seen_as[2])
        return step.run(q, fetch, mask, current, sink)

    rule = decode_rule(q, attn_mask, own_caches=True, mask_at=4, table_at=3)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * step.length))


def _paged_step(
    op: str,
    operands: tuple[Operand, Operand, Operand | None, Operand | None, Operand | None],
    seen_as: tuple[int, int, int, int],
    value_width: int,
    options: tuple[float | None, int | None, bool, int | None],
) -> DecodeStep:
    q, table, mask, current, sink = operands
    scale, window, is_causal, modulo = options
    _, kv_heads, block, _ = seen_as
    check_groups(op, q.shape[2], kv_heads)
    check_table(op, table, q.shape[1])
    length = table.shape[1] * block
    if modulo is not None and not 0 < modulo <= length:
        raise MeshError(
            f"{op}: cache_position_modulo={modulo} must lie within 1 to {length}, the positions of a user's pages."
        )
    if is_causal and current is None:
        raise MeshError(
            f"{op}: causal attention over pages needs a cur_pos_tensor, the position of each user."
        )
    if is_causal and mask is not None:
        raise MeshError(f"{op}: attn_mask is given and is_causal=True: pass is_causal=False with it.")
    if current is not None:
        check_position_tensor(op, current, q.shape[1])
    step = DecodeStep(op, q, kv_heads, length, value_width, scale, window, is_causal, modulo)
    step.check(mask, sink)
    return step


# -- keys that hold the values too -----------------------------------------------------------------


@operation(_LATENT, precision="data", controls="memory_config", tuning=TUNING)
def flash_multi_latent_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand | None = None,
    head_dim_v: int | None = None,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    cur_pos: Value | Sequence[int] | None = (),
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Local:
    """Latent attention: as scaled_dot_product_attention_decode, with the first `head_dim_v` columns of k for v."""
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    check_users(_LATENT, q, k)
    check_key_heads(_LATENT, k, heads=q.shape[2], width=q.shape[3])
    width = _value_width(_LATENT, k, v, head_dim_v)
    listed = check_positions(_LATENT, q, cur_pos, cur_pos_tensor, attn_mask, is_causal)
    step = DecodeStep(_LATENT, q, k.shape[1], k.shape[2], width, scale, sliding_window_size, is_causal)
    step.check(attn_mask, attention_sink)

    def compute(
        q: torch.Tensor, k: torch.Tensor, v: Data, mask: Data, current: Data, sink: Data, *numbers: int
    ) -> torch.Tensor:
        given = current if current is not None or not listed else positions(numbers, q)
        values = k[..., :width] if v is None else v
        return step.run(q, lambda part, _: (k[..., part, :], values[..., part, :]), mask, given, sink)

    rule = decode_rule(q, attn_mask, own_caches=True)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * k.shape[2]))


@operation(_PAGED_LATENT, precision="data", controls="memory_config", tuning=TUNING)
def paged_flash_multi_latent_attention_decode(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand | None = None,
    head_dim_v: int | None = None,
    page_table_tensor: Operand | None = None,
    *,
    is_causal: bool = True,
    attn_mask: Operand | None = None,
    cur_pos_tensor: Operand | None = None,
    attention_sink: Operand | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Local:
    """Latent attention over caches cut into blocks, found by page_table [users, pages]."""
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    if page_table_tensor is None:
        raise ArgumentError(
            f"{_PAGED_LATENT}(): incompatible function arguments: argument 'page_table_tensor' is missing."
        )
    check_queries(_PAGED_LATENT, q, k)
    check_key_heads(_PAGED_LATENT, k, heads=q.shape[2], width=q.shape[3])
    width = _value_width(_PAGED_LATENT, k, v, head_dim_v)
    block = k.shape[2]
    step = _paged_step(
        _PAGED_LATENT,
        (q, page_table_tensor, attn_mask, cur_pos_tensor, attention_sink),
        (k.shape[0], k.shape[1], block, k.shape[3]),
        width,
        (scale, sliding_window_size, is_causal, None),
    )

    def compute(
        q: torch.Tensor, k: torch.Tensor, v: Data, table: torch.Tensor, mask: Data, current: Data, sink: Data
    ) -> torch.Tensor:
        shared = width if v is None else None
        fetch = _from_pages(_PAGED_LATENT, k, k if v is None else v, table, block, shared)
        return step.run(q, fetch, mask, current, sink)

    rule = decode_rule(q, attn_mask, own_caches=True, mask_at=4, table_at=3)
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(2 * step.length))


def _value_width(op: str, k: Operand, v: Operand | None, head_dim_v: int | None) -> int:
    if head_dim_v is None:
        raise ArgumentError(f"{op}(): incompatible function arguments: argument 'head_dim_v' is missing.")
    if v is None:
        check_value_width(op, head_dim_v, k.shape[3])
    elif v.shape != (*k.shape[:3], head_dim_v):
        raise MeshError(
            f"{op}: {v.name} {list(v.shape)} must be like {k.name} {list(k.shape)}, but for a width of "
            f"head_dim_v={head_dim_v}."
        )
    return head_dim_v
