"""The names that TT-NN publishes for collectives; importing this module registers all of their operations.

`COMPOSITES` are those that are functions of several ops, `PLAIN_NAMES` those that are no operations, by dotted name.
"""

from __future__ import annotations

from softmesh.collectives import (
    async_collectives,  # noqa: F401
    exchange_collectives,  # noqa: F401
    fused_collectives,  # noqa: F401
    fused_minimal_matmul,  # noqa: F401
    fused_norms,  # noqa: F401
    halo_buffers,  # noqa: F401
    ring_attention,  # noqa: F401
    ring_gathers,  # noqa: F401
    rooted_collectives,  # noqa: F401
    scatter_buffers,  # noqa: F401
    ttnn_collectives,  # noqa: F401
)
from softmesh.collectives.moe import (
    core_assignment,
    dispatch_and_combine,  # noqa: F401
    moe_compute,  # noqa: F401
    routing_weights,  # noqa: F401
)
from softmesh.collectives.overload_signatures import COMPOSITES
from softmesh.ops.matmul.matmul import dit_minimal_matmul_addcmul_fused
from softmesh.ops.moe import mesh_weight_packing, routed_experts, weight_packing, weight_placement
from softmesh.ops.moe.routed_experts import MoEActivationFunction
from softmesh.ops.prefetcher import prefetch_buffers, tensor_prefetcher

__all__ = ["COMPOSITES"]


# Functions, enums and constants below `experimental` and `operations.ccl` that are no operations.


_ON_DEVICES = (
    mesh_weight_packing.add_shared_expert_weights,
    mesh_weight_packing.get_weight_mem_configs,
    mesh_weight_packing.prepare_w0_w1_tensor_for_moe_compute,
    mesh_weight_packing.prepare_w0_w1_tensor_with_bias,
    mesh_weight_packing.prepare_w2_tensor_for_moe_compute,
    mesh_weight_packing.prepare_w2_tensor_with_bias,
    mesh_weight_packing.quantize_weights_via_host,
    weight_placement.get_weight_core_shard_maps,
    core_assignment.get_moe_combine_cores,
    core_assignment.get_moe_tilize_drain_core,
    core_assignment.get_moe_worker_mcast_bounding_box,
)
_ON_THE_HOST = (
    weight_placement.auto_output_width_shard_dim,
    weight_placement.effective_matmul_ring_size,
    weight_placement.get_weight_core_shard_maps,
    weight_placement.get_weight_mem_configs,
    weight_placement.w0_w1_bank_rows_per_expert,
    weight_placement.w2_core_rows_per_expert,
    weight_placement.add_shared_expert_weights,
    weight_placement.cluster_distance,
    weight_placement.get_shared_experts_per_device,
    weight_placement.map_shared_experts,
    weight_packing.prepare_w0_w1_tensor_for_moe_compute,
    weight_packing.prepare_w0_w1_tensor_with_bias,
    weight_packing.prepare_w2_tensor_for_moe_compute,
    weight_packing.prepare_w2_tensor_with_bias,
)
_PREFETCHING = (
    prefetch_buffers.create_global_circular_buffer_for_matmul_1d,
    prefetch_buffers.create_global_circular_buffer_for_tensor_prefetcher,
    prefetch_buffers.tensor_prefetcher_block_count_for_matmul_1d,
    tensor_prefetcher.is_tensor_prefetcher_supported,
    tensor_prefetcher.queue_tensor_prefetcher_request,
    tensor_prefetcher.start_tensor_prefetcher,
    tensor_prefetcher.stop_tensor_prefetcher,
    tensor_prefetcher.wait_for_cq_on_tensor_prefetcher,
)
_SIZES = (
    "ALT_TILES_PER_TXN",
    "BLOCK_TILES_H",
    "DEFAULT_TILES_PER_TXN",
    "W0_W1_BLOCK_TILES_W",
    "W0_W1_HALF_BLOCK_TILES_W",
    "W0_W1_TXNS_PER_BLOCK",
    "W2_HALF_A2A_ITER_TILES_W",
    "W2_TILES_PER_A2A_ITER_W",
)
_UTILS = "experimental.moe_compute_utils"

PLAIN_NAMES: dict[str, object] = {
    **{f"experimental.{function.__name__}": function for function in (*_ON_DEVICES, *_PREFETCHING)},
    **{f"{_UTILS}.{function.__name__}": function for function in _ON_THE_HOST},
    **{f"{_UTILS}.{name}": getattr(weight_packing, name) for name in _SIZES},
    f"{_UTILS}._shard_tiles": weight_placement.shares_of_tiles,
    f"{_UTILS}._w2_shard_tiles": weight_placement.last_blocks_of_w2,
    "experimental.dit_minimal_matmul_addcmul_fused": dit_minimal_matmul_addcmul_fused,
    "experimental.deepseek_prefill.routed_expert_ffn": routed_experts.routed_expert_ffn,
    "experimental.deepseek_prefill.unified_routed_expert_moe": routed_experts.unified_routed_expert_moe,
    "experimental.test_dram_prefetcher_consumer": tensor_prefetcher.dram_prefetcher_consumer,
    "experimental.test_dram_prefetcher_validator": tensor_prefetcher.dram_prefetcher_validator,
    "operations.ccl.MoEActivationFunction": MoEActivationFunction,
}
