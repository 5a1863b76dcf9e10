"""Which addresses of which memory a command is about."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from softmesh.hardware.buffer_type import BufferType
from softmesh.runtime.buffers.mesh_memory import MeshMemory
from softmesh.runtime.buffers.placed import PageLayout
from softmesh.runtime.buffers.window import Window
from softmesh.runtime.memory.span import Span

if TYPE_CHECKING:
    from softmesh.runtime.buffers.paged import PagedMemory
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.pool import Pool


def span_of_memory(mesh: MeshDevice, memory: PagedMemory) -> Span | None:
    """Of a buffer, of a tensor's bytes, or of the part of either that a view looks at."""
    base: Any = memory.base if isinstance(memory, Window) else memory
    layout: PageLayout = memory.layout  # type: ignore[attr-defined]
    if not layout.bytes_per_bank:
        return None
    pool = _pool(mesh, memory.buffer_type, memory.address)
    end, number = pool.extent(base.address)
    if base is not memory or not number:
        end = memory.address + layout.bytes_per_bank
    return Span(pool, memory.address, end, number, layout, weakref.ref(memory))


def _pool(mesh: MeshDevice, kind: BufferType, address: int) -> Pool:
    """Sub-devices have the lowest addresses of L1 to themselves, each on cores of its own."""
    pool = mesh.memory.pools[kind]
    if kind is BufferType.L1 and address < pool.region.base:
        local = (mesh.memory.local(one).pools[kind] for one in mesh.sub_devices.ids())
        return next((own for own in local if own.at(address) is not None), pool)
    return pool


def owner_of_stale_view(mesh: MeshDevice, memory: PagedMemory) -> MeshMemory | None:
    """Where `memory` is a view of a buffer that was freed: that buffer's memory."""
    base = memory.base if isinstance(memory, Window) else None
    if not isinstance(base, MeshMemory) or not base.was_allocated:
        return None
    allocation = _pool(mesh, base.buffer_type, base.address).at(base.address)
    return None if allocation is not None and allocation.owner is base else base
