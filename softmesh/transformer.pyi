# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from collections.abc import Sequence
from softmesh.cores import CoreCoord
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.hardware.fabric_config import Topology
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.hardware.program_configs import PagedCacheGeometryOverride, WormholeComputeKernelConfig
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor
from typing import overload
from softmesh.hardware.program_configs import SparseKVFormat as SparseKVFormat

def attention_softmax(
    tensor: Tensor,
    *,
    attention_mask: Tensor | None = None,
    head_size: int | None = None,
    causal_mask: bool | None = False,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
) -> Tensor:
    """softmax(x / sqrt(head_size) + mask) along the last dim; the mask is that of scale_mask_softmax."""
def attention_softmax_(
    tensor: Tensor,
    *,
    attention_mask: Tensor | None = None,
    head_size: int | None = None,
    causal_mask: bool | None = False,
    program_config: HardwareConfig | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """softmax(x / sqrt(head_size) + mask) along the last dim, written over its operand; the mask is that of scale_mask_softmax."""
def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    output_final_state: bool = False,
    use_qk_l2norm: bool = False,
    output_head_major: bool = False,
    memory_config: MemoryConfig | None = None,
    chunk_size: object = None,
    program_config: HardwareConfig | None = None,
    wy_inverse: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    eye: object = None,
    tril: object = None,
    ones: object = None,
    masks: object = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k [b, s, heads, width], v [b, s, value_heads, value_width], g and beta [b, s, value_heads]."""
def chunked_flash_mla_prefill(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    head_dim_v: int,
    page_table_tensor: Tensor,
    chunk_start_idx: Tensor | float,
    *,
    scale: float | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Latent attention of a chunk: the first `head_dim_v` columns of the paged keys are the values."""
def chunked_scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    chunk_start_idx: Tensor | float | None = None,
    *,
    chunk_start_idx_tensor: Tensor | None = None,
    scale: float | None = None,
    paged_cache_geometry: PagedCacheGeometryOverride | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """q [b, heads, chunk, width], the first of which has position `chunk_start_idx`, over paged k and v."""
def concatenate_heads(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """[b, heads, s, width] -> [b, s, heads * width]"""
def exp_ring_joint_scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    joint_tensor_q: Tensor | None = None,
    joint_tensor_k: Tensor | None = None,
    joint_tensor_v: Tensor | None = None,
    *,
    persistent_output_buffer_k: Tensor,
    persistent_output_buffer_v: Tensor,
    joint_strategy: object,
    logical_n: object,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_links: int,
    cluster_axis: int,
    mesh_device: MeshDevice,
    topology: Topology,
    subdevice_id: SubDeviceId | None = None,
    scale: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """ring_joint_scaled_dot_product_attention, by other kernels."""
@overload
def flash_mla_prefill(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    head_dim_v: int | None = None,
    *,
    input_tensor_v: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Latent attention: q [b, heads, s, width] over k [b, kv_heads, s, width], whose first `head_dim_v` columns are v."""
@overload
def flash_mla_prefill(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor | None,
    *,
    head_dim_v: int | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor: ...
def flash_multi_latent_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor | None = None,
    head_dim_v: int | None = None,
    *,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    attention_sink: Tensor | None = None,
    cur_pos: Tensor | float | Sequence[int] | None = (),
    scale: float | None = None,
    sliding_window_size: int | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Latent attention: as scaled_dot_product_attention_decode, with the first `head_dim_v` columns of k for v."""
def joint_scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    joint_tensor_q: Tensor,
    joint_tensor_k: Tensor,
    joint_tensor_v: Tensor,
    *,
    joint_strategy: str,
    scale: float | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """[b, heads, n, width] and [b, heads, l, width]: every query sees all n + l keys. One result for each sequence."""
def paged_flash_multi_latent_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor | None = None,
    head_dim_v: int | None = None,
    page_table_tensor: Tensor | None = None,
    *,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    attention_sink: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Latent attention over caches cut into blocks, found by page_table [users, pages]."""
def paged_scaled_dot_product_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    *,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    attention_sink: Tensor | None = None,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    paged_cache_geometry: PagedCacheGeometryOverride | None = None,
    cache_position_modulo: int | None = None,
    spec_multi_pos_tiles: int = 0,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """q [1, users, heads, width] over k, v [blocks, kv_heads, block, width], found by page_table [users, pages]."""
def ring_distributed_scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    ring_size: int,
    ring_id: int | None = None,
    *,
    scale: object = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    page_table: Tensor | None = None,
    chunk_start_idx: int | None = None,
) -> Tensor:
    """Causal attention of chunks i and 2n - 1 - i of 2n, on device i of a ring of n; all hold all of q, k and v."""
def ring_joint_scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    joint_tensor_q: Tensor | None = None,
    joint_tensor_k: Tensor | None = None,
    joint_tensor_v: Tensor | None = None,
    *,
    persistent_output_buffer_k: Tensor,
    persistent_output_buffer_v: Tensor,
    joint_strategy: object,
    logical_n: object,
    logical_l: object = None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_links: int,
    cluster_axis: int,
    mesh_device: MeshDevice,
    topology: Topology,
    subdevice_id: SubDeviceId | None = None,
    scale: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None,
    ccl_core_grid_offset: CoreCoord | Sequence[int] | None,
    use_column_major_ccl: bool | None = None,
    is_causal: object = None,
    is_balanced: object = None,
    is_cross: object = None,
    attention_sink: object = None,
    sliding_window_size: object = None,
    circular_kv_cache: object = None,
    persistent_output_buffer_joint_k: Tensor | None = None,
    persistent_output_buffer_joint_v: Tensor | None = None,
    kv_cache_batch_idx: int | None = None,
    slot_id: Tensor | None = None,
    kv_cache_num_layers: int | None = None,
    kv_cache_layer_idx: int | None = None,
    kv_actual_isl: object = None,
    kv_actual_isl_tensor: object = None,
    kv_valid_end_tensor: object = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(the result of the device's own queries, that of the joint ones, their largest scores and then their sums)."""
def ring_mla(
    input_tensor_q: Tensor,
    input_tensor_kv: Tensor,
    *,
    persistent_output_buffer_kv: Tensor,
    head_dim_v: int,
    logical_n: int,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_links: int,
    cluster_axis: int,
    mesh_device: MeshDevice,
    topology: Topology,
    subdevice_id: SubDeviceId | None = None,
    scale: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None,
    ccl_core_grid_offset: CoreCoord | Sequence[int] | None,
    use_column_major_ccl: bool | None = None,
    is_balanced: object = None,
    kv_cache_batch_idx: int | None = None,
    slot_id: Tensor | None = None,
    kv_cache_num_layers: int | None = None,
    kv_cache_layer_idx: int | None = None,
    kv_actual_isl: object = None,
    kv_actual_isl_tensor: object = None,
    kv_valid_end_tensor: object = None,
) -> tuple[Tensor, Tensor]:
    """(causal latent attention of the device's own queries, the logarithms of its sums)"""
def scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    attention_sink: Tensor | None = None,
    cu_window_seqlens: Tensor | None = None,
    windowed_q_token_offset: Tensor | float = 0,
    windowed_q_token_offset_tensor: Tensor | None = None,
    output_concat_heads: bool = False,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    attn_mask_block_map: object = None,
) -> Tensor:
    """q [b, heads, s, width] over k, v [b, kv_heads, s, width], on each device."""
def scaled_dot_product_attention_decode(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    is_causal: bool = True,
    attn_mask: Tensor | None = None,
    cur_pos_tensor: Tensor | None = None,
    attention_sink: Tensor | None = None,
    cur_pos: Tensor | float | Sequence[int] | None = (),
    scale: float | None = None,
    sliding_window_size: int | None = None,
    share_cache: bool | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """q [1, users, heads, width] over caches k, v [users, kv_heads, length, width], on each device."""
def sparse_sdpa(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    v_dim: int,
    *,
    kv_format: SparseKVFormat,
    attention_sink: Tensor | None = None,
    cache_batch_idx: Tensor | float | None = None,
    scale: float | None = None,
    block_cyclic_sp_axis: int | None = None,
    block_cyclic_chunk_local: int | None = None,
    block_cyclic_cache_tp_sharded: bool = False,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    k_chunk_size: object = None,
) -> Tensor:
    """q [b, heads, s, width] over the rows of kv [b, 1, length, width] that indices [b, 1, s, n] names for each query."""
def sparse_sdpa_msa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    indices: Tensor,
    *,
    chunk_start_idx: Tensor | float | None = None,
    cache_batch_idx: Tensor | float | None = None,
    scale: float | None = None,
    block_size: int = 128,
    cluster_axis: int | None = None,
    block_cyclic_sp_axis: int | None = None,
    block_cyclic_chunk_local: int | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    enable_kv_block_cache: object = None,
) -> Tensor:
    """q [b, heads, s, width] over blocks of k, v [b, kv_heads, length, width], by indices [b, kv_heads, s, n]."""
def split_query_key_value_and_split_heads(
    input_tensor: Tensor,
    kv_input_tensor: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_key: bool = True,
    use_falcon7b_backend: bool = False,
    memory_config: MemoryConfig | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[b, s, (heads + 2 kv_heads) * width] -> q [b, heads, s, width], k and v [b, kv_heads, s, width]."""
