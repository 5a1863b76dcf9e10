"""Who holds the bytes at an address: the buffer or tensor that was allocated there, or a view that came first."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.runtime.buffers.mesh_memory import MeshMemory
from softmesh.runtime.buffers.paged import PagedMemory
from softmesh.runtime.buffers.placed import PageLayout, Placed
from softmesh.runtime.buffers.window import Window

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class LaidOut(PagedMemory, Protocol):
    """Paged memory whose layout can be compared with another's."""

    layout: PageLayout


AsMemory = Callable[[object], "LaidOut | None"]
_READINGS: list[AsMemory] = []


def reads_as_memory(reading: AsMemory) -> AsMemory:
    """Say how the bytes of a kind of owner are got at; None for owners of other kinds."""
    _READINGS.append(reading)
    return reading


def memory_of(owner: object) -> LaidOut | None:
    """The bytes of whoever owns an allocation; None where nobody can tell them."""
    if isinstance(owner, Placed):
        return owner  # type: ignore[return-value]
    found = (reading(owner) for reading in _READINGS)
    return next((memory for memory in found if memory is not None), None)


def owner_at(mesh: MeshDevice, buffer_type: BufferType, address: int) -> LaidOut | None:
    """The memory that covers an address of a mesh."""
    for allocator in (mesh.memory, *map(mesh.memory.local, mesh.sub_devices.ids())):
        allocation = allocator.at(buffer_type, address) if buffer_type in allocator.pools else None
        if allocation is not None:
            return memory_of(allocation.owner)
    views = _UNOWNED.get(mesh)
    return None if views is None else views.get((buffer_type, address))


# Memory that only views look at: those at one address see the same bytes.
_UNOWNED: weakref.WeakKeyDictionary[
    MeshDevice, weakref.WeakValueDictionary[tuple[BufferType, int], MeshMemory]
] = weakref.WeakKeyDictionary()


def memory_at(mesh: MeshDevice, layout: PageLayout, address: int) -> MeshMemory | Window:
    """The bytes at an address, under a layout of one's own."""
    if address < 0:
        raise MeshError(f"MeshBuffer.create: address {address} cannot be negative.")
    extents = tuple(mesh.shape) if mesh.block is None else mesh.block.shape
    base = owner_at(mesh, layout.buffer_type, address) if layout.num_pages else None
    if base is not None:
        return Window(layout, address, extents, base, base.layout)
    made = MeshMemory(layout, address, extents, mesh.torch_device)
    if layout.num_pages:
        views = _UNOWNED.setdefault(mesh, weakref.WeakValueDictionary())
        views[layout.buffer_type, address] = made
    return made
