"""A Tenstorrent mesh in software: TT-NN's multi-device programs, run and explained without a card.

`import softmesh as ttnn`, or keep `import ttnn` and run the file with `softmesh run file.py`.
"""

from __future__ import annotations

import sys as _sys
from typing import Any

from softmesh.runtime.gc_pause import collector_paused as _collector_paused

with _collector_paused():
    from softmesh.autograd import leaves as _leaves
    from softmesh.collectives.argument_checks import ReduceType
    from softmesh.collectives.published_names import COMPOSITES as _COMPOSITES
    from softmesh.collectives.published_names import PLAIN_NAMES as _PLAIN_NAMES
    from softmesh.collectives.semaphores import (
        create_global_semaphore,
        get_global_semaphore_address,
        reset_global_semaphore_value,
    )
    from softmesh.config import (
        CONFIG,
        Config,
        load_config_from_dictionary,
        load_config_from_json_file,
        manage_config,
        save_config_to_json_file,
    )
    from softmesh.config import environment_overrides as _environment_overrides
    from softmesh.config import environment_path as _environment_path
    from softmesh.config import load_environment as _load_environment
    from softmesh.cores import (
        CoreCoord,
        CoreGrid,
        CoreRange,
        CoreRangeSet,
        corerange_to_cores,
        grid_to_cores,
        num_cores_to_corerangeset,
        num_cores_to_corerangeset_in_subcoregrids,
        split_work_to_cores,
    )
    from softmesh.diagnosis import calls as _diagnosed_calls
    from softmesh.dispatch import call_log as _call_log
    from softmesh.dispatch import comparison_mode as _comparing
    from softmesh.dispatch.operation import operations_under
    from softmesh.distribute import distribute, put
    from softmesh.errors import (
        ArgumentError,
        DeviceMemoryWarning,
        FabricWarning,
        MeshError,
        NotModelled,
        OutOfDeviceMemory,
        PartialError,
        PartialWarning,
        SanitizerError,
        SanitizerWarning,
        SoftmeshError,
        SoftmeshWarning,
    )
    from softmesh.hardware import *  # noqa: F403  (its __init__ is a table of names)
    from softmesh.hardware.memory_config import (
        DRAM_MEMORY_CONFIG,
        L1_BLOCK_SHARDED_MEMORY_CONFIG,
        L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        L1_MEMORY_CONFIG,
        L1_WIDTH_SHARDED_MEMORY_CONFIG,
        BufferType,
        MemoryConfig,
        NdShardSpec,
        ShardDistributionStrategy,
        ShardOrientation,
        ShardSpec,
        ShardStrategy,
        TensorMemoryLayout,
    )
    from softmesh.hardware.shape import Shape
    from softmesh.hardware.sharded_configs import create_sharded_memory_config, create_sharded_memory_config_
    from softmesh.mesh import (
        BoundaryMode,
        MeshCoordinate,
        MeshCoordinateRange,
        MeshCoordinateRangeSet,
        MeshShape,
        line_order,
        ring_order,
    )
    from softmesh.namespaces import Package as _Package
    from softmesh.namespaces import behind_the_door, load_lazily, publish
    from softmesh.notebook_extension import load_ipython_extension, unload_ipython_extension
    from softmesh.ops import catalogue as _catalogue
    from softmesh.ops.creation.creation import arange, empty, full, ones, rand, zeros
    from softmesh.ops.data_movement.layout_conversion import assign, copy, to_dtype
    from softmesh.ops.define_op import define_op
    from softmesh.ops.embedding.embedding import EmbeddingsType
    from softmesh.ops.public_names import DOTTED as _DOTTED
    from softmesh.ops.public_names import TOP as _TOP
    from softmesh.placement.placements import Local, Partial, Placement, Replicate, Shard
    from softmesh.placement.tensor_topology import PlacementReplicate, PlacementShard, TensorTopology
    from softmesh.processes.context_api import (
        Rank,
        Size,
        SubcontextId,
        distributed_context_allgather_int,
        distributed_context_barrier,
        distributed_context_get_rank,
        distributed_context_get_size,
        distributed_context_is_initialized,
        distributed_context_local_to_world_rank,
        distributed_context_recv_bytes,
        distributed_context_send_bytes,
        distributed_context_subcontext_count,
        distributed_context_subcontext_id,
        distributed_context_subcontext_size,
        distributed_context_subcontext_sizes,
        distributed_context_world_rank,
        distributed_context_world_size,
        init_distributed_context,
        using_distributed_env,
    )
    from softmesh.report import notebook as _notebook
    from softmesh.report import report_switches as _report_switches
    from softmesh.report.command_log import log_commands
    from softmesh.runtime.buffers.global_buffers import create_global_circular_buffer
    from softmesh.runtime.commands import Command, Cost, Observer, observe
    from softmesh.runtime.device import FabricNodeId, MeshDevice, MeshId
    from softmesh.runtime.device_lifecycle import (
        DEFAULT_L1_SMALL_SIZE,
        DEFAULT_TRACE_REGION_SIZE,
        DEFAULT_WORKER_L1_SIZE,
        CloseDevice,
        CloseDevices,
        CreateDevice,
        CreateDevices,
        DeviceGrid,
        GetDefaultDevice,
        SetDefaultDevice,
        close_device,
        close_device_mesh,
        close_mesh_device,
        create_mesh_device,
        manage_device,
        open_device,
        open_device_mesh,
        open_mesh_device,
        synchronize_device,
        use_system,
    )
    from softmesh.runtime.dispatch_choice import DispatchCoreConfig
    from softmesh.runtime.fabric_api import (
        get_all_fabric_mesh_ids,
        get_all_mgd_fabric_types,
        get_eth_forwarding_direction,
        get_fabric_config,
        get_forwarding_link_indices,
        get_physical_mesh_shapes,
        get_tt_fabric_max_payload_size_bytes,
        get_tt_fabric_packet_header_size_bytes,
        set_fabric_config,
    )
    from softmesh.runtime.machine_queries import (
        GetNumAvailableDevices,
        GetNumPCIeDevices,
        GetPCIeDeviceID,
        SystemMeshDescriptor,
        get_arch_name,
        get_device_ids,
        get_num_devices,
        get_num_pcie_devices,
        get_pcie_device_ids,
        is_blackhole,
        is_grayskull,
        is_wormhole_b0,
    )
    from softmesh.runtime.malloc_tuning import keep_freed_memory
    from softmesh.runtime.memory.memory_reports import (
        DeallocateBuffers,
        dump_device_memory_state,
        get_allocator_base_address,
        get_dram_alignment,
        get_l1_alignment,
        get_max_worker_l1_unreserved_size,
        get_memory_view,
    )
    from softmesh.runtime.queues.event_functions import event_synchronize, record_event, wait_for_event
    from softmesh.runtime.queues.events import MeshEvent
    from softmesh.runtime.queues.queue_id import (
        QueueId,
        command_queue,
        get_current_command_queue_id_for_thread,
        pop_current_command_queue_id_for_thread,
        push_current_command_queue_id_for_thread,
    )
    from softmesh.runtime.queues.sub_devices import SubDevice, SubDeviceManagerId
    from softmesh.runtime.traces.recording import MeshTraceId
    from softmesh.runtime.traces.trace_api import (
        begin_trace_capture,
        end_trace_capture,
        execute_trace,
        is_trace_capture_active,
        release_trace,
    )
    from softmesh.sockets.counter_channel import InterProcessCounterChannel
    from softmesh.sockets.host_send_recv import SOCKET_OPERATIONS as _SOCKET_OPERATIONS
    from softmesh.sockets.host_sockets import D2HSocket, H2DMode, H2DSocket
    from softmesh.sockets.mesh_socket import MeshSocket, create_socket_pair
    from softmesh.sockets.socket_config import (
        MeshCoreCoord,
        SocketConfig,
        SocketConnection,
        SocketEndpoint,
        SocketMemoryConfig,
    )
    from softmesh.sockets.stream_services import D2HStreamService, H2DStreamService
    from softmesh.strictness import lenient
    from softmesh.tensor import device_pages as _device_pages
    from softmesh.tensor import methods as _methods
    from softmesh.tensor.composers import (
        ConcatMesh2dToTensor,
        ConcatMeshToTensor,
        MeshComposerConfig,
        MeshToTensor,
        concat_2d_mesh_to_tensor_composer,
        concat_mesh_to_tensor_composer,
        create_mesh_composer,
    )
    from softmesh.tensor.device_allocation import allocate_tensor_on_device, allocate_tensor_on_host, deallocate
    from softmesh.tensor.device_shards import (
        aggregate_tensor,
        combine_device_tensors,
        distribute_tensor,
        from_host_shards,
        get_device_tensors,
        placements,
    )
    from softmesh.tensor.dtype import (
        ROW_MAJOR_LAYOUT,
        TILE_LAYOUT,
        TILE_SIZE,
        DataType,
        Layout,
        bfloat4_b,
        bfloat8_b,
        bfloat16,
        element_size,
        float32,
        fp8_e4m3,
        int8,
        int32,
        tile_size,
        ttnn_dtype_to_torch_dtype,
        uint8,
        uint16,
        uint32,
    )
    from softmesh.tensor.files import as_tensor, dump_tensor, load_tensor
    from softmesh.tensor.from_buffer import from_buffer
    from softmesh.tensor.from_torch_values import from_torch
    from softmesh.tensor.mappers import (
        Mapper,
        MeshMapperConfig,
        ReplicateTensorToMesh,
        ReplicateTensorToMeshWrapper,
        ShardTensor2dMesh,
        ShardTensorToMesh,
        TensorToMesh,
        compute_distribution_to_mesh_mapping,
        create_mesh_mapper,
        replicate_tensor_to_mesh_mapper,
        shard_tensor_to_mesh_mapper,
    )
    from softmesh.tensor.methods import (
        get_memory_config,
        has_tile_padding,
        is_sharded,
        is_tensor_storage_on_device,
    )
    from softmesh.tensor.partial_copy import copy_host_to_device_tensor_partial
    from softmesh.tensor.pearson_correlation import pearson_correlation_coefficient
    from softmesh.tensor.printing import set_printoptions
    from softmesh.tensor.spec import TensorSpec
    from softmesh.tensor.tensor import StorageType, Tensor
    from softmesh.tensor.tile import Tile
    from softmesh.tensor.transfer import (
        compose,
        copy_device_to_host_tensor,
        copy_host_to_device_tensor,
        from_device,
        to_device,
        to_torch,
    )
    from softmesh.version import __version__

keep_freed_memory()
_load_environment()
_comparing.follow_config()
_call_log.follow_config()
_report_switches.follow_config()

CONFIG_PATH = _environment_path()
CONFIG_OVERRIDES = _environment_overrides()
_sys.modules[__name__].__class__ = _Package

Device = MeshDevice
DEVICE_STORAGE_TYPE = StorageType.DEVICE
HOST_STORAGE_TYPE = StorageType.HOST
CppTensorToMesh = TensorToMesh
CppMeshToTensor = MeshToTensor

globals().update(_TOP)
globals().update({name: behind_the_door(name, found) for name, found in list(globals().items())})
globals().update({name: op for name, op in operations_under("").items() if name not in globals()})
publish(
    __name__,
    {
        **_COMPOSITES,
        **_SOCKET_OPERATIONS,
        **_PLAIN_NAMES,
        **_DOTTED,
        "transformer.SparseKVFormat": SparseKVFormat,  # noqa: F405
    },
)


def __getattr__(name: str) -> Any:
    """Names that load on first use; and for the rest, an error that knows the near ones."""
    return load_lazily(__name__, name)
