"""The bytes behind mesh buffers: memory of one's own, views (windows) of other memory, and the owner at an address.

`MeshMemory` is one torch tensor whose leading dims are the mesh, of extent 1 where all devices agree (copy on write). A
`Window` sees the bytes of another memory under pages of its own: a torch view where the pages coincide, otherwise a
copy that is invalidated by torch's version counter (`TensorVersion`) and written back by `store`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch

from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.mesh import MeshCoordinate
from softmesh.runtime.buffers.paged_memory import Interleaved, PagedBase, PagedMemory, PageLayout

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class MeshMemory(PagedBase):
    """Zeros until written. `mesh` are the extents of the mesh, or of this process's part of it."""

    def __init__(self, layout: PageLayout, address: int, mesh: Sequence[int], on: torch.device) -> None:
        super().__init__(layout, address)
        self.mesh = tuple(mesh)
        self._on = on
        self.was_allocated = False  # otherwise only views look at it
        self.written_on: frozenset[MeshCoordinate] | None = None  # where known: no other device was ever written to
        self._data: torch.Tensor | None = None

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has asked for the bytes yet: nothing was ever written."""
        return self._data is None

    @property
    def data(self) -> torch.Tensor:
        if self._data is None:
            self._data = self._room((1,) * len(self.mesh)).zero_()
        return self._data

    def materialise(self) -> torch.Tensor:
        return self.extended(self.mesh)

    def extended(self, extents: Sequence[int]) -> torch.Tensor:
        """The data with at least these extents; devices that agreed so far get copies."""
        data = self.data
        wanted = [max(have, n) for have, n in zip(data.shape, extents, strict=False)]
        if wanted != list(data.shape[: len(wanted)]):
            self._data = data = self._room(wanted).copy_(data)
        return data

    def replaced(self, extents: Sequence[int]) -> torch.Tensor:
        """Room with exactly these extents, all of which the caller writes."""
        if self._data is None or tuple(self._data.shape[: len(self.mesh)]) != tuple(extents):
            self._data = self._room(extents)
        return self._data

    def store(self) -> None:
        """`data` is the memory itself: what was written into it is there, on any device."""
        self.written_on = None

    def devices_written(self) -> frozenset[MeshCoordinate] | None:
        return frozenset() if self.is_untouched else self.written_on

    def _room(self, extents: Sequence[int]) -> torch.Tensor:
        size = (*extents, self.layout.num_pages, self.layout.page_size)
        with torch.inference_mode(False):  # it will be written to, in that mode and out of it
            return torch.empty(size, dtype=torch.uint8, device=self._on)


class TensorVersion:
    """One torch tensor at one moment; torch counts the writes to it."""

    __slots__ = ("_data", "_writes")

    def __init__(self, data: torch.Tensor) -> None:
        self._data = weakref.ref(data)
        self._writes = _writes(data)

    def refresh(self) -> None:
        """As it is by now."""
        data = self._data()
        if data is not None:
            self._writes = _writes(data)

    def is_unchanged(self, data: torch.Tensor) -> bool:
        """Whether `data` is that tensor, not written to since."""
        return self._data() is data and self._writes == _writes(data)


def _writes(data: torch.Tensor) -> int:
    return 0 if data.is_inference() else data._version  # what inference mode makes has no count


class Window(PagedBase):
    """Pages of `base`, from an address inside it on.

    `data` is a view of base's bytes where its pages are the same; otherwise a copy, made anew when the base has
    changed, which `store` writes back.
    """

    def __init__(
        self,
        layout: PageLayout,
        address: int,
        mesh: Sequence[int],
        base: PagedMemory,
        base_layout: PageLayout,
    ) -> None:
        super().__init__(layout, address)
        self.mesh = tuple(mesh)
        self.base = base
        self._base_layout = base_layout
        if address + layout.bytes_per_bank > base.address + base_layout.bytes_per_bank:
            raise MeshError(
                f"A view of {layout.bytes_per_bank} bytes in each bank at address {address} reaches beyond the buffer "
                f"that begins at {base.address} and has {base_layout.bytes_per_bank}: views over several buffers are "
                "not modelled. Make a view for each."
            )
        self._first = self._first_shared_page()
        self._copied: tuple[TensorVersion, torch.Tensor] | None = None

    def _first_shared_page(self) -> int | None:
        """Where the pages of this view begin among those of the base, if they are the same pages."""
        mine, base = self.layout, self._base_layout
        slot, offset = divmod(self.address - self.base.address, base.aligned_page_size)
        if mine.page_size != base.page_size or offset:
            return None
        if mine.page_map == base.page_map and slot == 0:
            return 0
        interleaved = isinstance(mine.page_map, Interleaved) and isinstance(base.page_map, Interleaved)
        first = slot * base.page_map.num_banks
        return first if interleaved and first + mine.num_pages <= base.num_pages else None

    @property
    def data(self) -> torch.Tensor:
        return self._part_of(self.base.data)

    def materialise(self) -> torch.Tensor:
        return self._part_of(self.base.materialise())

    def extended(self, extents: Sequence[int]) -> torch.Tensor:
        """At least these extents: the base gives every device its own copy where it has less."""
        data = self.data
        enough = all(have >= n for have, n in zip(data.shape, extents, strict=False))
        return data if enough else self.materialise()

    replaced = extended

    def store(self) -> None:
        if self._copied is not None:
            _, copied = self._copied
            unit, places = self._units
            inside = places >= 0
            target = self.base.data
            mine = copied.reshape(*copied.shape[:-2], -1, unit)
            target.view(*target.shape[:-2], -1, unit)[..., places[inside], :] = mine[..., inside, :]
            self._copied = TensorVersion(target), copied
        self.base.store()

    def _part_of(self, base: torch.Tensor) -> torch.Tensor:
        if self._first is not None:
            return base[..., self._first : self._first + self.layout.num_pages, :]
        if self._copied is None or not self._copied[0].is_unchanged(base):
            unit, places = self._units
            flat = base.reshape(*base.shape[:-2], -1, unit)
            found = flat[..., places.clamp(min=0), :] * (places >= 0).unsqueeze(-1).to(base.device)
            pages = found.reshape(*base.shape[:-2], self.layout.num_pages, self.layout.page_size)
            self._copied = TensorVersion(base), pages
        return self._copied[1]

    @cached_property
    def _units(self) -> tuple[int, torch.Tensor]:
        """The largest piece of memory that neither layout cuts, and for each such piece of this view its place in
        the base's data; -1 where the base has only padding.
        """
        mine, base = self.layout, self._base_layout
        offset = self.address - self.base.address
        unit = math.gcd(mine.page_size, mine.aligned_page_size, base.page_size, base.aligned_page_size, offset)
        held = torch.full((_banks(mine, base), base.bytes_per_bank // unit), -1)
        banks, starts = _unit_starts(base, unit)
        held[banks, starts] = torch.arange(banks.numel())
        my_banks, my_starts = _unit_starts(mine, unit)
        return unit, held[my_banks, my_starts + offset // unit]


def _banks(*layouts: PageLayout) -> int:
    return 1 + max(int(layout.page_map.slots()[0].max()) for layout in layouts)


def _unit_starts(layout: PageLayout, unit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bank and place of each unit of each page."""
    banks, slots = layout.page_map.slots()
    inside = torch.arange(layout.page_size // unit)
    starts = (slots * (layout.aligned_page_size // unit)).unsqueeze(-1) + inside
    return banks.repeat_interleave(inside.numel()), starts.flatten()


# Owner look-up: the buffer or tensor that was allocated at an address, or the view that came there first.


class MemoryWithLayout(PagedMemory, Protocol):
    """Paged memory whose layout can be compared with another's."""

    layout: PageLayout


MemoryProvider = Callable[[object], "MemoryWithLayout | None"]
_MEMORY_PROVIDERS: list[MemoryProvider] = []


def memory_provider(reading: MemoryProvider) -> MemoryProvider:
    """Say how the bytes of a kind of owner are got at; None for owners of other kinds."""
    _MEMORY_PROVIDERS.append(reading)
    return reading


def memory_of(owner: object) -> MemoryWithLayout | None:
    """The bytes of whoever owns an allocation; None where nobody can tell them."""
    if isinstance(owner, PagedBase):
        return owner  # type: ignore[return-value]
    found = (reading(owner) for reading in _MEMORY_PROVIDERS)
    return next((memory for memory in found if memory is not None), None)


def owner_at(mesh: MeshDevice, buffer_type: BufferType, address: int) -> MemoryWithLayout | None:
    """The memory that covers an address of a mesh."""
    for allocator in (mesh.memory, *map(mesh.memory.local, mesh.sub_devices.ids())):
        allocation = allocator.at(buffer_type, address) if buffer_type in allocator.pools else None
        if allocation is not None:
            return memory_of(allocation.owner)
    views = _UNOWNED.get(mesh)
    return None if views is None else views.get((buffer_type, address))


# Memory that only views look at: those at one address see the same bytes.
_UNOWNED: weakref.WeakKeyDictionary[MeshDevice, weakref.WeakValueDictionary[tuple[BufferType, int], MeshMemory]] = (
    weakref.WeakKeyDictionary()
)


def memory_at(mesh: MeshDevice, layout: PageLayout, address: int) -> MeshMemory | Window:
    """The bytes at an address, under a layout of one's own."""
    if address < 0:
        raise MeshError(f"MeshBuffer.create: address {address} cannot be negative.")
    extents = mesh.local_extents
    base = owner_at(mesh, layout.buffer_type, address) if layout.num_pages else None
    if base is not None:
        return Window(layout, address, extents, base, base.layout)
    made = MeshMemory(layout, address, extents, mesh.torch_device)
    if layout.num_pages:
        views = _UNOWNED.setdefault(mesh, weakref.WeakValueDictionary())
        views[layout.buffer_type, address] = made
    return made
