"""Memory allocator of one card: which bytes of DRAM and L1 belong to which buffers. Addresses are within one bank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from softmesh.drivers.protocol import DriverInfo, Handle, MemoryKind, aligned
from softmesh.errors import ArgumentError, ArgumentValueError
from softmesh.hardware.enums import BufferType
from softmesh.runtime.memory.free_list import FreeList
from softmesh.runtime.memory.memory_map import Region

_L1_ALIGNMENT = 16
_BUFFER_TYPES: dict[MemoryKind, BufferType] = {"dram": BufferType.DRAM, "l1": BufferType.L1}


def region_of(info: DriverInfo, mem: MemoryKind) -> Region:
    """The addresses of a card's memory that buffers may have."""
    if mem not in _BUFFER_TYPES:
        raise ArgumentError(f"mem={mem!r}: a card has 'dram' and 'l1'")
    is_dram = mem == "dram"
    base = aligned(info.dram_base if is_dram else info.l1_base, info.dram_align)
    end = info.dram_base + info.dram_bytes_per_bank if is_dram else info.l1_bytes
    return Region(
        buffer_type=_BUFFER_TYPES[mem],
        banks=info.dram_banks if is_dram else info.num_cores,
        base=base,
        size=max(0, end - base) // info.dram_align * info.dram_align,
        page_alignment=info.dram_align if is_dram else _L1_ALIGNMENT,
        grain=info.dram_align,
        bottom_up=is_dram,
    )


def unplaced_handle(
    info: DriverInfo, size: int, mem: MemoryKind, page_size: int | None = None, banks: int | None = None
) -> Handle:
    """A handle of this size with its pages, which has no place yet."""
    region = region_of(info, mem)
    page = min(aligned(max(size, 1), region.page_alignment), info.max_page) if page_size is None else page_size
    count = region.banks if banks is None else banks
    if size <= 0 or not 0 < page <= info.max_page or not 0 < count <= region.banks:
        raise ArgumentValueError(
            f"a buffer of {size} bytes in pages of {page} over {count} banks cannot be: it has at least one byte, "
            f"pages have 1 to {info.max_page}, and {mem} of this card has {region.banks} banks"
        )
    return Handle(0, size, page, mem, count, aligned(page, region.page_alignment))


class Heap:
    """The buffers of one card. No two of them share a byte."""

    def __init__(self, info: DriverInfo) -> None:
        self._info = info
        self._regions = {mem: region_of(info, mem) for mem in _BUFFER_TYPES}
        self._free = {mem: FreeList(region.base, region.size) for mem, region in self._regions.items()}
        self._live: set[Handle] = set()

    def place(
        self, size: int, mem: MemoryKind, page_size: int | None, banks: int | None, address: int | None
    ) -> Handle:
        """At this address, or anywhere; MemoryError where there is no room."""
        wanted = unplaced_handle(self._info, size, mem, page_size, banks)
        found = self._take(wanted, address)
        if found is None:
            where = "anywhere" if address is None else f"at {hex(address)}"
            region, largest = self._regions[mem], self._free[mem].largest()
            raise MemoryError(
                f"no place for {wanted.bytes_per_bank} bytes per bank {where}: {mem} has {hex(region.base)} to "
                f"{hex(region.end)} in steps of {region.grain}; the largest hole has {largest} bytes"
            )
        placed = replace(wanted, address=found)
        self._live.add(placed)
        return placed

    def _take(self, wanted: Handle, address: int | None) -> int | None:
        free, size = self._free[wanted.mem], self._taken(wanted)
        if address is None:
            return free.take_low(size)
        is_aligned = address % self._regions[wanted.mem].grain == 0
        return address if is_aligned and free.take_at(address, size) else None

    def _taken(self, handle: Handle) -> int:
        return aligned(handle.bytes_per_bank, self._regions[handle.mem].grain)

    def release(self, handle: Handle) -> bool:
        """False where there is no such buffer any more."""
        if handle not in self._live:
            return False
        self._live.remove(handle)
        self._free[handle.mem].give_back(handle.address, self._taken(handle))
        return True

    def holds(self, handle: Handle) -> bool:
        return handle in self._live


def chunks_of(address: int, size: int, chunk: int) -> Iterator[tuple[int, slice, slice]]:
    """The chunks of memory that cover these addresses: the number of each, which part of it, its place in the whole."""
    for number in range(address // chunk, -(-(address + size) // chunk)):
        low, high = max(address, number * chunk), min(address + size, (number + 1) * chunk)
        inside = slice(low - number * chunk, high - number * chunk)
        yield number, inside, slice(low - address, high - address)
