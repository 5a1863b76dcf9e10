# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.ops.moe.weight_packing import (
    prepare_w0_w1_tensor_for_moe_compute as prepare_w0_w1_tensor_for_moe_compute,
    prepare_w0_w1_tensor_with_bias as prepare_w0_w1_tensor_with_bias,
    prepare_w2_tensor_for_moe_compute as prepare_w2_tensor_for_moe_compute,
    prepare_w2_tensor_with_bias as prepare_w2_tensor_with_bias,
)
from softmesh.ops.moe.weight_placement import (
    add_shared_expert_weights as add_shared_expert_weights,
    auto_output_width_shard_dim as auto_output_width_shard_dim,
    cluster_distance as cluster_distance,
    effective_matmul_ring_size as effective_matmul_ring_size,
    get_shared_experts_per_device as get_shared_experts_per_device,
    get_weight_core_shard_maps as get_weight_core_shard_maps,
    get_weight_mem_configs as get_weight_mem_configs,
    map_shared_experts as map_shared_experts,
    w0_w1_bank_rows_per_expert as w0_w1_bank_rows_per_expert,
    w2_core_rows_per_expert as w2_core_rows_per_expert,
)

ALT_TILES_PER_TXN: int
BLOCK_TILES_H: int
DEFAULT_TILES_PER_TXN: int
W0_W1_BLOCK_TILES_W: int
W0_W1_HALF_BLOCK_TILES_W: int
W0_W1_TXNS_PER_BLOCK: int
W2_HALF_A2A_ITER_TILES_W: int
W2_TILES_PER_A2A_ITER_W: int
