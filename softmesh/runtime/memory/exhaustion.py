"""What to say when a memory has no room: TT-NN's words, then who holds it and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from softmesh.runtime.memory.memory_map import Region
from softmesh.runtime.memory.policy import VARIABLE, MemoryPolicy
from softmesh.runtime.memory.records import Allocation, Statistics

_SHOWN = 5


def described_exhaustion(
    region: Region,
    found: Statistics,
    live: Iterable[Allocation],
    size: int,
    requested: int,
    kept_back: int,
) -> str:
    """`size` bytes of each bank were asked for, `requested` of all of them together."""
    name = region.buffer_type.name
    for_sub_devices = (
        f" It depends on the allocators of the loaded sub-devices, which have {kept_back} B at the bottom of each bank."
        if kept_back
        else ""
    )
    return (
        f"Out of Memory: Not enough space to allocate {requested} B {name} buffer across {region.banks} banks, where "
        f"each bank needs to store {size} B, but bank size is {region.size} B (allocated: "
        f"{found.total_allocated_bytes} B, free: {found.total_free_bytes} B, largest free block: "
        f"{found.largest_free_block_bytes} B).{for_sub_devices}{_holders(live)}\n{_remedy(region, found, size)}"
    )


def _holders(live: Iterable[Allocation]) -> str:
    by_size = sorted(live, key=lambda a: (-a.bytes_per_bank, a.address))
    if not by_size:
        return ""
    lines = [f"\n  {allocation}" for allocation in by_size[:_SHOWN]]
    more = len(by_size) - len(lines)
    rest = (
        f"\n  and {more} more, {sum(a.bytes_per_bank for a in by_size[_SHOWN:])} B per bank" if more else ""
    )
    return f"\nThe largest of what is live:{''.join(lines)}{rest}"


def _remedy(region: Region, found: Statistics, size: int) -> str:
    if size > region.size:
        first = "It does not fit an empty chip: shard it over more devices, or take a smaller dtype"
    elif size <= found.total_free_bytes:
        first = (
            "There is room, but not in one piece: allocate what lives long before what lives shortly, or deallocate "
            "in the order of allocation"
        )
    else:
        first = "Free what is not needed with ttnn.deallocate(tensor), shard over more devices, or take a smaller dtype"
    goes_on = f"{VARIABLE}={MemoryPolicy.TRACK.value} warns once and goes on"
    return f"{first}. {goes_on}, for programs that no chip has to hold."
