"""all_to_all_dispatch_metadata: tokens to the devices of their experts, with the indices and scores of all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from softmesh.collectives.across import Across, Moved
from softmesh.collectives.core import checked_axis
from softmesh.collectives.experts import check_form
from softmesh.collectives.expressions import gathered
from softmesh.collectives.groups import Group
from softmesh.collectives.mapping import apart
from softmesh.collectives.moe.homes import HomesByView
from softmesh.collectives.spelling import spelled
from softmesh.collectives.undefined import note_written, poison, writing_rows
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.placement.topology import topology_of
from softmesh.tensor.dtype import DataType, Layout

_OP = "experimental.all_to_all_dispatch_metadata"


@spelled(
    _OP,
    "input_tensor expert_indices_tensor expert_scores_tensor expert_mapping_tensor | shared_expert_ids:ints? "
    "cluster_axis? output_tensors? num_links? drain_sync_tilizer_core? worker_mode? dispatch_algorithm? "
    "worker_core_range_set? mux_core_range_set? cross_device_semaphore?",
    controls="",
    output="output_tensors",
    **writing_rows(),
)
def all_to_all_dispatch_metadata(
    input_tensor: Operand,
    expert_indices_tensor: Operand,
    expert_scores_tensor: Operand,
    expert_mapping_tensor: Operand,
    *,
    shared_expert_ids: Sequence[int] | None = None,
    cluster_axis: int | None = None,
    output_tensors: Operand | Sequence[Operand] | None = None,
) -> Across:
    """[tokens, indices, scores] of the group's T tokens: [1, T, hidden], [1, T, K] and [1, T, K].

    Per device the input is [batch, 1, sequence, hidden], with indices and scores [batch, 1, sequence, K]. A row of
    tokens is written where one of its experts lives on the device. `shared_expert_ids` come behind each token's
    own experts, with score 1; how TT-NN tells of them is not documented.
    """
    _check_tokens(input_tensor, expert_indices_tensor, expert_scores_tensor)
    shared = list(shared_expert_ids or ())

    def move(group: Group) -> Moved:
        homes = HomesByView(_OP, group, expert_mapping_tensor)
        together = apart(group, members_share=True)
        compute = partial(_dispatched, group, homes, shared)
        return Moved(compute, (apart(group), together, together), topology_of(group.dist))

    return Across(
        checked_axis(_OP, cluster_axis),
        move,
        dtypes=(input_tensor.dtype, DataType.UINT16, expert_scores_tensor.dtype),
        layouts=(Layout.ROW_MAJOR,) * 3,
    )


def _check_tokens(tokens: Operand, indices: Operand, scores: Operand) -> None:
    check_form(tokens, "Input", DataType.BFLOAT16)
    check_form(indices, "Indices", DataType.UINT16)
    check_form(scores, "Scores")
    if tokens.shape[:-1] != indices.shape[:-1] or indices.shape != scores.shape:
        raise MeshError(
            f"{_OP}: input_tensor {list(tokens.shape)}, expert_indices_tensor {list(indices.shape)} and "
            f"expert_scores_tensor {list(scores.shape)} must agree in all dims but the last, and the indices with the "
            "scores in that too."
        )


def _rows(data: torch.Tensor, group: Group) -> torch.Tensor:
    """The members' rows in order: (*groups, 1, tokens, width)."""
    whole = gathered(data, group, 0)
    return whole.reshape(*whole.shape[: group.lead], 1, -1, whole.shape[-1])


def _dispatched(
    group: Group,
    homes: HomesByView,
    shared: Sequence[int],
    data: torch.Tensor,
    indices: torch.Tensor,
    scores: torch.Tensor,
    mapping: torch.Tensor,
    *kept: torch.Tensor | None,
) -> list[torch.Tensor]:
    rows, told, weights = (_rows(part, group) for part in (data, indices, scores))
    if shared:
        always = torch.tensor(shared, dtype=told.dtype, device=told.device)
        told = torch.cat([told, always.expand(*told.shape[:-1], len(shared))], -1)
        weights = torch.nn.functional.pad(weights, (0, len(shared)), value=1.0)
    home = homes.homes_of(mapping, told.squeeze(-3), "expert_indices_tensor")
    is_here = (home == homes.own(home)[..., None, None]).any(-1, keepdim=True).unsqueeze(group.lead)
    note_written(is_here, group.lead)
    others = rows.new_full((), poison(DataType.BFLOAT16)) if not kept or kept[0] is None else kept[0]
    written = torch.where(is_here, rows, others)
    return [written.expand(*group.dist.grid, *rows.shape[group.lead :]), told, weights]
