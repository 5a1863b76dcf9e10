"""Lock-step memory: the same bytes at the same address of every card of a mesh, allocated and freed together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping

from softmesh.drivers.handle import Handle, MemoryKind, aligned
from softmesh.drivers.heap import shaped
from softmesh.errors import MeshError
from softmesh.metal.cards.mesh import CardMesh
from softmesh.metal.cards.seats import Card


class LockstepMemory:
    """`pages` pages on each card. Freed by `free`, or when nobody refers to it any more."""

    def __init__(self, mesh: CardMesh, pages: int, page_size: int, mem: MemoryKind, label: str) -> None:
        self.mesh, self.pages, self.page_size, self.mem = mesh, pages, page_size, mem
        self.size = pages * page_size
        self._epoch = mesh.epoch
        _free_orphans(mesh)
        self.address = self._reserved(mem, label)
        self.handles = self._allocated(mem)
        self._release = weakref.finalize(self, mesh.orphans.append, (self.address, mem, self.handles))
        self._release.atexit = False

    @property
    def is_allocated(self) -> bool:
        return self._release.alive and self._epoch == self.mesh.epoch and self.mesh.is_open

    def check_alive(self, what: str) -> None:
        self.mesh.check_usable(what)
        if not self._release.alive:
            raise MeshError(f"{what}: the buffer at {hex(self.address)} was deallocated")
        if self._epoch != self.mesh.epoch:
            raise MeshError(f"{what}: the buffer is from before the mesh was reset; create it anew")

    def free(self) -> None:
        """Does nothing the second time, nor after the mesh was reset or closed."""
        is_gone = not self.is_allocated
        detached = self._release.detach()
        if detached and not is_gone:
            _, _, args, _ = detached
            _freed(self.mesh, *args[0])

    def _reserved(self, mem: MemoryKind, label: str) -> int:
        pool = self.mesh.pool(mem)
        room = shaped(self.mesh.cards[0].info, self.size, mem, self.page_size, self.mesh.banks(mem))
        per_bank = aligned(room.bytes_per_bank, pool.region.grain)
        return pool.allocate_labelled(per_bank, self.size, self, label)

    def _allocated(self, mem: MemoryKind) -> dict[Card, Handle]:
        """Where one card refuses, none keeps it."""
        mesh, what = self.mesh, "create_mesh_buffer"
        jobs = {card: self._allocating(card, mem) for card in mesh.cards}
        handles, failures = mesh.outcomes(what, jobs, mesh.timeouts.transfer)
        if failures:
            _freed(mesh, self.address, mem, handles)
            raise mesh.error(what, failures)
        return handles

    def _allocating(self, card: Card, mem: MemoryKind) -> Callable[[], Handle]:
        driver, size, page_size, address = card.driver, self.size, self.page_size, self.address
        banks = self.mesh.banks(mem)

        def allocate() -> Handle:
            handle = driver.alloc(size, mem=mem, page_size=page_size, banks=banks, address=address)
            if handle.address != address:
                driver.free(handle)
                raise MemoryError(f"asked for {hex(address)}, and got {hex(handle.address)}")
            return handle

        return allocate


def _free_orphans(mesh: CardMesh) -> None:
    """What belonged to buffers that nobody holds any more; they die in any thread, so they wait for this."""
    while mesh.orphans:
        _freed(mesh, *mesh.orphans.pop())


def _freed(mesh: CardMesh, address: int, mem: MemoryKind, handles: Mapping[Card, Handle]) -> None:
    mesh.pool(mem).free(address)
    if not mesh.failed:
        jobs = {card: _freeing(card, handle) for card, handle in handles.items()}
        mesh.each("deallocate", jobs, mesh.timeouts.transfer)


def _freeing(card: Card, handle: Handle) -> Callable[[], None]:
    return lambda: card.driver.free(handle)
