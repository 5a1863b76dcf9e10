# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from collections.abc import Collection, Sequence
from softmesh.hardware.config_base import HardwareConfig
from softmesh.hardware.convolution_configs import SliceType
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from typing import Any, TypeAlias, overload
from softmesh.collectives.argument_checks import ReduceType as ReduceType
from softmesh.collectives.fabric_topology import (
    get_num_links as get_num_links,
    get_usable_topology as get_usable_topology,
)
from softmesh.collectives.semaphores import (
    create_global_semaphore as create_global_semaphore,
    get_global_semaphore_address as get_global_semaphore_address,
    reset_global_semaphore_value as reset_global_semaphore_value,
)
from softmesh.config import (
    Config as Config,
    load_config_from_dictionary as load_config_from_dictionary,
    load_config_from_json_file as load_config_from_json_file,
    manage_config as manage_config,
    save_config_to_json_file as save_config_to_json_file,
)
from softmesh.cores import (
    CoreCoord as CoreCoord,
    CoreGrid as CoreGrid,
    CoreRange as CoreRange,
    CoreRangeSet as CoreRangeSet,
    corerange_to_cores as corerange_to_cores,
    grid_to_cores as grid_to_cores,
    num_cores_to_corerangeset as num_cores_to_corerangeset,
    num_cores_to_corerangeset_in_subcoregrids as num_cores_to_corerangeset_in_subcoregrids,
    split_work_to_cores as split_work_to_cores,
)
from softmesh.cost.program_cost import estimate as estimate, mark_step as mark_step
from softmesh.diff.comparing import assert_same as assert_same, compare as compare
from softmesh.dispatch.hooks import (
    register_post_operation_hook as register_post_operation_hook,
    register_pre_operation_hook as register_pre_operation_hook,
)
from softmesh.dispatch.registry import (
    dump_operations as dump_operations,
    query_registered_operations as query_registered_operations,
)
from softmesh.distribute import distribute as distribute, put as put
from softmesh.distributed.communication_policy import (
    ImplicitCommunication as ImplicitCommunication,
    ImplicitCommunicationError as ImplicitCommunicationError,
    implicit as implicit,
)
from softmesh.distributed.explanation import explain as explain
from softmesh.distributed.placement_requests import mesh_mapper as mesh_mapper
from softmesh.errors import (
    ArgumentError as ArgumentError,
    DeviceMemoryWarning as DeviceMemoryWarning,
    FabricWarning as FabricWarning,
    MeshError as MeshError,
    NotModelled as NotModelled,
    OutOfDeviceMemory as OutOfDeviceMemory,
    PartialError as PartialError,
    PartialWarning as PartialWarning,
    SanitizerError as SanitizerError,
    SanitizerWarning as SanitizerWarning,
    SoftmeshError as SoftmeshError,
    SoftmeshWarning as SoftmeshWarning,
)
from softmesh.hardware.activation import (
    GeluVariant as GeluVariant,
    SigmoidMode as SigmoidMode,
    UnaryOpType as UnaryOpType,
    UnaryWithParam as UnaryWithParam,
)
from softmesh.hardware.convolution_configs import (
    Conv2dConfig as Conv1dConfig,
    Conv2dConfig as Conv2dConfig,
    Conv2dSliceConfig as Conv2dSliceConfig,
    Conv2dSliceConfig as Op2DSliceConfig,
    Conv3dConfig as Conv3dConfig,
    PaddingMode as PaddingMode,
)
from softmesh.hardware.dispatch_cores import (
    DispatchCoreAxis as DispatchCoreAxis,
    DispatchCoreType as DispatchCoreType,
    SubDeviceId as SubDeviceId,
)
from softmesh.hardware.enums import (
    Arch as Arch,
    BcastOpDim as BcastOpDim,
    BcastOpMath as BcastOpMath,
    BufferType as BufferType,
    DataMovementProcessor as DataMovementProcessor,
    DataType as DataType,
    DispatchAlgorithm as DispatchAlgorithm,
    DumpTensorMode as DumpTensorMode,
    Layout as Layout,
    LossReductionMode as LossReductionMode,
    MMSignalAggregatorMode as MMSignalAggregatorMode,
    NOC as NOC,
    NativeEnum as NativeEnum,
    RGBRange as RGBRange,
    ShardShapeAlignment as ShardShapeAlignment,
    TileReshapeMapMode as TileReshapeMapMode,
    UnpackToDestMode as UnpackToDestMode,
    WorkerMode as WorkerMode,
    YUVColorSpace as YUVColorSpace,
    YUVFormat as YUVFormat,
    YUVRange as YUVRange,
)
from softmesh.hardware.fabric_config import (
    FabricConfig as FabricConfig,
    FabricManagerMode as FabricManagerMode,
    FabricNodeId as FabricNodeId,
    FabricReliabilityMode as FabricReliabilityMode,
    FabricRouterConfig as FabricRouterConfig,
    FabricTensixConfig as FabricTensixConfig,
    FabricType as FabricType,
    FabricUDMMode as FabricUDMMode,
    MeshId as MeshId,
    Topology as Topology,
)
from softmesh.hardware.memory_config import (
    MemoryConfig as MemoryConfig,
    NdShardSpec as NdShardSpec,
    ShardDistributionStrategy as ShardDistributionStrategy,
    ShardOrientation as ShardOrientation,
    ShardSpec as ShardSpec,
    ShardStrategy as ShardStrategy,
    TensorMemoryLayout as TensorMemoryLayout,
)
from softmesh.hardware.program_configs import (
    IndexerScoreProgramConfig as IndexerScoreProgramConfig,
    LayerNormDefaultProgramConfig as LayerNormDefaultProgramConfig,
    LayerNormProgramConfig as LayerNormProgramConfig,
    LayerNormShardedMultiCoreProgramConfig as LayerNormShardedMultiCoreProgramConfig,
    MathFidelity as MathFidelity,
    MatmulMultiCoreReuseMultiCast1DProgramConfig as MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig as MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig as MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig as MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig as MatmulMultiCoreReuseProgramConfig,
    MatmulProgramConfig as MatmulProgramConfig,
    MinimalMatmulConfig as MinimalMatmulConfig,
    PagedCacheGeometryOverride as PagedCacheGeometryOverride,
    SDPAProgramConfig as SDPAProgramConfig,
    SoftmaxDefaultProgramConfig as SoftmaxDefaultProgramConfig,
    SoftmaxProgramConfig as SoftmaxProgramConfig,
    SoftmaxShardedMultiCoreProgramConfig as SoftmaxShardedMultiCoreProgramConfig,
    SparseKVFormat as SparseKVFormat,
    ThrottleLevel as ThrottleLevel,
    WormholeComputeKernelConfig as BlackholeComputeKernelConfig,
    WormholeComputeKernelConfig as DeviceComputeKernelConfig,
    WormholeComputeKernelConfig as WormholeComputeKernelConfig,
    init_device_compute_kernel_config as init_device_compute_kernel_config,
)
from softmesh.hardware.shape import Shape as Shape
from softmesh.hardware.sharded_configs import (
    create_sharded_memory_config as create_sharded_memory_config,
    create_sharded_memory_config_ as create_sharded_memory_config_,
)
from softmesh.kernels.generic_op import generic_op as generic_op
from softmesh.kernels.program.kernel import NOC_MODE as NOC_MODE
from softmesh.kernels.program.kernel_descriptor import (
    ComputeConfigDescriptor as ComputeConfigDescriptor,
    DataMovementConfigDescriptor as DataMovementConfigDescriptor,
    KernelDescriptor as KernelDescriptor,
    ReaderConfigDescriptor as ReaderConfigDescriptor,
    RuntimeArgs as RuntimeArgs,
    RuntimeArgsColProxy as RuntimeArgsColProxy,
    WriterConfigDescriptor as WriterConfigDescriptor,
)
from softmesh.kernels.program.packed_args import (
    TensorAccessorArgs as TensorAccessorArgs,
    compute_fabric_connection_rt_args as compute_fabric_connection_rt_args,
    fabric_connection_rt_args_size as fabric_connection_rt_args_size,
    get_fabric_kernel_defines as get_fabric_kernel_defines,
    setup_fabric_connection as setup_fabric_connection,
    setup_routing_plane_connection as fabric_connection_rt_args,
    setup_routing_plane_connection as setup_routing_plane_connection,
)
from softmesh.kernels.program.program_descriptor import (
    CBDescriptor as CBDescriptor,
    CBFormatDescriptor as CBFormatDescriptor,
    CoreType as CoreType,
    MeshProgramDescriptor as MeshProgramDescriptor,
    ProgramDescriptor as ProgramDescriptor,
    SemaphoreDescriptor as SemaphoreDescriptor,
    TileDescriptor as TileDescriptor,
    cb_descriptor_from_sharded_tensor as cb_descriptor_from_sharded_tensor,
    compute_program_descriptor_hash as compute_program_descriptor_hash,
    get_cb_address as get_cb_address,
    merge_program_descriptors as merge_program_descriptors,
)
from softmesh.light_metal.call_recording import (
    LightMetalReplay as LightMetalReplay,
    light_metal_begin_capture as light_metal_begin_capture,
    light_metal_end_capture as light_metal_end_capture,
)
from softmesh.mesh import (
    BoundaryMode as BoundaryMode,
    MeshCoordinate as MeshCoordinate,
    MeshCoordinateRange as MeshCoordinateRange,
    MeshCoordinateRangeSet as MeshCoordinateRangeSet,
    MeshShape as MeshShape,
    line_order as line_order,
    ring_order as ring_order,
)
from softmesh.notebook_extension import (
    load_ipython_extension as load_ipython_extension,
    unload_ipython_extension as unload_ipython_extension,
)
from softmesh.ops.conv.conv2d import (
    conv1d as conv1d,
    conv2d as conv2d,
    conv_transpose2d as conv_transpose2d,
    get_conv_output_dim as get_conv_output_dim,
)
from softmesh.ops.conv.conv_weights import (
    prepare_conv_bias as prepare_conv_bias,
    prepare_conv_bias as prepare_conv_transpose2d_bias,
    prepare_conv_transpose2d_weights as prepare_conv_transpose2d_weights,
    prepare_conv_weights as prepare_conv_weights,
)
from softmesh.ops.creation.creation import (
    arange as arange,
    composite_example_multiple_return as composite_example_multiple_return,
    empty as empty,
    full as full,
    moreh_full as moreh_full,
    ones as ones,
    rand as rand,
    randn as randn,
    zeros as zeros,
)
from softmesh.ops.data_movement.layout_conversion import copy as copy, to_dtype as to_dtype
from softmesh.ops.data_movement.resharding import move as move, reallocate as reallocate
from softmesh.ops.define_op import define_op as define_op
from softmesh.ops.device_operations import (
    DistributedLayerNormStage as DistributedLayerNormStage,
    LayerNormDeviceOperation as LayerNormDeviceOperation,
    LayerNormInputs as LayerNormInputs,
    LayerNormMultiCoreProgramFactory as LayerNormMultiCoreProgramFactory,
    LayerNormParams as LayerNormParams,
    LayerNormShardedProgramFactory as LayerNormShardedProgramFactory,
    LayerNormType as LayerNormType,
    MatmulDeviceOperation as MatmulDeviceOperation,
    MatmulInputs as MatmulInputs,
    MatmulParams as MatmulParams,
    SliceDeviceOperation as SliceDeviceOperation,
    SliceInputs as SliceInputs,
    SliceParams as SliceParams,
    SliceTileProgramFactory as SliceTileProgramFactory,
    create_layer_norm_reciprocals as create_layer_norm_reciprocals,
    create_layernorm_program_config as create_layernorm_program_config,
    create_matmul_attributes as create_matmul_attributes,
    layernorm_default_compute_config as layernorm_default_compute_config,
    matmul_select_program_factory as matmul_select_program_factory,
    rmsnorm_default_compute_config as rmsnorm_default_compute_config,
)
from softmesh.ops.elementwise.complex_tensors import (
    angle as angle,
    angle_bw as angle_bw,
    complex_tensor as complex_tensor,
    conj as conj,
    conj_bw as conj_bw,
    imag as imag,
    imag_bw as imag_bw,
    is_imag as is_imag,
    is_real as is_real,
    polar as polar,
    polar_bw as polar_bw,
    real as real,
    real_bw as real_bw,
)
from softmesh.ops.embedding.embedding import EmbeddingsType as EmbeddingsType
from softmesh.ops.golden.golden_functions import (
    attach_golden_function as attach_golden_function,
    get_fallback_function as get_fallback_function,
    get_golden_function as get_golden_function,
)
from softmesh.ops.moe.routed_experts import RoutedExpertActivation as RoutedExpertActivation
from softmesh.ops.moreh.movement import moreh_arange as moreh_arange
from softmesh.ops.moreh.optimizers import moreh_clip_grad_norm as moreh_clip_grad_norm
from softmesh.ops.normalization.batch_norm import batch_norm as batch_norm
from softmesh.ops.normalization.group_norm import (
    create_group_norm_input_mask as create_group_norm_input_mask,
    create_group_norm_input_negative_mask as create_group_norm_input_negative_mask,
    create_group_norm_reciprocals as create_group_norm_reciprocals,
    create_group_norm_weight_bias_rm as create_group_norm_weight_bias_rm,
    determine_expected_group_norm_dram_grid_size as determine_expected_group_norm_dram_grid_size,
    determine_expected_group_norm_sharded_config_and_grid_size as determine_expected_group_norm_sharded_config_and_grid_size,
    dram_group_norm_params_from_torch as dram_group_norm_params_from_torch,
    get_group_norm_cores_across_channel as get_group_norm_cores_across_channel,
)
from softmesh.ops.prefetcher.tensor_prefetcher import dram_prefetcher as dram_prefetcher
from softmesh.ops.random.dropout_and_sampling import bernoulli as bernoulli, uniform as uniform
from softmesh.placement.placements import (
    Local as Local,
    Partial as Partial,
    Placement as Placement,
    Replicate as Replicate,
    Shard as Shard,
)
from softmesh.placement.tensor_topology import (
    PlacementReplicate as PlacementReplicate,
    PlacementShard as PlacementShard,
    TensorTopology as TensorTopology,
)
from softmesh.planner.layout_plan import plan as plan
from softmesh.processes.context_api import (
    Rank as Rank,
    Size as Size,
    SubcontextId as SubcontextId,
    distributed_context_allgather_int as distributed_context_allgather_int,
    distributed_context_barrier as distributed_context_barrier,
    distributed_context_get_rank as distributed_context_get_rank,
    distributed_context_get_size as distributed_context_get_size,
    distributed_context_is_initialized as distributed_context_is_initialized,
    distributed_context_local_to_world_rank as distributed_context_local_to_world_rank,
    distributed_context_recv_bytes as distributed_context_recv_bytes,
    distributed_context_send_bytes as distributed_context_send_bytes,
    distributed_context_subcontext_count as distributed_context_subcontext_count,
    distributed_context_subcontext_id as distributed_context_subcontext_id,
    distributed_context_subcontext_size as distributed_context_subcontext_size,
    distributed_context_subcontext_sizes as distributed_context_subcontext_sizes,
    distributed_context_world_rank as distributed_context_world_rank,
    distributed_context_world_size as distributed_context_world_size,
    init_distributed_context as init_distributed_context,
    using_distributed_env as using_distributed_env,
)
from softmesh.report.command_log import log_commands as log_commands
from softmesh.report.terminal import (
    visualize_mesh_device as visualize_mesh_device,
    visualize_system_mesh as visualize_system_mesh,
    visualize_tensor as visualize_tensor,
)
from softmesh.runtime.buffers.global_buffers import (
    GlobalCircularBuffer as GlobalCircularBuffer,
    create_global_circular_buffer as create_global_circular_buffer,
)
from softmesh.runtime.commands import (
    Command as Command,
    Cost as Cost,
    Observer as Observer,
    observe as observe,
)
from softmesh.runtime.device import MeshDevice as Device, MeshDevice as MeshDevice
from softmesh.runtime.device_lifecycle import (
    CloseDevices as CloseDevices,
    CreateDevice as CreateDevice,
    CreateDevices as CreateDevices,
    DeviceGrid as DeviceGrid,
    GetDefaultDevice as GetDefaultDevice,
    SetDefaultDevice as SetDefaultDevice,
    close_device as close_device,
    close_mesh_device as CloseDevice,
    close_mesh_device as close_device_mesh,
    close_mesh_device as close_mesh_device,
    create_mesh_device as create_mesh_device,
    manage_device as manage_device,
    open_device as open_device,
    open_device_mesh as open_device_mesh,
    open_mesh_device as open_mesh_device,
    synchronize_device as synchronize_device,
    use_system as use_system,
)
from softmesh.runtime.dispatch_choice import DispatchCoreConfig as DispatchCoreConfig
from softmesh.runtime.dispatch_modes import (
    apply_device_delay as apply_device_delay,
    disable_asynchronous_slow_dispatch as disable_asynchronous_slow_dispatch,
    enable_asynchronous_slow_dispatch as enable_asynchronous_slow_dispatch,
)
from softmesh.runtime.fabric_api import (
    get_all_fabric_mesh_ids as get_all_fabric_mesh_ids,
    get_all_mgd_fabric_types as get_all_mgd_fabric_types,
    get_eth_forwarding_direction as get_eth_forwarding_direction,
    get_fabric_config as get_fabric_config,
    get_forwarding_link_indices as get_forwarding_link_indices,
    get_physical_mesh_shapes as get_physical_mesh_shapes,
    get_tt_fabric_max_payload_size_bytes as get_tt_fabric_max_payload_size_bytes,
    get_tt_fabric_packet_header_size_bytes as get_tt_fabric_packet_header_size_bytes,
    set_fabric_config as set_fabric_config,
)
from softmesh.runtime.machine_queries import (
    GetPCIeDeviceID as GetPCIeDeviceID,
    SystemMeshDescriptor as SystemMeshDescriptor,
    get_arch_name as get_arch_name,
    get_device_ids as get_device_ids,
    get_num_devices as GetNumAvailableDevices,
    get_num_devices as get_num_devices,
    get_num_pcie_devices as GetNumPCIeDevices,
    get_num_pcie_devices as get_num_pcie_devices,
    get_pcie_device_ids as get_pcie_device_ids,
    is_blackhole as is_blackhole,
    is_grayskull as is_grayskull,
    is_wormhole_b0 as is_wormhole_b0,
)
from softmesh.runtime.memory.memory_reports import (
    DeallocateBuffers as DeallocateBuffers,
    dump_device_memory_state as dump_device_memory_state,
    get_allocator_base_address as get_allocator_base_address,
    get_dram_alignment as get_dram_alignment,
    get_l1_alignment as get_l1_alignment,
    get_max_worker_l1_unreserved_size as get_max_worker_l1_unreserved_size,
    get_memory_view as get_memory_view,
)
from softmesh.runtime.profiling import (
    ReadDeviceProfiler as ReadDeviceProfiler,
    get_latest_programs_perf_data as get_latest_programs_perf_data,
    start_tracy_zone as start_tracy_zone,
    stop_tracy_zone as stop_tracy_zone,
    tracy_frame as tracy_frame,
    tracy_message as tracy_message,
)
from softmesh.runtime.queues.event_functions import (
    event_synchronize as event_synchronize,
    record_event as record_event,
    wait_for_event as wait_for_event,
)
from softmesh.runtime.queues.events import MeshEvent as MeshEvent
from softmesh.runtime.queues.queue_id import (
    QueueId as QueueId,
    command_queue as command_queue,
    get_current_command_queue_id_for_thread as get_current_command_queue_id_for_thread,
    pop_current_command_queue_id_for_thread as pop_current_command_queue_id_for_thread,
    push_current_command_queue_id_for_thread as push_current_command_queue_id_for_thread,
)
from softmesh.runtime.queues.sub_devices import (
    SubDevice as SubDevice,
    SubDeviceManagerId as SubDeviceManagerId,
)
from softmesh.runtime.sanitizer.race_detector import sanitize as sanitize
from softmesh.runtime.traces.allocation_tracking import (
    corruptible_allocation_scope as corruptible_allocation_scope,
    mark_corruptible as mark_corruptible,
)
from softmesh.runtime.traces.recording import MeshTraceId as MeshTraceId
from softmesh.runtime.traces.trace_api import (
    begin_trace_capture as begin_trace_capture,
    end_trace_capture as end_trace_capture,
    execute_trace as execute_trace,
    is_trace_capture_active as is_trace_capture_active,
    release_trace as release_trace,
)
from softmesh.sockets.counter_channel import InterProcessCounterChannel as InterProcessCounterChannel
from softmesh.sockets.host_sockets import D2HSocket as D2HSocket, H2DMode as H2DMode, H2DSocket as H2DSocket
from softmesh.sockets.mesh_socket import MeshSocket as MeshSocket, create_socket_pair as create_socket_pair
from softmesh.sockets.socket_config import (
    MeshCoreCoord as MeshCoreCoord,
    SocketConfig as SocketConfig,
    SocketConnection as SocketConnection,
    SocketEndpoint as SocketEndpoint,
    SocketMemoryConfig as SocketMemoryConfig,
)
from softmesh.sockets.stream_services import (
    D2HStreamService as D2HStreamService,
    H2DStreamService as H2DStreamService,
)
from softmesh.strictness import lenient as lenient
from softmesh.tensor.composers import (
    ConcatMesh2dToTensor as ConcatMesh2dToTensor,
    ConcatMesh2dToTensor as concat_2d_mesh_to_tensor_composer,
    ConcatMeshToTensor as ConcatMeshToTensor,
    ConcatMeshToTensor as concat_mesh_to_tensor_composer,
    MeshComposerConfig as MeshComposerConfig,
    MeshToTensor as CppMeshToTensor,
    MeshToTensor as MeshToTensor,
    create_mesh_composer as create_mesh_composer,
)
from softmesh.tensor.device_allocation import (
    allocate_tensor_on_device as allocate_tensor_on_device,
    allocate_tensor_on_host as allocate_tensor_on_host,
    deallocate as deallocate,
)
from softmesh.tensor.device_shards import (
    aggregate_tensor as aggregate_tensor,
    combine_device_tensors as combine_device_tensors,
    distribute_tensor as distribute_tensor,
    from_host_shards as from_host_shards,
    get_device_tensors as get_device_tensors,
    placements as placements,
)
from softmesh.tensor.dtype import (
    element_size as element_size,
    tile_size as tile_size,
    ttnn_dtype_to_torch_dtype as ttnn_dtype_to_torch_dtype,
)
from softmesh.tensor.files import (
    as_tensor as as_tensor,
    dump_tensor as dump_tensor,
    load_tensor as load_tensor,
)
from softmesh.tensor.from_buffer import from_buffer as from_buffer
from softmesh.tensor.from_torch_values import from_torch as from_torch
from softmesh.tensor.mappers import (
    MeshMapperConfig as MeshMapperConfig,
    ReplicateTensorToMesh as ReplicateTensorToMesh,
    ReplicateTensorToMesh as replicate_tensor_to_mesh_mapper,
    ReplicateTensorToMeshWrapper as ReplicateTensorToMeshWrapper,
    ShardTensor2dMesh as ShardTensor2dMesh,
    ShardTensorToMesh as ShardTensorToMesh,
    ShardTensorToMesh as shard_tensor_to_mesh_mapper,
    TensorToMesh as CppTensorToMesh,
    TensorToMesh as TensorToMesh,
    compute_distribution_to_mesh_mapping as compute_distribution_to_mesh_mapping,
    create_mesh_mapper as create_mesh_mapper,
)
from softmesh.tensor.methods import (
    get_memory_config as get_memory_config,
    has_tile_padding as has_tile_padding,
    is_sharded as is_sharded,
    is_tensor_storage_on_device as is_tensor_storage_on_device,
)
from softmesh.tensor.native_names import (
    FaceGeometry as FaceGeometry,
    get_optimal_worker_cores_for_sharded_tensor as get_optimal_worker_cores_for_sharded_tensor,
)
from softmesh.tensor.overlapped_tensors import OverlappedTensor as OverlappedTensor
from softmesh.tensor.partial_copy import (
    copy_host_to_device_tensor_partial as copy_host_to_device_tensor_partial,
)
from softmesh.tensor.pearson_correlation import (
    pearson_correlation_coefficient as pearson_correlation_coefficient,
)
from softmesh.tensor.printing import set_printoptions as set_printoptions
from softmesh.tensor.spec import TensorSpec as TensorSpec
from softmesh.tensor.tensor import StorageType as StorageType, Tensor as Tensor
from softmesh.tensor.tile import Tile as Tile
from softmesh.tensor.transfer import (
    compose as compose,
    copy_device_to_host_tensor as copy_device_to_host_tensor,
    copy_host_to_device_tensor as copy_host_to_device_tensor,
    from_device as from_device,
    to_device as to_device,
    to_torch as to_torch,
)
from softmesh.distributed import ttrun as ttrun

