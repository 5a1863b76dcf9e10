"""Paged memory: the protocol of whatever holds bytes in device memory, page maps (page to bank), and page layouts.

Mesh buffers and tensors both implement `PagedMemory`, so a kernel reads and writes either without knowing which it is.
A bank is a DRAM bank, or a core for memory in L1 (by the allocator's map of bank ids to cores). Addresses are the ones
kernels use, counted from the start of a bank, and are the same on every chip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch

from softmesh.callsite import RawSite
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import ShardDistributionStrategy
from softmesh.runtime.buffers.buffer_config import BufferDistributionSpec, DeviceLocalBufferConfig
from softmesh.runtime.memory.memory_map import MemoryMap

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.memory.allocator import Allocator

# Page maps: which bank holds a page, and how far from the start of the buffer. Arithmetic on pages, banks and strides;
# a buffer adds the address it was given.


class PageMap(Protocol):
    @property
    def num_banks(self) -> int: ...
    @property
    def slots_per_bank(self) -> int:
        """The pages each bank has room for."""
        ...

    def slot(self, page: int) -> tuple[int, int]:
        """The bank of a page, and its place among the pages there."""
        ...

    def page(self, bank: int, slot: int) -> int | None:
        """The page at a place of a bank; None where there is only room."""
        ...

    def slots(self) -> tuple[torch.Tensor, torch.Tensor]:
        """`slot` of all pages: their banks and their places."""
        ...


@dataclass(frozen=True)
class Interleaved:
    """Pages dealt round-robin to all banks, from bank 0 on."""

    num_pages: int
    num_banks: int

    @property
    def slots_per_bank(self) -> int:
        return -(-self.num_pages // self.num_banks)

    def slot(self, page: int) -> tuple[int, int]:
        slot, bank = divmod(page, self.num_banks)
        return bank, slot

    def page(self, bank: int, slot: int) -> int | None:
        page = slot * self.num_banks + bank
        return page if bank < self.num_banks and page < self.num_pages else None

    def slots(self) -> tuple[torch.Tensor, torch.Tensor]:
        pages = torch.arange(self.num_pages)
        return pages % self.num_banks, pages // self.num_banks


@dataclass(frozen=True)
class Sharded:
    """Whole shards on cores, row-major in each; the last shard along a dim keeps room for all its pages."""

    spec: BufferDistributionSpec
    banks: tuple[int, ...]  # of the spec's cores, in their order

    @property
    def num_banks(self) -> int:
        return min(len(self.banks), math.prod(self.spec.shard_grid()))

    @property
    def slots_per_bank(self) -> int:
        shards = math.prod(self.spec.shard_grid())
        is_grid = self.spec.strategy is ShardDistributionStrategy.GRID_2D
        rounds = 1 if is_grid else -(-shards // len(self.banks))
        return rounds * math.prod(self.spec.shard_shape_in_pages)

    def slot(self, page: int) -> tuple[int, int]:
        return self._listed[page]

    def page(self, bank: int, slot: int) -> int | None:
        return self._pages.get((bank, slot))

    def slots(self) -> tuple[torch.Tensor, torch.Tensor]:
        spec = self.spec
        shape, shard, grid = spec.tensor_shape_in_pages, spec.shard_shape_in_pages, spec.shard_grid()
        places = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
        number = _row_major([p // m for p, m in zip(places, shard, strict=True)], grid)
        inside = _row_major([p % m for p, m in zip(places, shard, strict=True)], shard)
        core, turn = _DEALT[spec.strategy](number, self)
        slots = turn * math.prod(shard) + inside
        return torch.tensor(self.banks)[core].flatten(), slots.flatten()

    @cached_property
    def _listed(self) -> list[tuple[int, int]]:
        banks, slots = self.slots()
        return list(zip(banks.tolist(), slots.tolist(), strict=True))

    @cached_property
    def _pages(self) -> dict[tuple[int, int], int]:
        return {place: page for page, place in enumerate(self._listed)}


def _row_major(places: Sequence[torch.Tensor], extents: Sequence[int]) -> torch.Tensor:
    number = torch.zeros_like(places[0])
    for place, n in zip(places, extents, strict=True):
        number = number * n + place
    return number


def _round_robin(number: torch.Tensor, pages: Sharded) -> tuple[torch.Tensor, torch.Tensor]:
    cores = len(pages.banks)
    return number % cores, number // cores


def _contiguous(number: torch.Tensor, pages: Sharded) -> tuple[torch.Tensor, torch.Tensor]:
    each = -(-math.prod(pages.spec.shard_grid()) // len(pages.banks))
    return number // each, number % each


def _grid_2d(number: torch.Tensor, pages: Sharded) -> tuple[torch.Tensor, torch.Tensor]:
    columns = pages.spec.shard_grid()[-1]
    return number // columns * pages.spec.grid_columns + number % columns, torch.zeros_like(number)


# For each shard its core, and how many shards that core already has.
_DEALT: dict[ShardDistributionStrategy, Callable[[torch.Tensor, Sharded], tuple[torch.Tensor, torch.Tensor]]] = {
    ShardDistributionStrategy.ROUND_ROBIN_1D: _round_robin,
    ShardDistributionStrategy.CONTIGUOUS_1D: _contiguous,
    ShardDistributionStrategy.GRID_2D: _grid_2d,
}


def page_map(
    num_pages: int, shards: BufferDistributionSpec | None, buffer_type: BufferType, memory_map: MemoryMap
) -> PageMap:
    """Where the pages of a buffer go in a memory."""
    if shards is None:
        return Interleaved(num_pages, memory_map.regions[buffer_type].banks)
    _check_room(shards)
    return Sharded(shards, tuple(_bank_of(core, buffer_type, memory_map) for core in shards.cores))


def _bank_of(core: CoreCoord, buffer_type: BufferType, memory_map: MemoryMap) -> int:
    """Of an L1 bank the worker core, of DRAM bank x the core x-0."""
    if buffer_type in (BufferType.L1, BufferType.L1_SMALL):
        bank = memory_map.bank_of_core.get(core)
        kind, count, grid = "L1", len(memory_map.bank_of_core), "compute_with_storage_grid_size"
    else:
        kind, count, grid = "DRAM", memory_map.regions[buffer_type].banks, "dram_grid_size"
        bank = core.x if core.y == 0 and core.x < count else None
    if bank is None:
        raise MeshError(
            f"Invalid shard grid: shard core ({core.x}, {core.y}) has no {kind} bank on this device, which has {count} "
            f"of them. Keep the shard grid inside mesh.{grid}()."
        )
    return bank


def _check_room(spec: BufferDistributionSpec) -> None:
    if spec.strategy is not ShardDistributionStrategy.GRID_2D:
        return
    grid, columns = spec.shard_grid(), spec.grid_columns
    rows = len(spec.cores) // columns if columns else 0
    if math.prod(grid[:-1]) > rows or grid[-1] > columns:
        raise MeshError(
            f"{math.prod(grid[:-1])} x {grid[-1]} shards do not fit a grid of {rows} x {columns} cores: make "
            "the shards larger or give more cores."
        )


class PagedMemory(Protocol):
    """`num_pages` pages of `page_size` bytes, on every chip of a mesh, from `address` on in each bank."""

    @property
    def address(self) -> int: ...
    @property
    def buffer_type(self) -> BufferType: ...
    @property
    def page_size(self) -> int: ...
    @property
    def aligned_page_size(self) -> int:
        """The distance between two pages of one bank."""
        ...

    @property
    def num_pages(self) -> int: ...
    @property
    def num_banks(self) -> int:
        """The banks that its pages are spread over."""
        ...

    def locate(self, page: int) -> tuple[int, int]:
        """The bank that holds a page, and the page's address there."""
        ...

    def page_at(self, bank: int, address: int) -> tuple[int, int] | None:
        """The page that covers an address of a bank, and the offset in it; None in padding and outside."""
        ...

    @property
    def data(self) -> torch.Tensor:
        """The bytes, `(*extents, num_pages, page_size)` of torch.uint8; to be changed in place.

        One extent for each mesh dim: its size, or 1 where all devices along it hold the same bytes.
        """
        ...

    def materialise(self) -> torch.Tensor:
        """`data` with the mesh's full extents, so that one device can be written without the others."""
        ...

    def store(self) -> None:
        """Put what was written into `data` back to whom it belongs (a tensor's values). Call after writing."""
        ...


