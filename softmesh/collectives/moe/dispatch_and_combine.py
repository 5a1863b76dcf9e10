"""Token dispatch and combine of a mixture of experts: tokens to the devices of their experts, the answers back.

all_to_all_dispatch, all_to_all_combine, and all_to_all_dispatch_metadata, which sends indices and scores of all along.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group
from softmesh.collectives.moe.expert_mapping import (
    OneHotExpertMapping,
    PerDeviceExpertMapping,
    check_known,
    distinct_placement,
)
from softmesh.collectives.moe.routing_notes import note_routing, warn_of_other_routing
from softmesh.collectives.overload_signatures import overloaded_collective
from softmesh.collectives.torch_expressions import dealt, gathered, picked
from softmesh.collectives.ttnn_collectives import checked_axis
from softmesh.collectives.undefined_results import note_written, poison, writing_rows
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.embedding.embedding import rows_of_each
from softmesh.ops.operand_checks import check_four_dims
from softmesh.placement.distribution import Extents
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.dtype import DataType, Layout

# all_to_all_dispatch and all_to_all_combine. A token names its K experts by number; the mapping (1, 1, E, D) says on
# which device of the mesh each expert lives. All of it is a gather inside the group and a look-up: nothing loops over
# devices.


def check_form(operand: Operand, what: str, dtype: DataType | None = None) -> None:
    """Experts take rows, and each argument one dtype."""
    if operand.layout is not Layout.ROW_MAJOR:
        raise MeshError(
            f"{what} tensor must be in row major layout: {operand.op} got {operand.layout} for {operand.name}. "
            "Use ttnn.to_layout(tensor, ttnn.ROW_MAJOR_LAYOUT)."
        )
    if dtype is not None and operand.dtype is not dtype:
        raise MeshError(
            f"{what} tensor must be {dtype.name.lower()}: {operand.op} got {operand.dtype} for {operand.name}. "
            f"Use ttnn.typecast(tensor, ttnn.{dtype.name.lower()})."
        )
    check_four_dims(operand.op, operand)


def _check_dim(op: str, name: str, dim: int | None) -> int:
    if dim not in (1, 2):
        raise MeshError(f"{name} dimension must be 1 or 2, got {dim}: {op} deals tokens by batch (1) or row (2).")
    return dim


@overloaded_collective(
    "all_to_all_dispatch",
    "input_tensor expert_indices_tensor expert_mapping_tensor | cluster_axis? output_tensors? num_links? topology? "
    "memory_config? subdevice_id? output_concat_dim?",
    kind=Kind.ALL_TO_ALL,
    output="output_tensors",
    patches="output_tensors",
    **writing_rows(),
    results="list[Tensor]",
    present=note_routing,
)
def all_to_all_dispatch(
    input_tensor: Operand,
    expert_indices_tensor: Operand,
    expert_mapping_tensor: Operand,
    *,
    cluster_axis: int | None = None,
    output_concat_dim: int | None = 1,
    output_tensors: Operand | Sequence[Operand] | None = None,
) -> CollectiveSpec:
    """[tokens, metadata]: on each device the rows of the group's tokens that have an expert there."""
    op = "all_to_all_dispatch"
    along = _check_dim(op, "Output concat", output_concat_dim)
    _check_tokens(op, input_tensor, expert_indices_tensor)
    check_form(expert_mapping_tensor, "Mapping", DataType.UINT16)
    joined = 0 if along == 1 else 2  # the batch moves from dim 0 to dim 1 on the way

    def move(group: Group) -> GroupComputation:
        homes = OneHotExpertMapping(op, group, expert_mapping_tensor.shape)
        shared = distinct_placement(group, members_share=True)
        compute = partial(_dispatched, group, homes, shared.extents, joined)
        return GroupComputation(compute, (distinct_placement(group), shared), topology_of(group.dist))

    return CollectiveSpec(
        checked_axis(op, cluster_axis),
        move,
        names_a_device=True,
        dtypes=(DataType.BFLOAT16, DataType.UINT16),
        layouts=(Layout.ROW_MAJOR, Layout.ROW_MAJOR),
    )


