"""Out of memory: the policy (`SOFTMESH_MEMORY`: off, track, enforce), and the message with holders and a remedy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from softmesh.agreed_variables import agreed
from softmesh.errors import ArgumentValueError, did_you_mean
from softmesh.runtime.memory.allocations import Allocation, Statistics
from softmesh.runtime.memory.memory_map import Region

VARIABLE = agreed("SOFTMESH_MEMORY", default="enforce")


class MemoryPolicy(Enum):
    OFF = "off"  # nothing is counted; addresses are numbers without a meaning
    TRACK = "track"  # a full memory is told once, and programs go on
    ENFORCE = "enforce"  # a full memory is the error it is on a card


def chosen_policy() -> MemoryPolicy:
    """What the environment says; read whenever a mesh is opened."""
    choice = os.environ.get(VARIABLE) or MemoryPolicy.ENFORCE.value
    known = [policy.value for policy in MemoryPolicy]
    if choice not in known:
        raise ArgumentValueError(
            f"{VARIABLE}={choice[:20]} is not one of {', '.join(known)}.{did_you_mean(choice[:20], known)}"
        )
    return MemoryPolicy(choice)


_SHOWN = 5


class Request(NamedTuple):
    """What was asked for: bytes of all banks together, of each of them, and how many they are."""

    total: int
    per_bank: int
    banks: int


def described_exhaustion(
    region: Region, found: Statistics, live: Iterable[Allocation], request: Request, reserved: int
) -> str:
    """`reserved` bytes of each bank belong to sub-devices."""
    name = region.buffer_type.name
    for_sub_devices = (
        f" It depends on the allocators of the loaded sub-devices, which have {reserved} B at the bottom of each bank."
        if reserved
        else ""
    )
    return (
        f"Out of Memory: Not enough space to allocate {request.total} B {name} buffer across {request.banks} banks, "
        f"where each bank needs to store {request.per_bank} B, but bank size is {region.size} B (allocated: "
        f"{found.total_allocated_bytes} B, free: {found.total_free_bytes} B, largest free block: "
        f"{found.largest_free_block_bytes} B).{for_sub_devices}{_holders(live)}\n"
        f"{_remedy(region, found, request.per_bank)}"
    )


def _holders(live: Iterable[Allocation]) -> str:
    by_size = sorted(live, key=lambda a: (-a.bytes_per_bank, a.address))
    if not by_size:
        return ""
    lines = [f"\n  {allocation}" for allocation in by_size[:_SHOWN]]
    more = len(by_size) - len(lines)
    rest = f"\n  and {more} more, {sum(a.bytes_per_bank for a in by_size[_SHOWN:])} B per bank" if more else ""
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
