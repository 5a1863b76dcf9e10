"""The trace API, in TT-NN and TT-Metalium spelling: capture what a queue runs once, replay it many times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softmesh.arguments import checked
from softmesh.callsite import user_call_site
from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.kinds import Kind
from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime import commands
from softmesh.runtime.commands import emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.machine_errors import raise_machine_error
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.queues.cuda_streams import on_queue
from softmesh.runtime.queues.queue_id import QueueId, chosen_queue
from softmesh.runtime.traces import allocation_tracking
from softmesh.runtime.traces.recorded_numbers import doubt_changed
from softmesh.runtime.traces.recording import MeshTraceId, Recording
from softmesh.runtime.traces.trace import BLOCKING, Trace, begun, ended, refuse_while_recording
from softmesh.strictness import is_strict

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


def keep_trace(mesh: MeshDevice, trace: Trace) -> None:
    """Give it room in the trace region; in ordinary DRAM, from its far end, where none was asked for."""
    region = mesh.options.get("trace_region_size") or 0
    wanted = mesh.captures.bytes_held + trace.size
    if isinstance(region, int) and 0 < region < wanted:
        raise MeshError(
            f"Creating trace buffers of size {wanted}B on MeshDevice {mesh.id()}, but only {region}B is allocated for "
            f"trace region. Open the mesh with trace_region_size={wanted} or more, or release older traces."
        )
    if trace.size and not mesh.is_remote_only():
        where = BufferType.TRACE if region else BufferType.DRAM
        banks = mesh.allocator().get_num_banks(where)
        label = f"trace {int(trace.number)}"
        place = mesh.allocator().allocate(
            -(-trace.size // banks), where, bottom_up=bool(region), owner=trace, label=label
        )
        trace.room = (where, place)
    mesh.captures.traces[int(trace.number)] = trace


def trace_of(mesh: MeshDevice, number: int) -> Trace:
    trace = mesh.captures.traces.get(number)
    manager = mesh.sub_devices.active.id
    if trace is None or trace.manager != manager:
        why = "it was never captured there, or it has been released"
        if trace is not None:
            why = f"it was captured under manager {trace.manager}. Load that one again, or capture under this one"
        raise MeshError(
            f"Trace instance {number} must exist on Mesh device {mesh.id()}'s active sub-device manager {manager}: "
            f"{why}."
        )
    return trace


def replay_on(mesh: MeshDevice, queue: int, number: int, blocking: bool) -> None:
    trace = trace_of(mesh, number)
    if mesh.captures.recordings:
        refuse_while_recording(mesh, queue, BLOCKING, "execute_trace")
    if trace.numbers and is_strict():
        others = (number for other in mesh.captures.traces.values() for number in other.numbers)
        doubt_changed(trace.numbers, others)
    if allocation_tracking.TRACE_ALLOC_TRACKING:
        allocation_tracking.verify_before_replay(mesh, trace)
    mesh.note_launch(queue)
    _tell_ranks("execute_trace", mesh, number)
    if not mesh.is_remote_only():
        try:
            with on_queue(queue):
                trace.replay_among(mesh.captures)
        except (MemoryError, RuntimeError) as error:
            raise_machine_error("execute_trace", error, mesh)
            raise
    if commands.observers:
        coords = mesh_coordinates(tuple(mesh.shape))
        commands.emit(
            "execute_trace",
            Kind.REPLAY,
            (),
            (),
            coords=coords,
            queue=queue,
            trace=number,
            device=mesh,
            blocking=blocking,
        )
    if blocking:
        mesh.queues[queue].wait("execute_trace")


def _tell_ranks(name: str, mesh: MeshDevice, number: int) -> None:
    """Which trace it is: by its place among those that the mesh has, for ids are numbers of one process."""
    if mesh.ranks is not None and number in mesh.captures.traces:
        mesh.tell_ranks(f"{name}(the mesh's trace {list(mesh.captures.traces).index(number)})")


def drop_trace(mesh: MeshDevice, number: int) -> None:
    trace = mesh.captures.traces.pop(number, None)
    if trace is not None and trace.room is not None:
        where, place = trace.room
        mesh.allocator().free(place, where)
        trace.room = None


_A_MESH = "a mesh from ttnn.open_mesh_device"
_AN_ID = "the ttnn.MeshTraceId that begin_trace_capture returned"


def begin_trace_capture(mesh_device: MeshDevice, cq_id: int | QueueId | None = None) -> MeshTraceId:
    """From here on, what runs on this queue is recorded. Run it once before, so that it is compiled."""
    queue = _queue_number("begin_trace_capture", mesh_device, cq_id)
    return _begin(mesh_device, queue, MeshTraceId.next())


def _begin(mesh_device: MeshDevice, queue: int, number: MeshTraceId) -> MeshTraceId:
    mesh_device.tell_ranks(f"begin_trace_capture(cq_id={queue})")
    begun(mesh_device, queue, Recording(number, queue, user_call_site()))
    _tell("begin_trace_capture", Kind.CAPTURE_BEGIN, mesh_device, queue, number)
    return number


def end_trace_capture(mesh_device: MeshDevice, trace_id: MeshTraceId, cq_id: int | QueueId | None = None) -> None:
    queue = _queue_number("end_trace_capture", mesh_device, cq_id)
    recording = ended(mesh_device, queue, _checked_id("end_trace_capture", trace_id))
    has_graphs = mesh_device.torch_device.type == "cuda" and mesh_device.ranks is None
    card = mesh_device.torch_device if has_graphs else None
    trace = Trace(recording, mesh_device.sub_devices.active.id, card, is_shared=mesh_device.ranks is not None)
    keep_trace(mesh_device, trace)
    trace.await_replay()
    mesh_device.tell_ranks(f"end_trace_capture(cq_id={queue})")
    _tell("end_trace_capture", Kind.CAPTURE_END, mesh_device, queue, trace_id)


def execute_trace(
    mesh_device: MeshDevice, trace_id: MeshTraceId, cq_id: int | QueueId | None = None, blocking: bool = True
) -> None:
    """Run the recorded ops on what their inputs hold now; their results take the place of the old ones."""
    queue = _queue_number("execute_trace", mesh_device, cq_id)
    if blocking is not True and blocking is not False:
        checked("execute_trace", "blocking", blocking, bool, "True or False")
    replay_on(mesh_device, queue, int(_checked_id("execute_trace", trace_id)), blocking)


def release_trace(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    """Forget a trace. One that is not there is no error."""
    checked("release_trace", "mesh_device", mesh_device, MeshDevice, _A_MESH).check_open("release_trace")
    _tell_ranks("release_trace", mesh_device, int(_checked_id("release_trace", trace_id)))
    drop_trace(mesh_device, int(trace_id))
    _tell("release_trace", Kind.RELEASE_TRACE, mesh_device, 0, trace_id)


def is_trace_capture_active(device: MeshDevice) -> bool:
    checked("is_trace_capture_active", "device", device, MeshDevice, _A_MESH)
    return bool(device.captures.recordings)


def record_begin(self: MeshCommandQueue, trace_id: MeshTraceId | None = None) -> MeshTraceId:
    """Record what is launched on this queue, under this id or a new one."""
    number = MeshTraceId.next() if trace_id is None else _checked_id("record_begin", trace_id)
    mesh = self.device()
    return _begin(mesh, _queue_number("record_begin", mesh, self.id()), number)


def record_end(self: MeshCommandQueue) -> MeshTraceId:
    """End the capture that is under way on this queue; its id."""
    recording = self.capturing
    if recording is None:
        raise MeshError(f"CQ {self.id()} is not being used for tracing: call record_begin() before record_end().")
    end_trace_capture(self.device(), recording.number, self.id())
    return recording.number


def enqueue_trace(self: MeshCommandQueue, trace_id: MeshTraceId, blocking: bool) -> None:
    """Replay a trace on this queue."""
    execute_trace(self.device(), trace_id, self.id(), blocking)


MeshCommandQueue.record_begin = record_begin  # type: ignore[method-assign]
MeshCommandQueue.record_end = record_end  # type: ignore[method-assign]
MeshCommandQueue.enqueue_trace = enqueue_trace  # type: ignore[method-assign]


def _queue_number(where: str, mesh_device: MeshDevice, cq_id: int | QueueId | None) -> int:
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


def _tell(name: str, kind: Kind, mesh_device: MeshDevice, queue: int, trace_id: MeshTraceId) -> None:
    if observed():
        emit(
            name,
            kind,
            (),
            (),
            coords=mesh_coordinates(tuple(mesh_device.shape)),
            queue=queue,
            trace=int(trace_id),
            device=mesh_device,
        )


# TT-Metalium's names for the same functions, which take a queue object.


_A_QUEUE = "a MeshCommandQueue of mesh.mesh_command_queue(id)"


def begin_mesh_trace(mesh_cq: MeshCommandQueue) -> MeshTraceId:
    """Record what is launched on this queue from here on; each program must have run once before."""
    return begin_trace_capture(_checked_queue("begin_mesh_trace", mesh_cq).device(), cq_id=mesh_cq.id())


def end_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId) -> None:
    end_trace_capture(_checked_queue("end_mesh_trace", mesh_cq).device(), trace_id, cq_id=mesh_cq.id())


def replay_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId, blocking: bool) -> None:
    mesh = _checked_queue("replay_mesh_trace", mesh_cq).device()
    execute_trace(mesh, trace_id, cq_id=mesh_cq.id(), blocking=blocking)


def release_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId) -> None:
    release_trace(_checked_queue("release_mesh_trace", mesh_cq).device(), trace_id)


def get_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId) -> Trace:
    return trace_of(_checked_queue("get_mesh_trace", mesh_cq).device(), int(trace_id))


def get_trace_buffers_size(mesh_cq: MeshCommandQueue) -> int:
    """The bytes that the traces of the queue's mesh take, over all DRAM banks."""
    return _checked_queue("get_trace_buffers_size", mesh_cq).device().captures.bytes_held


def _checked_queue(where: str, mesh_cq: object) -> MeshCommandQueue:
    return checked(where, "mesh_cq", mesh_cq, MeshCommandQueue, _A_QUEUE)
