"""TT-Metalium's names for traces, on queue objects."""

from __future__ import annotations

from softmesh.arguments import checked
from softmesh.runtime.queues.command_queue import MeshCommandQueue
from softmesh.runtime.traces.api import (
    begin_trace_capture,
    end_trace_capture,
    execute_trace,
    release_trace,
)
from softmesh.runtime.traces.keeping import trace_of
from softmesh.runtime.traces.trace import Trace
from softmesh.runtime.traces.trace_id import MeshTraceId

_A_QUEUE = "a MeshCommandQueue of mesh.mesh_command_queue(id)"


def begin_mesh_trace(mesh_cq: MeshCommandQueue) -> MeshTraceId:
    """Record what is launched on this queue from here on; each program must have run once before."""
    return begin_trace_capture(_queue("begin_mesh_trace", mesh_cq).device(), cq_id=mesh_cq.id())


def end_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId) -> None:
    end_trace_capture(_queue("end_mesh_trace", mesh_cq).device(), trace_id, cq_id=mesh_cq.id())


def replay_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId, blocking: bool) -> None:
    mesh = _queue("replay_mesh_trace", mesh_cq).device()
    execute_trace(mesh, trace_id, cq_id=mesh_cq.id(), blocking=blocking)


def release_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId) -> None:
    release_trace(_queue("release_mesh_trace", mesh_cq).device(), trace_id)


def get_mesh_trace(mesh_cq: MeshCommandQueue, trace_id: MeshTraceId) -> Trace:
    return trace_of(_queue("get_mesh_trace", mesh_cq).device(), int(trace_id))


def get_trace_buffers_size(mesh_cq: MeshCommandQueue) -> int:
    """The bytes that the traces of the queue's mesh take, over all DRAM banks."""
    return _queue("get_trace_buffers_size", mesh_cq).device().captures.bytes_held


def _queue(where: str, mesh_cq: object) -> MeshCommandQueue:
    return checked(where, "mesh_cq", mesh_cq, MeshCommandQueue, _A_QUEUE)
