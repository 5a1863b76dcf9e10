# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.hardware.enums import DataType, Layout
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.hardware.program_configs import WormholeComputeKernelConfig
from softmesh.tensor.tensor import Tensor
from typing import overload
from softmesh.ops.moe.routed_experts import (
    routed_expert_ffn as routed_expert_ffn,
    unified_routed_expert_moe as unified_routed_expert_moe,
)

def extract(
    global_tensor: Tensor,
    start: Tensor,
    counts: Tensor,
    global_expert_idx_table: Tensor,
    *,
    local_expert_id: int,
    max_dispatched_tokens_per_expert: int,
) -> Tensor:
    """The rows of one expert, [..., max_dispatched_tokens_per_expert, hidden]; behind its own, zeros."""
def insert(
    global_tensor: Tensor,
    local_tensor: Tensor,
    start: Tensor,
    counts: Tensor,
    global_expert_idx_table: Tensor,
    *,
    local_expert_id: int,
) -> Tensor:
    """Write the rows of one expert back into `global_tensor`, which is returned."""
def masked_bincount(
    input_tensor: Tensor, expert_mask: Tensor, n_routed_experts: int, num_experts_per_token: int
) -> Tensor:
    """How often each expert is chosen, [n_routed_experts] as uint32; 0 for those that the mask leaves out."""
def moe_grouped_topk(
    scores: Tensor,
    bias: Tensor,
    *,
    padding_config: Tensor | None = None,
    biased_scores: Tensor | None = None,
    n_groups: int = 8,
    summed_experts_per_group: int = 2,
    topk_groups: int = 4,
    n_activated_experts: int = 8,
    route_scale: float = 1.0,
    epsilon: float = ...,
    stable_sort: bool = False,
    score_func: str = 'sigmoid',
    weights_layout: Layout = ...,
    memory_config: MemoryConfig | None = None,
) -> list[Tensor]:
    """[weights, indices (uint16)]: as deepseek_grouped_gate; with `stable_sort` equal scores in the experts' order."""
def moe_hash_gate(
    scores: Tensor,
    input_ids: Tensor,
    tid2eid: Tensor,
    *,
    padding_config: Tensor | None = None,
    n_activated_experts: int,
    route_scale: float = 1.0,
    epsilon: float = ...,
    score_func: str = 'sqrtsoftplus',
    memory_config: MemoryConfig | None = None,
) -> list[Tensor]:
    """[weights, indices (uint16)]: a token's experts stand in row `id` of the table tid2eid [ids, experts]."""
def pack_scaled_fp8_kv_cache(
    latent: Tensor, scales: Tensor, rope: Tensor, *, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Rows of 656 bytes: 512 fp8 values, their 4 float32 scales, 64 bfloat16 values; as uint8, [..., 656]."""
def per_token_cast_back(
    input_e4m3: Tensor,
    input_scale: Tensor | None = None,
    output_dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    narrow_scales_to_bf16: bool = False,
    *,
    token_count_aware: bool = False,
    expert_region_offsets: Tensor | None = None,
    expert_token_counts: Tensor | None = None,
    global_expert_idx_table: Tensor | None = None,
    experts_per_chip: int = 0,
    metadata: Tensor | None = None,
) -> Tensor:
    """x * scale for each 128 columns, in bfloat16 unless another dtype is asked for; without scales x itself."""
def per_token_cast_to_fp8(
    input_tensor: Tensor,
    memory_config: MemoryConfig | None = None,
    *,
    round_scale_to_power_of_two: bool = False,
) -> tuple[Tensor, Tensor]:
    """(x / scale in fp8, the scales in float32): a scale for each 128 columns takes their largest to 448."""
def post_combine_reduce(
    combine_output: Tensor,
    weights: Tensor,
    indices: Tensor | None = None,
    expert_dispatch_table: Tensor | None = None,
    *,
    expert_dim: int = 3,
    output_memory_config: MemoryConfig | None = None,
) -> Tensor:
    """The sum over `expert_dim` of what a token's experts answered, each times its weight; that dim is dropped."""
def rotary_embedding_indexed(
    input: Tensor,
    cos: Tensor,
    sin: Tensor,
    trans_mat: Tensor,
    kv_actual_global: Tensor | float,
    cluster_axis: int,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    seq_subshard_axis: int | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    concat_prefix: Tensor | None = None,
) -> Tensor:
    """rotary_embedding_llama of rows [b, heads, s, width], by each row's position in the whole sequence."""
@overload
def update_padded_kv_cache(
    cache: Tensor,
    input: Tensor,
    slot_idx: Tensor | float,
    layer_idx: int,
    num_layers: int,
    kv_actual_global: Tensor | float,
    cluster_axis: int | None,
    valid_global: Tensor | float | None = None,
    tp_axis: int | None = None,
    rope: Tensor | None = None,
    scales: Tensor | None = None,
) -> Tensor:
    """Write each device's rows [1, heads, s, width] of the chunk that begins at position `kv_actual_global`."""
@overload
def update_padded_kv_cache(
    cache: Tensor,
    input: Tensor,
    slot_idx: Tensor | float,
    kv_actual_global: Tensor | float,
    layer_idx: int,
    num_layers: int,
    cluster_axis: int | None,
    valid_global: Tensor | float | None = None,
    tp_axis: int | None = None,
    rope: Tensor | None = None,
    scales: Tensor | None = None,
) -> Tensor: ...
@overload
def zero_padded_kv_cache(
    cache: Tensor,
    slot_idx: Tensor | float,
    layer_idx: int,
    num_layers: int,
    valid_global: Tensor | float,
    chunk_size_global: int,
    cluster_axis: int,
    pad_align: int = 128,
) -> Tensor:
    """Set the positions from `valid_global` on to 0, up to the next multiple of `pad_align`."""
@overload
def zero_padded_kv_cache(
    cache: Tensor,
    slot_idx: Tensor | float,
    valid_global: Tensor | float,
    layer_idx: int,
    num_layers: int,
    chunk_size_global: int,
    cluster_axis: int,
    pad_align: int | None = None,
) -> Tensor: ...
