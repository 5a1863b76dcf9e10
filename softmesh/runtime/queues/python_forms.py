"""TT-NN's functions for events and global circular buffers."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked, knows_its_names
from softmesh.cores import CoreCoord, CoreRangeSet
from softmesh.hardware.buffer_type import BufferType
from softmesh.hardware.dispatch import SubDeviceId
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.buffers.global_circular_buffer import GlobalCircularBuffer
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.event import MeshEvent
from softmesh.runtime.queues.event_waiting import EventSynchronize
from softmesh.runtime.queues.queue_id import QueueId

_A_MESH_DEVICE = "a MeshDevice: open one with ttnn.open_mesh_device(ttnn.MeshShape(rows, cols))"


@knows_its_names
def record_event(
    mesh_device: MeshDevice,
    cq_id: int | QueueId | None = None,
    sub_device_ids: Sequence[SubDeviceId] = (),
    device_range: MeshCoordinateRange | None = None,
) -> MeshEvent:
    """Mark everything enqueued so far on a queue; other queues and the host can wait for it."""
    device = checked("record_event", "mesh_device", mesh_device, MeshDevice, _A_MESH_DEVICE)
    device.check_open("record_event")
    return device.mesh_command_queue(cq_id).enqueue_record_event_to_host(sub_device_ids, device_range)


@knows_its_names
def wait_for_event(cq_id: int | QueueId | None = None, mesh_event: MeshEvent | None = None) -> None:
    """Let a queue wait for an event, usually of another queue; the host goes on at once."""
    event = checked(
        "wait_for_event", "mesh_event", mesh_event, MeshEvent, "what ttnn.record_event(...) returned"
    )
    event.device().mesh_command_queue(cq_id).enqueue_wait_for_event(event)


@knows_its_names
def event_synchronize(mesh_event: MeshEvent) -> None:
    """Let the host wait for an event."""
    EventSynchronize(mesh_event)


@knows_its_names
def create_global_circular_buffer(
    mesh_device: MeshDevice,
    sender_receiver_core_mapping: Sequence[tuple[CoreCoord, CoreRangeSet]],
    size: int,
    buffer_type: BufferType = BufferType.L1,
) -> GlobalCircularBuffer:
    where = "create_global_circular_buffer"
    device = checked(where, "mesh_device", mesh_device, MeshDevice, _A_MESH_DEVICE)
    device.check_open(where)
    return GlobalCircularBuffer(device, sender_receiver_core_mapping, size, buffer_type)
