"""selective_reduce_combine: the experts' answers back to the devices that their tokens came from."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group
from softmesh.collectives.moe.expert_mapping import distinct_placement
from softmesh.collectives.overload_signatures import overloaded_collective
from softmesh.collectives.torch_expressions import dealt, gathered
from softmesh.collectives.ttnn_collectives import checked_axis
from softmesh.collectives.undefined_results import note_written, poison, writing_rows
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.embedding.embedding import rows_of_each
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.broadcasting import broadcast_shapes
from softmesh.tensor.dtype import Layout

_OP = "experimental.selective_reduce_combine"


class _Sizes(NamedTuple):
    experts: int
    tokens: int  # of the whole group
    slots: int
    hidden: int


@overloaded_collective(
    _OP,
    "dense_input_tensor dense_activations_tensor dense_token_maps_tensor dense_token_counts_tensor hidden_size:int "
    "batch_size:int seq_size:int select_experts_k:int cluster_axis topology? num_links? token_parallel_core_dim:int "
    "data_parallel_core_dim:int worker_cores mux_core_range_set | memory_config? output_tensor? "
    "optional_cross_device_semaphore?",
    kind=Kind.ALL_TO_ALL,
    output="output_tensor",
    patches="output_tensor",
    **writing_rows(picks=True),
)
def selective_reduce_combine(
    dense_input_tensor: Operand,
    dense_activations_tensor: Operand,
    dense_token_maps_tensor: Operand,
    dense_token_counts_tensor: Operand,
    hidden_size: int,
    batch_size: int,
    seq_size: int,
    select_experts_k: int,
    cluster_axis: int,
    *,
    output_tensor: Operand | None = None,
) -> CollectiveSpec:
    """[k, tokens of the device, hidden]: slot k of a token holds what its k-th expert made of it.

    `dense_input_tensor` is [experts, tokens, hidden]: for each of a device's experts the answers to the tokens that
    `dense_token_maps_tensor` [experts, tokens or more] lists, as many as `dense_token_counts_tensor` says. Rows of
    `dense_activations_tensor` are a token's number, then for each expert the slot in which the token chose it.
    `batch_size * seq_size` counts the tokens of the whole group. The forms are those that moe_compute gives; how
    TT-NN pads them is not documented. A slot whose expert lives in another group is not written.
    """
    sizes = _Sizes(dense_token_counts_tensor.shape[-1], batch_size * seq_size, select_experts_k, hidden_size)
    _check(dense_input_tensor, dense_activations_tensor, dense_token_maps_tensor, sizes)

    def move(group: Group) -> GroupComputation:
        if sizes.tokens % group.size:
            raise MeshError(f"{_OP}: {sizes.tokens} tokens cannot go back to {group.size} devices in equal numbers.")
        compute = partial(_combined, group, sizes, poison(dense_input_tensor.dtype))
        return GroupComputation(compute, (distinct_placement(group),), topology_of(group.dist))

    return CollectiveSpec(checked_axis(_OP, cluster_axis), move, layouts=(Layout.ROW_MAJOR,))


def _check(dense: Operand, activations: Operand, maps: Operand, sizes: _Sizes) -> None:
    if min(sizes) < 1:
        raise MeshError(f"{_OP}: needs experts, tokens, slots and a hidden size, got {tuple(sizes)}.")
    wanted = sizes.experts * sizes.tokens * sizes.hidden
    if dense.shape[-1] != sizes.hidden or dense.spec.logical_volume() != wanted:
        raise MeshError(
            f"{_OP}: dense_input_tensor {list(dense.shape)} must be [{sizes.experts}, {sizes.tokens}, {sizes.hidden}]: "
            "experts of the device, tokens of the group, hidden size."
        )
    if activations.shape[-1] < 1 + sizes.experts or activations.is_float:
        raise MeshError(
            f"{_OP}: dense_activations_tensor {list(activations.shape)} {activations.dtype} must have rows of "
            f"integers: a token's number, and a slot for each of {sizes.experts} experts."
        )
    if maps.spec.logical_volume() < sizes.experts * sizes.tokens or maps.is_float:
        raise MeshError(
            f"{_OP}: dense_token_maps_tensor {list(maps.shape)} {maps.dtype} must list numbers of tokens for "
            f"{sizes.experts} experts, with room for all {sizes.tokens}."
        )


def _combined(
    group: Group,
    sizes: _Sizes,
    filler: float,
    dense: torch.Tensor,
    activations: torch.Tensor,
    maps: torch.Tensor,
    counts: torch.Tensor,
    kept: torch.Tensor | None = None,
) -> torch.Tensor:
    lead = group.lead
    experts, tokens, slots, hidden = sizes
    listed = maps.reshape(*maps.shape[:lead], experts, -1)[..., :tokens]
    totals = counts.reshape(*counts.shape[:lead], experts, 1)
    is_one = torch.arange(tokens, device=maps.device) < totals
    place = _places(listed, is_one, _slots_of(activations, listed, is_one, lead, sizes), sizes)
    answers = gathered(dense.reshape(*dense.shape[:lead], experts, tokens, hidden), group, 0)
    sources = _sources(gathered(place, group, 0), lead, slots * tokens)
    sources = sources.unflatten(-1, (slots, tokens))
    found = rows_of_each(sources.clamp(min=0), answers.flatten(lead, -2), lead)
    is_there = (sources >= 0).unsqueeze(-1)
    written = dealt(is_there, group, 1)
    note_written(written.expand(*group.dist.grid, *written.shape[lead:]), lead)
    others = found.new_full((), filler) if kept is None else kept
    result = torch.where(written, dealt(found, group, 1), others)
    return result.expand(*group.dist.grid, *result.shape[lead:])


def _slots_of(
    activations: torch.Tensor, listed: torch.Tensor, is_one: torch.Tensor, lead: int, sizes: _Sizes
) -> torch.Tensor:
    """(*axes, experts, tokens): the slot in which each listed token chose the expert."""
    rows = activations.reshape(*activations.shape[:lead], -1, activations.shape[-1])
    numbers = rows[..., 0]
    is_known = (numbers >= 0) & (numbers < sizes.tokens)
    row_of = torch.zeros(*numbers.shape[:-1], sizes.tokens + 1, dtype=torch.long, device=rows.device)
    lines = torch.arange(numbers.shape[-1], device=rows.device).expand(numbers.shape)
    row_of.scatter_(-1, torch.where(is_known, numbers, sizes.tokens).long(), lines)
    axes = broadcast_shapes(row_of.shape[:-1], listed.shape[:lead], is_one.shape[:lead])
    asked = torch.where(is_one, listed, 0).long().expand(*axes, *listed.shape[lead:])
    line = row_of.expand(*axes, -1).gather(-1, asked.flatten(-2)).reshape(asked.shape)
    table = rows[..., 1 : 1 + sizes.experts].movedim(-1, -2).expand(*axes, sizes.experts, -1)
    return table.gather(-1, line)


def _places(listed: torch.Tensor, is_one: torch.Tensor, slot: torch.Tensor, sizes: _Sizes) -> torch.Tensor:
    """(*axes, experts, tokens): where in (slots, tokens) an answer belongs; one past the end where there is none."""
    is_wrong = is_one & ((listed < 0) | (listed >= sizes.tokens) | (slot < 0) | (slot >= sizes.slots))
    if bool(is_wrong.any()):
        raise MeshError(
            f"{_OP}: the maps and activations name tokens beyond {sizes.tokens} or slots beyond {sizes.slots}: "
            "give those that belong to dense_input_tensor."
        )
    return torch.where(is_one, slot * sizes.tokens + listed, sizes.slots * sizes.tokens).long()


def _sources(place: torch.Tensor, lead: int, count: int) -> torch.Tensor:
    """(*groups, count): which of the group's answers belongs in each place; -1 where none does."""
    flat = place.flatten(lead)
    found = torch.full((*flat.shape[:lead], count + 1), -1, dtype=torch.long, device=place.device)
    found.scatter_(-1, flat, torch.arange(flat.shape[-1], device=place.device).expand(flat.shape))
    return found[..., :count]
