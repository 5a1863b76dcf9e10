"""The memory map of a chip as a mesh was opened on it: the regions of DRAM, L1, L1_SMALL and TRACE, and their banks.

Free space is the same in every bank of every chip (allocation is lock-step), so a memory is one range of
addresses, counted from the start of a bank.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from softmesh.arguments import checked_int
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.dispatch_cores import DispatchCoreConfig
from softmesh.hardware.enums import BufferType
from softmesh.systems.chip import Chip

_OPTIONS = ("l1_small_size", "trace_region_size", "worker_l1_size")
_TRACE_GRAIN = 8192
_ODD_BANK_COUNTS = frozenset((7, 12, 20, 48, 56, 63, 70, 72, 80, 94, 108, 110, 117, 120, 124, 126, 130, 140))
_SHUFFLE_SEED = 0


@dataclass(frozen=True)
class Region:
    """One memory: `size` bytes from `base` on in each of its banks."""

    buffer_type: BufferType
    banks: int
    base: int
    size: int
    page_alignment: int  # of the pages inside a buffer
    grain: int  # of the addresses and sizes of buffers
    bottom_up: bool

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True, eq=False)
class MemoryMap:
    """Compared by identity: `memory_map` gives the same one for the same facts."""

    regions: Mapping[BufferType, Region]
    grid: tuple[int, int]  # columns, rows of the cores whose L1 holds tensors
    worker_l1_size: int

    @cached_property
    def core_of_bank(self) -> list[CoreCoord]:
        """Logical cores by the number of their L1 bank: shuffled, so that neighbouring pages lie far apart."""
        columns, rows = self.grid
        cores = [CoreCoord(x, y) for y in range(rows) for x in range(columns)]
        random.Random(_SHUFFLE_SEED).shuffle(cores)
        return cores

    @cached_property
    def bank_of_core(self) -> dict[CoreCoord, int]:
        return {core: bank for bank, core in enumerate(self.core_of_bank)}


def worker_grid(chip: Chip, options: Mapping[str, object]) -> tuple[int, int]:
    """The cores programs may use: dispatch takes a row or a column of some chips."""
    config = options.get("dispatch_core_config")
    return chip.grid(config if isinstance(config, DispatchCoreConfig) else None)


def memory_map_of(chip: Chip, options: Mapping[str, object]) -> MemoryMap:
    """With the options that a mesh was opened with; an error where they ask for more than a chip has."""
    sizes = [(name, options.get(name, 0)) for name in _OPTIONS]
    return memory_map(chip, worker_grid(chip, options), *(checked_int("memory_map", *given) for given in sizes))


@lru_cache(maxsize=256)
def memory_map(
    chip: Chip,
    grid: tuple[int, int],
    l1_small_size: int = 0,
    trace_region_size: int = 0,
    worker_l1_size: int = 0,
) -> MemoryMap:
    """The memories that are left of a chip; an error where what was asked for does not fit into it."""
    dram, trace = _dram_regions(chip, trace_region_size)
    l1, l1_small = _l1_regions(chip, grid, l1_small_size, worker_l1_size)
    for region in (dram, l1):
        _check_banks(region)
    regions = {region.buffer_type: region for region in (dram, l1, l1_small, trace)}
    return MemoryMap(regions, grid, chip.l1_bytes - l1.base)


def _dram_regions(chip: Chip, trace_region_size: int) -> tuple[Region, Region]:
    usable = chip.dram_bank_bytes - chip.dram_reserved_bytes
    traces = _up_to(_TRACE_GRAIN, -(-trace_region_size // chip.dram_banks))
    if traces > usable:
        raise MeshError(
            f"trace_region_size={trace_region_size} takes {traces} B of each of the {chip.dram_banks} DRAM banks of a "
            f"{chip.kind} chip, which have {usable} B: ask for {chip.dram_banks * usable} B at the most."
        )
    dram = Region(
        BufferType.DRAM,
        chip.dram_banks,
        chip.dram_reserved_bytes,
        usable - traces,
        chip.dram_alignment,
        chip.allocation_alignment,
        bottom_up=True,
    )
    return dram, replace(dram, buffer_type=BufferType.TRACE, base=dram.end, size=traces)


def _l1_regions(chip: Chip, grid: tuple[int, int], l1_small_size: int, worker_l1_size: int) -> tuple[Region, Region]:
    grain = chip.allocation_alignment
    base = _up_to(grain, chip.l1_bytes - worker_l1_size) if worker_l1_size else chip.l1_base
    if base < chip.firmware_bytes:
        raise MeshError(
            f"worker_l1_size={worker_l1_size} does not fit into the L1 of a {chip.kind} core: it has "
            f"{chip.l1_bytes} B, of which firmware takes {chip.firmware_bytes}. Ask for "
            f"{chip.l1_bytes - chip.firmware_bytes} B at the most, or for 0, the default."
        )
    small = _up_to(grain, l1_small_size)
    usable = chip.l1_bytes - base
    if small > usable:
        raise MeshError(
            f"l1_small_size={l1_small_size} is more than the {usable} B of L1 that programs have on a {chip.kind} core."
        )
    banks = grid[0] * grid[1]
    l1 = Region(BufferType.L1, banks, base, usable - small, chip.l1_alignment, grain, bottom_up=False)
    return l1, replace(l1, buffer_type=BufferType.L1_SMALL, base=l1.end, size=small)


def _check_banks(region: Region) -> None:
    banks = region.banks
    if banks & (banks - 1) and banks not in _ODD_BANK_COUNTS:
        raise MeshError(
            f"{banks} {region.buffer_type.name} banks: the number of banks must be a power of two or one of "
            f"{sorted(_ODD_BANK_COUNTS)}. Take another dispatch_core_config, which leaves another grid of cores."
        )


def _up_to(multiple: int, size: int) -> int:
    return -(-size // multiple) * multiple
