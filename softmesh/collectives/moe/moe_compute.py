"""moe_compute, which runs the experts' products and sends the answers back; and the fused reduction behind it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from softmesh.collectives.collective_operation import unlisted_collective
from softmesh.collectives.collective_spec import CollectiveSpec, GroupComputation
from softmesh.collectives.device_groups import Group
from softmesh.collectives.moe.expert_mapping import PerDeviceExpertMapping, distinct_placement
from softmesh.collectives.moe.expert_products import OP, expert_products
from softmesh.collectives.moe.selective_reduce_combine import selective_reduce_combine
from softmesh.collectives.overload_signatures import composite, overloaded_collective
from softmesh.collectives.ttnn_collectives import checked_axis
from softmesh.collectives.undefined_results import PICKING_ROWS
from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.ops.moe.routed_experts import check_split
from softmesh.placement.tensor_topology import topology_of
from softmesh.tensor.dtype import Layout
from softmesh.tensor.tensor import Tensor

_products = unlisted_collective(OP, Kind.PRODUCT, expert_products, **PICKING_ROWS)


@composite(
    OP,
    "tilize_input_tensor:tensor tilize_expert_indices_tensor:tensor tilize_expert_scores_tensor:tensor "
    "tilize_expert_mapping_tensor:tensor matmul_w0_w1_tensor:tensor matmul_w2_tensor:tensor | layer_id:int "
    "output_height_shard_dim:int intermediate_size:int has_bias? cluster_axis? topology? num_links? "
    "mux_core_range_set? output_memory_config? optional_output_tensor? optional_cross_device_semaphore? "
    "activation_type? compute_only? num_shared_experts_per_device? activation_limit? math_fidelity? fp32_dest_acc_en?",
    writes="optional_output_tensor",
)
def moe_compute(
    tilize_input_tensor: Tensor,
    tilize_expert_indices_tensor: Tensor,
    tilize_expert_scores_tensor: Tensor,
    tilize_expert_mapping_tensor: Tensor,
    matmul_w0_w1_tensor: Tensor,
    matmul_w2_tensor: Tensor,
    layer_id: int,
    intermediate_size: int,
    has_bias: bool = False,
    cluster_axis: int | None = None,
    compute_only: bool = False,
    num_shared_experts_per_device: int | None = None,
    optional_output_tensor: Tensor | None = None,
    output_memory_config: Any = None,
    **given: Any,
) -> list[Tensor]:
    """What the experts of each device make of the tokens that chose them, and that sent back to the tokens' devices.

    Takes what all_to_all_dispatch_metadata gives, the mapping (devices, experts), and packed weights. Gives six
    tensors, five with `compute_only`: the number of tokens of each expert [1, experts]; a row for each token with
    its number, slots and scores; the numbers of each expert's tokens; those tokens; the experts' answers [experts,
    tokens, hidden]; and [K, tokens of the device, hidden], slot k of a token holding its k-th expert's answer. The
    scores are not applied: deepseek_moe_fast_reduce_nc_fused does. The order of the first five and the padding of
    their rows are not documented by TT-NN.
    """
    experts = matmul_w0_w1_tensor.shape[2] if len(matmul_w0_w1_tensor.shape) == 6 else 0
    if num_shared_experts_per_device is not None and not 0 <= num_shared_experts_per_device <= experts:
        raise MeshError(
            f"{OP}: num_shared_experts_per_device={num_shared_experts_per_device}, and the weights are those of "
            f"{experts} experts."
        )
    made = _products(
        tilize_input_tensor,
        tilize_expert_indices_tensor,
        tilize_expert_scores_tensor,
        tilize_expert_mapping_tensor,
        matmul_w0_w1_tensor,
        matmul_w2_tensor,
        layer_id=layer_id,
        intermediate_size=intermediate_size,
        has_bias=bool(has_bias),
        cluster_axis=checked_axis(OP, cluster_axis),
        activation_type=given.get("activation_type"),
        activation_limit=given.get("activation_limit"),
    )
    if compute_only:
        return list(made)
    back = {
        "topology": given.get("topology"),
        "num_links": given.get("num_links"),
        "memory_config": output_memory_config,
        "output_tensor": optional_output_tensor,
    }
    k = tilize_expert_indices_tensor.shape[-1]
    return [*made, _sent_back(made, k, _axis_back(tilize_input_tensor, cluster_axis), back)]


def _axis_back(tensor: Tensor, axis: int | None) -> int:
    if axis is not None:
        return axis
    mesh = tensor.device()
    assert mesh is not None
    if sum(n > 1 for n in mesh.shape) > 1:
        raise MeshError(
            f"{OP}: cluster_axis must say along which axis of {mesh.shape} answers go back: give 0 or 1, or "
            "compute_only=True."
        )
    return max(range(mesh.shape.dims()), key=lambda axis: mesh.shape[axis])


def _sent_back(made: list[Tensor], k: int, axis: int, options: dict[str, Any]) -> Tensor:
    counts, activations, maps, _, answers = made
    _, tokens, hidden = answers.shape
    sent = selective_reduce_combine(
        answers,
        activations,
        maps,
        counts,
        hidden_size=hidden,
        batch_size=tokens,
        seq_size=1,
        select_experts_k=k,
        cluster_axis=axis,
        token_parallel_core_dim=1,
        data_parallel_core_dim=1,
        worker_cores=[],
        mux_core_range_set=None,
        **options,
    )
    assert isinstance(sent, Tensor)
    return sent


_FUSED = "experimental.deepseek_moe_fast_reduce_nc_fused"


@overloaded_collective(
    _FUSED,
    "input_tensor expert_indices_tensor expert_mapping_tensor reduce_dim:int | split_size:int cluster_axis "
    "output_memory_config? scores_tensor? num_shared_experts? shared_expert_scale? compute_kernel_config?",
    kind=Kind.REDUCTION,
    controls="output_memory_config",
    **PICKING_ROWS,
    results="list[Tensor]",
)
def deepseek_moe_fast_reduce_nc_fused(
    input_tensor: Operand,
    expert_indices_tensor: Operand,
    expert_mapping_tensor: Operand,
    scores_tensor: Operand | None = None,
    *,
    reduce_dim: int,
    split_size: int,
    cluster_axis: int,
    num_shared_experts: int = 0,
    shared_expert_scale: float = 1.0,
) -> CollectiveSpec:
    """The slots of each token that experts of the device's own group filled, times their scores, added up and cut.

    `input_tensor` has a slot for each choice along `reduce_dim`, and behind those one for each shared expert, which
    counts `shared_expert_scale` times. What else TT-NN does here is not documented.
    """
    op = _FUSED
    d = check_split(op, input_tensor, reduce_dim, split_size, "reduce_dim")
    slots = input_tensor.shape[d] - num_shared_experts
    tokens = input_tensor.spec.logical_volume() // max(input_tensor.shape[d] * input_tensor.shape[-1], 1)
    for operand in (expert_indices_tensor, *([] if scores_tensor is None else [scores_tensor])):
        if (
            operand.shape[-1] not in (slots, slots + num_shared_experts)
            or slots < 1
            or (operand.spec.logical_volume() != tokens * operand.shape[-1])
        ):
            raise MeshError(
                f"{op}: {operand.name} {list(operand.shape)} must have a row of {slots} for each of {tokens} tokens "
                f"of input_tensor {list(input_tensor.shape)}, {num_shared_experts} of whose slots are shared experts'."
            )

    def move(group: Group) -> GroupComputation:
        homes = PerDeviceExpertMapping(op, group, expert_mapping_tensor)
        compute = partial(_summed, homes, (d, input_tensor.rank), tokens, slots, shared_expert_scale, split_size)
        pieces = input_tensor.shape[-1] // split_size
        return GroupComputation(compute, (distinct_placement(group),) * pieces, topology_of(group.dist))

    return CollectiveSpec(
        checked_axis(op, cluster_axis),
        move,
        needs_fabric=False,
        names_a_device=True,
        layouts=(Layout.TILE,) * (input_tensor.shape[-1] // split_size),
    )


def _summed(
    homes: PerDeviceExpertMapping,
    reduced: tuple[int, int],
    tokens: int,
    slots: int,
    shared_scale: float,
    split_size: int,
    data: torch.Tensor,
    indices: torch.Tensor,
    mapping: torch.Tensor,
    scores: torch.Tensor | None,
) -> list[torch.Tensor]:
    d, rank = reduced
    lead = data.dim() - rank
    chosen = indices.reshape(*indices.shape[:lead], tokens, -1)[..., :slots]
    is_in_own_group = homes.is_in_own_group(mapping, chosen, "expert_indices_tensor")
    factor = is_in_own_group.float()
    if scores is not None:
        factor = factor * scores.reshape(*scores.shape[:lead], tokens, -1)[..., :slots].float()
    shared = data.shape[lead + d] - slots
    factor = torch.nn.functional.pad(factor, (0, shared), value=shared_scale).movedim(-1, lead).unsqueeze(-1)
    is_used = torch.nn.functional.pad(is_in_own_group, (0, shared), value=True).movedim(-1, lead).unsqueeze(-1)
    rows = data.movedim(lead + d, lead)
    shape = rows.shape[lead + 1 :]
    flat = rows.reshape(*rows.shape[: lead + 1], tokens, -1).float()
    total = torch.where(is_used, flat * factor, 0.0).sum(lead)
    whole = total.reshape(*total.shape[:lead], *shape).unsqueeze(lead + d)
    return list(whole.split(split_size, -1))
