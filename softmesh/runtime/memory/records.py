"""What a memory tells about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from softmesh.callsite import CallSite
from softmesh.hardware.buffer_type import BufferType


class Statistics(NamedTuple):
    """Of one bank."""

    total_allocatable_size_bytes: int
    total_allocated_bytes: int
    total_free_bytes: int
    largest_free_block_bytes: int


@dataclass(frozen=True)
class Allocation:
    """A buffer or tensor as memory sees it: these bytes, in every bank of every chip."""

    address: int
    bytes_per_bank: int
    buffer_type: BufferType
    label: str
    site: CallSite | None  # the line that allocated it
    number: int  # counts up through the life of the process
    _find_owner: Callable[[], object | None]

    @property
    def owner(self) -> object | None:
        """Whose it is, for as long as that lives; None for what an installed state occupies."""
        return self._find_owner()

    @property
    def end(self) -> int:
        return self.address + self.bytes_per_bank

    def __str__(self) -> str:
        where = f", allocated at {self.site}" if self.site else ""
        return f"{self.label}: {self.bytes_per_bank} B per bank at {self.address}{where}"


@dataclass(frozen=True)
class AllocatorState:
    """The occupied ranges of each memory, (first address, end), in address order."""

    occupied: dict[BufferType, tuple[tuple[int, int], ...]]
