"""The traces of a mesh: room for them, replaying and dropping them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.placement.distribution import mesh_coordinates
from softmesh.runtime import commands
from softmesh.runtime.traces import allocation_tracking
from softmesh.runtime.traces.captures import BLOCKING, refuse_while_recording
from softmesh.runtime.traces.trace import Trace

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
    if allocation_tracking.TRACE_ALLOC_TRACKING:
        allocation_tracking.verify_before_replay(mesh, trace)
    mesh.note_launch(queue)
    if not mesh.is_remote_only():
        trace.replay()
    if commands.observers:
        coords = mesh_coordinates(tuple(mesh.shape))
        commands.emit(
            "execute_trace", (), (), coords=coords, queue=queue, trace=number, device=mesh, blocking=blocking
        )
    if blocking:
        mesh.queues[queue].wait("execute_trace")


def drop_trace(mesh: MeshDevice, number: int) -> None:
    trace = mesh.captures.traces.pop(number, None)
    if trace is not None and trace.room is not None:
        where, place = trace.room
        mesh.allocator().free(place, where)
        trace.room = None