def _check_tokens(op: str, tokens: Operand, indices: Operand) -> None:
    check_form(tokens, "Input", DataType.BFLOAT16)
    check_form(indices, "Indices", DataType.UINT16)
    if tokens.shape[:-1] != indices.shape[:-1]:
        raise MeshError(
            "Input and indices tensor must have the same shape for all dimensions except the last. "
            f"{op} got {list(tokens.shape)} and {list(indices.shape)}."
        )
    if tokens.shape[1] != 1:
        raise MeshError(f"{op}: input_tensor must be [batch, 1, sequence, hidden], got {list(tokens.shape)}.")


def _dispatched(
    group: Group,
    homes: OneHotExpertMapping,
    shared: Extents,
    joined: int,
    data: torch.Tensor,
    chosen: torch.Tensor,
    mapping: torch.Tensor,
    *kept: torch.Tensor | None,
) -> list[torch.Tensor]:
    """The rows, where not written those of `kept` or else the filler; and the metadata."""
    check_known(homes.op, chosen, "expert_indices_tensor", "expert_mapping_tensor", homes.experts)
    homes.warn_unplaced(chosen, mapping)
    lead = group.lead
    rows = gathered(data, group, joined).transpose(lead, lead + 1)
    told = gathered(chosen, group, joined).transpose(lead, lead + 1)
    metadata = told.expand(*shared, *told.shape[lead:])
    is_here = homes.is_own(mapping, metadata).any(-1, keepdim=True)
    note_written(is_here, lead)
    others = rows.new_full((), poison(DataType.BFLOAT16)) if not kept or kept[0] is None else kept[0]
    return [torch.where(is_here, rows, others).expand(*group.dist.grid, *rows.shape[lead:]), metadata]


@overloaded_collective(
    "all_to_all_combine",
    "input_tensor expert_metadata_tensor expert_mapping_tensor | local_reduce? output_shard_dim? cluster_axis? "
    "subdevice_id? memory_config? output_tensor? num_links? topology?",
    kind=Kind.ALL_TO_ALL,
    output="output_tensor",
    patches="output_tensor",
    **writing_rows(picks=True, on_zeros=True),
    present=warn_of_other_routing,
)
def all_to_all_combine(
    input_tensor: Operand,
    expert_metadata_tensor: Operand,
    expert_mapping_tensor: Operand,
    *,
    local_reduce: bool = False,
    output_shard_dim: int | None = 1,
    cluster_axis: int | None = None,
    output_tensor: Operand | None = None,
) -> CollectiveSpec:
    """Slot k of a token, on the device the token came from: what its k-th expert made of it.

    A slot whose expert lives outside of the group is 0, or keeps what `output_tensor` held there.
    """
    op = "all_to_all_combine"
    if cluster_axis is None:
        raise MeshError(f"Axis must be specified at the moment: {op} got cluster_axis=None. Give 0 or 1.")
    along = _check_dim(op, "Output shard", output_shard_dim)
    _check_answers(op, input_tensor, expert_metadata_tensor)
    check_form(expert_mapping_tensor, "Mapping", DataType.UINT16)

    def move(group: Group) -> GroupComputation:
        homes = OneHotExpertMapping(op, group, expert_mapping_tensor.shape)
        _check_slabs(op, input_tensor.shape, 1 if local_reduce else homes.experts_per_device, along, group)
        compute = partial(_combined, group, homes, local_reduce, along)
        return GroupComputation(compute, (distinct_placement(group),), topology_of(group.dist))

    return CollectiveSpec(checked_axis(op, cluster_axis), move, names_a_device=True)


def _check_answers(op: str, answers: Operand, metadata: Operand) -> None:
    check_form(answers, "Input")
    check_form(metadata, "Metadata", DataType.UINT16)
    if answers.shape[1:3] != metadata.shape[1:3]:
        raise MeshError(
            f"{op}: input_tensor {list(answers.shape)} and expert_metadata_tensor {list(metadata.shape)} must agree in "
            "dims 1 and 2: the batch and sequence of the tokens that were dispatched."
        )


def _check_slabs(op: str, slabs: Extents, wanted: int, along: int, group: Group) -> None:
    if slabs[0] != wanted:
        raise MeshError(
            f"{op}: input_tensor {list(slabs)} must have {wanted} slabs in dim 0, one for each expert of a device "
            "(one in all with local_reduce=True)."
        )
    if slabs[along] % group.size:
        raise MeshError(
            f"{op}: dim {along} of input_tensor {list(slabs)} must be a multiple of {group.size}, the devices its "
            "tokens came from."
        )