# Page layouts, and the base class of memories that have one.


@dataclass(frozen=True)
class PageLayout:
    buffer_type: BufferType
    page_size: int
    aligned_page_size: int
    num_pages: int
    page_map: PageMap

    @property
    def bytes_per_bank(self) -> int:
        return self.page_map.slots_per_bank * self.aligned_page_size


class PagedBase:
    """A layout at an address, the same in every bank."""

    def __init__(self, layout: PageLayout, address: int) -> None:
        self.layout = layout
        self.address = address
        self.is_lost = False  # its memory was taken from it
        self.freed: RawSite | None = None  # the line that deallocated it

    def lose_memory(self) -> None:
        self.is_lost = True

    @property
    def buffer_type(self) -> BufferType:
        return self.layout.buffer_type

    @property
    def page_size(self) -> int:
        return self.layout.page_size

    @property
    def aligned_page_size(self) -> int:
        return self.layout.aligned_page_size

    @property
    def num_pages(self) -> int:
        return self.layout.num_pages

    @property
    def num_banks(self) -> int:
        return self.layout.page_map.num_banks

    def locate(self, page: int) -> tuple[int, int]:
        bank, slot = self.layout.page_map.slot(page)
        return bank, self.address + slot * self.layout.aligned_page_size

    def page_at(self, bank: int, address: int) -> tuple[int, int] | None:
        layout = self.layout
        slot, offset = divmod(address - self.address, layout.aligned_page_size)
        if offset >= layout.page_size or slot < 0:
            return None
        page = layout.page_map.page(bank, slot)
        return None if page is None else (page, offset)


