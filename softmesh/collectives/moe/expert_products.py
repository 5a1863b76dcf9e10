"""The expert computation of moe_compute: products of a device's experts with the tokens that chose them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group
from softmesh.collectives.moe.expert_mapping import PerDeviceExpertMapping, distinct_placement
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.ops.embedding.embedding import rows_of_each
from softmesh.ops.moe.routed_experts import Gating, MoEActivationFunction, gating
from softmesh.ops.moe.weight_packing import (
    DEFAULT_TILES_PER_TXN,
    TILE,
    W2_TILES_PER_A2A_ITER_W,
    shared_tiles,
    unpacked,
    w0_w1_blocks,
    w0_w1_order,
    w2_order,
    whole_tiles,
)
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.dtype import DataType, Layout

OP = "experimental.moe_compute"
_END_OF_LIST = 0xFFFFFFFF  # ends a list of tokens
_LOW_HALF = 0xFFFF


class Weights(NamedTuple):
    """How to read one layer of packed weights."""

    hidden: int
    inner: int
    cores: int
    layer: int
    has_bias: bool

    def matrices(self, w0_w1: torch.Tensor, w2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(..., experts, hidden (+1), 2 * inner) and (..., experts, inner (+1), hidden)."""
        shares = tuple(shared_tiles(self.inner // TILE, self.cores))
        high, low = self.hidden + self.has_bias, self.inner + self.has_bias
        first, second = (w.select(-5, self.layer).unsqueeze(-5) for w in (w0_w1, w2))
        one = unpacked(first, w0_w1_order(high, self.inner, shares, DEFAULT_TILES_PER_TXN), high, 2 * self.inner)
        two = unpacked(second, w2_order(low, self.hidden, shares, DEFAULT_TILES_PER_TXN), low, self.hidden)
        return one.squeeze(-4), two.squeeze(-4)


def _checked_weights(w0_w1: Operand, w2: Operand, hidden: int, inner: int, layer: int, has_bias: bool) -> Weights:
    for operand in (w0_w1, w2):
        if operand.rank != 6:
            raise MeshError(
                f"{OP}: {operand.name} must be [cores, layers, experts, blocks, rows, 128], as ttnn.experimental."
                f"prepare_w0_w1_tensor_for_moe_compute and prepare_w2_tensor_for_moe_compute make them; got "
                f"{list(operand.shape)}."
            )
    cores, layers, experts = w0_w1.shape[:3]
    if not 0 <= layer < layers:
        raise MeshError(f"{OP}: layer_id={layer}, and the weights have {layers} layers.")
    high, low = whole_tiles(OP, "the hidden size", hidden), whole_tiles(OP, "intermediate_size", inner)
    shares = shared_tiles(low, cores)
    for operand, blocks, tiles in (
        (w0_w1, w0_w1_blocks(shares), high + has_bias),
        (w2, -(-max(shared_tiles(high, cores)) // W2_TILES_PER_A2A_ITER_W), low + has_bias),
    ):
        if operand.shape[:4] != (cores, layers, experts, blocks) or operand.shape[4] < tiles * TILE:
            raise MeshError(
                f"{OP}: {operand.name} {list(operand.shape)} does not hold {layers} layers of {experts} experts of "
                f"hidden size {hidden} and intermediate size {inner}{' with a bias' if has_bias else ''}."
            )
    return Weights(hidden, inner, cores, layer, has_bias)


def expert_products(
    tokens: Operand,
    indices: Operand,
    scores: Operand,
    mapping: Operand,
    w0_w1: Operand,
    w2: Operand,
    *,
    layer_id: int,
    intermediate_size: int,
    has_bias: bool = False,
    cluster_axis: int | None = None,
    activation_type: MoEActivationFunction | None = None,
    activation_limit: float | None = None,
) -> CollectiveSpec:
    count, k = _checked_tokens(tokens, indices, scores)
    weights = _checked_weights(w0_w1, w2, tokens.shape[-1], intermediate_size, layer_id, has_bias)
    gate = gating(OP, activation_type, activation_limit)

    def move(group: Group) -> GroupComputation:
        if count % group.size:
            raise MeshError(f"{OP}: {count} tokens do not come in equal numbers from {group.size} devices.")
        homes = PerDeviceExpertMapping(OP, group, mapping)
        compute = partial(_computed, homes, weights, gate, (count, k, w0_w1.shape[2]))
        return GroupComputation(compute, (distinct_placement(group),) * 5, topology_of(group.dist))

    rows = (Layout.ROW_MAJOR,) * 3
    kinds = (DataType.UINT32,) * 3
    return CollectiveSpec(
        cluster_axis,
        move,
        needs_fabric=False,
        names_a_device=True,
        dtypes=(*kinds, tokens.dtype, tokens.dtype),
        layouts=(*rows, Layout.TILE, Layout.ROW_MAJOR),
    )


def _checked_tokens(tokens: Operand, indices: Operand, scores: Operand) -> tuple[int, int]:
    """How many tokens there are, and how many experts each of them chose."""
    count = tokens.spec.logical_volume() // max(tokens.shape[-1], 1)
    k = indices.shape[-1]
    for operand in (indices, scores):
        if operand.spec.logical_volume() != count * k:
            raise MeshError(
                f"{OP}: {operand.name} {list(operand.shape)} must have a row of {k} for each of the {count} tokens of "
                f"{tokens.name} {list(tokens.shape)}."
            )
    return count, k


class _Choices(NamedTuple):
    """For each device, token and one of its experts: whether the token chose it, in which slot, with what score."""

    is_chosen: torch.Tensor
    slot: torch.Tensor
    score: torch.Tensor


def _computed(
    homes: PerDeviceExpertMapping,
    weights: Weights,
    gate: Gating,
    counts: tuple[int, int, int],
    data: torch.Tensor,
    indices: torch.Tensor,
    scores: torch.Tensor,
    mapping: torch.Tensor,
    w0_w1: torch.Tensor,
    w2: torch.Tensor,
) -> list[torch.Tensor]:
    tokens, k, experts = counts
    lead = w2.dim() - 6
    rows = data.reshape(*data.shape[:lead], tokens, -1)
    chosen, given = (part.reshape(*part.shape[:lead], tokens, k) for part in (indices, scores))
    choices = _choices(homes, mapping, chosen, given, experts)
    per_expert = choices.is_chosen.movedim(-1, lead)  # (*grid, experts, tokens)
    totals = per_expert.sum(-1)
    most = int(totals.max()) if totals.numel() else 0
    order = per_expert.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    is_one = torch.arange(tokens, device=order.device) < totals.unsqueeze(-1)
    listed = torch.where(is_one, order, _END_OF_LIST)
    dense = rows_of_each(order[..., :most], rows, lead)
    dense = torch.where(is_one[..., :most, None], dense, dense.new_zeros(()))
    made = _answers(dense, *weights.matrices(w0_w1, w2), weights, gate)
    made = torch.where(is_one[..., :most, None], made, 0.0)
    room = (0, 0, 0, tokens - most)
    return [
        totals.unsqueeze(-2),
        _activations(choices, k),
        torch.nn.functional.pad(listed, (0, 1), value=_END_OF_LIST),
        torch.nn.functional.pad(dense, room),
        torch.nn.functional.pad(made, room),
    ]


def _choices(
    homes: PerDeviceExpertMapping,
    mapping: torch.Tensor,
    chosen: torch.Tensor,
    scores: torch.Tensor,
    experts: int,
) -> _Choices:
    home = homes.homes_of(mapping, chosen, "tilize_expert_indices_tensor")
    own = homes.own(home)
    is_own = homes.own_view(mapping) == own.unsqueeze(-1)
    has = int(is_own.sum(-1).max())
    if has > experts:
        raise MeshError(f"{OP}: the mapping gives a device {has} experts, and the weights are those of {experts}.")
    number = is_own.long().cumsum(-1) - 1  # of an expert among those of its device
    grid, (tokens, k) = own.shape, chosen.shape[-2:]
    asked = chosen.long().expand(*grid, tokens, k)
    local = number.gather(-1, asked.flatten(-2)).reshape(asked.shape)
    local = torch.where(home == own[..., None, None], local, -1)
    is_it = local.unsqueeze(-1) == torch.arange(experts, device=local.device)  # (*grid, tokens, K, experts)
    slot = is_it.to(torch.uint8).argmax(-2)
    score = scores.expand(*grid, tokens, k).gather(-1, slot)
    return _Choices(is_it.any(-2), slot, score)


def _answers(
    dense: torch.Tensor, first: torch.Tensor, second: torch.Tensor, weights: Weights, gate: Gating
) -> torch.Tensor:
    hidden, inner = weights.hidden, weights.inner
    both = dense.float() @ first[..., :hidden, :].float()
    if weights.has_bias:
        both = both + first[..., hidden:, :].float()
    between = gate(*both.split(inner, -1))
    made = between @ second[..., :inner, :].float()
    return made + second[..., inner:, :].float() if weights.has_bias else made


def _activations(choices: _Choices, k: int) -> torch.Tensor:
    """(*grid, tokens + 1, 1 + 2 * experts): for each token that is here its number, then for each expert of the
    device the slot in which the token chose it (k: not at all), then the scores, as the bits of bfloat16."""
    is_here = choices.is_chosen.any(-1)
    slots = torch.where(choices.is_chosen, choices.slot, k)
    bits = choices.score.to(torch.bfloat16).view(torch.int16).long() & _LOW_HALF
    bits = torch.where(choices.is_chosen, bits, 0)
    tokens = is_here.shape[-1]
    numbers = torch.arange(tokens, device=slots.device).expand(is_here.shape).unsqueeze(-1)
    rows = torch.cat([numbers, slots, bits], -1)
    order = is_here.to(torch.uint8).argsort(dim=-1, descending=True, stable=True).unsqueeze(-1)
    packed = rows.gather(-2, order.expand(rows.shape))
    is_one = (torch.arange(tokens, device=slots.device) < is_here.sum(-1, keepdim=True)).unsqueeze(-1)
    return torch.nn.functional.pad(torch.where(is_one, packed, _END_OF_LIST), (0, 0, 0, 1), value=_END_OF_LIST)
