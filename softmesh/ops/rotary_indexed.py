"""A rotary embedding for a chunk of a sequence that the devices of a mesh axis hold in turn."""

from __future__ import annotations

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.mesh_axes import with_mesh_axes
from softmesh.dispatch.operand import Operand, Value
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.ops.padded_cache import Number, global_rows
from softmesh.ops.rotary import turned
from softmesh.ops.rotary_operands import check_matrix
from softmesh.placement import rules
from softmesh.tensor.dtype import TILE_SIZE

_INDEXED = "experimental.deepseek_prefill.rotary_embedding_indexed"
Data = torch.Tensor | None


@operation(
    _INDEXED,
    cost=flops_per_element(4),
    precision="data",
    controls="memory_config",
    tuning="compute_kernel_config",
    positional="cluster_axis memory_config compute_kernel_config seq_subshard_axis rotary_dim rotary_offset "
    "concat_prefix",
    rearrange=with_mesh_axes,
)
def rotary_embedding_indexed(
    input: Operand,
    cos: Operand,
    sin: Operand,
    trans_mat: Operand,
    kv_actual_global: Value,
    *,
    place: Operand | None = None,
    concat_prefix: Operand | None = None,
    cluster_axis: int,
    seq_subshard_axis: int | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    devices: int = 1,
) -> Local:
    """rotary_embedding_llama of rows [b, heads, s, width], by each row's position in the whole sequence.

    The chunk begins at position `kv_actual_global`, and the devices along `cluster_axis` hold its rows one after the
    other; the caches [1, 1, length, width] hold a row for every position. Only `rotary_dim` columns from
    `rotary_offset` on are turned; `concat_prefix` goes in front of the result's columns.
    """
    width = _check(input, cos, sin, rotary_dim, rotary_offset)
    check_matrix(_INDEXED, trans_mat, 1)
    if concat_prefix is not None and concat_prefix.shape[:-1] != input.shape[:-1]:
        raise MeshError(
            f"{_INDEXED}: concat_prefix {list(concat_prefix.shape)} must have the rows of input {list(input.shape)}."
        )
    rows, length = input.shape[2], cos.shape[2]

    def compute(
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        matrix: torch.Tensor,
        start: Number,
        place: Data,
        prefix: Data,
    ) -> torch.Tensor:
        where = torch.zeros(1, device=x.device) if place is None else place
        position, _ = global_rows(_INDEXED, start, where, devices, rows)
        if int(position.max()) >= length:
            raise MeshError(
                f"{_INDEXED}: position {int(position.max())} lies outside the {length} rows of the caches on each "
                "device."
            )
        own_cos, own_sin = (_rows(cache, position) for cache in (cos, sin))
        part = x.narrow(-1, rotary_offset, width)
        result = turned(part, own_cos, own_sin, matrix[..., :TILE_SIZE, :].unsqueeze(-3))
        whole = _replaced(x, result, rotary_offset)
        return whole if prefix is None else _beside(prefix, whole)

    def rule(at: rules.Situation) -> rules.Placement:
        """Along the axis of the sequence rows are split, along others batch or heads, beside whole tables."""
        rules.refuse_partial(at)
        word, tables, start, own_place, prefix = at.word, at.words[1:4], *at.words[4:]
        is_along = isinstance(own_place, rules.Shard)
        known = word is rules.Shard(2) if is_along else word in (rules.Shard(0), rules.Shard(1))
        shared = all(other in (None, rules.REPLICATE) for other in (*tables, start))
        return word if known and shared and prefix in (None, word) else rules.LOCAL

    return Local(compute, rule)


def _check(x: Operand, cos: Operand, sin: Operand, dim: int | None, offset: int) -> int:
    """How many columns are turned."""
    for operand in (x, cos, sin):
        if operand.rank != 4:
            raise MeshError(f"{_INDEXED}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
    width = x.shape[3] - offset if dim is None else dim
    if offset < 0 or width < 1 or offset + width > x.shape[3] or width % TILE_SIZE:
        raise MeshError(
            f"{_INDEXED}: rotary_dim={dim} columns from rotary_offset={offset} on must lie within input "
            f"{list(x.shape)}, a multiple of {TILE_SIZE}."
        )
    if cos.shape != sin.shape or cos.shape[:2] != (1, 1) or cos.shape[3] != width:
        raise MeshError(
            f"{_INDEXED}: cos {list(cos.shape)} and sin {list(sin.shape)} must be [1, 1, length, {width}]."
        )
    return width


def _rows(cache: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """(*axes, 1, 1, rows, width) of (*axes, 1, 1, length, width), by (*axes, rows)."""
    index = position.reshape(*position.shape[:-1], 1, 1, position.shape[-1], 1)
    index = index.reshape(*(1,) * (cache.dim() - index.dim()), *index.shape)
    return torch.take_along_dim(cache, index, -2)


def _replaced(x: torch.Tensor, part: torch.Tensor, offset: int) -> torch.Tensor:
    if part.shape[-1] == x.shape[-1]:
        return part
    after = offset + part.shape[-1]
    wide = x.float().expand(*part.shape[:-1], x.shape[-1])
    return torch.cat([wide[..., :offset], part, wide[..., after:]], -1)


def _beside(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    shape = broadcast_shapes(a.shape[:-1], b.shape[:-1])
    return torch.cat([x.float().expand(*shape, x.shape[-1]) for x in (a, b)], -1)
