"""Runs of rows: of a tensor that all experts of a device share, each has as many rows as tokens chose it.

`start` and `counts` have an entry for every expert of the model; `global_expert_idx_table` says which of them a
device has. The forms are read from TT-NN's names; it does not document them.
"""

from __future__ import annotations

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.placement import rules

_EXTRACT = "experimental.deepseek_prefill.extract"
_INSERT = "experimental.deepseek_prefill.insert"


def _check_lists(op: str, start: Operand, counts: Operand, table: Operand, local: int) -> None:
    for operand in (start, counts, table):
        if operand.is_float:
            raise MeshError(f"{op}: {operand.name} holds integers, got {operand.dtype}.")
    if start.spec.logical_volume() != counts.spec.logical_volume():
        raise MeshError(
            f"{op}: start {list(start.shape)} and counts {list(counts.shape)} must have one length."
        )
    if not 0 <= local < table.spec.logical_volume():
        raise MeshError(
            f"{op}: local_expert_id={local}, and a device has {table.spec.logical_volume()} experts in "
            "global_expert_idx_table."
        )


def _run(
    op: str, start: torch.Tensor, counts: torch.Tensor, table: torch.Tensor, local: int, lead: int, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(*axes, 1) each: the first row of the expert's run, and its length."""
    axes = broadcast_shapes(start.shape[:lead], counts.shape[:lead], table.shape[:lead])
    firsts, lengths = (part.flatten(lead).expand(*axes, -1) for part in (start, counts))
    expert = table.flatten(lead)[..., local : local + 1].long().expand(*axes, 1)
    if expert.numel() and int(expert.max()) >= firsts.shape[-1]:
        raise MeshError(
            f"{op}: the table names expert {int(expert.max())}, and start has {firsts.shape[-1]}."
        )
    first, length = firsts.gather(-1, expert).long(), lengths.gather(-1, expert).long()
    if length.numel() and int(length.max()) > most:
        raise MeshError(f"{op}: an expert has {int(length.max())} tokens, and there is room for {most}.")
    return first, length


@operation(_EXTRACT, cost=moves_bytes, precision="data", controls="")
def extract(
    global_tensor: Operand,
    start: Operand,
    counts: Operand,
    global_expert_idx_table: Operand,
    *,
    local_expert_id: int,
    max_dispatched_tokens_per_expert: int,
) -> Local:
    """The rows of one expert, [..., max_dispatched_tokens_per_expert, hidden]; behind its own, zeros."""
    rows, most = global_tensor.shape[-2], max_dispatched_tokens_per_expert
    _check_lists(_EXTRACT, start, counts, global_expert_idx_table, local_expert_id)
    if most < 1:
        raise MeshError(f"{_EXTRACT}: max_dispatched_tokens_per_expert must be 1 or more, got {most}.")

    def compute(
        x: torch.Tensor, first: torch.Tensor, length: torch.Tensor, table: torch.Tensor
    ) -> torch.Tensor:
        lead = x.dim() - global_tensor.rank
        begin, size = _run(_EXTRACT, first, length, table, local_expert_id, lead, most)
        place = torch.arange(most, device=x.device)
        is_one = place < size
        if bool(((begin + size) > rows).any()):
            raise MeshError(f"{_EXTRACT}: a run of rows leaves the {rows} rows of global_tensor.")
        axes = broadcast_shapes(x.shape[:lead], is_one.shape[:-1])
        middle = (1,) * (global_tensor.rank - 2)
        index = torch.where(is_one, begin + place, 0).expand(*axes, most).reshape(*axes, *middle, most, 1)
        held = x.expand(*axes, *x.shape[lead:])
        found = held.gather(-2, index.expand(*held.shape[:-2], most, held.shape[-1]))
        return torch.where(is_one.expand(*axes, most).reshape(index.shape), found, found.new_zeros(()))

    return Local(compute, rules.opaque)


@operation(_INSERT, cost=moves_bytes, precision="data", controls="", writes="global_tensor")
def insert(
    global_tensor: Operand,
    local_tensor: Operand,
    start: Operand,
    counts: Operand,
    global_expert_idx_table: Operand,
    *,
    local_expert_id: int,
) -> Local:
    """Write the rows of one expert back into `global_tensor`, which is returned."""
    rows, room = global_tensor.shape[-2], local_tensor.shape[-2]
    _check_lists(_INSERT, start, counts, global_expert_idx_table, local_expert_id)
    if global_tensor.rank != local_tensor.rank or (
        (*global_tensor.shape[:-2], global_tensor.shape[-1])
        != (*local_tensor.shape[:-2], local_tensor.shape[-1])
    ):
        raise MeshError(
            f"{_INSERT}: local_tensor {list(local_tensor.shape)} and global_tensor {list(global_tensor.shape)} must "
            "agree in all dims but the rows."
        )

    def compute(
        x: torch.Tensor, own: torch.Tensor, first: torch.Tensor, length: torch.Tensor, table: torch.Tensor
    ) -> torch.Tensor:
        lead = x.dim() - global_tensor.rank
        begin, size = _run(_INSERT, first, length, table, local_expert_id, lead, room)
        place = torch.arange(rows, device=x.device) - begin
        is_one = (place >= 0) & (place < size)
        middle = (1,) * (global_tensor.rank - 2)
        shape = (*x.shape[:lead], *middle, rows, 1)
        where = is_one.expand(*x.shape[:lead], rows).reshape(shape)
        index = torch.where(where, place.expand(*x.shape[:lead], rows).reshape(shape), 0)
        given = own.expand(*x.shape[:lead], *own.shape[lead:]).gather(-2, index.expand(x.shape))
        return x.copy_(torch.where(where, given.to(x.dtype), x))

    return Local(compute, rules.opaque)
