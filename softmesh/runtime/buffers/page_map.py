"""Which bank holds a page, and how far from the start of the buffer: arithmetic only.

Knows pages, banks and strides. Knows no addresses: a buffer adds the one it was given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.buffer_type import BufferType
from softmesh.hardware.memory_config import ShardDistributionStrategy
from softmesh.runtime.buffers.chip_shards import BufferDistributionSpec
from softmesh.runtime.memory.memory_map import MemoryMap


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
_DEALT: dict[
    ShardDistributionStrategy, Callable[[torch.Tensor, Sharded], tuple[torch.Tensor, torch.Tensor]]
] = {
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
