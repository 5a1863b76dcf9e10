"""Functions on events: record, wait, synchronize and query, in TT-NN's and TT-Metalium's spelling."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked, reject_unknown_keywords
from softmesh.errors import MeshError
from softmesh.hardware.dispatch_cores import SubDeviceId
from softmesh.kinds import Kind
from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.events import MeshEvent
from softmesh.runtime.queues.queue_id import QueueId
from softmesh.runtime.traces.trace import EVENT_SYNCHRONIZATION, refuse_while_recording


def EventSynchronize(event: MeshEvent) -> None:
    """Let the host wait until every device of the event's range has got there."""
    queue = _queue_of("EventSynchronize", event)
    mesh = queue.device()
    refuse_while_recording(mesh, queue.id(), EVENT_SYNCHRONIZATION, "EventSynchronize")
    if not queue.events.has_reached_host(event):
        raise MeshError(
            f"EventSynchronize: the host would wait for ever for {event}: it was recorded for other queues only. "
            "Record it with enqueue_record_event_to_host (ttnn.record_event does), or call finish() of its queue."
        )
    if event.passed is not None:
        event.passed.synchronize()
    _tell("event_synchronize", Kind.SYNCHRONIZE_EVENT, queue, event)


def EventQuery(event: MeshEvent) -> bool:
    """Whether every device of the event's range has got there, as far as the host has heard."""
    queue = _queue_of("EventQuery", event)
    if not queue.events.has_reached_host(event) or (event.passed is not None and not event.passed.query()):
        return False
    _tell("event_query", Kind.QUERY_EVENT, queue, event)
    return True


def _tell(name: str, kind: Kind, queue: MeshCommandQueue, event: MeshEvent) -> None:
    """The host has heard of an event."""
    if observed():
        mesh, coords = queue.device(), list(event.device_range)
        emit(name, kind, (), (), coords=coords, queue=queue.id(), device=mesh, event=event)


def _queue_of(where: str, event: MeshEvent) -> MeshCommandQueue:
    found = checked(where, "event", event, MeshEvent, "a ttnn.MeshEvent of ttnn.record_event(...)")
    mesh = found.device()
    mesh.check_open(where)
    queue = mesh.mesh_command_queue(found.mesh_cq_id)
    queue.check_fresh(found, where)
    return queue


@reject_unknown_keywords
def record_event(
    mesh_device: MeshDevice,
    cq_id: int | QueueId | None = None,
    sub_device_ids: Sequence[SubDeviceId] = (),
    device_range: MeshCoordinateRange | None = None,
) -> MeshEvent:
    """Mark everything enqueued so far on a queue; other queues and the host can wait for it."""
    device = checked_open("record_event", "mesh_device", mesh_device)
    return device.mesh_command_queue(cq_id).enqueue_record_event_to_host(sub_device_ids, device_range)


@reject_unknown_keywords
def wait_for_event(cq_id: int | QueueId | None = None, mesh_event: MeshEvent | None = None) -> None:
    """Let a queue wait for an event, usually of another queue; the host goes on at once."""
    event = checked("wait_for_event", "mesh_event", mesh_event, MeshEvent, "what ttnn.record_event(...) returned")
    event.device().mesh_command_queue(cq_id).enqueue_wait_for_event(event)


@reject_unknown_keywords
def event_synchronize(mesh_event: MeshEvent) -> None:
    """Let the host wait for an event."""
    EventSynchronize(mesh_event)
