# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from collections.abc import Collection, Sequence
from softmesh.collectives.argument_checks import ReduceType
from softmesh.cores import CoreCoord, CoreGrid, CoreRange, CoreRangeSet
from softmesh.hardware.activation import UnaryOpType, UnaryWithParam
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.hardware.enums import DataType
from softmesh.hardware.fabric_config import Topology
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.hardware.program_configs import WormholeComputeKernelConfig
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.host_sockets import D2HSocket, H2DSocket
from softmesh.sockets.mesh_socket import MeshSocket
from softmesh.tensor.tensor import Tensor
from typing import Any, overload
from softmesh.collectives.moe.core_assignment import (
    get_moe_combine_cores as get_moe_combine_cores,
    get_moe_tilize_drain_core as get_moe_tilize_drain_core,
    get_moe_worker_mcast_bounding_box as get_moe_worker_mcast_bounding_box,
)
from softmesh.ops.conv.conv3d import conv3d as conv3d, prepare_conv3d_weights as prepare_conv3d_weights
from softmesh.ops.matmul.matmul import dit_minimal_matmul_addcmul_fused as dit_minimal_matmul_addcmul_fused
from softmesh.ops.moe.mesh_weight_packing import (
    add_shared_expert_weights as add_shared_expert_weights,
    get_weight_mem_configs as get_weight_mem_configs,
    prepare_w0_w1_tensor_for_moe_compute as prepare_w0_w1_tensor_for_moe_compute,
    prepare_w0_w1_tensor_with_bias as prepare_w0_w1_tensor_with_bias,
    prepare_w2_tensor_for_moe_compute as prepare_w2_tensor_for_moe_compute,
    prepare_w2_tensor_with_bias as prepare_w2_tensor_with_bias,
    quantize_weights_via_host as quantize_weights_via_host,
)
from softmesh.ops.moe.weight_placement import get_weight_core_shard_maps as get_weight_core_shard_maps
from softmesh.ops.prefetcher.prefetch_buffers import (
    create_global_circular_buffer_for_matmul_1d as create_global_circular_buffer_for_matmul_1d,
    create_global_circular_buffer_for_tensor_prefetcher as create_global_circular_buffer_for_tensor_prefetcher,
    tensor_prefetcher_block_count_for_matmul_1d as tensor_prefetcher_block_count_for_matmul_1d,
)
from softmesh.ops.prefetcher.tensor_prefetcher import (
    dram_prefetcher_consumer as test_dram_prefetcher_consumer,
    dram_prefetcher_validator as test_dram_prefetcher_validator,
    is_tensor_prefetcher_supported as is_tensor_prefetcher_supported,
    queue_tensor_prefetcher_request as queue_tensor_prefetcher_request,
    start_tensor_prefetcher as start_tensor_prefetcher,
    stop_tensor_prefetcher as stop_tensor_prefetcher,
    wait_for_cq_on_tensor_prefetcher as wait_for_cq_on_tensor_prefetcher,
)
from softmesh.ops.random.dropout_and_sampling import dropout as dropout
from softmesh.experimental import deepseek as deepseek
from softmesh.experimental import deepseek_prefill as deepseek_prefill
from softmesh.experimental import moe_compute_utils as moe_compute_utils
from softmesh.experimental import quasar as quasar

@overload
def all_gather_async(
    input_tensor: Tensor,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
) -> Tensor:
    """Every member gets the pieces of all, side by side along `dim`."""
@overload
def all_gather_async(
    input_tensor: Tensor,
    persistent_output_buffer: Tensor | None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    use_broadcast: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
) -> Tensor: ...
@overload
def all_gather_async(
    input_tensor: Tensor,
    *,
    persistent_output_buffer: Tensor | None = None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    use_broadcast: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
) -> Tensor: ...
@overload
def all_gather_async(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int | None,
    mesh_device: MeshDevice | None,
    topology: Topology,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    persistent_output_tensor: Tensor | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    subdevice_id: SubDeviceId | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    use_broadcast: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
) -> Tensor: ...
@overload
def all_gather_async_reversed(
    input_tensor: Tensor,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
) -> Tensor:
    """Every member gets the pieces of all along `dim`, that of the last member first."""
@overload
def all_gather_async_reversed(
    input_tensor: Tensor,
    persistent_output_buffer: Tensor | None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    use_broadcast: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
) -> Tensor: ...
@overload
def all_gather_async_reversed(
    input_tensor: Tensor,
    *,
    persistent_output_buffer: Tensor | None = None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    use_broadcast: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
) -> Tensor: ...
@overload
def all_gather_async_reversed(
    input_tensor: Tensor,
    dim: int,
    cluster_axis: int | None,
    mesh_device: MeshDevice | None,
    topology: Topology,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    persistent_output_tensor: Tensor | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    subdevice_id: SubDeviceId | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    use_broadcast: bool | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
) -> Tensor: ...
def all_gather_concat(
    input_tensor: Tensor,
    buffer_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    mesh_device: MeshDevice,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_heads: int,
    memory_config: MemoryConfig,
    *,
    use_noc1_only: bool | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
) -> Tensor:
    """[1, users, heads, width] gathered along `dim`, then each user's heads side by side: [1, 1, users, features]."""
