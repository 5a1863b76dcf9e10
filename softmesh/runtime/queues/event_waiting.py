"""Events as the host sees them."""

from __future__ import annotations

from softmesh.arguments import checked
from softmesh.errors import MeshError
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.event import MeshEvent
from softmesh.runtime.traces.captures import EVENT_SYNCHRONIZATION, refuse_while_recording


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
    _tell("event_synchronize", queue, event)


def EventQuery(event: MeshEvent) -> bool:
    """Whether every device of the event's range has got there, as far as the host has heard."""
    queue = _queue_of("EventQuery", event)
    if not queue.events.has_reached_host(event):
        return False
    _tell("event_query", queue, event)
    return True


def _tell(name: str, queue: MeshCommandQueue, event: MeshEvent) -> None:
    """The host has heard of an event."""
    if observed():
        mesh, coords = queue.device(), list(event.device_range)
        emit(name, (), (), coords=coords, queue=queue.id(), device=mesh, event=event)


def _queue_of(where: str, event: MeshEvent) -> MeshCommandQueue:
    found = checked(where, "event", event, MeshEvent, "a ttnn.MeshEvent of ttnn.record_event(...)")
    mesh = found.device()
    mesh.check_open(where)
    queue = mesh.mesh_command_queue(found.mesh_cq_id)
    queue.check_fresh(found, where)
    return queue
