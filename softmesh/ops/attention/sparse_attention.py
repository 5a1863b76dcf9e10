"""Sparse attention (DSA): an indexer scores all keys and picks the top k, then each query attends to its own keys."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from softmesh.dispatch import part_work
from softmesh.dispatch.argument_forms import ON_MESH_AXES
from softmesh.dispatch.cost_rules import flops_per_element, matmul_cost
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.hardware.program_configs import SparseKVFormat
from softmesh.kinds import Kind
from softmesh.ops.attention.sdpa_core import (
    attend,
    causal_window_mask,
    check_groups,
    check_ints,
    check_value_width,
    group,
    mask_bias,
    row_blocks,
    split_with_key_heads,
)
from softmesh.ops.elementwise.fp8_quantization import PACKED, unpack_fp8_rows
from softmesh.ops.operand_checks import check_four_dims
from softmesh.placement import dim_labels, rules
from softmesh.tensor.dtype import DataType, Layout

# -- the indexer: cheap scores of all keys, and the indices of the best ------------------------------


SCORE = "experimental.indexer_score_dsa"
_TOPK = "experimental.topk_large_indices"
_HIDDEN = float("-inf")
_NOTHING = 2**32 - 1  # the index of no key
Data = torch.Tensor | None


@operation(
    SCORE,
    kind=Kind.ATTENTION,
    rule=rules.along,
    part_work=part_work.UNNOTICED,
    controls="",
    tuning="program_config compute_kernel_config",
    **ON_MESH_AXES,
)
def indexer_score_dsa(
    q: Operand,
    k: Operand,
    weights: Operand,
    *,
    place: Operand | None = None,
    chunk_start_idx: Value | None = None,
    kv_len: Value | None = None,
    cache_batch_idx: Value | None = None,
    key_compression_ratio: int = 1,
    seq_shard_axes: object = None,
    block_cyclic_sp_axis: int | None = None,
    block_cyclic_chunk_local: int | None = None,
    block_cyclic_cache_tp_sharded: bool = False,
) -> Local:
    """[b, 1, s, length]: the sum over heads of weight * relu(q . k).

    q is [b, heads, s, width], k [b, 1, length, width]; weights are [b, 1, s, heads] or [b, heads, s, 1]. The first
    query has position `chunk_start_idx`, s more on each next device of those that share the sequence; keys behind a
    query, and from `kv_len` on, score -inf.
    """
    if key_compression_ratio != 1 or block_cyclic_sp_axis is not None:
        raise NotModelled(
            f"{SCORE}: compressed keys and block-cyclic caches are not modelled: pass keys in the order of positions."
        )
    _check_score(q, k, weights)
    heads, rows = q.shape[1:3]
    length = k.shape[2]
    by_head = weights.shape[1:] == (heads, rows, 1)

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        weights: torch.Tensor,
        place: Data,
        start: int | None,
        valid: int | None,
        batch: int | None,
    ) -> torch.Tensor:
        keys = (k if batch is None else k.narrow(-4, batch, 1)).transpose(-2, -1)
        own = weights if by_head else weights.transpose(-3, -1)
        of_a_row = math.prod(q.shape[:-2]) * length
        scores = torch.cat(
            [
                (torch.relu(q[..., at, :] @ keys) * own[..., at, :]).sum(-3, keepdim=True)
                for at in row_blocks(rows, of_a_row)
            ],
            -2,
        )
        if start is not None:
            first = start if place is None else start + place.squeeze(-1).long() * rows
            seen = causal_window_mask(rows, length, True, None, q.device, first)
            scores = scores.masked_fill(~seen.reshape(*seen.shape[:-2], 1, 1, rows, length), _HIDDEN)
        if valid is not None:
            scores = scores.masked_fill(torch.arange(length, device=q.device) >= valid, _HIDDEN)
        return scores

    row_pairs = [(0, 2), (2, 2), *([(3, 0)] if chunk_start_idx is not None else [])]
    rule = rules.along({0: [(0, 0), (1, 0), (2, 0)], 2: row_pairs, 3: [] if chunk_start_idx is not None else [(1, 2)]})
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(q.shape[3] * heads))


def _check_score(q: Operand, k: Operand, weights: Operand) -> None:
    check_four_dims(SCORE, q, k, weights)
    heads, rows = q.shape[1:3]
    if k.shape[1] != 1 or k.shape[3] != q.shape[3]:
        raise MeshError(f"{SCORE}: k {list(k.shape)} must be [b, 1, length, {q.shape[3]}] for q {list(q.shape)}.")
    if weights.shape[1:] not in ((1, rows, heads), (heads, rows, 1)):
        raise MeshError(
            f"{SCORE}: weights {list(weights.shape)} must be [b, 1, {rows}, {heads}], a weight for each query and head."
        )


@operation(
    _TOPK,
    kind=Kind.SELECTION,
    cost=flops_per_element(8),
    precision="data",
    controls="",
    tuning="subdevice_id sub_core_grids",
)
def topk_large_indices(
    input_tensor: Operand,
    *,
    valid_length_tensor: Operand | None = None,
    valid_end_tensor: Operand | None = None,
    valid_length: Value | None = None,
    k: int,
    valid_length_offset: int = 0,
) -> Local:
    """The places of the k largest along the last dim, largest first, as uint32; 2^32 - 1 where there is nothing left.

    Only the first `valid_length` (+ `valid_length_offset`) entries count, and none that is -inf. In which order TT-NN
    gives them is not known.
    """
    if valid_end_tensor is not None:
        raise NotModelled(f"{_TOPK}: valid_end_tensor is not modelled: pass valid_length_tensor.")
    if valid_length is not None and valid_length_tensor is not None:
        raise ArgumentError(f"{_TOPK}: pass valid_length or valid_length_tensor, one of them.")
    if not input_tensor.rank or not 1 <= k <= input_tensor.shape[-1]:
        raise MeshError(f"{_TOPK}: k={k} must lie within 1 to the last dim of {list(input_tensor.shape)}.")
    check_ints(_TOPK, valid_length_tensor, (1,), "the number of entries that count")
    rank, width = input_tensor.rank, input_tensor.shape[-1]

    def compute(x: torch.Tensor, lengths: Data, ends: Data, length: int | None) -> torch.Tensor:
        values = x.float()
        count = length if lengths is None else lengths.reshape(*lengths.shape[:-1], *(1,) * rank)
        if count is not None:
            at = torch.arange(width, device=x.device)
            values = values.masked_fill(at >= count + valid_length_offset, _HIDDEN)
        best, places = values.topk(k, -1)
        return torch.where(best == _HIDDEN, _NOTHING, places)

    @rules.labelled(dim_labels.moved(lambda dim: None if dim == rank - 1 else dim, passes=""))
    def rule(at: rules.Situation) -> rules.Placement:
        own_lengths = at.words[1] not in (None, rules.REPLICATE)
        return rules.opaque(at) if own_lengths else rules.among(at, (0,), rules.within(-1))

    return Local(compute, rule, dtypes=(DataType.UINT32,), layouts=(Layout.ROW_MAJOR,))


_SPARSE = "transformer.sparse_sdpa"
_BLOCKS = "transformer.sparse_sdpa_msa"
_TUNING = "compute_kernel_config"


def _rows_of(indices: torch.Tensor, length: int, devices: int, chunk: int | None) -> torch.Tensor:
    """Positions as rows of a cache, `length` for those that are none.

    With `chunk`, device d of `devices` held rows [d * chunk, (d + 1) * chunk) of each stretch of devices * chunk
    positions, and what they held was joined device by device.
    """
    if chunk is not None:
        stretch, rest = indices // (chunk * devices), indices % (chunk * devices)
        rows = rest // chunk * (length // devices) + stretch * chunk + rest % chunk
    else:
        rows = indices
    return torch.where((indices < 0) | (indices >= length), length, rows)


def _chosen(rows: torch.Tensor, length: int) -> torch.Tensor:
    """(..., queries, length): which keys are among those chosen, (..., queries, n)."""
    flags = torch.zeros(*rows.shape[:-1], length + 1, dtype=torch.bool, device=rows.device)
    return flags.scatter_(-1, rows.long(), True)[..., :length]


def _over_chosen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: Callable[[slice], torch.Tensor],
    sink: Data,
    scale: float,
    keys_differ: int,
) -> torch.Tensor:
    """`visible` of some rows is (..., key heads, rows, keys), for `keys_differ` of which that differs. Queries that see
    nothing get 0.
    """
    kv_heads = k.shape[-3]
    grouped = (kv_heads, q.shape[-3] // kv_heads)
    queries, score = group(q.float(), -3, grouped), group(sink, -3, grouped)
    k, v = k.float(), v.float()
    parts = []
    for at in row_blocks(q.shape[-2], keys_differ * k.shape[-2]):
        seen = visible(at).unsqueeze(-3)
        out = attend(queries[..., at, :], k, v, mask_bias(seen), score, scale=scale)
        parts.append(torch.where(seen.any(-1, keepdim=True), out, 0.0))
    return torch.cat(parts, -2).flatten(-4, -3)


@operation(
    _SPARSE,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    precision="data",
    controls="",
    tuning=f"{_TUNING} k_chunk_size",
    **ON_MESH_AXES,
)
def sparse_sdpa(
    q: Operand,
    kv: Operand,
    indices: Operand,
    v_dim: int,
    *,
    kv_format: SparseKVFormat,
    attention_sink: Operand | None = None,
    cache_batch_idx: Value | None = None,
    scale: float | None = None,
    block_cyclic_sp_axis: int | None = None,
    block_cyclic_chunk_local: int | None = None,
    block_cyclic_cache_tp_sharded: bool = False,
    block_cyclic_devices: int = 1,
) -> Local:
    """q [b, heads, s, width] over the rows of kv [b, 1, length, width] that indices [b, 1, s, n] names for each query.

    The first `v_dim` columns of kv are the values. A number that is no row, such as 2^32 - 1, names nothing; a row
    named twice counts once. `cache_batch_idx` picks one of several caches. In a block-cyclic cache the devices along
    an axis held chunks of `block_cyclic_chunk_local` positions in turn, and indices are positions.
    """
    if block_cyclic_cache_tp_sharded:
        raise NotModelled(f"{_SPARSE}: block_cyclic_cache_tp_sharded is not modelled: gather the cache first.")
    width = _check_sparse(q, kv, indices, kv_format, cache_batch_idx)
    check_value_width(_SPARSE, v_dim, width)
    length, factor = kv.shape[2], width**-0.5 if scale is None else scale
    is_packed = kv_format is SparseKVFormat.SCALED_FP8
    chunk = None if block_cyclic_sp_axis is None else block_cyclic_chunk_local

    def compute(
        q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, sink: Data, batch: int | None
    ) -> torch.Tensor:
        rows = kv if batch is None else kv.narrow(-4, batch, 1)
        keys = unpack_fp8_rows(rows) if is_packed else rows
        chosen = _rows_of(indices.long(), length, block_cyclic_devices, chunk)
        several = math.prod(chosen.shape[:-2])
        return _over_chosen(
            q, keys, keys[..., :v_dim], lambda at: _chosen(chosen[..., at, :], length), sink, factor, several
        )

    pairs: dict[int, list[tuple[int, int | None]]] = {
        0: [(0, 0), (1, 0), (2, 0)],
        1: [(0, 1), (3, 1)],
        2: [(0, 2), (2, 2)],
    }
    rule = split_with_key_heads(rules.along(dict(pairs)), 1)
    return Local(
        compute,
        rule,
        dtypes=(q.dtype,),
        memory_config=DRAM_MEMORY_CONFIG,
        cost=matmul_cost(2 * indices.shape[3]),
    )


def _check_sparse(q: Operand, kv: Operand, indices: Operand, form: SparseKVFormat, batch: Value | None) -> int:
    """The width of a key."""
    check_four_dims(_SPARSE, q, kv, indices)
    wanted = {
        SparseKVFormat.SCALED_FP8: (DataType.UINT8, DataType.FP8_E4M3),
        SparseKVFormat.FP8_E4M3: (DataType.FP8_E4M3,),
    }.get(form)
    if wanted is not None and kv.dtype not in wanted:
        raise MeshError(f"{_SPARSE}: a cache of {form} holds {wanted[0]}, got {kv.dtype}.")
    is_packed = form is SparseKVFormat.SCALED_FP8
    if kv.shape[1] != 1 or (is_packed and kv.shape[3] != PACKED) or (not is_packed and kv.shape[3] != q.shape[3]):
        raise MeshError(
            f"{_SPARSE}: kv {list(kv.shape)} must be [b, 1, length, {PACKED if is_packed else q.shape[3]}] for "
            f"q {list(q.shape)} and {form}."
        )
    if indices.is_float or indices.shape[1] != 1 or indices.shape[2] != q.shape[2]:
        raise MeshError(
            f"{_SPARSE}: indices {list(indices.shape)} {indices.dtype} must be [b, 1, {q.shape[2]}, n] of integers."
        )
    if batch is None and kv.shape[0] not in (1, q.shape[0]):
        raise MeshError(f"{_SPARSE}: kv {list(kv.shape)} holds several caches: pick one by cache_batch_idx.")
    return q.shape[3]


@operation(
    _BLOCKS,
    kind=Kind.ATTENTION,
    rule=split_with_key_heads,
    precision="data",
    controls="",
    tuning=f"{_TUNING} enable_kv_block_cache",
    **ON_MESH_AXES,
)
def sparse_sdpa_msa(
    q: Operand,
    k: Operand,
    v: Operand,
    indices: Operand,
    *,
    place: Operand | None = None,
    chunk_start_idx: Value | None = None,
    cache_batch_idx: Value | None = None,
    scale: float | None = None,
    block_size: int = 128,
    cluster_axis: int | None = None,
    block_cyclic_sp_axis: int | None = None,
    block_cyclic_chunk_local: int | None = None,
    block_cyclic_devices: int = 1,
) -> Local:
    """q [b, heads, s, width] over blocks of k, v [b, kv_heads, length, width], by indices [b, kv_heads, s, n].

    The first query has position `chunk_start_idx`, on device i along `cluster_axis` s * i more, and sees no key behind
    its own; without it all of a block is seen. How TT-NN treats the blocks of a query's own position is not known.
    """
    if block_cyclic_sp_axis is not None:
        raise NotModelled(f"{_BLOCKS}: a block-cyclic cache is not modelled: bring it into the order of positions.")
    _check_blocks(q, k, v, indices, block_size)
    rows, length = q.shape[2], k.shape[2]
    blocks = -(-length // block_size)
    factor = q.shape[3] ** -0.5 if scale is None else scale

    def compute(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        indices: torch.Tensor,
        place: Data,
        start: int | None,
        batch: int | None,
    ) -> torch.Tensor:
        k, v = (x if batch is None else x.narrow(-4, batch, 1) for x in (k, v))
        named = indices.long()
        blocks_of = torch.where((named < 0) | (named >= blocks), blocks, named)
        first = None if start is None else start if place is None else start + place.squeeze(-1).long() * rows

        def visible(at: slice) -> torch.Tensor:
            picked = _chosen(blocks_of[..., at, :], blocks).repeat_interleave(block_size, -1)[..., :length]
            if first is None:
                return picked
            seen = causal_window_mask(at.stop - at.start, length, True, None, q.device, first + at.start)
            return picked & seen.reshape(*seen.shape[:-2], 1, 1, *seen.shape[-2:])

        return _over_chosen(q, k, v, visible, None, factor, math.prod(blocks_of.shape[:-2]))

    pairs: dict[int, list[tuple[int, int | None]]] = {
        0: [(0, 0), (1, 0), (2, 0), (3, 0)],
        1: [(0, 1), (1, 1), (2, 1), (3, 1)],
        2: [(0, 2), (3, 2), (4, 0)] if chunk_start_idx is not None else [(0, 2), (3, 2)],
    }
    rule = split_with_key_heads(rules.along(dict(pairs)), 1)
    cost = matmul_cost(2 * indices.shape[3] * block_size)
    return Local(compute, rule, dtypes=(q.dtype,), memory_config=DRAM_MEMORY_CONFIG, cost=cost)


def _check_blocks(q: Operand, k: Operand, v: Operand, indices: Operand, size: int) -> None:
    check_four_dims(_BLOCKS, q, k, v, indices)
    if k.shape != v.shape or k.shape[3] != q.shape[3]:
        raise MeshError(
            f"{_BLOCKS}: k {list(k.shape)} and v {list(v.shape)} must be alike, and as wide as q {list(q.shape)}."
        )
    check_groups(_BLOCKS, q.shape[1], k.shape[1])
    if indices.is_float or indices.layout is not Layout.ROW_MAJOR or indices.shape[1:3] != (k.shape[1], q.shape[2]):
        raise MeshError(
            f"{_BLOCKS}: indices {list(indices.shape)} {indices.dtype}, {indices.layout} must be [b, {k.shape[1]}, "
            f"{q.shape[2]}, n] of integers in ROW_MAJOR layout: blocks for each key head and query."
        )
    if size < 1:
        raise MeshError(f"{_BLOCKS}: block_size={size} must be at least 1.")