CONFIG: Config
CONFIG_OVERRIDES: None
CONFIG_PATH: None
Conv2dDRAMSliceHeight: SliceType
Conv2dDRAMSliceWidth: SliceType
Conv2dL1Full: SliceType
Conv2dL1FullSliceConfig: Conv2dSliceConfig
DEFAULT_L1_SMALL_SIZE: int
DEFAULT_TRACE_REGION_SIZE: int
DEFAULT_WORKER_L1_SIZE: int
DEVICE_STORAGE_TYPE: StorageType
DRAM_MEMORY_CONFIG: MemoryConfig
HOST_STORAGE_TYPE: StorageType
L1_BLOCK_SHARDED_MEMORY_CONFIG: MemoryConfig
L1_HEIGHT_SHARDED_MEMORY_CONFIG: MemoryConfig
L1_MEMORY_CONFIG: MemoryConfig
L1_WIDTH_SHARDED_MEMORY_CONFIG: MemoryConfig
Mapper: TypeAlias = TensorToMesh | ReplicateTensorToMeshWrapper
Op2DDRAMSliceHeight: SliceType
Op2DDRAMSliceWidth: SliceType
Op2DL1Full: SliceType
Op2DL1FullSliceConfig: Conv2dSliceConfig
ROW_MAJOR_LAYOUT: Layout
TILE_LAYOUT: Layout
TILE_SIZE: int
TRACE_ALLOC_TRACKING: bool
bfloat16: DataType
bfloat4_b: DataType
bfloat8_b: DataType
float32: DataType
fp8_e4m3: DataType
int32: DataType
int8: DataType
uint16: DataType
uint32: DataType
uint8: DataType
experimental: _experimental
kv_cache: _kv_cache
prim: _prim
transformer: _transformer