@overload
def all_gather_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    persistent_output_buffer: Tensor | None,
    dim: int,
    multi_device_global_semaphore: Any,
    all_gather_core_grid_offset: CoreCoord | Sequence[int] | None,
    *,
    bias: object = None,
    num_links: int | None = None,
    memory_config_ag: MemoryConfig | None = None,
    topology: Topology | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config_mm: MemoryConfig | None = None,
    transpose_a: object = None,
    transpose_b: object = None,
    dtype: DataType | None = None,
    program_config: HardwareConfig | None = None,
    activation: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
) -> list[Tensor]:
    """[the gathered input, its product with the weight]"""
@overload
def all_gather_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    *,
    persistent_output_buffer: Tensor | None = None,
    dim: int,
    multi_device_global_semaphore: Any,
    all_gather_core_grid_offset: CoreCoord | Sequence[int] | None,
    bias: object = None,
    num_links: int | None = None,
    memory_config_ag: MemoryConfig | None = None,
    topology: Topology | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config_mm: MemoryConfig | None = None,
    transpose_a: object = None,
    transpose_b: object = None,
    dtype: DataType | None = None,
    program_config: HardwareConfig | None = None,
    activation: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
) -> list[Tensor]: ...
def all_gather_minimal_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    *,
    bias_tensor: Tensor | None = None,
    scalar: object = None,
    addcmul_input_tensor1: Tensor | None = None,
    addcmul_input_tensor2: Tensor | None = None,
    fused_activation: object = None,
    config: object = None,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    topology: Topology | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    persistent_output_buffer: Tensor | None = None,
    num_links: int | None = None,
    cluster_axis: int | None = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    force_transpose: bool | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    chunks: int | None = None,
    dim: int | None = None,
    fsdp_cluster_axis: object = None,
    fsdp_multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    persistent_weight_buffer: Tensor | None = None,
    fsdp_topology: Topology | None = None,
    fuse_swiglu: object = None,
    chunk_sizes: Sequence[int] | None = None,
) -> list[Tensor]:
    """[the product of the input, gathered along its last dim, and the weight, in pieces along the last dim]"""
@overload
def all_reduce_async(
    input_tensor: Tensor,
    num_devices: int | None,
    barrier_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore],
    rs_global_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore],
    ag_global_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore],
    math_op: ReduceType,
    *,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
) -> Tensor:
    """Every member gets the sum over the group."""
