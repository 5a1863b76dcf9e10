"""TT-Metalium's host API: buffers, queues, programs and workloads of a mesh, and a mesh API over single cards."""

from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.hardware.memory_config import ShardOrientation
from softmesh.kernels.data_formats import CBIndex, DataFormat, datatype_to_dataformat_converter
from softmesh.kernels.program.kernel import (
    NOC_MODE,
    ComputeConfig,
    DataMovementConfig,
    KernelBuildOptLevel,
    ReaderDataMovementConfig,
    WriterDataMovementConfig,
)
from softmesh.kernels.program.l1_allocation import CircularBufferConfig
from softmesh.kernels.program.packed_args import TensorAccessorArgs, append_fabric_connection_rt_args
from softmesh.kernels.program.program import Program
from softmesh.kernels.program.program_api import (
    CBHandle,
    CreateCircularBuffer,
    CreateKernel,
    CreateKernelFromString,
    CreateProgram,
    CreateSemaphore,
    GetCircularBufferConfig,
    GetCommonRuntimeArgs,
    GetRuntimeArgs,
    KernelHandle,
    SetCommonRuntimeArgs,
    SetRuntimeArgs,
    UpdateCircularBufferPageSize,
    UpdateCircularBufferTotalSize,
    UpdateDynamicCircularBufferAddress,
    UpdateDynamicCircularBufferAddressAndTotalSize,
)
from softmesh.metal.card_api import (
    all_gather,
    all_gather_host,
    all_reduce,
    all_reduce_host,
    create_mesh_buffer,
    enqueue_mesh_workload,
    open_mesh_device,
)
from softmesh.metal.card_mesh import CardMesh, CardsError, CardsTimeout, Timeouts
from softmesh.metal.host_api import (
    EnqueueMeshWorkload,
    EnqueueReadMeshBuffer,
    EnqueueWriteMeshBuffer,
    Finish,
    ReadShard,
    Synchronize,
    WriteShard,
)
from softmesh.runtime.buffers.buffer_config import (
    BufferDistributionSpec,
    BufferRegion,
    BufferShardingArgs,
    DeviceLocalBufferConfig,
    MeshBufferLayout,
    ReplicatedBufferConfig,
    Shape2D,
    ShardedBufferConfig,
    ShardSpecBuffer,
)
from softmesh.runtime.buffers.global_buffers import GlobalCircularBuffer, GlobalSemaphore
from softmesh.runtime.buffers.host_buffers import DistributedHostBuffer, ShardDataTransfer
from softmesh.runtime.buffers.mesh_buffer import Buffer, MeshBuffer
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.event_functions import EventQuery, EventSynchronize
from softmesh.runtime.queues.events import MeshEvent
from softmesh.runtime.queues.sub_devices import SubDevice, SubDeviceManagerId
from softmesh.runtime.queues.workload import MeshWorkload
from softmesh.runtime.traces.recording import MeshTraceId
from softmesh.runtime.traces.trace_api import (
    begin_mesh_trace,
    end_mesh_trace,
    get_mesh_trace,
    get_trace_buffers_size,
    release_mesh_trace,
    replay_mesh_trace,
)
from softmesh.tensor.device_pages import TensorBytes
