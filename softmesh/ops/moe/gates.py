"""Gates: which experts a token goes to, and with what weight.

Equal scores come in torch's order; TT-NN's order among equals is not documented.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from softmesh.broadcasting import broadcast_shapes
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local, check_broadcast
from softmesh.errors import MeshError
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType

_COST = flops_per_element(8)
EPSILON = 9.999999682655225e-21  # 1e-20 as float32 has it


@operation("moe", cost=_COST, controls="memory_config output_tensor", needs_tile=True)
def moe(input_tensor: Operand, expert_mask_tensor: Operand, topk_mask_tensor: Operand, k: int = 32) -> Local:
    """The weight of expert 0, [..., 1]: 0 where it is not among the best.

    Scores plus the first mask, the `k` best of them, plus the second mask, softmax, and of that the share of
    expert 0.
    """
    width = input_tensor.shape[-1] if input_tensor.rank else 0
    if not 1 <= k <= width:
        raise MeshError(f"moe: k={k} must be between 1 and {width}, the number of experts of input_tensor.")
    check_broadcast(
        "moe", [("input_tensor", input_tensor.shape), ("expert_mask_tensor", expert_mask_tensor.shape)]
    )
    if topk_mask_tensor.shape[-1:] != (k,):
        raise MeshError(f"moe: topk_mask_tensor {list(topk_mask_tensor.shape)} must have k={k} columns.")

    def compute(scores: torch.Tensor, mask: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
        best = (scores + mask).topk(k, -1)
        shares = torch.softmax(best.values + among, -1)
        return (shares * (best.indices == 0)).sum(-1, keepdim=True)

    rank = max(operand.rank for operand in (input_tensor, expert_mask_tensor, topk_mask_tensor))
    return Local(compute, rules.within(-1), broadcast_rank=rank)


class Grouping(NamedTuple):
    """Only the `kept` groups whose best `counted` scores add up highest have a say."""

    groups: int
    counted: int
    kept: int


def check_grouping(op: str, experts: int, grouping: Grouping, chosen: int) -> None:
    groups, counted, kept = grouping
    if groups < 1 or experts % groups:
        raise MeshError(f"{op}: {experts} experts cannot form {groups} groups of one size.")
    size = experts // groups
    if not 1 <= counted <= size or not 1 <= kept <= groups or not 1 <= chosen <= kept * size:
        raise MeshError(
            f"{op}: of {groups} groups of {size} experts, {kept} groups by the sum of their best {counted}, and of "
            f"those {chosen} experts cannot be taken."
        )


def within_best_groups(scores: torch.Tensor, grouping: Grouping) -> torch.Tensor:
    """The scores (..., experts), minus infinity in the other groups."""
    apart = scores.unflatten(-1, (grouping.groups, -1))
    strength = apart.topk(grouping.counted, -1).values.sum(-1)
    best = strength.topk(grouping.kept, -1).indices
    is_out = torch.ones_like(strength, dtype=torch.bool).scatter(-1, best, False)
    return apart.masked_fill(is_out.unsqueeze(-1), -torch.inf).flatten(-2)


def normalized(weights: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
    return weights / (weights.sum(-1, keepdim=True) + eps) * scale


@operation("experimental.deepseek_grouped_gate", cost=_COST, controls="memory_config", needs_tile=True)
def deepseek_grouped_gate(
    scores: Operand,
    bias: Operand,
    *,
    n_groups: int = 8,
    summed_experts_per_group: int = 2,
    topk_groups: int = 4,
    n_activated_experts: int = 8,
    route_scale: float = 1.0,
    epsilon: float = EPSILON,
) -> Local:
    """[weights, indices (uint16)] of the chosen experts: by sigmoid plus bias; the weights are the sigmoids' shares."""
    op = "experimental.deepseek_grouped_gate"
    grouping = Grouping(n_groups, summed_experts_per_group, topk_groups)
    check_grouping(op, scores.shape[-1], grouping, n_activated_experts)
    check_broadcast(op, [("scores", scores.shape), ("bias", bias.shape)])

    def compute(x: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        plain = torch.sigmoid(x)
        best = within_best_groups(plain + b, grouping).topk(n_activated_experts, -1).indices
        axes = broadcast_shapes(plain.shape[:-1], best.shape[:-1])
        weights = plain.expand(*axes, plain.shape[-1]).gather(-1, best)
        return [normalized(weights, epsilon, route_scale), best]

    return Local(
        compute,
        rules.within(-1),
        dtypes=(scores.dtype, DataType.UINT16),
        broadcast_rank=max(scores.rank, bias.rank),
    )