# The page layout of a buffer on each chip: which allocator it takes memory from, and where its pages go.


def allocator_for(mesh: MeshDevice, local: DeviceLocalBufferConfig) -> Allocator:
    """Of the chips, or of the sub-device that the buffer is for."""
    if local.sub_device_id is None:
        return mesh.memory
    shards = local.sharding_args.distribution()
    if local.buffer_type is not BufferType.L1 or shards is None:
        raise MeshError(
            f"A buffer of {local.sub_device_id} must be sharded in L1, on the sub-device's cores: this one is "
            f"{local.sharding_args.buffer_layout} in {local.buffer_type}."
        )
    cores = mesh.sub_devices.cores(local.sub_device_id)
    outside = [core for core in shards.cores if not cores.contains(core)]
    if outside:
        raise MeshError(
            f"Shard core {outside[0]} lies outside {local.sub_device_id}, which has the cores {cores}: keep the shard "
            "grid inside it."
        )
    return mesh.allocator(local.sub_device_id)


def local_layout(size: int, local: DeviceLocalBufferConfig, allocator: Allocator) -> PageLayout:
    page_size, kind = local.page_size, local.buffer_type
    if size and (not page_size or size % page_size):
        raise MeshError(
            f"Each device holds {size} bytes, and page_size={page_size} does not divide them: choose a page size of "
            "which they are a multiple."
        )
    num_pages = size // page_size if size else 0
    shards = local.sharding_args.distribution() if size else None
    _check_pages(num_pages, shards)
    alignment = allocator.get_alignment(kind)
    return PageLayout(
        kind,
        page_size,
        -(-page_size // alignment) * alignment,
        num_pages,
        page_map(num_pages, shards, kind, allocator.memory_map),
    )


def _check_pages(num_pages: int, shards: BufferDistributionSpec | None) -> None:
    if shards is None:
        return
    counted = math.prod(shards.tensor_shape_in_pages)
    if counted != num_pages:
        raise MeshError(
            f"The shards cover {list(shards.tensor_shape_in_pages)} = {counted} pages, and each device holds "
            f"{num_pages}."
        )
