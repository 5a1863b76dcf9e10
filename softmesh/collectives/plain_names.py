"""Functions, enums and constants below `experimental` and `operations.ccl` that are no operations."""

from __future__ import annotations

from softmesh.collectives.moe import cores
from softmesh.ops.minimal_products import dit_minimal_matmul_addcmul_fused
from softmesh.ops.moe import device_weights, packing, prefill_experts, shard_maps, shared_experts, weights
from softmesh.ops.moe.activations import MoEActivationFunction
from softmesh.ops.prefetching import circular_buffers, dram_prefetcher, requests

_ON_DEVICES = (
    device_weights.add_shared_expert_weights,
    device_weights.get_weight_mem_configs,
    device_weights.prepare_w0_w1_tensor_for_moe_compute,
    device_weights.prepare_w0_w1_tensor_with_bias,
    device_weights.prepare_w2_tensor_for_moe_compute,
    device_weights.prepare_w2_tensor_with_bias,
    device_weights.quantize_weights_via_host,
    shard_maps.get_weight_core_shard_maps,
    cores.get_moe_combine_cores,
    cores.get_moe_tilize_drain_core,
    cores.get_moe_worker_mcast_bounding_box,
)
_ON_THE_HOST = (
    shard_maps.auto_output_width_shard_dim,
    shard_maps.effective_matmul_ring_size,
    shard_maps.get_weight_core_shard_maps,
    shard_maps.get_weight_mem_configs,
    shard_maps.w0_w1_bank_rows_per_expert,
    shard_maps.w2_core_rows_per_expert,
    shared_experts.add_shared_expert_weights,
    shared_experts.cluster_distance,
    shared_experts.get_shared_experts_per_device,
    shared_experts.map_shared_experts,
    weights.prepare_w0_w1_tensor_for_moe_compute,
    weights.prepare_w0_w1_tensor_with_bias,
    weights.prepare_w2_tensor_for_moe_compute,
    weights.prepare_w2_tensor_with_bias,
)
_PREFETCHING = (
    circular_buffers.create_global_circular_buffer_for_matmul_1d,
    circular_buffers.create_global_circular_buffer_for_tensor_prefetcher,
    circular_buffers.tensor_prefetcher_block_count_for_matmul_1d,
    requests.is_tensor_prefetcher_supported,
    requests.queue_tensor_prefetcher_request,
    requests.start_tensor_prefetcher,
    requests.stop_tensor_prefetcher,
    requests.wait_for_cq_on_tensor_prefetcher,
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
    **{f"{_UTILS}.{name}": getattr(packing, name) for name in _SIZES},
    f"{_UTILS}._shard_tiles": shard_maps.shares_of_tiles,
    f"{_UTILS}._w2_shard_tiles": shard_maps.last_blocks_of_w2,
    "experimental.dit_minimal_matmul_addcmul_fused": dit_minimal_matmul_addcmul_fused,
    "experimental.deepseek_prefill.routed_expert_ffn": prefill_experts.routed_expert_ffn,
    "experimental.deepseek_prefill.unified_routed_expert_moe": prefill_experts.unified_routed_expert_moe,
    "experimental.test_dram_prefetcher_consumer": dram_prefetcher.dram_prefetcher_consumer,
    "experimental.test_dram_prefetcher_validator": dram_prefetcher.dram_prefetcher_validator,
    "operations.ccl.MoEActivationFunction": MoEActivationFunction,
}