@overload
def all_reduce_async(
    input_tensor: Tensor,
    cluster_axis: int | None,
    mesh_device: MeshDevice | None,
    barrier_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore] | None,
    rs_global_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore] | None,
    ag_global_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore] | None,
    math_op: ReduceType,
    *,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
) -> Tensor: ...
@overload
def all_reduce_async(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    mesh_device: MeshDevice | None,
    barrier_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    rs_global_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    ag_global_semaphores: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    math_op: ReduceType,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
) -> Tensor: ...
@overload
def all_reduce_async(
    input_tensor: Tensor,
    buffer_tensor: Tensor,
    cluster_axis: int | None,
    mesh_device: MeshDevice | None,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    use_noc1_only: bool | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
    fp32_dest_acc: bool | None = None,
) -> Tensor: ...
def all_reduce_create_qkv_heads(
    input_tensor: Tensor,
    buffer_tensor: Tensor,
    batch_offset: Tensor,
    cluster_axis: int,
    mesh_device: MeshDevice,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_heads: int,
    *,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    num_kv_heads: int | None = None,
    slice_size: int | None = None,
    final_memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    use_noc1_only: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(the sum over the group, its queries, its keys, its values), in the form of nlp_create_qkv_heads_decode."""
def all_to_all_async(
    input_tensor: Tensor,
    persistent_intermediate_buffer: Tensor,
    persistent_output_buffer: Tensor | None,
    in_dim: int,
    out_dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
) -> Tensor:
    """Each member cuts its piece along `out_dim` and joins what it gets along `in_dim`, into the buffer given."""
def all_to_all_async_generic(
    input_tensor: Tensor,
    in_dim: int,
    out_dim: int,
    *,
    persistent_output_buffer: Tensor | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
) -> Tensor:
    """Each member cuts its piece along `out_dim`, sends chunk i to member i, joins what it gets along `in_dim`."""
def all_to_all_dispatch_metadata(
    input_tensor: Tensor,
    expert_indices_tensor: Tensor,
    expert_scores_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    *,
    shared_expert_ids: Sequence[int] | None = None,
    cluster_axis: int | None = None,
    output_tensors: Tensor | Sequence[Tensor] | None = None,
    num_links: int | None = None,
    drain_sync_tilizer_core: object = None,
    worker_mode: object = None,
    dispatch_algorithm: object = None,
    worker_core_range_set: CoreRangeSet | CoreRange | None = None,
    mux_core_range_set: CoreRangeSet | CoreRange | None = None,
    cross_device_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
) -> list[Tensor]:
    """[tokens, indices, scores] of the group's T tokens: [1, T, hidden], [1, T, K] and [1, T, K]."""
def attn_matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    compute_with_storage_grid_size: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """[rows, heads, users, inner] @ [users, 1, inner, columns] -> [rows, heads, users, columns]"""
def attn_matmul_from_cache(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    num_tokens: int,
    transpose_hw: bool,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    compute_with_storage_grid_size: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """attn_matmul with the first `num_tokens` rows (rounded up to a tile) of a cache [users, 1, length, width]."""
def broadcast_to(
    input: Tensor,
    output_shape: Sequence[int],
    *,
    memory_config: MemoryConfig | None = None,
    output: Tensor | None = None,
) -> Tensor:
    """Repeat dims of extent 1 up to `output_shape`, adding dims in front."""
def concatenate_heads(
    input_tensor: Tensor,
    compute_with_storage_grid_size: object = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """[b, heads, s, width] -> [b, 1, s, heads * width]"""
def convert_to_chw(input: Tensor, *, dtype: DataType | None = None) -> Tensor:
    """[1, 1, H*W, C] -> [1, 1, C, H*W], row-major."""
def convert_to_hwc(
    input: Tensor, *, memory_config: MemoryConfig | None = None, dtype: DataType | None = None
) -> Tensor:
    """[1, N, C, H*W] -> [1, 1, N*H*W, C], row-major; TT-NN also pads C in memory, which the values do not show."""
def create_qkv_heads(
    input: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
    memory_config: MemoryConfig | None = None,
    output_tensors: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[b, 1, s, features], for each key head: its queries, then its key, then its value."""
def create_qkv_heads_from_separate_tensors(
    input: Tensor,
    input_kv: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
    memory_config: MemoryConfig | None = None,
    output_tensors: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """q from rows of `input`; k and v from rows of `input_kv`, which has each key head beside its value head."""
def deepseek_grouped_gate(
    scores: Tensor,
    bias: Tensor,
    *,
    n_groups: int = 8,
    summed_experts_per_group: int = 2,
    topk_groups: int = 4,
    n_activated_experts: int = 8,
    route_scale: float = 1.0,
    epsilon: float = ...,
    memory_config: MemoryConfig | None = None,
) -> list[Tensor]:
    """[weights, indices (uint16)] of the chosen experts: by sigmoid plus bias; the weights are the sigmoids' shares."""
def deepseek_moe_fast_reduce_nc(
    input_tensor: Tensor,
    dim: int,
    *,
    split_size: int,
    output_memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> list[Tensor]:
    """The sum over `dim`, which stays with an extent of 1, cut along the last dim into pieces of `split_size`."""
def deepseek_moe_fast_reduce_nc_fused(
    input_tensor: Tensor,
    expert_indices_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    reduce_dim: int,
    *,
    split_size: int,
    cluster_axis: int,
    output_memory_config: MemoryConfig | None = None,
    scores_tensor: Tensor | None = None,
    num_shared_experts: int | None = None,
    shared_expert_scale: float | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> list[Tensor]:
    """The slots of each token that experts of the device's own group filled, times their scores, added up and cut."""
def deepseek_moe_post_combine_tilize(
    input_tensor: Tensor, *, output_memory_config: MemoryConfig | None = None
) -> Tensor:
    """Rows, as they come of combining, to tiles."""
def deepseek_moe_reduce_scatter(
    input_tensors: Sequence[Tensor],
    output_memory_config: MemoryConfig,
    dim: int,
    *,
    num_links: int | None = None,
    topology: Topology | None = None,
    cluster_axis: int | None = None,
) -> Tensor:
    """reduce_scatter of tensors that lie side by side along `dim`."""
@overload
def dit_fused_distributed_layernorm(
    input_tensor: Tensor,
    cluster_axis: int | None,
    mesh_device: MeshDevice,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    topology: Topology | None = None,
    epsilon: object = None,
    num_heads_per_device: int | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    transformation_mat: Tensor | None = None,
    rope_cos: Tensor | None = None,
    rope_sin: Tensor | None = None,
    dtype: DataType | None = None,
    persistent_output_buffer: Tensor | None = None,
    num_preferred_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    reciprocals: object = None,
) -> Tensor:
    """layer_norm of rows that are split along `cluster_axis`, then heads and rotation."""
@overload
def dit_fused_distributed_layernorm(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    mesh_device: MeshDevice,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    topology: Topology | None = None,
    epsilon: object = None,
    num_heads_per_device: int | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    transformation_mat: Tensor | None = None,
    rope_cos: Tensor | None = None,
    rope_sin: Tensor | None = None,
    dtype: DataType | None = None,
    persistent_output_buffer: Tensor | None = None,
    num_preferred_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    reciprocals: object = None,
) -> Tensor: ...
@overload
def dit_fused_distributed_layernorm_create_stats_buffer(
    input_tensor: Tensor,
    cluster_axis: int | None,
    mesh_device: MeshDevice,
    *,
    num_heads_per_device: int | None = None,
    num_links: int | None = None,
    weight: object = None,
    transformation_mat: object = None,
    rope_cos: object = None,
    rope_sin: object = None,
) -> Tensor | None:
    """Room for the statistics of all devices, to be given as persistent_output_buffer; None without an axis."""
@overload
def dit_fused_distributed_layernorm_create_stats_buffer(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    mesh_device: MeshDevice,
    num_heads_per_device: int | None = None,
    num_links: int | None = None,
    weight: object = None,
    transformation_mat: object = None,
    rope_cos: object = None,
    rope_sin: object = None,
) -> Tensor | None: ...
@overload
def dit_fused_distributed_rmsnorm(
    input_tensor: Tensor,
    cluster_axis: int | None,
    mesh_device: MeshDevice,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    topology: Topology | None = None,
    epsilon: object = None,
    num_heads_per_device: int | None = None,
    per_head_norm: object = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    transformation_mat: Tensor | None = None,
    rope_cos: Tensor | None = None,
    rope_sin: Tensor | None = None,
    dtype: DataType | None = None,
    persistent_output_buffer: Tensor | None = None,
    num_preferred_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    affine_tile_row_map: object = None,
) -> Tensor:
    """rms_norm of rows that are split along `cluster_axis`, then heads and rotation."""
@overload
def dit_fused_distributed_rmsnorm(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    mesh_device: MeshDevice,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    topology: Topology | None = None,
    epsilon: object = None,
    num_heads_per_device: int | None = None,
    per_head_norm: object = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    transformation_mat: Tensor | None = None,
    rope_cos: Tensor | None = None,
    rope_sin: Tensor | None = None,
    dtype: DataType | None = None,
    persistent_output_buffer: Tensor | None = None,
    num_preferred_links: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    affine_tile_row_map: object = None,
) -> Tensor: ...
@overload
def dit_fused_distributed_rmsnorm_create_stats_buffer(
    input_tensor: Tensor,
    cluster_axis: int | None,
    mesh_device: MeshDevice,
    *,
    num_heads_per_device: int | None = None,
    per_head_norm: object = None,
    num_links: int | None = None,
    weight: object = None,
    transformation_mat: object = None,
    rope_cos: object = None,
    rope_sin: object = None,
) -> Tensor | None:
    """Room for the statistics of all devices, to be given as persistent_output_buffer; None without an axis."""
@overload
def dit_fused_distributed_rmsnorm_create_stats_buffer(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    mesh_device: MeshDevice,
    num_heads_per_device: int | None = None,
    per_head_norm: object = None,
    num_links: int | None = None,
    weight: object = None,
    transformation_mat: object = None,
    rope_cos: object = None,
    rope_sin: object = None,
) -> Tensor | None: ...
def dit_layernorm_post_allgather(
    input_tensor: Tensor,
    stats: Tensor,
    *,
    epsilon: float = 1e-05,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """layer_norm of a row that is split over devices, from the gathered statistics."""
def dit_layernorm_pre_allgather(
    input_tensor: Tensor,
    recip_tensor: Tensor,
    *,
    dtype: DataType = ...,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """This device's share of the statistics of a layer norm, as layer_norm_pre_all_gather has them."""
def dit_rms_norm_unary_fused(
    input_tensor: Tensor,
    epsilon: float = 1e-05,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None,
    *,
    activation: UnaryWithParam | str | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """rms_norm, then an activation of the result."""
def fast_reduce_nc(
    input: Tensor,
    *,
    dims: Sequence[int] = (),
    memory_config: MemoryConfig | None = None,
    output: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
) -> Tensor:
    """The sum over dims in front of the last two, which stay with an extent of 1."""
def gelu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    approximate: str = 'none',
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """As `gelu_bw`, by itself and not in a list; `approximate` is "none" or "tanh"."""
def group_attn_matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    compute_with_storage_grid_size: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """[rows, heads, users, inner] @ [users, kv_heads, inner, columns]: heads share their group's matrix."""
def halo_scatter(
    compact_buffer: Tensor,
    interior_src: Tensor,
    np_padding_h: int,
    np_padding_w: int,
    *,
    border_only: bool = False,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """A piece [..., H, W, C] with the border that neighbor_pad_halo made: [..., H + 2 h, W + 2 w, C]."""
def hc_sum_reduce(
    input: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    math_fidelity: object = None,
) -> Tensor:
    """[1, 1, s, n * 32] -> [1, 1, s, n]: the sum of each 32 columns."""
def high_bw_all_gather(
    input_tensor: Tensor,
    dim: int,
    output_tensor: Tensor | None,
    *,
    cluster_axis: int | None = None,
    subdevice_id: SubDeviceId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    num_links: int | None = None,
    input_batch_index: object = None,
    gathered_dim_size: object = None,
    input_batch_index_tensor: object = None,
    batch_slot_num_layers: object = None,
    batch_slot_layer_idx: object = None,
    gathered_prefix_tensor: object = None,
    gathered_slab_global: object = None,
    ready_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    data_valid_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
) -> Tensor:
    """all_gather into a tensor that is there."""
def indexer_score_dsa(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    *,
    chunk_start_idx: Tensor | float | None = None,
    kv_len: Tensor | float | None = None,
    cache_batch_idx: Tensor | float | None = None,
    key_compression_ratio: int = 1,
    seq_shard_axes: object = None,
    block_cyclic_sp_axis: int | None = None,
    block_cyclic_chunk_local: int | None = None,
    block_cyclic_cache_tp_sharded: bool = False,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """[b, 1, s, length]: the sum over heads of weight * relu(q . k)."""
def intimg(input_tensor: Tensor) -> Tensor:
    """[N, H, W, C]: at each pixel the sum of all above and to the left of it, its own row and column included."""
def llama_all_gather_matmul_async(
    input_tensor0: Tensor,
    input_tensor1: Tensor,
    intermediate_tensor: Tensor,
    dim: int,
    cluster_axis: int,
    mesh_device: MeshDevice,
    topology: Topology,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    ag_memory_config: MemoryConfig | None = None,
    mm_memory_config: MemoryConfig | None = None,
    subdevice_id: SubDeviceId | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    dtype: DataType | None = None,
    global_cb: object = None,
) -> Tensor:
    """The product of tensor 0, gathered along `dim`, and tensor 1."""
def llama_reduce_scatter(
    input_tensor: Tensor,
    intermediate_packet_buffer: Tensor,
    dim: int,
    cross_device_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    subdevice_id: SubDeviceId | None,
    cluster_axis: int,
    mesh_device: MeshDevice,
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    use_noc1_only: bool | None = None,
) -> Tensor:
    """reduce_scatter along the last of four dims."""
def llama_rs_create_heads(
    input_tensor: Tensor,
    intermediate_packet_buffer: Tensor,
    dim: int,
    cross_device_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    subdevice_id: SubDeviceId | None,
    cluster_axis: int,
    mesh_device: MeshDevice,
    topology: Topology,
    *,
    num_links: int | None = None,
    num_heads: int,
    num_kv_heads: int,
    memory_config: MemoryConfig | None = None,
    qkv_memory_config: MemoryConfig | None = None,
    use_noc1_only: bool | None = None,
    use_optimal_ccl_for_llama: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(queries, keys, values) of the sum over the group, [1, users, heads, width]: of its part of the users each."""
def matmul_reduce_scatter_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    persistent_intermediate_buffer: Tensor,
    persistent_output_buffer: Tensor,
    dim: int,
    multi_device_global_semaphore: Any,
    reduce_scatter_core_grid_offset: CoreCoord | Sequence[int] | None,
    *,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    bias: object = None,
    num_links: int | None = None,
    memory_config_rs: MemoryConfig | None = None,
    intermediate_memory_config_rs: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    memory_config_mm: MemoryConfig | None = None,
    transpose_a: object = None,
    transpose_b: object = None,
    dtype: DataType | None = None,
    program_config: HardwareConfig | None = None,
    activation: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
) -> list[Tensor]:
    """[the product, its sum over the group, dealt out along `dim`]"""
def minimal_matmul(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    *,
    bias_tensor: Tensor | None = None,
    fused_activation: str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float] | None = None,
    fuse_swiglu: bool = False,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    config: object = None,
) -> Tensor:
    """linear, by the names of TT-NN's lean kernel."""
def minimal_matmul_split(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    *,
    bias_tensor: Tensor | None = None,
    chunks: int = 3,
    dim: int = -1,
    fused_activation: str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float] | None = None,
    fuse_swiglu: bool = False,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    config: object = None,
) -> list[Tensor]:
    """The product, cut along its last dim into `chunks` pieces."""
def minimal_matmul_strided_reduce_scatter_async(
    input_tensor: Tensor | list[Tensor],
    weight_tensor: Tensor,
    dim: int,
    multi_device_global_semaphore: Any,
    reduce_scatter_core_grid_offset: CoreCoord | Sequence[int] | None,
    *,
    compute_kernel_config: WormholeComputeKernelConfig | None,
    num_links: int | None = None,
    memory_config_mm: MemoryConfig | None = None,
    rs_output_mem_config: MemoryConfig | None = None,
    rs_intermediate_mem_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    cluster_axis: int | None = None,
    bias: Tensor | None = None,
    fused_activation: object = None,
    config: object = None,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    using_persistent_buffers: bool | None = None,
    sub_device_id: SubDeviceId | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    chunk_width_in_mm_blocks: int | None = None,
    optional_rs_output_tensor: Tensor | None = None,
    fused_ternary_scalar: object = None,
    addcmul_input_tensor1: Tensor | None = None,
    addcmul_input_tensor2: Tensor | None = None,
    dtype: DataType | None = None,
    mm_progress_counters: Tensor | None = None,
    mm_window_blocks: int | None = None,
    mm_credit_counters: Tensor | None = None,
) -> list[Tensor]:
    """[the product, its sum over the group, dealt out along `dim`]; a gated addition is made of the latter."""
def moe_compute(
    tilize_input_tensor: Tensor,
    tilize_expert_indices_tensor: Tensor,
    tilize_expert_scores_tensor: Tensor,
    tilize_expert_mapping_tensor: Tensor,
    matmul_w0_w1_tensor: Tensor,
    matmul_w2_tensor: Tensor,
    *,
    layer_id: int,
    output_height_shard_dim: int,
    intermediate_size: int,
    has_bias: bool | None = None,
    cluster_axis: int | None = None,
    topology: Topology | None = None,
    num_links: int | None = None,
    mux_core_range_set: CoreRangeSet | CoreRange | None = None,
    output_memory_config: Any = None,
    optional_output_tensor: Tensor | None = None,
    optional_cross_device_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    activation_type: object = None,
    compute_only: bool | None = None,
    num_shared_experts_per_device: int | None = None,
    activation_limit: object = None,
    math_fidelity: object = None,
    fp32_dest_acc_en: object = None,
) -> list[Tensor]:
    """What the experts of each device make of the tokens that chose them, and that sent back to the tokens' devices."""
def multi_scale_deformable_attn(
    value: Tensor,
    grid: Tensor,
    attn: Tensor,
    *,
    align_corners: bool = False,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Values [N, H, W, D] at points [N, Q * P, 1, 2], weighted by [N, Q, P] and summed over P: [N, Q, D]."""
def neighbor_pad_async(
    input_tensor: Tensor,
    dim: Sequence[int],
    padding_left: Sequence[int],
    padding_right: Sequence[int],
    padding_mode: str,
    cluster_axis: Sequence[int],
    neighbor_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: Sequence[int] | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    persistent_output_buffer: Tensor | None = None,
    logical_h: int | None = None,
    t_front_pad: int | None = None,
) -> Tensor:
    """Each piece is extended by rows of its neighbours; at the ends by zeros or by its own edge."""
def neighbor_pad_halo(
    input: Tensor,
    halo_buffer: Tensor,
    np_padding_h: int,
    np_padding_w: int,
    np_cluster_axis: int,
    np_num_links: int,
    np_topology: Topology,
    h_neighbor_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    barrier_semaphore: Any,
    w_neighbor_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    np_pad_dim2: int,
    np_pad2_left: int,
    np_pad2_right: int,
    np_pad2_cluster_axis: int,
    np_pad2_num_links: int,
    *,
    padding_mode: str | None = None,
    memory_config: MemoryConfig | None = None,
    input_pad_h: int | None = None,
    input_pad_w: int | None = None,
    padded_output: Tensor | None = None,
    border_only: object = None,
) -> Tensor:
    """The border of each piece [..., H, W, C], into the first pixels of `halo_buffer`, which is returned."""
def nlp_concat_heads(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """[b, heads, s, width] -> [b, 1, s, heads * width]"""
def nlp_concat_heads_decode(
    input_tensor: Tensor,
    *,
    num_heads: int,
    sub_core_grids: CoreRangeSet | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """[1, users, heads, width] -> [1, 1, users, num_heads * width]; heads beyond `num_heads` are padding."""
def nlp_create_qkv_heads(
    input: Tensor,
    input_kv: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
    kv_tied: bool = False,
    memory_config: MemoryConfig | None = None,
    output_tensors: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[b, 1, s, (heads + 2 kv_heads) * width] -> q [b, heads, s, width], k and v [b, kv_heads, s, width]."""
def nlp_create_qkv_heads_decode(
    input_tensor: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    batch_offset: Tensor | None = None,
    slice_size: int | None = None,
    overlap_qk_coregrid: bool = True,
    memory_config: MemoryConfig | None = None,
    output_tensors: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[1, 1, users, (heads + 2 kv_heads) * width] -> q [1, users, heads, width], k and v [1, users, kv_heads, width]."""
def nlp_create_qkv_heads_falcon7b(
    input: Tensor, *, memory_config: MemoryConfig | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """[b, 1, s, 4672] -> 71 query heads of width 64, and one head each of keys and values."""
def nlp_create_qkv_heads_segformer(
    input: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensors: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[b, 1, s, heads * 32] -> [b, heads, s, 32], three times."""
def nlp_create_qkv_heads_vit(
    input: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensors: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[b, 1, s, 2304] -> 12 heads of width 64 each of queries, keys and values."""
def padded_slice(
    input_tensor: Tensor,
    padded_slice_start: Sequence[int],
    padded_slice_end: Sequence[int],
    padded_slice_step: Sequence[int] | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    pad_value: object = None,
) -> Tensor:
    """input[start:end:step]; the padding up to whole shards of its memory config is not part of the values."""
def paged_fill_cache(
    cache_tensor: Tensor,
    input_tensor: Tensor,
    page_table: Tensor,
    *,
    batch_idx_tensor: Tensor | None = None,
    valid_seq_len_tensor: Tensor | None = None,
    mesh_coords: Collection[MeshCoordinate] | None = None,
    batch_idx: Tensor | float = 0,
    block_size: int | None = None,
    cache_position_modulo: int | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Write [1, heads, s, width] as positions 0 to s - 1 of user `batch_idx`; returns the cache."""
def paged_fused_update_cache(
    cache_tensor1: Tensor,
    input_tensor1: Tensor,
    cache_tensor2: Tensor,
    input_tensor2: Tensor,
    *,
    update_idxs_tensor: Tensor | None = None,
    page_table: Tensor | None = None,
    mesh_coords: Collection[MeshCoordinate] | None = None,
    update_idxs: Tensor | float | Sequence[int] = (),
    share_cache: bool | None = None,
    batch_offset: int = 0,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """paged_update_cache of two caches at the same positions, most often keys and values; returns both."""
def paged_update_cache(
    cache_tensor: Tensor,
    input_tensor: Tensor,
    *,
    update_idxs_tensor: Tensor | None = None,
    page_table: Tensor | None = None,
    mesh_coords: Collection[MeshCoordinate] | None = None,
    update_idxs: Tensor | float | Sequence[int] = (),
    share_cache: bool | None = None,
    batch_offset: int = 0,
    block_size: int | None = None,
    num_kv_heads: int | None = None,
    cache_position_modulo: int | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Write one token of each user, [1, users, heads, width], at the user's position; returns the cache."""
def prefix_scan(
    a: Tensor,
    bx: Tensor,
    h_prev: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    math_fidelity: object = None,
) -> Tensor:
    """h[t] = a[t] * h[t - 1] + bx[t] down the rows of a and bx [1, 1, s, n], from h_prev [1, 1, 1, n] on."""
def recv_async(
    output_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """The next message into the shards at the receivers; reading the tensor waits for it."""
def recv_async_h2d(
    output_tensor: Tensor, h2d_socket: H2DSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """The shard on the socket's device takes what the host writes; reading the tensor waits for it."""
def recv_direct_async(
    output_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """As `recv_async`, for what `send_direct_async` sends."""
@overload
def reduce_scatter_minimal_async(
    input_tensor: Tensor,
    persistent_output_buffers: Sequence[Tensor] | None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    intermediate_memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Member g gets chunk g, along `dim`, of the sum over the group."""
@overload
def reduce_scatter_minimal_async(
    input_tensor: Tensor,
    *,
    persistent_output_buffers: Sequence[Tensor] | None = None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    intermediate_memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    chunks_per_sync: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor: ...
def reduce_scatter_minimal_async_create_intermediate_buffer(
    input_tensor: Tensor,
    dim: int,
    *,
    topology: Topology | None = None,
    cluster_axis: int | None = None,
    compute_kernel_config: Any = None,
) -> list[Tensor]:
    """[intermediate, penultimate], for `persistent_output_buffers=[intermediate, output, penultimate]`."""
def reduce_scatter_minimal_direct(
    input_tensor: Tensor,
    dim: int,
    *,
    cluster_axis: int | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    persistent_buffers: Sequence[Tensor] | None = None,
    subdevice_id: SubDeviceId | None = None,
    sub_core_grid: CoreRangeSet | CoreRange | None = None,
) -> Tensor:
    """reduce_scatter around a ring, each chunk straight to its owner."""
def reduce_scatter_minimal_direct_create_persistent_buffers(
    input_tensor: Tensor, dim: int, *, cluster_axis: int | None = None
) -> list[Tensor]:
    """[output, staging]"""
def reduce_scatter_minimal_direct_create_staging_buffer(
    input_tensor: Tensor, dim: int, *, cluster_axis: int | None = None
) -> Tensor:
    """Scratch for reduce_scatter_minimal_direct."""
def repeat_and_interleave_eltwise_mul(
    a: Tensor,
    b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    math_fidelity: object = None,
) -> Tensor:
    """a [1, 1, s, 32], repeated n times, times b [1, 1, s, n], each column 32 times: [1, 1, s, n * 32]."""
def ring_attention_all_gather_async(
    input_tensor: Sequence[Tensor],
    persistent_output_buffer: Sequence[Tensor],
    dim: int,
    *,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_links: int | None = None,
    cluster_axis: int,
    mesh_device: MeshDevice,
    memory_config: MemoryConfig | None = None,
    topology: Topology,
    subdevice_id: SubDeviceId | None = None,
) -> list[Tensor]:
    """Several tensors gathered together, each into its buffer, which a device's own piece is not written to."""
def ring_indexer_score_dsa(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    k_local: Tensor,
    ag_multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    cluster_axis: int,
    topology: Topology,
    num_links: int | None = None,
    ag_sub_device_id: SubDeviceId | None = None,
    chunk_start_idx: int | None = None,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    cache_batch_idx: int | None = None,
    kv_len: int | None = None,
    key_compression_ratio: object = None,
    seq_subshard_axis: object = None,
    block_cyclic_sp_axis: object = None,
    block_cyclic_chunk_local: object = None,
    block_cyclic_cache_tp_sharded: object = None,
    chunk_start_idx_tensor: object = None,
    valid_end_tensor: object = None,
    cache_batch_idx_tensor: object = None,
    index_cache_num_layers: object = None,
    index_cache_layer_idx: object = None,
) -> Tensor:
    """indexer_score_dsa over keys that are gathered into `k` along their positions, for queries split alike."""
def rotary_embedding(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    token_index: Tensor | float | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """x * cos + [-x2, x1] * sin for x [b, heads, s, width] and caches [1, 1, length, width]."""
def rotary_embedding_hf(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    is_decode_mode: bool = False,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """x * cos + [-x2, x1] * sin: for whole sequences as rotary_embedding, in decode mode a row for each user."""
def rotary_embedding_llama(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
    *,
    is_decode_mode: bool = False,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """x * cos + (x @ trans_mat) * sin, the matrix [1, 1, 32, 32] turning each tile of 32 columns."""
def rotary_embedding_llama_fused_qk(
    q_input_tensor: Tensor,
    k_input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
    *,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """Decode mode for q [1, users, heads, width] and k [1, users, kv_heads, width] at once."""
def rotate_half(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Put the second half of each row, negated, before the first."""
@overload
def selective_reduce_combine(
    dense_input_tensor: Tensor,
    dense_activations_tensor: Tensor,
    dense_token_maps_tensor: Tensor,
    dense_token_counts_tensor: Tensor,
    hidden_size: int,
    batch_size: int,
    seq_size: int,
    select_experts_k: int,
    cluster_axis: int,
    topology: Topology | None,
    num_links: int | None,
    token_parallel_core_dim: int,
    data_parallel_core_dim: int,
    worker_cores: object,
    mux_core_range_set: CoreRangeSet | CoreRange | None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    optional_cross_device_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
) -> Tensor:
    """[k, tokens of the device, hidden]: slot k of a token holds what its k-th expert made of it."""
@overload
def selective_reduce_combine(
    dense_input_tensor: Tensor,
    dense_activations_tensor: Tensor,
    dense_token_maps_tensor: Tensor,
    dense_token_counts_tensor: Tensor,
    hidden_size: int,
    batch_size: int,
    seq_size: int,
    select_experts_k: int,
    cluster_axis: int,
    *,
    topology: Topology | None = None,
    num_links: int | None = None,
    token_parallel_core_dim: int,
    data_parallel_core_dim: int,
    worker_cores: object,
    mux_core_range_set: CoreRangeSet | CoreRange | None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    optional_cross_device_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
) -> Tensor: ...
def send_async(input_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """Each connection streams the shard at its sender; returns at once, and the tensor may be overwritten."""
def send_async_d2h(
    input_tensor: Tensor, d2h_socket: D2HSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """The shard on the socket's device goes to whom reads the socket."""
def send_direct_async(
    input_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """As `send_async`; on a chip the data goes straight into the receiver's tensor."""
def slice_reshard_async(
    input_tensor: Tensor,
    dim: int,
    output_dim_offset: int,
    output_dim_shape: int,
    cluster_axis: int,
    final_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
) -> Tensor:
    """The members' pieces joined along `dim`, a slice of that, split equally again; rows past the end are 0."""
def slice_write(
    input_tensor: Tensor, output_tensor: Tensor, start: Sequence[int], end: Sequence[int], step: Sequence[int]
) -> Tensor:
    """Write input into output[start:end:step]; returns the output."""
def split_query_key_value_and_split_heads(
    input_tensor: Tensor,
    compute_with_storage_grid_size: object = None,
    *,
    num_heads: int = 16,
    memory_config: MemoryConfig | None = None,
    output_tensors: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[b, 1, s, 3 * heads * width] -> q and v [b, heads, s, width], k transposed."""
@overload
def strided_all_gather_async(
    input_tensor: Tensor,
    persistent_output_buffer: Tensor | None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    cluster_axis: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    mm_cores_y: int | None = None,
    mm_block_ht: int | None = None,
    mm_block_wt: int | None = None,
) -> Tensor:
    """all_gather, in the order in which a matmul behind it wants the pieces."""
@overload
def strided_all_gather_async(
    input_tensor: Tensor,
    *,
    persistent_output_buffer: Tensor | None = None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    cluster_axis: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    mm_cores_y: int | None = None,
    mm_block_ht: int | None = None,
    mm_block_wt: int | None = None,
) -> Tensor: ...
@overload
def strided_all_gather_minimal_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    persistent_output_buffer: Tensor | None,
    dim: int,
    multi_device_global_semaphore: Any,
    strided_all_gather_core_grid_offset: CoreCoord | Sequence[int] | None,
    *,
    num_links: int | None = None,
    memory_config_ag: MemoryConfig | None = None,
    topology: Topology | None = None,
    cluster_axis: int | None = None,
    bias: Tensor | None = None,
    fused_activation: object = None,
    config: object = None,
    memory_config_mm: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    read_local_slice_from_input: bool | None = None,
    fused_ternary_input_a: Tensor | None = None,
    fused_ternary_input_b: Tensor | None = None,
    fused_ternary_scalar: object = None,
    chunks: int | None = None,
    mm_signal_aggregator_mode: object = None,
    fuse_swiglu: object = None,
) -> list[Tensor]:
    """[the product of the gathered input and the weight, in `chunks` pieces; the gathered input]"""
@overload
def strided_all_gather_minimal_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    *,
    persistent_output_buffer: Tensor | None = None,
    dim: int,
    multi_device_global_semaphore: Any,
    strided_all_gather_core_grid_offset: CoreCoord | Sequence[int] | None,
    num_links: int | None = None,
    memory_config_ag: MemoryConfig | None = None,
    topology: Topology | None = None,
    cluster_axis: int | None = None,
    bias: Tensor | None = None,
    fused_activation: object = None,
    config: object = None,
    memory_config_mm: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    read_local_slice_from_input: bool | None = None,
    fused_ternary_input_a: Tensor | None = None,
    fused_ternary_input_b: Tensor | None = None,
    fused_ternary_scalar: object = None,
    chunks: int | None = None,
    mm_signal_aggregator_mode: object = None,
    fuse_swiglu: object = None,
) -> list[Tensor]: ...
@overload
def strided_reduce_scatter_async(
    input_tensor: Tensor,
    persistent_output_buffers: Sequence[Tensor] | None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    mm_block_ht: int,
    mm_block_wt: int,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    intermediate_memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    mm_cores_y: int | None = None,
    mm_N_full_block_wt: int | None = None,
    chunk_width_in_mm_blocks: int | None = None,
) -> Tensor:
    """reduce_scatter, in the order in which a matmul before it makes the blocks."""
@overload
def strided_reduce_scatter_async(
    input_tensor: Tensor,
    *,
    persistent_output_buffers: Sequence[Tensor] | None = None,
    dim: int,
    multi_device_global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    mm_block_ht: int,
    mm_block_wt: int,
    barrier_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore] | None = None,
    num_links: int | None = None,
    memory_config: MemoryConfig | None = None,
    intermediate_memory_config: MemoryConfig | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    cluster_axis: int | None = None,
    num_workers_per_link: int | None = None,
    num_buffers_per_channel: int | None = None,
    mm_cores_y: int | None = None,
    mm_N_full_block_wt: int | None = None,
    chunk_width_in_mm_blocks: int | None = None,
) -> Tensor: ...
def topk_large_indices(
    input_tensor: Tensor,
    *,
    valid_length_tensor: Tensor | None = None,
    valid_end_tensor: Tensor | None = None,
    valid_length: Tensor | float | None = None,
    k: int,
    valid_length_offset: int = 0,
    subdevice_id: SubDeviceId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
) -> Tensor:
    """The places of the k largest along the last dim, largest first, as uint32; 2^32 - 1 where there is nothing left."""
def typecast(
    input_tensor: Tensor,
    dtype: DataType,
    memory_config: MemoryConfig | None = None,
    optional_output_tensor: Tensor | None = None,
) -> Tensor:
    """To another dtype."""
@overload
def view(
    input_tensor: Tensor,
    shape: Sequence[int] | int,
    C: int | None = None,
    H: int | None = None,
    W: int | None = None,
) -> Tensor:
    """`view` by a shape, or by four extents N, C, H, W; shards of whole rows may be cut into rows of another length."""
@overload
def view(
    input_tensor: Tensor,
    N: Sequence[int] | int,
    C: int | None = None,
    H: int | None = None,
    W: int | None = None,
) -> Tensor: ...
