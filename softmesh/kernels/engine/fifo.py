"""A circular buffer while a program runs: pages that one thread fills and another empties, in order.

Counts pages; the bytes are in a region of the core's L1. A window, what is reserved at the back or waited
for at the front, lies in one piece: pointers walk straight through it, so it may not go around the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from softmesh.errors import MeshError
from softmesh.kernels.engine.thread import KernelThread, Wait
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tile import Tile

if TYPE_CHECKING:
    from softmesh.kernels.engine.core import Core


@dataclass(frozen=True)
class Format:
    """What one index of a circular buffer holds: its data type, its page, and the tile in a page."""

    index: int
    dtype: DataType
    page_size: int
    tile: Tile


class Fifo:
    def __init__(self, core: Core, format: Format, address: int, capacity: int, *, is_aliased: bool) -> None:
        self.core = core
        self.format = format
        self.index = format.index
        self.page_size = format.page_size
        self.address = address
        self.capacity = capacity
        self.is_aliased = is_aliased  # its memory is a tensor's: full of data before anybody pushes
        self.pushed = 0
        self.popped = 0
        self.reserved = 0  # pages of the window at the back
        self.waited = 0  # pages of the window at the front
        self.packed = 0  # pages of the window at the back that the packer has filled
        self._ends: dict[str, KernelThread] = {}
        self._for_room: list[KernelThread] = []
        self._for_pages: list[KernelThread] = []

    @property
    def free(self) -> int:
        return self.capacity - (self.pushed - self.popped)

    @property
    def available(self) -> int:
        return self.pushed - self.popped

    @property
    def write_pointer(self) -> int:
        return self.address + self.pushed % self.capacity * self.page_size

    @property
    def read_pointer(self) -> int:
        return self.address + self.popped % self.capacity * self.page_size

    def reserve(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_reserve_back", "producer", pages, self.pushed)
        if self.free < pages:
            wait = Wait(f"cb_reserve_back({self.index}, {pages})", self._state)
            thread.wait_for(lambda: self.free >= pages, self._for_room, wait)
        self.reserved = max(self.reserved, pages)
        strict = self.core.strict
        if strict is not None:
            strict.reserving(self, pages)

    def push(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_push_back", "producer", pages, self.pushed)
        if pages > self.free:
            raise MeshError(
                f"cb_push_back({self.index}, {pages}) overwrites pages that nobody has read: {self._state()}. "
                f"Call cb_reserve_back({self.index}, {pages}) first, which waits for room."
            )
        strict = self.core.strict
        if strict is not None:
            strict.pushing(self, pages)
        self.pushed += pages
        self.reserved = max(0, self.reserved - pages)
        self.packed = 0
        self.core.chip.scheduler.wake(self._for_pages)

    def wait(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_wait_front", "consumer", pages, self.popped)
        if self.available < pages:
            wait = Wait(f"cb_wait_front({self.index}, {pages})", self._state)
            thread.wait_for(lambda: self.available >= pages, self._for_pages, wait)
        self.waited = max(self.waited, pages)

    def pop(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_pop_front", "consumer", pages, self.popped)
        if pages > self.available:
            raise MeshError(
                f"cb_pop_front({self.index}, {pages}) takes pages that are not there: {self._state()}. "
                f"Call cb_wait_front({self.index}, {pages}) first, which waits for them."
            )
        strict = self.core.strict
        if strict is not None:
            strict.popping(self, pages)
        self.popped += pages
        self.waited = max(0, self.waited - pages)
        self.core.chip.scheduler.wake(self._for_room)

    def page_to_read(self, call: str, index: int) -> int:
        """The address of a page of the window at the front."""
        limit = self.capacity - self.popped % self.capacity if self.is_aliased else self.waited
        if not 0 <= index < limit:
            raise MeshError(
                f"{call}: page {index} of circular buffer {self.index} is not in the window of {limit} pages that was "
                f"waited for. Call cb_wait_front({self.index}, {index + 1}) first: it counts from the front."
            )
        return self.read_pointer + index * self.page_size

    def page_to_pack(self, call: str, index: int | None) -> int:
        """The address of a page of the window at the back: the next one, or the one asked for."""
        at = self.packed if index is None else index
        if not 0 <= at < self.reserved:
            raise MeshError(
                f"{call}: page {at} of circular buffer {self.index} is not in the window of {self.reserved} pages "
                f"that was reserved. Call cb_reserve_back({self.index}, {at + 1}) first."
            )
        if index is None:
            self.packed += 1
        return self.write_pointer + at * self.page_size

    def _check(self, thread: KernelThread, call: str, end: str, pages: int, position: int) -> None:
        if pages < 0:
            raise MeshError(f"{call}({self.index}, {pages}): the number of pages is 0 or more.")
        first = self._ends.setdefault(end, thread)
        if first is not thread:
            raise MeshError(
                f"{call}({self.index}, {pages}): circular buffer {self.index} already has its {end}, "
                f"{first.kernel.name} ({first.kernel.processor.name}). Each has exactly one producer and one "
                "consumer: use another index."
            )
        if position % self.capacity + pages > self.capacity:
            raise MeshError(self._too_long(call, pages, position % self.capacity))

    def _too_long(self, call: str, pages: int, at: int) -> str:
        if pages > self.capacity:
            return (
                f"{call}({self.index}, {pages}) waits for ever: circular buffer {self.index} has {self.capacity} "
                "pages in all. Make it larger, or work in smaller blocks."
            )
        return (
            f"{call}({self.index}, {pages}) goes around the end of circular buffer {self.index}: "
            f"{self.capacity - at} of its {self.capacity} pages are left before the end, and a window lies in one "
            f"piece. Let the blocks divide the number of pages: {-(-self.capacity // pages) * pages} pages would do."
        )

    def _state(self) -> str:
        """As the report of a stuck program tells it."""
        told = [text for text in (self._end_text("producer"), self._end_text("consumer")) if text]
        return "; ".join([f"{self.available} of {self.capacity} pages are full", *told])

    def _end_text(self, end: str) -> str:
        thread = self._ends.get(end)
        if thread is None:
            return f"it has no {end} yet"
        return f"its {end} {thread.kernel.name} has ended" if thread.dead else ""
