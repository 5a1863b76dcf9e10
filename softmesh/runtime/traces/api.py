"""TT-NN's traces: capture what a queue runs once, replay it many times."""

from __future__ import annotations

from softmesh.arguments import checked
from softmesh.callsite import user_call_site
from softmesh.errors import MeshError
from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.queue_id import QueueId, chosen_queue
from softmesh.runtime.traces.captures import begun, ended
from softmesh.runtime.traces.keeping import drop_trace, keep_trace, replay_on
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.trace import Trace
from softmesh.runtime.traces.trace_id import MeshTraceId

_A_MESH = "a mesh from ttnn.open_mesh_device"
_AN_ID = "the ttnn.MeshTraceId that begin_trace_capture returned"


def begin_trace_capture(mesh_device: MeshDevice, cq_id: int | QueueId | None = None) -> MeshTraceId:
    """From here on, what runs on this queue is recorded. Run it once before, so that it is compiled."""
    queue = _queue("begin_trace_capture", mesh_device, cq_id)
    return _begin(mesh_device, queue, MeshTraceId.next())


def _begin(mesh_device: MeshDevice, queue: int, number: MeshTraceId) -> MeshTraceId:
    begun(mesh_device, queue, Recording(number, queue, user_call_site()))
    _tell("begin_trace_capture", mesh_device, queue, number)
    return number


def end_trace_capture(
    mesh_device: MeshDevice, trace_id: MeshTraceId, cq_id: int | QueueId | None = None
) -> None:
    queue = _queue("end_trace_capture", mesh_device, cq_id)
    recording = ended(mesh_device, queue, _checked_id("end_trace_capture", trace_id))
    keep_trace(mesh_device, Trace(recording, mesh_device.sub_devices.active.id))
    _tell("end_trace_capture", mesh_device, queue, trace_id)


def execute_trace(
    mesh_device: MeshDevice, trace_id: MeshTraceId, cq_id: int | QueueId | None = None, blocking: bool = True
) -> None:
    """Run the recorded ops on what their inputs hold now; their results take the place of the old ones."""
    queue = _queue("execute_trace", mesh_device, cq_id)
    if blocking is not True and blocking is not False:
        checked("execute_trace", "blocking", blocking, bool, "True or False")
    replay_on(mesh_device, queue, int(_checked_id("execute_trace", trace_id)), blocking)


def release_trace(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    """Forget a trace. One that is not there is no error."""
    checked("release_trace", "mesh_device", mesh_device, MeshDevice, _A_MESH).check_open("release_trace")
    drop_trace(mesh_device, int(_checked_id("release_trace", trace_id)))
    _tell("release_trace", mesh_device, 0, trace_id)


def is_trace_capture_active(device: MeshDevice) -> bool:
    checked("is_trace_capture_active", "device", device, MeshDevice, _A_MESH)
    return bool(device.captures.recordings)


def record_begin(self: MeshCommandQueue, trace_id: MeshTraceId | None = None) -> MeshTraceId:
    """Record what is launched on this queue, under this id or a new one."""
    number = MeshTraceId.next() if trace_id is None else _checked_id("record_begin", trace_id)
    mesh = self.device()
    return _begin(mesh, _queue("record_begin", mesh, self.id()), number)


def record_end(self: MeshCommandQueue) -> MeshTraceId:
    """End the capture that is under way on this queue; its id."""
    recording = self.capturing
    if recording is None:
        raise MeshError(
            f"CQ {self.id()} is not being used for tracing: call record_begin() before record_end()."
        )
    end_trace_capture(self.device(), recording.number, self.id())
    return recording.number


def enqueue_trace(self: MeshCommandQueue, trace_id: MeshTraceId, blocking: bool) -> None:
    """Replay a trace on this queue."""
    execute_trace(self.device(), trace_id, self.id(), blocking)


MeshCommandQueue.record_begin = record_begin  # type: ignore[method-assign]
MeshCommandQueue.record_end = record_end  # type: ignore[method-assign]
MeshCommandQueue.enqueue_trace = enqueue_trace  # type: ignore[method-assign]


def _queue(where: str, mesh_device: MeshDevice, cq_id: int | QueueId | None) -> int:
    """Its number; what is as it should be is seen at once, for a replay costs little more than its calls."""
    if not isinstance(mesh_device, MeshDevice) or mesh_device.closed:
        checked(where, "mesh_device", mesh_device, MeshDevice, _A_MESH).check_open(where)
    if type(cq_id) is int and 0 <= cq_id < len(mesh_device.queues):
        return cq_id
    queue = chosen_queue(where, cq_id)
    mesh_device.mesh_command_queue(queue)  # refuses a number that the mesh has no queue for
    return queue


def _checked_id(where: str, trace_id: object) -> MeshTraceId:
    if isinstance(trace_id, MeshTraceId):
        return trace_id
    return MeshTraceId(checked(where, "trace_id", trace_id, int, _AN_ID))


def _tell(name: str, mesh_device: MeshDevice, queue: int, trace_id: MeshTraceId) -> None:
    if observed():
        emit(
            name,
            (),
            (),
            coords=mesh_coordinates(tuple(mesh_device.shape)),
            queue=queue,
            trace=int(trace_id),
            device=mesh_device,
        )
