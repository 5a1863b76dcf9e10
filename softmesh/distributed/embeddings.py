"""Rows of a table by their numbers. A table split by rows: each device looks up what it has, and the rest is zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import OPERATIONS
from softmesh.dispatch.plan import Local
from softmesh.distributed.elementwise import memory_seconds
from softmesh.distributed.given import Given
from softmesh.distributed.layouts import Extents
from softmesh.distributed.own_ops import own_operation
from softmesh.distributed.patterns import Split, by_labels
from softmesh.distributed.planned import Work
from softmesh.distributed.unified import Unified
from softmesh.errors import MeshError
from softmesh.ops.embedding import EmbeddingsType, look_up
from softmesh.placement import rules
from softmesh.tensor.dtype import Layout


def blocks_along(axes: Sequence[int], lead: Sequence[int], device: torch.device) -> torch.Tensor:
    """The number of each device's block of a dim that `axes` of the leading extents split, the first outermost."""
    number = torch.zeros([1] * len(lead), dtype=torch.long, device=device)
    for axis in axes:
        along = torch.arange(lead[axis], device=device)
        number = number * lead[axis] + along.reshape([-1 if at == axis else 1 for at in range(len(lead))])
    return number


@own_operation("embedding_of_rows", cost=moves_bytes, precision="data", controls="dtype memory_config")
def embedding_of_rows(
    input_tensor: Operand,
    weight: Operand,
    axes: Sequence[int],
    whole: int,
    *,
    padding_idx: int | None = None,
    layout: Layout | None = None,
    embeddings_type: EmbeddingsType = EmbeddingsType.GENERIC,
) -> Local:
    """Each device's share of a look-up in a table of `whole` rows that is split by rows along `axes`."""
    plain = OPERATIONS["embedding"].definition.define(
        input_tensor, weight, padding_idx=padding_idx, layout=layout, embeddings_type=embeddings_type
    )
    rank, table_rank, rows = input_tensor.rank, weight.rank, weight.shape[-2]

    def compute(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        if ids.numel() and int(ids.max()) >= whole:
            raise MeshError(f"embedding: index {int(ids.max())} is outside the table of {whole} rows.")
        lead = table.shape[: table.dim() - table_rank]
        first = blocks_along(axes, lead, ids.device) * rows
        local = ids.long() - first.reshape(*first.shape, *[1] * rank)
        own = (local >= 0) & (local < rows)
        picked = look_up(local.where(own, 0), table.reshape(*lead, *table.shape[-2:]), rank)
        return picked * own.unsqueeze(-1)

    def rule(at: rules.Situation) -> rules.Placement | Sequence[rules.Placement]:
        ids, table = at.words
        if isinstance(table, rules.Shard) and table.dim == table_rank - 2 and ids is rules.REPLICATE:
            return rules.Partial("sum")
        return plain.rule(at)

    return Local(compute, rule, plain.dtypes, plain.layouts, plain.memory_config)


def describe_embedding(given: Given) -> Work:
    ids, table = given.operands
    tokens = tuple(f"dim {dim} of the indices" for dim in range(ids.rank))
    of_table = (*(None,) * (table.rank - 2), "rows", "width")
    labels = (*tokens, "width") if given.is_spread else (*tokens, "width", "rows")
    choices = by_labels([tokens, of_table], (*tokens, "width"), labels, names=given.spoken)
    plain, whole = given.plain(), table.shape[-2]

    def call(split: Split) -> Callable[..., Any]:
        axes = split.axes("split rows")
        if not axes:
            return plain
        return given.plain(embedding_of_rows, axes=axes, whole=whole)

    return Work(choices, memory_seconds(given), call)


def _shape_of(local: Local, arguments: dict[str, Any], operands: Sequence[Operand]) -> Extents:
    ids, table = operands
    return (*ids.shape, table.shape[-1])


embedding = Unified("embedding", describe_embedding, _shape_of)
