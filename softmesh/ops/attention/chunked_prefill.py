"""Chunked prefill: attention of a chunk of a sequence over the pages of everything up to it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.hardware.program_configs import PagedCacheGeometryOverride
from softmesh.kinds import Kind
from softmesh.ops.attention.key_ranges import ranges_in_order
from softmesh.ops.attention.page_tables import check_table, geometry, positions_in_order, reinterpret_tiles
from softmesh.ops.attention.sdpa_core import (
    TUNING,
    attend_ranges,
    by_page_table,
    check_groups,
    check_ints,
    check_rank_4,
    check_sink,
    check_value_width,
    check_window,
    group,
    split_with_key_heads,
)
from softmesh.ops.golden import golden_attention as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.operand_checks import check_one_shape
from softmesh.placement import rules

_CHUNKED = "transformer.chunked_scaled_dot_product_attention"
_LATENT = "transformer.chunked_flash_mla_prefill"
Data = torch.Tensor | None


@operation(
    _CHUNKED, kind=Kind.ATTENTION, rule=split_with_key_heads, precision="data", controls="memory_config", tuning=TUNING
)
@with_reference(golden.chunked)
def chunked_scaled_dot_product_attention(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    input_tensor_v: Operand,
    page_table_tensor: Operand,
    chunk_start_idx: Value | None = None,
    *,
    chunk_start_idx_tensor: Operand | None = None,
    scale: float | None = None,
    paged_cache_geometry: PagedCacheGeometryOverride | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Operand | None = None,
) -> Local:
    """q [b, heads, chunk, width], the first of which has position `chunk_start_idx`, over paged k and v.

    k, v [blocks, kv_heads, block, width] hold the chunk's own keys too; each query sees the positions up
    to its own. The start is a number, or a tensor of one on each device.
    """
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    check_rank_4(_CHUNKED, q, k, v)
    check_one_shape(_CHUNKED, k, v)
    _check_start(chunk_start_idx, chunk_start_idx_tensor)
    seen_as = geometry(_CHUNKED, k, q.shape[3], paged_cache_geometry, is_given=True)
    check_window(_CHUNKED, sliding_window_size)
    check_sink(_CHUNKED, attention_sink, (1, q.shape[1], 1, 1))
    inner = _over_pages(_CHUNKED, q, page_table_tensor, seen_as, scale, sliding_window_size)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        table: torch.Tensor,
        start: int | None,
        starts: Data,
        sink: Data,
    ) -> torch.Tensor:
        first = start if starts is None else starts.squeeze(-1)
        assert first is not None
        return inner(q, reinterpret_tiles(k, seen_as), reinterpret_tiles(v, seen_as), table, first, sink)

    batch, heads = [(0, 0), (1, 0), (2, 0), (3, 0)], [(0, 1), (1, 1), (2, 1), (6, 1)]
    rule = split_with_key_heads(by_page_table(rules.along({0: batch, 1: heads}), 1, 2), 1)
    length = page_table_tensor.shape[1] * seen_as[2]
    return Local(
        compute,
        rule,
        memory_config=DRAM_MEMORY_CONFIG,
        cost=matmul_cost(2 * length),
        places_of={3: (1, 2)},
    )


@operation(
    _LATENT, kind=Kind.ATTENTION, rule=split_with_key_heads, precision="data", controls="memory_config", tuning=TUNING
)
def chunked_flash_mla_prefill(
    input_tensor_q: Operand,
    input_tensor_k: Operand,
    head_dim_v: int,
    page_table_tensor: Operand,
    chunk_start_idx: Value,
    *,
    scale: float | None = None,
) -> Local:
    """Latent attention of a chunk: the first `head_dim_v` columns of the paged keys are the values."""
    q, k = input_tensor_q, input_tensor_k
    check_rank_4(_LATENT, q, k)
    check_value_width(_LATENT, head_dim_v, k.shape[3])
    _check_start(chunk_start_idx, None)
    blocks, kv_heads, block, width = k.shape
    inner = _over_pages(_LATENT, q, page_table_tensor, (blocks, kv_heads, block, width), scale, None, head_dim_v)

    def compute(q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, start: int) -> torch.Tensor:
        return inner(q, k, None, table, start, None)

    along = rules.along({0: [(0, 0), (1, 0), (2, 0)], 1: [(0, 1), (1, 1)]})
    rule = split_with_key_heads(by_page_table(along, 1), 1)
    length = page_table_tensor.shape[1] * block
    return Local(
        compute,
        rule,
        memory_config=DRAM_MEMORY_CONFIG,
        cost=matmul_cost(2 * length),
        places_of={2: (1,)},
    )


def _check_start(number: Value | None, tensor: Operand | None) -> None:
    if (number is None) == (tensor is None):
        raise ArgumentError(
            f"{_CHUNKED}(): incompatible function arguments: pass chunk_start_idx or chunk_start_idx_tensor, one of "
            "them."
        )
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise ArgumentError(f"{_CHUNKED}: chunk_start_idx must be an int of 0 or more, got {number!r}")
    check_ints(_CHUNKED, tensor, (1,), "the position of the chunk's first query")


def _over_pages(
    op: str,
    q: Operand,
    table: Operand,
    seen_as: tuple[int, int, int, int],
    scale: float | None,
    window: int | None,
    value_width: int | None = None,
) -> Callable[[torch.Tensor, torch.Tensor, Data, torch.Tensor, torch.Tensor | int, Data], torch.Tensor]:
    _, kv_heads, block, width = seen_as
    users, heads, rows, own_width = q.shape
    if own_width != width:
        raise MeshError(f"{op}: the heads of q have width {own_width}, those of the cache {width}.")
    check_groups(op, heads, kv_heads)
    check_table(op, table, users)
    grouped = (kv_heads, heads // kv_heads)
    factor = width**-0.5 if scale is None else scale
    capacity = table.shape[1] * block

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: Data,
        table: torch.Tensor,
        first: torch.Tensor | int,
        sink: Data,
    ) -> torch.Tensor:
        last = int(first.max()) if isinstance(first, torch.Tensor) else first
        keys = last + rows
        if keys > capacity:
            raise MeshError(
                f"{op}: a chunk of {rows} from chunk_start_idx={last} on reaches beyond the {capacity} positions of "
                "the page table. Give each user more pages."
            )
        pages = table[..., : -(-keys // block)].long()
        needed = torch.tensor([pages.shape[-1]], device=q.device)
        own_k = positions_in_order(op, k, pages, needed)[..., :keys, :].float()
        own_v = own_k[..., :value_width] if v is None else positions_in_order(op, v, pages, needed).float()
        start = first.unsqueeze(-1) if isinstance(first, torch.Tensor) else first
        seen = ranges_in_order(torch.arange(rows, device=q.device) + start, keys, True, window)
        queries, score = group(q.float(), -3, grouped), group(sink, -3, grouped)
        score = None if score is None else score.float()
        out = attend_ranges(queries, own_k, own_v[..., :keys, :], seen, None, score, scale=factor)
        return out.flatten(-4, -3)

    return compute
