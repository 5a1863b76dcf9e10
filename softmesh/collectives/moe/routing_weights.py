"""Routing weights of a mixture of experts, remapped to what each device needs. Nothing is sent."""

from __future__ import annotations

import torch

from softmesh.collectives.collective_operation import NOTHING_IS_SENT
from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group, local_placement
from softmesh.collectives.moe.expert_mapping import OneHotExpertMapping, distinct_placement, own_experts
from softmesh.collectives.moe.routing_notes import warn_of_other_routing
from softmesh.collectives.overload_signatures import overloaded_collective
from softmesh.collectives.ttnn_collectives import checked_axis
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.operand_checks import check_four_dims
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import DataType, Layout


@overloaded_collective(
    "moe_routing_remap",
    "routing_weights_tensor non_zero_weight_size:int expert_parallel_size:int cluster_axis | memory_config? "
    "optional_output_tensor?",
    kind=Kind.ROUTING,
    rule=local_placement,
    output="optional_output_tensor",
    **NOTHING_IS_SENT,
)
def moe_routing_remap(
    routing_weights_tensor: Operand, non_zero_weight_size: int, expert_parallel_size: int, cluster_axis: int
) -> CollectiveSpec:
    """Of the weights that are not zero, member g keeps the g-th run; all others become 0."""
    op = "moe_routing_remap"
    if expert_parallel_size < 1:
        raise MeshError(f"expert parallel size must be non-zero: {op} got {expert_parallel_size}.")
    if non_zero_weight_size < 1:
        raise MeshError(f"Number of non zero weights must be non-zero: {op} got {non_zero_weight_size}.")
    if non_zero_weight_size % expert_parallel_size:
        raise MeshError(
            f"Number of non zero weights {non_zero_weight_size} must be evenly divisible by expert parallel size: "
            f"{op} got expert_parallel_size={expert_parallel_size}."
        )
    share = non_zero_weight_size // expert_parallel_size
    rank = routing_weights_tensor.rank

    def move(group: Group) -> GroupComputation:
        if group.size != expert_parallel_size:
            raise MeshError(
                f"expert parallel size {expert_parallel_size} should be the same as size of cluster axis: axis "
                f"{cluster_axis} has {group.size} devices."
            )
        extents = [n if axis in group.axes else 1 for axis, n in enumerate(group.dist.grid)]
        members = torch.arange(group.size).reshape(*extents, *(1,) * rank)

        def compute(weights: torch.Tensor) -> torch.Tensor:
            lead = group.lead
            is_set = weights != 0
            number = is_set.flatten(lead).cumsum(-1).reshape(weights.shape) - 1
            mine = is_set & (number // share == members.to(weights.device))
            return torch.where(mine, weights, weights.new_zeros(()))

        return GroupComputation(compute, (local_placement(group),), topology_of(group.dist))

    return CollectiveSpec(checked_axis(op, cluster_axis), move, needs_fabric=False)


def _remap_outputs(arguments: dict[str, object]) -> list[object] | None:
    """TT-NN names the two outputs one by one."""
    outputs = [
        arguments.get("optional_output_mapping_tensor"),
        arguments.get("optional_output_reduced_tensor"),
    ]
    if all(output is None for output in outputs):
        return None
    if None in outputs:
        raise MeshError(
            "moe_expert_token_remap: give both optional_output_mapping_tensor and optional_output_reduced_tensor, "
            "or neither."
        )
    return outputs


@overloaded_collective(
    "moe_expert_token_remap",
    "topk_tensor expert_mapping_tensor expert_metadata_tensor | memory_config? optional_output_mapping_tensor? "
    "optional_output_reduced_tensor? reduction_size?",
    kind=Kind.ROUTING,
    output=_remap_outputs,
    writes="optional_output_mapping_tensor optional_output_reduced_tensor",
    present=warn_of_other_routing,
    **NOTHING_IS_SENT,
    results="list[Tensor]",
)
def moe_expert_token_remap(
    topk_tensor: Operand,
    expert_mapping_tensor: Operand,
    expert_metadata_tensor: Operand,
    *,
    reduction_size: int = 16,
) -> CollectiveSpec:
    """[weights of this device's experts, 0 where not chosen; which runs of `reduction_size` tokens have any]."""
    op = "moe_expert_token_remap"
    if reduction_size < 1:
        raise MeshError(f"{op}: reduction_size must be 1 or more, got {reduction_size}.")
    check_four_dims(op, topk_tensor, expert_mapping_tensor, expert_metadata_tensor)
    experts = expert_mapping_tensor.shape[2]
    if topk_tensor.shape[-1] != experts or topk_tensor.shape[1:3] != expert_metadata_tensor.shape[1:3]:
        raise MeshError(
            f"{op}: topk_tensor {list(topk_tensor.shape)} must be [1, batch, sequence, {experts} experts], with the "
            f"batch and sequence of expert_metadata_tensor {list(expert_metadata_tensor.shape)}."
        )

    def move(group: Group) -> GroupComputation:
        dist, lead = group.dist, group.lead
        homes = OneHotExpertMapping(op, group, expert_mapping_tensor.shape)

        def compute(weights: torch.Tensor, mapping: torch.Tensor, metadata: torch.Tensor) -> list[torch.Tensor]:
            own = own_experts(homes.own(mapping), homes.experts_per_device)
            numbers, is_own = (part.reshape(*dist.grid, 1, 1, 1, -1) for part in own)  # (*grid, 1, 1, 1, E/D)
            is_chosen = (metadata.unsqueeze(-1) == numbers.unsqueeze(-2)).any(-2) & is_own
            shape = broadcast_shapes(is_chosen.shape, (*dist.grid, *weights.shape[lead:-1], 1))
            held = weights.expand(*dist.grid, *weights.shape[lead:])
            kept = held.gather(-1, numbers.expand(*shape)) * is_chosen
            return [kept, _any_in_runs(kept, lead, reduction_size)]

        return GroupComputation(compute, (distinct_placement(group), distinct_placement(group)), topology_of(dist))

    return CollectiveSpec(
        None,
        move,
        needs_fabric=False,
        dtypes=(topk_tensor.dtype, DataType.UINT16),
        layouts=(topk_tensor.layout, Layout.ROW_MAJOR),
    )


def _any_in_runs(weights: torch.Tensor, lead: int, run: int) -> torch.Tensor:
    """(*grid, 1, runs, experts): whether any of `run` tokens in a row has a weight."""
    is_set = (weights != 0).flatten(lead, -2)
    tokens = is_set.shape[-2]
    filled = torch.nn.functional.pad(is_set, (0, 0, 0, -tokens % run))
    runs = filled.unflatten(-2, (-1, run)).any(-2)
    return runs.reshape(*runs.shape[:lead], 1, 1, *runs.shape[lead:]).to(torch.int32)
