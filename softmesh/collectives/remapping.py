"""The routing weights of a mixture of experts, cut down to what each device needs. Nothing is sent."""

from __future__ import annotations

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.collectives.across import Across, Moved
from softmesh.collectives.collective import NOTHING_IS_SENT
from softmesh.collectives.core import checked_axis
from softmesh.collectives.groups import Group
from softmesh.collectives.labels import keeping
from softmesh.collectives.mapping import ExpertHomes, apart, own_experts
from softmesh.collectives.spelling import spelled
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.placement.topology import topology_of
from softmesh.tensor.dtype import DataType, Layout


@spelled(
    "moe_routing_remap",
    "routing_weights_tensor non_zero_weight_size:int expert_parallel_size:int cluster_axis | memory_config? "
    "optional_output_tensor?",
    output="optional_output_tensor",
    **NOTHING_IS_SENT,
)
def moe_routing_remap(
    routing_weights_tensor: Operand, non_zero_weight_size: int, expert_parallel_size: int, cluster_axis: int
) -> Across:
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

    def move(group: Group) -> Moved:
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

        return Moved(compute, (keeping(group),), topology_of(group.dist))

    return Across(checked_axis(op, cluster_axis), move, needs_fabric=False)


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


@spelled(
    "moe_expert_token_remap",
    "topk_tensor expert_mapping_tensor expert_metadata_tensor | memory_config? optional_output_mapping_tensor? "
    "optional_output_reduced_tensor? reduction_size?",
    output=_remap_outputs,
    **NOTHING_IS_SENT,
)
def moe_expert_token_remap(
    topk_tensor: Operand,
    expert_mapping_tensor: Operand,
    expert_metadata_tensor: Operand,
    *,
    reduction_size: int = 16,
) -> Across:
    """[weights of this device's experts, 0 where not chosen; which runs of `reduction_size` tokens have any]."""
    op = "moe_expert_token_remap"
    if reduction_size < 1:
        raise MeshError(f"{op}: reduction_size must be 1 or more, got {reduction_size}.")
    for operand in (topk_tensor, expert_mapping_tensor, expert_metadata_tensor):
        if operand.rank != 4:
            raise MeshError(f"{op}: {operand.name} must have 4 dims, got {list(operand.shape)}.")
    experts = expert_mapping_tensor.shape[2]
    if topk_tensor.shape[-1] != experts or topk_tensor.shape[1:3] != expert_metadata_tensor.shape[1:3]:
        raise MeshError(
            f"{op}: topk_tensor {list(topk_tensor.shape)} must be [1, batch, sequence, {experts} experts], with the "
            f"batch and sequence of expert_metadata_tensor {list(expert_metadata_tensor.shape)}."
        )

    def move(group: Group) -> Moved:
        dist, lead = group.dist, group.lead
        homes = ExpertHomes(op, group, expert_mapping_tensor.shape)

        def compute(
            weights: torch.Tensor, mapping: torch.Tensor, metadata: torch.Tensor
        ) -> list[torch.Tensor]:
            own = own_experts(homes.own(mapping), homes.experts_per_device)
            numbers, is_own = (part.reshape(*dist.grid, 1, 1, 1, -1) for part in own)  # (*grid, 1, 1, 1, E/D)
            is_chosen = (metadata.unsqueeze(-1) == numbers.unsqueeze(-2)).any(-2) & is_own
            shape = broadcast_shapes(is_chosen.shape, (*dist.grid, *weights.shape[lead:-1], 1))
            held = weights.expand(*dist.grid, *weights.shape[lead:])
            kept = held.gather(-1, numbers.expand(*shape)) * is_chosen
            return [kept, _any_in_runs(kept, lead, reduction_size)]

        return Moved(compute, (apart(group), apart(group)), topology_of(dist))

    return Across(
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