def abs(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """abs, element by element."""
def abs_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of abs]."""
def acos(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """acos, element by element."""
def acos_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of acos]."""
def acosh(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """acosh, element by element."""
def acosh_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of acosh]."""
def adaptive_avg_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    output_size: Sequence[int],
    *,
    dram_slice_config: Conv2dSliceConfig | None = None,
    applied_shard_scheme: TensorMemoryLayout | None = None,
    memory_config: MemoryConfig | None = None,
    deallocate_input: bool | None = None,
    reallocate_output: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The means of `output_size` windows that cover the image, torch's windows; TT-NN's may differ."""
def adaptive_max_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    output_size: Sequence[int],
    *,
    dram_slice_config: Conv2dSliceConfig | None = None,
    applied_shard_scheme: TensorMemoryLayout | None = None,
    memory_config: MemoryConfig | None = None,
    deallocate_input: bool | None = None,
    reallocate_output: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The largest values of `output_size` windows that cover the image, torch's windows; TT-NN's may differ."""
def add(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """add, element by element, with broadcasting."""
def add_(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """add of both, written into the first; returns it."""
@overload
def add_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    other_tensor: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """The gradients of add: of both tensors, or of the one beside a number."""
@overload
def add_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    scalar: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def addalpha(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    alpha: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a + alpha * b."""
def addalpha_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    alpha: float = 1.0,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_a_grad: Tensor | None = None,
    input_b_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of a + alpha * b."""
def addcdiv(
    input_a: Tensor,
    input_b: Tensor,
    input_c: Tensor,
    *,
    value: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a + value * b / c."""
def addcdiv_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    input_tensor_c: Tensor,
    alpha: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of a + alpha * b / c."""
def addcmul(
    input_a: Tensor,
    input_b: Tensor,
    input_c: Tensor,
    *,
    value: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a + value * b * c; of whole numbers exact, and wrapped as they are."""