def _combined(
    group: Group,
    homes: OneHotExpertMapping,
    one_per_device: bool,
    along: int,
    data: torch.Tensor,
    metadata: torch.Tensor,
    mapping: torch.Tensor,
    kept: torch.Tensor | None = None,
) -> torch.Tensor:
    check_known(homes.op, metadata, "expert_metadata_tensor", "expert_mapping_tensor", homes.experts)
    answers = gathered(data, group, 0)
    chosen = picked(metadata, group, (0,) * len(group.axes))
    at, is_there = homes.slabs_of(mapping, chosen, one_per_device)
    tokens = answers.shape[-3] * answers.shape[-2]
    place = torch.arange(tokens, device=at.device).reshape(answers.shape[-3:-1])
    slots = rows_of_each(at * tokens + place, answers.flatten(-4, -2), group.lead)
    written = dealt(is_there.unsqueeze(-1), group, along)
    note_written(written, group.lead)
    others = slots.new_zeros(()) if kept is None else kept
    return torch.where(written, dealt(slots, group, along), others)


_OP = "experimental.all_to_all_dispatch_metadata"


@overloaded_collective(
    _OP,
    "input_tensor expert_indices_tensor expert_scores_tensor expert_mapping_tensor | shared_expert_ids:ints? "
    "cluster_axis? output_tensors? num_links? drain_sync_tilizer_core? worker_mode? dispatch_algorithm? "
    "worker_core_range_set? mux_core_range_set? cross_device_semaphore?",
    kind=Kind.ALL_TO_ALL,
    controls="",
    output="output_tensors",
    patches="output_tensors",
    **writing_rows(),
    results="list[Tensor]",
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
) -> CollectiveSpec:
    """[tokens, indices, scores] of the group's T tokens: [1, T, hidden], [1, T, K] and [1, T, K].

    Per device the input is [batch, 1, sequence, hidden], with indices and scores [batch, 1, sequence, K]. A row of
    tokens is written where one of its experts lives on the device. `shared_expert_ids` come behind each token's
    own experts, with score 1; how TT-NN tells of them is not documented.
    """
    _check_scored_tokens(input_tensor, expert_indices_tensor, expert_scores_tensor)
    shared = list(shared_expert_ids or ())

    def move(group: Group) -> GroupComputation:
        homes = PerDeviceExpertMapping(_OP, group, expert_mapping_tensor)
        together = distinct_placement(group, members_share=True)
        compute = partial(_dispatched_with_metadata, group, homes, shared)
        return GroupComputation(compute, (distinct_placement(group), together, together), topology_of(group.dist))

    return CollectiveSpec(
        checked_axis(_OP, cluster_axis),
        move,
        names_a_device=True,
        dtypes=(input_tensor.dtype, DataType.UINT16, expert_scores_tensor.dtype),
        layouts=(Layout.ROW_MAJOR,) * 3,
    )


def _check_scored_tokens(tokens: Operand, indices: Operand, scores: Operand) -> None:
    check_form(tokens, "Input", DataType.BFLOAT16)
    check_form(indices, "Indices", DataType.UINT16)
    check_form(scores, "Scores")
    if tokens.shape[:-1] != indices.shape[:-1] or indices.shape != scores.shape:
        raise MeshError(
            f"{_OP}: input_tensor {list(tokens.shape)}, expert_indices_tensor {list(indices.shape)} and "
            f"expert_scores_tensor {list(scores.shape)} must agree in all dims but the last, and the indices with the "
            "scores in that too."
        )


def _gathered_rows(data: torch.Tensor, group: Group) -> torch.Tensor:
    """The members' rows in order: (*groups, 1, tokens, width)."""
    whole = gathered(data, group, 0)
    return whole.reshape(*whole.shape[: group.lead], 1, -1, whole.shape[-1])


def _dispatched_with_metadata(
    group: Group,
    homes: PerDeviceExpertMapping,
    shared: Sequence[int],
    data: torch.Tensor,
    indices: torch.Tensor,
    scores: torch.Tensor,
    mapping: torch.Tensor,
    *kept: torch.Tensor | None,
) -> list[torch.Tensor]:
    rows, told, weights = (_gathered_rows(part, group) for part in (data, indices, scores))
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
