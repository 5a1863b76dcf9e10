"""Choosing the keys of sparse attention: cheap scores of all keys, and the places of the best."""

from __future__ import annotations

import torch

from softmesh.dispatch.cost_rules import flops_per_element, matmul_cost
from softmesh.dispatch.mesh_axes import with_mesh_axes
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError, NotModelled
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.ops.attention.checks import check_ints
from softmesh.ops.attention.kernel import band
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType, Layout

SCORE = "experimental.indexer_score_dsa"
_TOPK = "experimental.topk_large_indices"
_HIDDEN = float("-inf")
_NOTHING = 2**32 - 1  # the index of no key
Data = torch.Tensor | None


@operation(SCORE, controls="", tuning="program_config compute_kernel_config", rearrange=with_mesh_axes)
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
        keys = k if batch is None else k.narrow(-4, batch, 1)
        own = weights if by_head else weights.transpose(-3, -1)
        scores = (torch.relu(q @ keys.transpose(-2, -1)) * own).sum(-3, keepdim=True)
        if start is not None:
            first = start if place is None else start + place.squeeze(-1).long() * rows
            seen = band(rows, length, True, None, q.device, first)
            scores = scores.masked_fill(~seen.reshape(*seen.shape[:-2], 1, 1, rows, length), _HIDDEN)
        if valid is not None:
            scores = scores.masked_fill(torch.arange(length, device=q.device) >= valid, _HIDDEN)
        return scores

    row_pairs = [(0, 2), (2, 2), *([(3, 0)] if chunk_start_idx is not None else [])]
    rule = rules.along(
        {0: [(0, 0), (1, 0), (2, 0)], 2: row_pairs, 3: [] if chunk_start_idx is not None else [(1, 2)]}
    )
    return Local(compute, rule, memory_config=DRAM_MEMORY_CONFIG, cost=matmul_cost(q.shape[3] * heads))


def _check_score(q: Operand, k: Operand, weights: Operand) -> None:
    for operand in (q, k, weights):
        if operand.rank != 4:
            raise MeshError(f"{SCORE}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
    heads, rows = q.shape[1:3]
    if k.shape[1] != 1 or k.shape[3] != q.shape[3]:
        raise MeshError(
            f"{SCORE}: k {list(k.shape)} must be [b, 1, length, {q.shape[3]}] for q {list(q.shape)}."
        )
    if weights.shape[1:] not in ((1, rows, heads), (heads, rows, 1)):
        raise MeshError(
            f"{SCORE}: weights {list(weights.shape)} must be [b, 1, {rows}, {heads}], a weight for each query and head."
        )


@operation(
    _TOPK, cost=flops_per_element(8), precision="data", controls="", tuning="subdevice_id sub_core_grids"
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

    def rule(at: rules.Situation) -> rules.Placement:
        own_lengths = at.words[1] not in (None, rules.REPLICATE)
        return rules.opaque(at) if own_lengths else rules.among(at, (0,), rules.within(-1))

    return Local(compute, rule, dtypes=(DataType.UINT32,), layouts=(Layout.ROW_MAJOR,))