def addcmul_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    input_tensor_c: Tensor,
    alpha: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of a + alpha * b * c."""
def addmm(
    input_tensor: Tensor,
    mat1_tensor: Tensor,
    mat2_tensor: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    program_config: MatmulProgramConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    output_tile: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """beta * input + alpha * mat1 @ mat2; an activation of the program config comes right behind the product."""
def alt_complex_rotate90(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Pairs (real, imaginary) along the last dim, multiplied by i."""
def argmax(
    input_tensor: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    enable_secondary_dm: object = None,
    use_multicore: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The index of the first largest element along `dim` (None: of the flattened tensor), as uint32."""
def asin(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """asin, element by element."""
def asin_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of asin]."""
def asinh(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """asinh, element by element."""
def asinh_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of asinh]."""
@overload
def assign(
    input_tensor: Tensor,
    output_tensor: Tensor | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    queue_id: int | QueueId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The same values elsewhere; `(a, b)` overwrites b with a."""
@overload
def assign(
    input_a: Tensor,
    input_b: Tensor | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    queue_id: int | QueueId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
@overload
def assign_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_a_grad: Tensor | None = None,
    input_b_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[the gradient itself], once for each of the operands."""
@overload
def assign_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    input_tensor_b: Tensor | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_a_grad: Tensor | None = None,
    input_b_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]: ...
def atan(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """atan, element by element."""
def atan2(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """atan2, element by element, with broadcasting."""
def atan2_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of atan2."""
def atan_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of atan]."""
def atanh(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """atanh, element by element."""
def atanh_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of atanh]."""
def avg_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dtype: DataType = ...,
    output_layout: Layout = ...,
    dram_slice_config: Conv2dSliceConfig | None = None,
    applied_shard_scheme: TensorMemoryLayout | None = None,
    memory_config: MemoryConfig | None = None,
    deallocate_input: bool | None = None,
    reallocate_halo_output: object = None,
    config_tensor_in_dram: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The mean of each window, as [1, 1, N*OH*OW, C]; padding counts unless told otherwise."""
def bcast(
    input_a: Tensor,
    input_b: Tensor,
    math_op: BcastOpMath,
    dim: BcastOpDim,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a + b, a - b or a * b; b has one row (H), one column (W) or one value (HW) for each matrix of a."""
def bias_gelu(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """gelu(a + b)."""
def bias_gelu_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """bias_gelu of both, written into the first; returns it."""
@overload
def bias_gelu_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    variant: GeluVariant = ...,
    approximate: str | None = None,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of gelu(a + b); `approximate` "tanh" or "none" is the older way to name the variant."""
@overload
def bias_gelu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    bias: Tensor | float,
    *,
    variant: GeluVariant = ...,
    approximate: str | None = None,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def bitcast(
    input_tensor: Tensor,
    dtype: DataType,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The same bits, read as another dtype of the same size."""
@overload
def bitwise_and(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """bitwise_and, element by element, with broadcasting."""
@overload
def bitwise_and(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
@overload
def bitwise_left_shift(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """bitwise_left_shift, element by element, with broadcasting."""
@overload
def bitwise_left_shift(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def bitwise_not(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """bitwise_not, element by element."""
@overload
def bitwise_or(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """bitwise_or, element by element, with broadcasting."""
@overload
def bitwise_or(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
@overload
def bitwise_right_shift(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """bitwise_right_shift, element by element, with broadcasting."""
@overload
def bitwise_right_shift(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
@overload
def bitwise_xor(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """bitwise_xor, element by element, with broadcasting."""
@overload
def bitwise_xor(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def cbrt(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """cbrt, element by element."""
def ceil(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ceil, element by element."""
def ceil_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of ceil]."""
def celu(
    input_tensor: Tensor,
    *,
    alpha: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """x above 0, alpha * (exp(x / alpha) - 1) below."""
def celu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    alpha: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def chunk(
    input_tensor: Tensor,
    chunks: int,
    dim: int,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """`chunks` equal pieces along `dim`; the last may be shorter."""
def clamp(
    input_tensor: Tensor,
    min: Tensor | float | None = None,
    max: Tensor | float | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Into [min, max]; each bound a number, a tensor, or None for no bound."""
def clamp_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    min: Tensor | float | None = None,
    max: Tensor | float | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient where the input lies within the bounds, 0 elsewhere]."""
def clip_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    min: Tensor | float | None = None,
    max: Tensor | float | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient where the input lies within the bounds, 0 elsewhere]."""
def clone(
    input: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """A copy with memory of its own."""
def composite_example(
    input_tensor: Tensor, *, output_topology: object = None, implicit: str | None = None
) -> Tensor:
    """TT-NN's example of an op that is made of others: a copy."""
def concat(
    tensors: Tensor | Sequence[Tensor],
    dim: int = 0,
    *,
    groups: int = 1,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Join several tensors along `dim`, on each device."""
def concat_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    dim: int = 0,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_a_grad: Tensor | None = None,
    input_b_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[the part of the gradient that belongs to a, that of b]."""
def cos(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """cos, element by element."""
def cos_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of cos]."""
def cosh(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """cosh, element by element."""
def cosh_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of cosh]."""
def cumprod(
    input_tensor: Tensor,
    dim: int,
    *,
    reverse_order: bool = False,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    out: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Running products along `dim`; from the end with `reverse_order`."""
def cumsum(
    input: Tensor,
    dim: int,
    *,
    reverse_order: bool = False,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    out: Tensor | None = None,
    disable_compensated_sum: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Running sums along `dim`; from the end with `reverse_order`."""
def deg2rad(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """deg2rad, element by element."""
def deg2rad_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of deg2rad]."""
def dequantize(
    input_tensor: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | float,
    *,
    axis: int | None = None,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """(x - zero_point) * scale, as bfloat16 unless another dtype is asked for."""
def digamma(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """digamma, element by element."""
def digamma_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of digamma]."""
@overload
def div(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    rounding_mode: str | None = None,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a / b; `rounding_mode` "trunc" or "floor" rounds the quotient."""
@overload
def div(
    input_tensor_a: Tensor | float,
    value: Tensor | float,
    *,
    rounding_mode: str | None = None,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
@overload
def div_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    other_tensor: Tensor | float,
    rounding_mode: str | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of a / b; with a rounding mode 0, a rounded quotient being flat."""
@overload
def div_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    scalar: Tensor | float,
    rounding_mode: str | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
@overload
def div_no_nan(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a / b, and 0 where b is 0."""
@overload
def div_no_nan(
    input_tensor_a: Tensor,
    value: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def div_no_nan_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    scalar: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of x / scalar, and 0 where the scalar is 0."""
def divide_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """divide of both, written into the first; returns it."""
def elu(
    input_tensor: Tensor,
    *,
    alpha: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def elu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    alpha: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def ema(
    input_tensor: Tensor,
    alpha: float,
    *,
    out: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """y[t] = alpha * y[t - 1] + (1 - alpha) * x[t] along the last dim, from y = 0 before the first."""
def embedding(
    input_tensor: Tensor,
    weight: Tensor,
    *,
    padding_idx: int | None = None,
    layout: Layout | None = None,
    embeddings_type: EmbeddingsType = ...,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Rows of `weight` (..., rows, width) by the indices in `input_tensor`."""
def embedding_bw(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    output_gradient_tensor: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[1, 1, rows, width]: for each row of the table the sum of the gradients of the tokens that picked it."""
def empty_like(
    tensor: Tensor,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Contents are undefined: here they are zeros, and who reads them before they were written is warned."""
def eq(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """eq, element by element, with broadcasting."""
def eq_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """eq of both, written into the first; returns it."""
def eqz(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """eqz, element by element."""
def erf(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """erf, element by element."""
def erf_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of erf]."""
def erfc(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """erfc, element by element."""
def erfc_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of erfc]."""
def erfinv(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """erfinv, element by element."""
def erfinv_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of erfinv]."""
def exp(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """exp, element by element."""
def exp2(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """exp2, element by element."""
def exp2_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of exp2]."""
def exp_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of exp]."""
def expand(
    input_tensor: Tensor,
    output_shape: Sequence[int],
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Repeat dims of extent 1 up to `output_shape`; -1 keeps an extent."""
def expm1(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """expm1, element by element."""
def expm1_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of expm1]."""
def fill(
    input_tensor: Tensor,
    fill_value: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """`fill_value` in the shape, dtype and split of the tensor."""
def fill_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the sum of the gradient on each device, everywhere]."""
def fill_cache(
    cache_tensor: Tensor,
    input_tensor: Tensor,
    batch_idx: Tensor | float,
    *,
    update_idx: Tensor | float = 0,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Write [1, heads, s, width] at cache[batch_idx, :, update_idx : update_idx + s]; returns the cache."""
def fill_implicit_tile_padding(
    input_tensor: Tensor,
    fill_value: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The same values, and `fill_value` between them and the ends of their tiles."""
def fill_ones_rm(
    N: int,
    C: int,
    H: int,
    W: int,
    hOnes: int,
    wOnes: int,
    any: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """As `fill_rm`, with 1 and 0."""
def fill_rm(
    N: int,
    C: int,
    H: int,
    W: int,
    hOnes: int,
    wOnes: int,
    any: Tensor,
    val_hi: Tensor | float,
    val_lo: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, C, H, W] with val_hi in the first hOnes rows and wOnes columns, val_lo elsewhere; `any` gives the device."""
def fill_zero_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of fill_zero]."""
def floor(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """floor, element by element."""
def floor_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of floor]."""
@overload
def floor_div(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a / b, rounded down."""
@overload
def floor_div(
    input_tensor_a: Tensor,
    value: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
@overload
def fmod(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """fmod, element by element, with broadcasting."""
@overload
def fmod(
    input_tensor_a: Tensor | float,
    scalar: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
@overload
def fmod_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """The gradients of fmod: of both tensors, or of the one beside a number."""
@overload
def fmod_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    scalar: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def fold(
    input: Tensor,
    stride_h: int,
    stride_w: int,
    use_transpose_as_fold: bool = False,
    output_shape: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    grid_size: object = None,
    override_memory_config: MemoryConfig | None = None,
    collapse_output: bool = False,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, H, W, C] -> [N, H/sh, W/sw, C * sh * sw]: windows become channels, row by row, pixel by pixel."""
def frac(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """frac, element by element."""
def frac_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of frac]."""
def full_like(
    tensor: Tensor,
    fill_value: Tensor | float,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    optional_tensor: Tensor | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """`fill_value` in the shape and placement of `tensor`."""
def fused_rms_minimal(
    input_tensor: Tensor,
    program_config: HardwareConfig | None,
    cluster_axis: int,
    mesh_device: MeshDevice,
    global_semaphore: GlobalSemaphore | Sequence[GlobalSemaphore],
    *,
    persistent_output_tensor: Tensor | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    subdevice_id: SubDeviceId | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    memory_config: MemoryConfig | None = None,
    residual_input_tensor: Tensor | None = None,
    epsilon: float | None = None,
    weight: Tensor | None = None,
    stats: Tensor | None = None,
    use_noc1_only: bool | None = None,
) -> Tensor:
    """rms_norm of rows split along `cluster_axis`. `stats` is scratch, of any shape, in which the devices meet."""
def gather(
    input: Tensor,
    dim: int,
    index: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    out: Tensor | None = None,
    sparse_grad: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Elements picked along `dim` by an index tensor of the same rank, on each device."""
def gcd(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """gcd, element by element, with broadcasting."""
def ge(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ge, element by element, with broadcasting."""
def ge_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ge of both, written into the first; returns it."""
def geglu(
    input_tensor: Tensor,
    dim: int = -1,
    *,
    variant: GeluVariant = ...,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The first half of the last dim times gelu of the second; `variant` as in gelu."""
def gelu(
    input_tensor: Tensor,
    *,
    variant: GeluVariant = ...,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """x * Phi(x); `variant` Tanh takes the tanh form. The fast mode's table is not modelled: exact here."""
def gelu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    variant: GeluVariant = ...,
    approximate: str | None = None,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """`approximate`, "none" or "tanh", is another word for the variant."""
def gez(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """gez, element by element."""
def global_avg_pool2d(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, H, W, C] -> [N, 1, 1, C], the mean of each channel."""
def glu(
    input_tensor: Tensor,
    dim: int = -1,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The first half of the last dim, gated by the second. TT-NN also rounds the gate by itself."""
def grid_sample(
    input_tensor: Tensor,
    grid: Tensor,
    *,
    mode: str = 'bilinear',
    padding_mode: str = 'zeros',
    align_corners: bool = False,
    use_precomputed_grid: bool = False,
    batch_output_channels: bool = False,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, H, W, C] at points [N, GH, GW, 2], x and y from -1 to 1: [N, GH, GW, C]."""
def group_norm(
    input_tensor: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    core_grid: CoreGrid | None = None,
    output_layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    input_mask: object = None,
    inplace: object = None,
    num_out_blocks: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    negative_mask: object = None,
    use_welford: object = None,
    reciprocals: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, 1, H*W, C], normalised over the pixels and the channels of each of `num_groups` groups."""
def gt(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """gt, element by element, with broadcasting."""
def gt_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """gt of both, written into the first; returns it."""
def gtz(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """gtz, element by element."""
def hardmish(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """hardmish, element by element."""
def hardshrink(
    input_tensor: Tensor,
    *,
    lambd: float = 0.5,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """0 within lambd of 0, else as it is."""
def hardshrink_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    lambd: float = 0.5,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def hardsigmoid(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """hardsigmoid, element by element."""
def hardsigmoid_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of hardsigmoid]."""
def hardswish(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """hardswish, element by element."""
def hardswish_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of hardswish]."""
def hardtanh(
    input_tensor: Tensor,
    *,
    min_val: float = -1.0,
    max_val: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def hardtanh_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    min: float = -1.0,
    max: float = 1.0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def heaviside(
    input_tensor: Tensor,
    value: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """0 below 0, 1 above, `value` at 0."""
def hypot(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """hypot, element by element, with broadcasting."""
def hypot_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of hypot."""
def i0(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """i0, element by element."""
def i0_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of i0]."""
def i1(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """i1, element by element."""
def identity(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """identity, element by element."""
def index_fill(
    input: Tensor,
    dim: int,
    index: Tensor,
    value: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The input with `value` at the places of `dim` that the index names."""
def index_fill_new(
    input: Tensor,
    dim: int,
    index: Tensor,
    value: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The input with `value` at the places of `dim` that the index names."""
def indexed_fill(
    batch_id: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    dim: int = 0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a, with the entries that `batch_id` names along `dim` replaced by those of b, in their order."""
def interleaved_to_sharded(
    input_tensor: Tensor,
    grid: CoreCoord | Sequence[int] | CoreRangeSet | MemoryConfig | None = None,
    shard_shape: Sequence[int] | None = None,
    shard_scheme: TensorMemoryLayout | None = None,
    shard_orientation: ShardOrientation = ...,
    output_dtype: DataType | None = None,
    *,
    sharded_memory_config: MemoryConfig | None = None,
    preallocated_output: Tensor | None = None,
    keep_l1_aligned: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Spread a tensor over cores: `(tensor, memory_config)` or grid, shard shape, scheme and orientation."""
def interleaved_to_sharded_partial(
    input_tensor: Tensor,
    grid: CoreCoord | Sequence[int] | CoreRangeSet,
    shard_shape: Sequence[int],
    num_slices: int,
    slice_index: int,
    shard_scheme: TensorMemoryLayout,
    shard_orientation: ShardOrientation,
    *,
    output_dtype: DataType | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """One of `num_slices` runs of rows as [1, 1, rows, width], spread over cores."""
def isclose(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """1 where |a - b| <= atol + rtol * |b|."""
def isfinite(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """isfinite, element by element."""
def isinf(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """isinf, element by element."""
def isnan(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """isnan, element by element."""
def isneginf(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """isneginf, element by element."""
def isposinf(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """isposinf, element by element."""
def l1_loss(
    input_reference: Tensor,
    input_prediction: Tensor,
    *,
    reduction: LossReductionMode = ...,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """|a - b|: each, or their mean or sum on each device."""
def layer_norm(
    input_tensor: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None = None,
    recip_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) * weight + bias over the last dim; a residual is added to x first. With a program_config that says inplace, a sharded x is written over."""
def layer_norm_post_all_gather(
    input_tensor: Tensor,
    stats: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None = None,
    use_2d_core_grid: bool | None = None,
    recip_tensor: Tensor | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """layer_norm of a row that is split over devices, from the gathered statistics."""
def layer_norm_pre_all_gather(
    input_tensor: Tensor,
    *,
    dtype: DataType = ...,
    residual_input_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None = None,
    use_2d_core_grid: bool | None = None,
    recip_tensor: Tensor | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """This device's share of the statistics of layer_norm: sum(x^2) and sum(x), each in column 0 of a tile; of a sharded tensor means, that of x first. A residual is added to a sharded tensor in place."""
def lcm(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """lcm, element by element, with broadcasting."""
def ldexp(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ldexp, element by element, with broadcasting."""
def ldexp_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ldexp of both, written into the first; returns it."""
def ldexp_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of ldexp."""
def le(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """le, element by element, with broadcasting."""
def le_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """le of both, written into the first; returns it."""
def leaky_relu(
    input_tensor: Tensor,
    negative_slope: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def leaky_relu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    negative_slope: float = 0.01,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def lerp(
    input: Tensor,
    end: Tensor,
    weight: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """input + weight * (end - input)."""
@overload
def lerp_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    input_tensor_c: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of a + c * (b - a): the gradients of a, b and, where it is a tensor, c."""
@overload
def lerp_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    scalar: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def lez(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """lez, element by element."""
def lgamma(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """lgamma, element by element."""
def lgamma_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of lgamma]."""
@overload
def linear(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float] | None = None,
    program_config: MatmulProgramConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    output_tile: object = None,
    global_cb: object = None,
    sub_device_id: SubDeviceId | None = None,
    prefetcher_pipes: object = None,
    in0_column_offset: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a @ b + bias, then the activation of the program config, then the one given by itself."""
@overload
def linear(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float] | None = None,
    program_config: MatmulProgramConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    output_tile: object = None,
    global_cb: object = None,
    sub_device_id: SubDeviceId | None = None,
    prefetcher_pipes: object = None,
    in0_column_offset: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def log(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """log, element by element."""
def log10(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """log10, element by element."""
def log10_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of log10]."""
def log1p(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """log1p, element by element."""
def log1p_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of log1p]."""
def log2(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """log2, element by element."""
def log2_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of log2]."""
def log_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of log]."""
def log_sigmoid(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """log_sigmoid, element by element."""
def log_sigmoid_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of log_sigmoid]."""
def logaddexp(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logaddexp, element by element, with broadcasting."""
def logaddexp2(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logaddexp2, element by element, with broadcasting."""
def logaddexp2_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logaddexp2 of both, written into the first; returns it."""
def logaddexp2_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of logaddexp2."""
def logaddexp_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logaddexp of both, written into the first; returns it."""
def logaddexp_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of logaddexp."""
def logical_and(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_and, element by element, with broadcasting."""
def logical_and_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_and of both, written into the first; returns it."""
@overload
def logical_left_shift(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_left_shift, element by element, with broadcasting."""
@overload
def logical_left_shift(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def logical_not(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_not, element by element."""
def logical_not_(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """1 where it was 0, else 0."""
def logical_or(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_or, element by element, with broadcasting."""
def logical_or_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_or of both, written into the first; returns it."""
def logical_right_shift(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_right_shift, element by element, with broadcasting."""
def logical_xor(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_xor, element by element, with broadcasting."""
def logical_xor_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logical_xor of both, written into the first; returns it."""
def logit(
    input_tensor: Tensor,
    *,
    eps: float | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """log(x / (1 - x)), of x clamped to [eps, 1 - eps] where eps is given."""
def logit_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of logit]."""
def logiteps_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    eps: float = 0.0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def lt(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """lt, element by element, with broadcasting."""
def lt_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """lt of both, written into the first; returns it."""
def ltz(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ltz, element by element."""
@overload
def mac(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    input_tensor_c: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a * b + c; b and c may be numbers."""
@overload
def mac(
    input_tensor_a: Tensor,
    value1: Tensor | float,
    value2: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def manual_seed(
    seeds: Tensor | float = 0,
    *,
    user_ids: Tensor | float | None = None,
    device: MeshDevice | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Begin the random numbers of all users, or of those in `user_ids`, anew; a tensor has a seed for each of them."""
@overload
def matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float] | None = None,
    program_config: MatmulProgramConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    output_tile: object = None,
    global_cb: object = None,
    sub_device_id: SubDeviceId | None = None,
    prefetcher_pipes: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a @ b on each device. Split along the summed dim on both sides, the result is Partial(sum)."""
@overload
def matmul(
    a: Tensor,
    b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float] | None = None,
    program_config: MatmulProgramConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    output_tile: object = None,
    global_cb: object = None,
    sub_device_id: SubDeviceId | None = None,
    prefetcher_pipes: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def max(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    scalar: float = 1.0,
    correction: bool | None = None,
    output_layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """max of the values times `scalar`, over one dim, several, or (None) all."""
def max_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of max."""
def max_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    *,
    return_indices: bool = False,
    dtype: DataType = ...,
    output_layout: Layout = ...,
    dram_slice_config: Conv2dSliceConfig | None = None,
    applied_shard_scheme: TensorMemoryLayout | None = None,
    memory_config: MemoryConfig | None = None,
    deallocate_input: bool | None = None,
    reallocate_halo_output: object = None,
    config_tensor_in_dram: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor | Any:
    """The largest value of each window, as [1, 1, N*OH*OW, C]; with its place in the image, y * W + x, beside it."""
@overload
def maximum(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """maximum, element by element, with broadcasting."""
@overload
def maximum(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def mean(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    scalar: float = 1.0,
    correction: bool | None = None,
    output_layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """mean of the values times `scalar`, over one dim, several, or (None) all."""
def min(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    scalar: float = 1.0,
    correction: bool | None = None,
    output_layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """min of the values times `scalar`, over one dim, several, or (None) all."""
def min_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of min."""
@overload
def minimum(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """minimum, element by element, with broadcasting."""
@overload
def minimum(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def mish(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """mish, element by element."""
def moe(
    input_tensor: Tensor,
    expert_mask_tensor: Tensor,
    topk_mask_tensor: Tensor,
    k: int = 32,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The weight of expert 0, [..., 1]: 0 where it is not among the best."""
def moreh_abs_pow(
    input: Tensor,
    p: float,
    *,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """|x| to the power of p."""
def moreh_adam(
    param_in: Tensor,
    grad: Tensor,
    exp_avg_in: Tensor,
    exp_avg_sq_in: Tensor,
    *,
    lr: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-08,
    weight_decay: float = 0.0,
    step: int = 0,
    amsgrad: bool = False,
    max_exp_avg_sq_in: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    param_out: object = None,
    exp_avg_out: object = None,
    exp_avg_sq_out: object = None,
    max_exp_avg_sq_out: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[parameters, first moments, second moments, their maxima or None] after one step of Adam."""
def moreh_adamw(
    param_in: Tensor,
    grad: Tensor,
    exp_avg_in: Tensor,
    exp_avg_sq_in: Tensor,
    lr: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-08,
    weight_decay: float = 0.01,
    step: int = 0,
    amsgrad: bool = False,
    *,
    max_exp_avg_sq_in: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    param_out: object = None,
    exp_avg_out: object = None,
    exp_avg_sq_out: object = None,
    max_exp_avg_sq_out: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """As moreh_adam, with weights that decay by themselves."""
def moreh_bmm(
    input: Tensor,
    mat2: Tensor,
    *,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The products of two batches of matrices."""
def moreh_bmm_backward(
    output_grad: Tensor,
    input: Tensor,
    mat2: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    mat2_grad: object = None,
    are_required_outputs: Sequence[bool] | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    input_grad_memory_config: object = None,
    mat2_grad_memory_config: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[gradient of input, of mat2]."""
def moreh_cumsum(
    input: Tensor,
    dim: int,
    *,
    memory_config: MemoryConfig | None = None,
    output: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Running sums along `dim`."""
def moreh_cumsum_backward(
    output_grad: Tensor,
    dim: int,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Running sums from the end."""
def moreh_dot(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    output: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The scalar product of two vectors given as (1, 1, 1, N)."""
def moreh_dot_backward(
    output_grad: Tensor,
    input: Tensor,
    other: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    input_grad_memory_config: object = None,
    other_grad_memory_config: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[gradient of input, of other], each where an output tensor for it is given."""
def moreh_fold(
    input: Tensor,
    output: Tensor | None = None,
    output_size: Sequence[int] = (),
    kernel_size: Sequence[int] = (),
    dilation: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    stride: Sequence[int] = (1, 1),
    memory_config: MemoryConfig | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, C * kernel, patches] to [N, C, *output_size]: where patches overlap, their sum."""
def moreh_full_like(
    input: Tensor,
    fill_value: Tensor | float,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def moreh_getitem(
    input: Tensor | None = None,
    index_tensors: Sequence[Tensor] = (),
    index_dims: Sequence[int] = (),
    *,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """input[..., index, ...]: what the indices say along the dims, which follow each other; the others whole."""
def moreh_group_norm(
    input: Tensor,
    num_groups: int,
    eps: float = 1e-05,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    output: Tensor | None = None,
    mean: object = None,
    rstd: object = None,
    output_memory_config: MemoryConfig | None = None,
    mean_memory_config: object = None,
    rstd_memory_config: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[the norm of each group of channels, mean and inverse deviation as [1, 1, N, groups]]: what is required."""
def moreh_group_norm_backward(
    output_grad: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    num_groups: int,
    *,
    gamma: Tensor | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    gamma_grad: object = None,
    beta_grad: object = None,
    input_grad_memory_config: object = None,
    gamma_grad_memory_config: object = None,
    beta_grad_memory_config: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[gradient of input, of gamma and of beta as [1, 1, 1, C]]: those that are required."""
def moreh_layer_norm(
    input: Tensor,
    normalized_dims: int,
    eps: float = 1e-05,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output: Tensor | None = None,
    mean: object = None,
    rstd: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[the norm over the last dims, mean, inverse deviation]; the latter two where output tensors are given."""
def moreh_layer_norm_backward(
    output_grad: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    normalized_dims: int,
    *,
    gamma: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    gamma_grad: object = None,
    beta_grad: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[gradient of input, of gamma, of beta]; the latter two where output tensors are given."""
def moreh_linear(
    input: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """input @ weight^T + bias."""
def moreh_linear_backward(
    output_grad: Tensor,
    input: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    weight_grad: object = None,
    bias_grad: object = None,
    input_grad_memory_config: object = None,
    weight_grad_memory_config: object = None,
    bias_grad_memory_config: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[gradient of input, of weight, of bias or None]."""
def moreh_logsoftmax(
    input_tensor: Tensor,
    dim: int,
    *,
    output_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    op: object = None,
    strategy: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """logsoftmax along a dim."""
def moreh_logsoftmax_backward(
    output_tensor: Tensor,
    output_grad_tensor: Tensor,
    dim: int,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad_tensor: object = None,
    op: object = None,
    strategy: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of moreh_logsoftmax, from its result."""
def moreh_matmul(
    input: Tensor,
    other: Tensor,
    *,
    transpose_input: bool = False,
    transpose_other: bool = False,
    bias: Tensor | None = None,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """input @ other + bias, of matrices or, both, of vectors; the dims in front broadcast."""
def moreh_matmul_backward(
    output_grad: Tensor,
    input_a: Tensor,
    input_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_a_grad: Tensor | None = None,
    input_b_grad: Tensor | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    input_a_grad_memory_config: object = None,
    input_b_grad_memory_config: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[gradient of input_a, of input_b], summed over the dims along which each was repeated."""
def moreh_mean(
    input: Tensor,
    *,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    divisor: int | None = None,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The sum along the dims over their extent, or over `divisor`."""
def moreh_mean_backward(
    output_grad: Tensor,
    *,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    input_grad_shape: Sequence[int] = (),
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of what moreh_mean averaged, of the shape `input_grad_shape`, or else that of `input_grad`."""
def moreh_nll_loss(
    input_tensor: Tensor,
    target_tensor: Tensor,
    reduction: str,
    *,
    weight_tensor: Tensor | None = None,
    ignore_index: int = -100,
    output_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    divisor_tensor: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """-input[n, target[n], ...], weighed by class; each one, their sum, or their mean by weight."""
def moreh_nll_loss_backward(
    target_tensor: Tensor,
    output_grad_tensor: Tensor,
    reduction_mean: bool,
    *,
    weight_tensor: Tensor | None = None,
    ignore_index: int = -100,
    memory_config: MemoryConfig | None = None,
    input_grad_tensor: object = None,
    divisor_tensor: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of what moreh_nll_loss summed or averaged, of the shape of `input_grad_tensor`."""
def moreh_nll_loss_unreduced_backward(
    target_tensor: Tensor,
    output_grad_tensor: Tensor,
    *,
    weight_tensor: Tensor | None = None,
    ignore_index: int = -100,
    memory_config: MemoryConfig | None = None,
    input_grad_tensor: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of what moreh_nll_loss left apart, of the shape of `input_grad_tensor`."""
def moreh_norm(
    input: Tensor,
    p: float,
    *,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The p-norm along the dims, of all of them by default."""
def moreh_norm_backward(
    input: Tensor,
    output: Tensor,
    output_grad: Tensor,
    p: float,
    *,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of what moreh_norm took the norm of."""
def moreh_sgd(
    param_in: Tensor,
    grad: Tensor,
    momentum_buffer_in: Tensor | None = None,
    param_out: object = None,
    momentum_buffer_out: object = None,
    lr: float = 0.001,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    *,
    momentum_initialized: bool = False,
    param_out_memory_config: object = None,
    momentum_buffer_out_memory_config: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[parameters, momentum or None] after one step; `momentum_initialized` says that there was one before."""
def moreh_softmax(
    input_tensor: Tensor,
    dim: int,
    *,
    output_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    op: object = None,
    strategy: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """softmax along a dim."""
def moreh_softmax_backward(
    output_tensor: Tensor,
    output_grad_tensor: Tensor,
    dim: int,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad_tensor: object = None,
    op: object = None,
    strategy: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of moreh_softmax, from its result."""
def moreh_softmin(
    input_tensor: Tensor,
    dim: int,
    *,
    output_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    op: object = None,
    strategy: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """softmin along a dim."""
def moreh_softmin_backward(
    output_tensor: Tensor,
    output_grad_tensor: Tensor,
    dim: int,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad_tensor: object = None,
    op: object = None,
    strategy: object = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of moreh_softmin, from its result."""
def moreh_sum(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    keepdim: bool = False,
    output: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The sum along the dims, of all of them by default."""
def moreh_sum_backward(
    output_grad: Tensor,
    *,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    memory_config: MemoryConfig | None = None,
    input: object = None,
    input_grad: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The gradient of what moreh_sum summed, which `input` or `input_grad` has the shape of."""
def mse_loss(
    input_reference: Tensor,
    input_prediction: Tensor,
    *,
    reduction: LossReductionMode = ...,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """(a - b)^2: each, or their mean or sum on each device."""
@overload
def mul_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    other_tensor: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """The gradients of mul: of both tensors, or of the one beside a number."""
@overload
def mul_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    scalar: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def multigammaln(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The logarithm of the multivariate gamma function of order 4, as TT-NN has it."""
def multigammaln_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of multigammaln]."""
def multiply(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """multiply, element by element, with broadcasting."""
def multiply_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """multiply of both, written into the first; returns it."""
def narrow(
    input_tensor: Tensor,
    dim: int,
    start: int,
    length: int,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def ne(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ne, element by element, with broadcasting."""
def ne_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """ne of both, written into the first; returns it."""
def neg(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """neg, element by element."""
def neg_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of neg]."""
def nextafter(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The next number of the dtype from a towards b. TT-NN goes by a fixed step, which may be another."""
def nez(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """nez, element by element."""
def nonzero(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """A tensor of four dims -> [how many are not 0, where they are], as uint32."""
def normalize_global(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """All values of a device with mean 0 and deviation 1."""
def normalize_hw(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Each matrix with mean 0 and deviation 1."""
def ones_like(
    tensor: Tensor,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    optional_tensor: Tensor | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def outer(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[..., n, m]: every value of a's last dim times every one of b's; the dims before them broadcast."""
def pad(
    input_tensor: Tensor,
    padding: Sequence[Sequence[int]] | Sequence[int],
    value: float | None = 0.0,
    fill: float | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    use_multicore: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """`padding` is (before, after) for each dim; or: output shape, start and value as TT-NN's other form."""
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
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """q [1, users, heads, width] over k, v [blocks, kv_heads, block, width], found by page_table [users, pages]."""
def permute(
    input_tensor: Tensor,
    dims: Sequence[int],
    *,
    memory_config: MemoryConfig | None = None,
    queue_id: int | QueueId | None = None,
    pad_value: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def plus_one(
    input_tensor: Tensor,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    skip_negative_entries: bool = False,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Add 1 in place, to positions most often; with `skip_negative_entries` those of users who pause stay."""
def polygamma(
    input_tensor: Tensor,
    k: int,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The k-th derivative of digamma, k from 1 to 10."""
def polygamma_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    n: int,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def polyval(
    input_tensor_a: Tensor,
    coeffs: Sequence[float],
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The polynomial with these coefficients, that of the highest power first."""
def pow(
    input_tensor: Tensor | float,
    exponent: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def pow_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    exponent: float,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def prelu(
    input_tensor_a: Tensor,
    weight: Tensor | float | Sequence[float],
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """x above 0, weight * x below; a weight tensor has one value for each channel (dim 1), or one for all."""
def prod(
    input_tensor: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dims: Sequence[int] | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The product over one dim, several, or all."""
def prod_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    dim: int | None = None,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of what was multiplied along `dim`, or altogether]."""
def quantize(
    input_tensor: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | float,
    *,
    axis: int | None = None,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """round(x / scale) + zero_point, as int32."""
def rad2deg(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """rad2deg, element by element."""
def rad2deg_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of rad2deg]."""
def rdiv(
    input_tensor: Tensor,
    value: Tensor | float,
    *,
    rounding_mode: str | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """value / input."""
def rdiv_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    scalar: float,
    *,
    rounding_mode: str | None = None,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of scalar / x."""
def reciprocal(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """reciprocal, element by element."""
def reciprocal_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of reciprocal]."""
def redistribute(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """identity, element by element."""
def reglu(
    input_tensor: Tensor,
    dim: int = -1,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The first half of the last dim, gated by the second. TT-NN also rounds the gate by itself."""
def relu(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """relu, element by element."""
def relu6(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """relu6, element by element."""
def relu6_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of relu6]."""
def relu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of relu]."""
def relu_max(
    input_tensor: Tensor,
    upper_limit: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def relu_min(
    input_tensor: Tensor,
    lower_limit: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def remainder(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """remainder, element by element, with broadcasting."""
@overload
def remainder_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """The gradients of remainder: of both tensors, or of the one beside a number."""
@overload
def remainder_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    scalar: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def repeat(
    input_tensor: Tensor,
    repeat_dims: Sequence[int],
    *,
    memory_config: MemoryConfig | None = None,
    optional_output_tensor: Tensor | None = None,
    implementation: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def repeat_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    shape: Sequence[int],
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor | None]:
    """[the gradient of what was repeated `shape` times: the sum over the copies]."""
def repeat_interleave(
    input_tensor: Tensor,
    repeats: int,
    dim: int,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def requantize(
    input_tensor: Tensor,
    in_scale: Tensor | float,
    in_zero_point: Tensor | float,
    out_scale: Tensor | float,
    out_zero_point: Tensor | float,
    *,
    axis: int | None = None,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """From one scale and zero point to another, as int32."""
@overload
def reshape(
    input_tensor: Tensor,
    shape: Sequence[int],
    padded_shape: Sequence[int] | None = None,
    *,
    reshape_tile_mode: TileReshapeMapMode = ...,
    memory_config: MemoryConfig | None = None,
    queue_id: int | QueueId | None = None,
    pad_value: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    skip_padding_fill: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The same elements, row-major, under another shape; one extent may be -1."""
@overload
def reshape(
    input_tensor: Tensor,
    logical_shape: Sequence[int],
    padded_shape: Sequence[int] | None = None,
    *,
    reshape_tile_mode: TileReshapeMapMode = ...,
    memory_config: MemoryConfig | None = None,
    queue_id: int | QueueId | None = None,
    pad_value: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    skip_padding_fill: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def reshape_on_device(
    input_tensor: Tensor,
    W: int,
    Z: int,
    Y: int,
    X: int,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """reshape to four extents."""
def reshard(
    input_tensor: Tensor,
    output_memory_config: MemoryConfig,
    output_tensor: Tensor | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """From one way of lying on cores to another."""
def rms_norm(
    input_tensor: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight + bias over the last dim; a residual is added to x first. With a program_config that says inplace, a sharded x is written over."""
def rms_norm_post_all_gather(
    input_tensor: Tensor,
    stats: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None = None,
    use_2d_core_grid: bool | None = None,
    recip_tensor: Tensor | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """rms_norm of a row that is split over devices, from the gathered statistics."""
def rms_norm_pre_all_gather(
    input_tensor: Tensor,
    *,
    dtype: DataType = ...,
    residual_input_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    program_config: HardwareConfig | None = None,
    use_2d_core_grid: bool | None = None,
    recip_tensor: Tensor | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """This device's share of the statistics of rms_norm: sum(x^2) in column 0 of a tile; of a sharded tensor means, that of x first. A residual is added to a sharded tensor in place."""
def roll(
    input_tensor: Tensor,
    shifts: int | Sequence[int],
    dim: int | Sequence[int] | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Rotate along dims; without `dim`, the flattened tensor."""
def rotate(
    input_tensor: Tensor,
    angle: float,
    *,
    center: Sequence[float] | None = None,
    fill: float = 0.0,
    expand: bool = False,
    interpolation_mode: str = 'nearest',
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, H, W, C] turned by `angle` degrees against the clock, around (x, y) or the middle; `fill` in the corners."""
def round(
    input_tensor: Tensor,
    *,
    decimals: int = 0,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def round_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of round]."""
def rpow(
    input_tensor: Tensor,
    exponent: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """`exponent` to the power of x: TT-NN's name for the base."""
def rpow_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    exponent: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def rsqrt(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """rsqrt, element by element."""
def rsqrt_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of rsqrt]."""
@overload
def rsub(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """rsub, element by element, with broadcasting."""
@overload
def rsub(
    input_tensor_a: Tensor | float,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def rsub_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """rsub of both, written into the first; returns it."""
@overload
def rsub_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    other_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of b - a."""
@overload
def rsub_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def sampling(
    input_values_tensor: Tensor,
    input_indices_tensor: Tensor,
    k: Tensor,
    p: Tensor,
    temp: Tensor,
    *,
    seed: int | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """One token for each of U users (1 to 32), [1, 1, 1, U], of the values [1, 1, U, n] and the tokens they stand for."""
def scale_causal_mask_hw_dims_softmax_in_place(
    input_tensor: Tensor,
    scale: float | None = None,
    mask: Tensor | None = None,
    *,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    numeric_stable: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """scale_mask_softmax_in_place with a causal mask [1, 1, rows, width] for all of the batch and all heads."""
def scale_mask_softmax(
    input_tensor: Tensor,
    scale: float | None = None,
    mask: Tensor | None = None,
    *,
    is_causal_mask: bool = False,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    numeric_stable: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """softmax(x * scale + mask) along the last dim."""
def scale_mask_softmax_in_place(
    input_tensor: Tensor,
    scale: float | None = None,
    mask: Tensor | None = None,
    *,
    is_causal_mask: bool = False,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    numeric_stable: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """softmax(x * scale + mask) along the last dim, written over its operand."""
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
    output_topology: object = None,
    implicit: str | None = None,
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
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """q [1, users, heads, width] over caches k, v [users, kv_heads, length, width], on each device."""
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    *,
    reduce: str | None = None,
    memory_config: MemoryConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """A copy of input with src[i] written at index[i] along `dim`, or combined with what is there."""
def scatter_add(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """A copy of input with src[i] added at index[i] along `dim`."""
def selu(
    input_tensor: Tensor,
    *,
    scale: float = 1.0507,
    alpha: float = 1.67326,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def selu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of selu]."""
def sharded_to_interleaved(
    input_tensor: Tensor,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
    *,
    queue_id: int | QueueId | None = None,
    is_l1_aligned: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Back from cores to interleaved pages."""
def sharded_to_interleaved_partial(
    input_tensor: Tensor,
    cache_tensor: Tensor,
    num_slices: int,
    slice_index: int,
    *,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Write a run of rows back to its place in the cache tensor; returns that."""
def sigmoid(
    input_tensor: Tensor,
    *,
    vector_mode: int = 4,
    mode: SigmoidMode = ...,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """1 / (1 + exp(-x)); the approximate mode's table is not modelled: exact here."""
def sigmoid_accurate(
    input_tensor: Tensor,
    fast_and_approximate_mode: bool | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def sigmoid_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of sigmoid]."""
def sign(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """sign, element by element."""
def sign_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of sign]."""
def signbit(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """signbit, element by element."""
def silu(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """silu, element by element."""
def silu_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of silu]."""
def sin(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """sin, element by element."""
def sin_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of sin]."""
def sinh(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """sinh, element by element."""
def sinh_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of sinh]."""
def situ_glu(
    gate: Tensor,
    up: Tensor,
    beta1: float,
    beta2: float,
    *,
    memory_config: MemoryConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """beta1 tanh(gate / beta1) sigmoid(gate) beta2 tanh(up / beta2): a gate and what it lets pass, both bounded."""
@overload
def slice(
    input_tensor: Tensor,
    slice_start: Tensor,
    slice_end: Tensor,
    slice_step: Sequence[int] | None = None,
    *,
    slice_dim: int | None = None,
    num_devices: int | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    pad_value: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """From `slice_start` up to, not including, `slice_end` in each dim; negative bounds count from the end."""
@overload
def slice(
    input_tensor: Tensor,
    starts: Tensor,
    ends: Tensor,
    steps: Sequence[int] | None = None,
    *,
    slice_dim: int | None = None,
    num_devices: int | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    pad_value: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def snake_beta(
    input_tensor: Tensor,
    alpha: Tensor,
    beta: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """x + sin(alpha x)^2 / (beta + 1e-9), with broadcasting; what TT-NN adds to beta is not known."""
def softcap(
    input_tensor: Tensor,
    beta: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """beta * tanh(x / beta)."""
def softmax(
    input_tensor: Tensor,
    dim: int = -1,
    *,
    numeric_stable: bool = True,
    memory_config: MemoryConfig | None = None,
    queue_id: int | QueueId | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Along `dim` of each device's piece: over a split dim the result is Local."""
def softmax_in_place(
    input_tensor: Tensor,
    dim: int = -1,
    *,
    program_config: HardwareConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    numeric_stable: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """softmax along `dim` of each device's piece, written over it."""
def softplus(
    input_tensor: Tensor,
    *,
    beta: float = 1.0,
    threshold: float = 20.0,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def softplus_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    beta: float = 1.0,
    threshold: float = 20.0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def softshrink(
    input_tensor: Tensor,
    *,
    lambd: float = 0.5,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Nearer to 0 by lambd; 0 within lambd of it."""
def softshrink_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    lambd: float = 0.5,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def softsign(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """softsign, element by element."""
def softsign_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of softsign]."""
def sort(
    input_tensor: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    memory_config: MemoryConfig | None = None,
    out: Sequence[Tensor] | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[values in order, the places they come from] along `dim`; places as uint16, uint32 above 65,535."""
def sparse_matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    sparsity: Tensor,
    bias: Tensor | None = None,
    indices: Tensor | None = None,
    nnz: int | None = None,
    is_input_a_sparse: bool = False,
    is_input_b_sparse: bool = True,
    program_config: MatmulProgramConfig | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    core_grid: CoreGrid | CoreCoord | None = None,
    output_tile: object = None,
    global_cb: object = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a @ b for the pairs of blocks whose entry of `sparsity` is not 0; b is [1, experts, K, N]."""
def split(
    input_tensor: Tensor,
    split_size: int | Sequence[int],
    dim: int = 0,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Pieces of `split_size` along `dim` (the last may be shorter), or of the sizes listed."""
def sqrt(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """sqrt, element by element."""
def sqrt_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of sqrt]."""
def square(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """square, element by element."""
def square_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of square]."""
def squared_difference(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """squared_difference, element by element, with broadcasting."""
def squared_difference_(
    input_a: Tensor,
    input_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """squared_difference of both, written into the first; returns it."""
def squared_difference_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of squared_difference."""
def squeeze(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Drop dims of extent 1: one, several, or (None) all."""
def stack(
    input_tensors: Tensor | Sequence[Tensor],
    dim: int,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def std(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    scalar: float = 1.0,
    correction: bool | None = None,
    output_layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """std of the values times `scalar`, over one dim, several, or (None) all."""
def std_hw(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The square root of `var_hw`."""
@overload
def sub_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    other_tensor: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """The gradients of sub: of both tensors, or of the one beside a number."""
@overload
def sub_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    scalar: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]: ...
def subalpha(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    alpha: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """a - alpha * b."""
def subalpha_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    alpha: float = 1.0,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_grad: Tensor | None = None,
    other_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of a - alpha * b."""
def subtract(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """subtract, element by element, with broadcasting."""
def subtract_(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """subtract of both, written into the first; returns it."""
def sum(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    scalar: float = 1.0,
    correction: bool | None = None,
    output_layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """sum of the values times `scalar`, over one dim, several, or (None) all."""
def swiglu(
    input_tensor: Tensor,
    dim: int = -1,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The first half of the last dim, gated by the second. TT-NN also rounds the gate by itself."""
def swish(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """swish, element by element."""
def tan(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """tan, element by element."""
def tan_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of tan]."""
def tanh(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    accuracy: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """tanh, element by element."""
def tanh_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    input_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of tanh]."""
def tanhshrink(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """tanhshrink, element by element."""
def tanhshrink_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of tanhshrink]."""
def threshold(
    input_tensor: Tensor,
    threshold: float,
    value: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """x where it is above `threshold`, else `value`."""
def threshold_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    min: float,
    max: float,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """The gradient where the input is above `min`, the threshold; `max` is the value put in the place of the others."""
def tilize(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    queue_id: int | QueueId | None = None,
    use_multicore: bool | None = None,
    use_low_perf: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    tile: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Row-major to tiles; the last two dims must already be whole tiles."""
def tilize_with_val_padding(
    input_tensor: Tensor,
    output_tensor_shape: Sequence[int],
    pad_value: float,
    *,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    use_multicore: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Row-major to tiles, padded up to `output_tensor_shape`; the values stay the logical ones."""
def tilize_with_zero_padding(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
    use_multicore: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Row-major to tiles; what is missing to whole tiles is padding."""
def to_layout(
    tensor: Tensor,
    layout: Layout,
    dtype: DataType | None = None,
    memory_config: MemoryConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    pad_value: float | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """To TILE, with `pad_value` (0) in what it takes to whole tiles, or to ROW_MAJOR."""
def to_memory_config(
    tensor: Tensor,
    memory_config: MemoryConfig,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """To another place on the chip: DRAM or L1, interleaved or sharded over cores. Values stay."""
def topk(
    input_tensor: Tensor,
    k: int = 32,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    indices_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    output_tensor: Sequence[Tensor] | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    stable: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Values in order and their indices (uint16, uint32 above 65,535); equal values come in torch's order."""
def tosa_gather(
    input: Tensor,
    index: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, K, C] by [N, W]: [N, W, C], the rows that the index names."""
def tosa_scatter(
    input: Tensor,
    index: Tensor,
    src: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, K, C] with the rows that [N, W] names replaced by those of [N, W, C]."""
def transpose(
    input_tensor: Tensor,
    dim1: int,
    dim2: int,
    *,
    memory_config: MemoryConfig | None = None,
    queue_id: int | QueueId | None = None,
    pad_value: object = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def tril(
    input_tensor: Tensor,
    *,
    diagonal: int = 0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """0 above the diagonal of the last two dims."""
def triu(
    input_tensor: Tensor,
    *,
    diagonal: int = 0,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """0 below the diagonal of the last two dims."""
def trunc(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """trunc, element by element."""
def trunc_bw(
    grad_tensor: Tensor,
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of trunc]."""
@overload
def typecast(
    input_tensor: Tensor,
    dtype: DataType,
    output_dtype: DataType | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """To another dtype: `(tensor, dtype)`, or `(tensor, input_dtype, output_dtype)`."""
@overload
def typecast(
    input_tensor: Tensor,
    input_dtype: DataType,
    output_dtype: DataType | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
def unary_chain(
    input_tensor: Tensor,
    ops_chain: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]],
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Unary functions one after the other, with one rounding at the end."""
def unsqueeze(
    input_tensor: Tensor, dim: int, *, output_topology: object = None, implicit: str | None = None
) -> Tensor: ...
def unsqueeze_to_4D(tensor: Tensor, *, output_topology: object = None, implicit: str | None = None) -> Tensor: ...
def untilize(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    queue_id: int | QueueId | None = None,
    use_multicore: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Tiles to row-major."""
def untilize_with_unpadding(
    input_tensor: Tensor,
    output_tensor_end: Sequence[int],
    *,
    memory_config: MemoryConfig | None = None,
    queue_id: int | QueueId | None = None,
    use_multicore: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Tiles to row-major, cut at `output_tensor_end`, the last index kept in each dim; it may lie in the padding."""
def update_cache(
    cache: Tensor,
    input: Tensor,
    update_idx: Tensor | float,
    *,
    batch_offset: int = 0,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """Write one token of each user, [1, heads, users, width], at cache[:, :, update_idx]; returns the cache."""
def upsample(
    input_tensor: Tensor,
    scale_factor: float | Sequence[float],
    *,
    mode: str = 'nearest',
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """[N, H, W, C] -> [N, H * scale, W * scale, C]; one scale, or one for height and one for width."""
def var(
    input_tensor: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    scalar: float = 1.0,
    correction: bool | None = None,
    output_layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    fast_and_approximate_mode: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """var of the values times `scalar`, over one dim, several, or (None) all."""
def var_hw(
    input_tensor: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """The mean squared distance from the mean of each matrix."""
def view(
    input_tensor: Tensor, shape: Sequence[int], *, output_topology: object = None, implicit: str | None = None
) -> Tensor:
    """As reshape, where no value moves. Values are not shared with the input: a later write to it is not seen here."""
def where(
    predicate: Tensor,
    true_value: Tensor | float,
    false_value: Tensor | float,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """true_value where the predicate is not 0, else false_value; in the dtype of those, where one is a tensor."""
def where_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    input_tensor_c: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    are_required_outputs: Sequence[bool] | None = None,
    input_a_grad: Tensor | None = None,
    input_b_grad: Tensor | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """Of where(a, b, c): the gradients of b and c."""
def xielu(
    input_tensor: Tensor,
    *,
    alpha_p: float = 0.8,
    alpha_n: float = 0.8,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """alpha_p x^2 + x/2 above 0, alpha_n (expm1(min(x, -1e-6)) - x) + x/2 below."""
def xlogy(
    input_tensor_a: Tensor | float,
    input_tensor_b: Tensor | float,
    *,
    activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_a_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    input_tensor_b_activations: Sequence[str | UnaryOpType | UnaryWithParam | Sequence[UnaryOpType | float]] = (),
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
    queue_id: int | QueueId | None = None,
    fast_and_approximate_mode: bool | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    sub_device_id: SubDeviceId | None = None,
    use_legacy: bool | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor:
    """xlogy, element by element, with broadcasting."""
def xlogy_bw(
    grad_tensor: Tensor,
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    memory_config: MemoryConfig | None = None,
    output_topology: object = None,
    implicit: str | None = None,
) -> list[Tensor]:
    """[the gradient of a, that of b], of xlogy."""
def zeros_like(
    tensor: Tensor,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    device: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    optional_tensor: Tensor | None = None,
    *,
    output_topology: object = None,
    implicit: str | None = None,
) -> Tensor: ...
clip = clamp
div_ = divide_
divide = div
mul = multiply
mul_ = multiply_
sub = subtract
sub_ = subtract_
class _experimental:
    @staticmethod
    def attn_matmul(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        output_tensor: Tensor | None = None,
        compute_with_storage_grid_size: object = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[rows, heads, users, inner] @ [users, 1, inner, columns] -> [rows, heads, users, columns]"""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """attn_matmul with the first `num_tokens` rows (rounded up to a tile) of a cache [users, 1, length, width]."""
    @staticmethod
    def broadcast_to(
        input: Tensor,
        output_shape: Sequence[int],
        *,
        memory_config: MemoryConfig | None = None,
        output: Tensor | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Repeat dims of extent 1 up to `output_shape`, adding dims in front."""
    @staticmethod
    def concatenate_heads(
        input_tensor: Tensor,
        compute_with_storage_grid_size: object = None,
        *,
        memory_config: MemoryConfig | None = None,
        output_tensor: Tensor | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[b, heads, s, width] -> [b, 1, s, heads * width]"""
    @staticmethod
    def convert_to_chw(
        input: Tensor,
        *,
        dtype: DataType | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[1, 1, H*W, C] -> [1, 1, C, H*W], row-major."""
    @staticmethod
    def convert_to_hwc(
        input: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[1, N, C, H*W] -> [1, 1, N*H*W, C], row-major; TT-NN also pads C in memory, which the values do not show."""
    @staticmethod
    def create_qkv_heads(
        input: Tensor,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        transpose_k_heads: bool = True,
        memory_config: MemoryConfig | None = None,
        output_tensors: Sequence[Tensor] | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[b, 1, s, features], for each key head: its queries, then its key, then its value."""
    @staticmethod
    def create_qkv_heads_from_separate_tensors(
        input: Tensor,
        input_kv: Tensor,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        transpose_k_heads: bool = True,
        memory_config: MemoryConfig | None = None,
        output_tensors: Sequence[Tensor] | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q from rows of `input`; k and v from rows of `input_kv`, which has each key head beside its value head."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> list[Tensor]:
        """[weights, indices (uint16)] of the chosen experts: by sigmoid plus bias; the weights are the sigmoids' shares."""
    @staticmethod
    def deepseek_moe_fast_reduce_nc(
        input_tensor: Tensor,
        dim: int,
        *,
        split_size: int,
        output_memory_config: MemoryConfig | None = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> list[Tensor]:
        """The sum over `dim`, which stays with an extent of 1, cut along the last dim into pieces of `split_size`."""
    @staticmethod
    def deepseek_moe_post_combine_tilize(
        input_tensor: Tensor,
        *,
        output_memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Rows, as they come of combining, to tiles."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """layer_norm of a row that is split over devices, from the gathered statistics."""
    @staticmethod
    def dit_layernorm_pre_allgather(
        input_tensor: Tensor,
        recip_tensor: Tensor,
        *,
        dtype: DataType = ...,
        memory_config: MemoryConfig | None = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """This device's share of the statistics of a layer norm, as layer_norm_pre_all_gather has them."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """rms_norm, then an activation of the result."""
    @staticmethod
    def fast_reduce_nc(
        input: Tensor,
        *,
        dims: Sequence[int] = (),
        memory_config: MemoryConfig | None = None,
        output: Tensor | None = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        sub_core_grids: CoreRangeSet | CoreRange | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """The sum over dims in front of the last two, which stay with an extent of 1."""
    @staticmethod
    def gelu_bw(
        grad_tensor: Tensor,
        input_tensor: Tensor,
        *,
        approximate: str = 'none',
        memory_config: MemoryConfig | None = None,
        output_tensor: Tensor | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """As `gelu_bw`, by itself and not in a list; `approximate` is "none" or "tanh"."""
    @staticmethod
    def group_attn_matmul(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        optional_output_tensor: Tensor | None = None,
        compute_with_storage_grid_size: object = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[rows, heads, users, inner] @ [users, kv_heads, inner, columns]: heads share their group's matrix."""
    @staticmethod
    def halo_scatter(
        compact_buffer: Tensor,
        interior_src: Tensor,
        np_padding_h: int,
        np_padding_w: int,
        *,
        border_only: bool = False,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """A piece [..., H, W, C] with the border that neighbor_pad_halo made: [..., H + 2 h, W + 2 w, C]."""
    @staticmethod
    def hc_sum_reduce(
        input: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        math_fidelity: object = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[1, 1, s, n * 32] -> [1, 1, s, n]: the sum of each 32 columns."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[b, 1, s, length]: the sum over heads of weight * relu(q . k)."""
    @staticmethod
    def intimg(input_tensor: Tensor, *, output_topology: object = None, implicit: str | None = None) -> Tensor:
        """[N, H, W, C]: at each pixel the sum of all above and to the left of it, its own row and column included."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """linear, by the names of TT-NN's lean kernel."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> list[Tensor]:
        """The product, cut along its last dim into `chunks` pieces."""
    @staticmethod
    def multi_scale_deformable_attn(
        value: Tensor,
        grid: Tensor,
        attn: Tensor,
        *,
        align_corners: bool = False,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Values [N, H, W, D] at points [N, Q * P, 1, 2], weighted by [N, Q, P] and summed over P: [N, Q, D]."""
    @staticmethod
    def nlp_concat_heads(
        input_tensor: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[b, heads, s, width] -> [b, 1, s, heads * width]"""
    @staticmethod
    def nlp_concat_heads_decode(
        input_tensor: Tensor,
        *,
        num_heads: int,
        sub_core_grids: CoreRangeSet | None = None,
        memory_config: MemoryConfig | None = None,
        output_tensor: Tensor | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[1, users, heads, width] -> [1, 1, users, num_heads * width]; heads beyond `num_heads` are padding."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[b, 1, s, (heads + 2 kv_heads) * width] -> q [b, heads, s, width], k and v [b, kv_heads, s, width]."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[1, 1, users, (heads + 2 kv_heads) * width] -> q [1, users, heads, width], k and v [1, users, kv_heads, width]."""
    @staticmethod
    def nlp_create_qkv_heads_falcon7b(
        input: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[b, 1, s, 4672] -> 71 query heads of width 64, and one head each of keys and values."""
    @staticmethod
    def nlp_create_qkv_heads_segformer(
        input: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        output_tensors: Sequence[Tensor] | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[b, 1, s, heads * 32] -> [b, heads, s, 32], three times."""
    @staticmethod
    def nlp_create_qkv_heads_vit(
        input: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        output_tensors: Sequence[Tensor] | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[b, 1, s, 2304] -> 12 heads of width 64 each of queries, keys and values."""
    @staticmethod
    def padded_slice(
        input_tensor: Tensor,
        padded_slice_start: Sequence[int],
        padded_slice_end: Sequence[int],
        padded_slice_step: Sequence[int] | None = None,
        *,
        memory_config: MemoryConfig | None = None,
        output_tensor: Tensor | None = None,
        pad_value: object = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """input[start:end:step]; the padding up to whole shards of its memory config is not part of the values."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Write [1, heads, s, width] as positions 0 to s - 1 of user `batch_idx`; returns the cache."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """paged_update_cache of two caches at the same positions, most often keys and values; returns both."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Write one token of each user, [1, users, heads, width], at the user's position; returns the cache."""
    @staticmethod
    def prefix_scan(
        a: Tensor,
        bx: Tensor,
        h_prev: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        math_fidelity: object = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """h[t] = a[t] * h[t - 1] + bx[t] down the rows of a and bx [1, 1, s, n], from h_prev [1, 1, 1, n] on."""
    @staticmethod
    def repeat_and_interleave_eltwise_mul(
        a: Tensor,
        b: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        math_fidelity: object = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """a [1, 1, s, 32], repeated n times, times b [1, 1, s, n], each column 32 times: [1, 1, s, n * 32]."""
    @staticmethod
    def rotary_embedding(
        input_tensor: Tensor,
        cos_cache: Tensor,
        sin_cache: Tensor,
        token_index: Tensor | float | None = None,
        *,
        memory_config: MemoryConfig | None = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """x * cos + [-x2, x1] * sin for x [b, heads, s, width] and caches [1, 1, length, width]."""
    @staticmethod
    def rotary_embedding_hf(
        input_tensor: Tensor,
        cos_cache: Tensor,
        sin_cache: Tensor,
        *,
        is_decode_mode: bool = False,
        memory_config: MemoryConfig | None = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """x * cos + [-x2, x1] * sin: for whole sequences as rotary_embedding, in decode mode a row for each user."""
    @staticmethod
    def rotary_embedding_llama(
        input_tensor: Tensor,
        cos_cache: Tensor,
        sin_cache: Tensor,
        trans_mat: Tensor,
        *,
        is_decode_mode: bool = False,
        memory_config: MemoryConfig | None = None,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """x * cos + (x @ trans_mat) * sin, the matrix [1, 1, 32, 32] turning each tile of 32 columns."""
    @staticmethod
    def rotary_embedding_llama_fused_qk(
        q_input_tensor: Tensor,
        k_input_tensor: Tensor,
        cos_cache: Tensor,
        sin_cache: Tensor,
        trans_mat: Tensor,
        *,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Decode mode for q [1, users, heads, width] and k [1, users, kv_heads, width] at once."""
    @staticmethod
    def rotate_half(
        input_tensor: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Put the second half of each row, negated, before the first."""
    @staticmethod
    def slice_write(
        input_tensor: Tensor,
        output_tensor: Tensor,
        start: Sequence[int],
        end: Sequence[int],
        step: Sequence[int],
        *,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Write input into output[start:end:step]; returns the output."""
    @staticmethod
    def split_query_key_value_and_split_heads(
        input_tensor: Tensor,
        compute_with_storage_grid_size: object = None,
        *,
        num_heads: int = 16,
        memory_config: MemoryConfig | None = None,
        output_tensors: Sequence[Tensor] | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[b, 1, s, 3 * heads * width] -> q and v [b, heads, s, width], k transposed."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """The places of the k largest along the last dim, largest first, as uint32; 2^32 - 1 where there is nothing left."""
    @staticmethod
    def typecast(
        input_tensor: Tensor,
        dtype: DataType,
        memory_config: MemoryConfig | None = None,
        optional_output_tensor: Tensor | None = None,
        *,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """To another dtype."""
    @overload
    @staticmethod
    def view(
        input_tensor: Tensor,
        shape: Sequence[int] | int,
        C: int | None = None,
        H: int | None = None,
        W: int | None = None,
        *,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """`view` by a shape, or by four extents N, C, H, W; shards of whole rows may be cut into rows of another length."""
    @overload
    @staticmethod
    def view(
        input_tensor: Tensor,
        N: Sequence[int] | int,
        C: int | None = None,
        H: int | None = None,
        W: int | None = None,
        *,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor: ...
class _kv_cache:
    @staticmethod
    def fill_cache_for_user_(
        cache: Tensor,
        input: Tensor,
        batch_index: Tensor | float,
        *,
        update_idx: Tensor | float = 0,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Write [1, heads, s, width] at cache[batch_index, :, update_idx : update_idx + s]; returns the cache."""
    @staticmethod
    def update_cache_for_token_(
        cache: Tensor,
        input: Tensor,
        update_index: Tensor | float,
        batch_offset: int = 0,
        compute_kernel_config: WormholeComputeKernelConfig | None = None,
        *,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Write one token of each user, [1, heads, users, width], at cache[:, :, update_index]; returns the cache."""
class _prim:
    @staticmethod
    def batch_statistics(
        input: Tensor, *, output_topology: object = None, implicit: str | None = None
    ) -> list[Tensor]:
        """The mean of each channel and the mean square distance from it, over batch and pixels."""
    @staticmethod
    def running_statistics(
        running: Tensor,
        batch: Tensor,
        *,
        momentum: float,
        followed: str = 'both',
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """running = (1 - momentum) * running + momentum * batch, in place."""
class _transformer:
    @staticmethod
    def attention_softmax(
        tensor: Tensor,
        *,
        attention_mask: Tensor | None = None,
        head_size: int | None = None,
        causal_mask: bool | None = False,
        memory_config: MemoryConfig | None = None,
        program_config: HardwareConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """softmax(x / sqrt(head_size) + mask) along the last dim; the mask is that of scale_mask_softmax."""
    @staticmethod
    def attention_softmax_(
        tensor: Tensor,
        *,
        attention_mask: Tensor | None = None,
        head_size: int | None = None,
        causal_mask: bool | None = False,
        program_config: HardwareConfig | None = None,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """softmax(x / sqrt(head_size) + mask) along the last dim, written over its operand; the mask is that of scale_mask_softmax."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """q, k [b, s, heads, width], v [b, s, value_heads, value_width], g and beta [b, s, value_heads]."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Latent attention of a chunk: the first `head_dim_v` columns of the paged keys are the values."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """q [b, heads, chunk, width], the first of which has position `chunk_start_idx`, over paged k and v."""
    @staticmethod
    def concatenate_heads(
        input_tensor: Tensor,
        *,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """[b, heads, s, width] -> [b, s, heads * width]"""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Latent attention: q [b, heads, s, width] over k [b, kv_heads, s, width], whose first `head_dim_v` columns are v."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Latent attention: as scaled_dot_product_attention_decode, with the first `head_dim_v` columns of k for v."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """[b, heads, n, width] and [b, heads, l, width]: every query sees all n + l keys. One result for each sequence."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """Latent attention over caches cut into blocks, found by page_table [users, pages]."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """q [1, users, heads, width] over k, v [blocks, kv_heads, block, width], found by page_table [users, pages]."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """q [b, heads, s, width] over k, v [b, kv_heads, s, width], on each device."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """q [1, users, heads, width] over caches k, v [users, kv_heads, length, width], on each device."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """q [b, heads, s, width] over the rows of kv [b, 1, length, width] that indices [b, 1, s, n] names for each query."""
    @staticmethod
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
        output_topology: object = None,
        implicit: str | None = None,
    ) -> Tensor:
        """q [b, heads, s, width] over blocks of k, v [b, kv_heads, length, width], by indices [b, kv_heads, s, n]."""
    @staticmethod
    def split_query_key_value_and_split_heads(
        input_tensor: Tensor,
        kv_input_tensor: Tensor | None = None,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        transpose_key: bool = True,
        use_falcon7b_backend: bool = False,
        memory_config: MemoryConfig | None = None,
        output_topology: object = None,
        implicit: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[b, s, (heads + 2 kv_heads) * width] -> q [b, heads, s, width], k and v [b, kv_heads, s, width]."""
