"""TT-NN's check of what was allocated while a trace is alive: `TT_METAL_TRACE_ALLOC_TRACKING=1`.

A chip's runtime does not know which memory a trace writes, so to it everything allocated after a capture is unsafe,
and replaying while such a buffer lives is an error. Buffers whose values may be lost are marked as corruptible.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from softmesh.arguments import checked, described, refused
from softmesh.errors import MeshError
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.allocations import Allocation
from softmesh.runtime.memory.pool import next_number
from softmesh.runtime.traces.recording import MeshTraceId
from softmesh.runtime.traces.trace import Trace


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def depth_of(text: str) -> int:
    """TT-NN takes 10 for what is no number."""
    return int(text) if text.isdecimal() else 10


TRACE_ALLOC_TRACKING = _is_set("TT_METAL_TRACE_ALLOC_TRACKING")
TRACE_ALLOC_DIAGNOSTICS = TRACE_ALLOC_TRACKING and _is_set("TT_METAL_TRACE_ALLOC_TRACEBACKS")
TRACE_ALLOC_REFERRER_DEPTH = depth_of(os.environ.get("TT_METAL_TRACE_ALLOC_REFERRER_DEPTH", ""))
_MOST_NAMED = 8


def trace_allocation_tracking_enabled() -> bool:
    return TRACE_ALLOC_TRACKING


def trace_allocation_diagnostics_enabled() -> bool:
    return TRACE_ALLOC_DIAGNOSTICS


def mark_corruptible(tensor: object) -> int | None:
    """Say that a tensor's values may be lost when a trace is replayed; the number of its allocation."""
    storage = getattr(tensor, "storage", None)
    if storage is None:
        raise refused("mark_corruptible", f"tensor must be a ttnn.Tensor, got {described(tensor)}")
    span = storage.span()
    if span is None:
        return None
    storage.device.captures.corruptible.add(span.number)
    return int(span.number)


acknowledge_corruptible = mark_corruptible


@contextmanager
def corruptible_allocation_scope(mesh_device: MeshDevice) -> Iterator[None]:
    """What is allocated on this mesh in the `with` block may lose its values when a trace is replayed."""
    mesh = checked("corruptible_allocation_scope", "mesh_device", mesh_device, MeshDevice, "a ttnn.MeshDevice")
    began = next_number()
    try:
        yield
    finally:
        if mesh.is_open:
            made = (one for pool in mesh.memory.pools.values() for one in pool.since(began))
            mesh.captures.corruptible.update(allocation.number for allocation in made)


def get_unsafe_tracked_ids(mesh_device: MeshDevice, trace_id: MeshTraceId) -> dict[int, str]:
    """What is live, was allocated since the trace was captured and is not corruptible: its number, and what it is."""
    where = "get_unsafe_tracked_ids"
    mesh = checked(where, "mesh_device", mesh_device, MeshDevice, "a ttnn.MeshDevice")
    trace = mesh.captures.traces.get(int(trace_id))
    return {} if trace is None else {one.number: str(one) for one in unsafe_allocations(mesh, trace)}


def remove_unsafe_tracked_id(mesh_device: MeshDevice, buffer_unique_id: int) -> None:
    """From now on the buffer of this number counts as corruptible."""
    where = "remove_unsafe_tracked_id"
    mesh = checked(where, "mesh_device", mesh_device, MeshDevice, "a ttnn.MeshDevice")
    mesh.captures.corruptible.add(checked(where, "buffer_unique_id", buffer_unique_id, int, "a number"))


def unsafe_allocations(mesh: MeshDevice, trace: Trace) -> list[Allocation]:
    corruptible = mesh.captures.corruptible
    return [
        allocation
        for pool in mesh.memory.pools.values()
        for allocation in pool.since(trace.ended)
        if allocation.number not in corruptible and not isinstance(allocation.owner, Trace)
    ]


def verify_before_replay(mesh: MeshDevice, trace: Trace) -> None:
    unsafe = unsafe_allocations(mesh, trace)
    if not unsafe:
        return
    overwritten = {one.number for one in trace.written.overwritten_since(trace.began)}
    listed = [
        f"  Buffer {one.number}: {one}{' (this replay overwrites it)' if one.number in overwritten else ''}"
        for one in unsafe[:_MOST_NAMED]
    ]
    if len(unsafe) > _MOST_NAMED:
        listed.append(f"  and {len(unsafe) - _MOST_NAMED} more")
    raise MeshError(
        f"Found {len(unsafe)} device buffer{'s' if len(unsafe) > 1 else ''} that a replay may overwrite: live, and "
        f"allocated since trace {int(trace.number)} was captured at {trace.site}:\n"
        + "\n".join(listed)
        + "\nAllocate them before "
        "ttnn.begin_trace_capture, deallocate them before the replay, or say that their values may be lost: "
        "ttnn.mark_corruptible(tensor), or `with ttnn.corruptible_allocation_scope(mesh_device):` around what "
        "allocates them."
    )
