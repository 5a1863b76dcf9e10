"""TT-Metalium's host API for queues and buffers as free functions, beside the classes they work on."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.buffers.host_buffers import HostData, ShardDataTransfer
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.device_lifecycle import synchronize_device
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.queue_id import QueueId
from softmesh.runtime.queues.workload import MeshWorkload

_A_QUEUE = "a MeshCommandQueue of mesh.mesh_command_queue(id)"


def EnqueueMeshWorkload(mesh_cq: MeshCommandQueue, mesh_workload: MeshWorkload, blocking: bool) -> None:
    _queue("EnqueueMeshWorkload", mesh_cq).enqueue_mesh_workload(mesh_workload, blocking)


def EnqueueWriteMeshBuffer(
    mesh_cq: MeshCommandQueue, mesh_buffer: MeshBuffer, src: HostData, blocking: bool = False
) -> None:
    """The same bytes to all devices, or of a sharded buffer to each its shard."""
    _queue("EnqueueWriteMeshBuffer", mesh_cq).enqueue_write_mesh_buffer(mesh_buffer, src, blocking)


def EnqueueReadMeshBuffer(
    mesh_cq: MeshCommandQueue, dst: HostData | None, mesh_buffer: MeshBuffer, blocking: bool = True
) -> HostData:
    """Put a sharded buffer together: into `dst`, or into new bytes (torch.uint8) where it is None."""
    return _queue("EnqueueReadMeshBuffer", mesh_cq).enqueue_read_mesh_buffer(dst, mesh_buffer, blocking)


def WriteShard(
    mesh_cq: MeshCommandQueue,
    mesh_buffer: MeshBuffer,
    src: HostData,
    coord: MeshCoordinate,
    blocking: bool = False,
) -> None:
    """The part of one device, whatever the buffer's layout."""
    transfer = ShardDataTransfer(coord).host_data(src)
    _queue("WriteShard", mesh_cq).enqueue_write_shards(mesh_buffer, [transfer], blocking)


def ReadShard(
    mesh_cq: MeshCommandQueue,
    dst: HostData | None,
    mesh_buffer: MeshBuffer,
    coord: MeshCoordinate,
    blocking: bool = True,
) -> HostData:
    """The part of one device: into `dst`, or into new bytes where it is None."""
    transfer = ShardDataTransfer(coord)
    if dst is not None:
        transfer.host_data(dst)
    _queue("ReadShard", mesh_cq).enqueue_read_shards([transfer], mesh_buffer, blocking)
    filled = transfer.host_data()
    assert filled is not None
    return filled


def Finish(mesh_cq: MeshCommandQueue, sub_device_ids: Sequence[SubDeviceId] = ()) -> None:
    """Wait until everything on the queue has run."""
    _queue("Finish", mesh_cq).finish(sub_device_ids)


def Synchronize(
    device: MeshDevice, cq_id: int | QueueId | None = None, sub_device_ids: Sequence[SubDeviceId] = ()
) -> None:
    """Wait until one queue, or without `cq_id` all queues, have run everything."""
    synchronize_device(device, cq_id, sub_device_ids)


def _queue(where: str, queue: object) -> MeshCommandQueue:
    return checked(where, "mesh_cq", queue, MeshCommandQueue, _A_QUEUE)
