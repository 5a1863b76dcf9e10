"""Strict mode on one core: what silicon lets pass and computes nonsense from is an error here.

Follows which bytes of circular buffers were ever written, which transfers are in the air over them, and
which pages are published. Each check names the call that is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softmesh.errors import MeshError
from softmesh.kernels.engine.regions import BufferBytes, OwnBytes, Region

if TYPE_CHECKING:
    from softmesh.kernels.engine.core import Core
    from softmesh.kernels.engine.fifo import Fifo
    from softmesh.kernels.engine.transfers import Flight


class StrictL1:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.arriving: list[Flight] = []  # reads whose data is not there yet
        self.leaving: list[Flight] = []  # writes whose source must not change yet
        self._written: dict[Region, bytearray] = {}

    def reading(self, address: int, size: int) -> None:
        for flight in self.arriving:
            if flight.overlaps(address, size):
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} are read while the noc_async_read of "
                    f"{flight.site} is still bringing them: call noc_async_read_barrier() before."
                )
        region = self._core.region(address, size)
        if isinstance(region, BufferBytes):
            region.memory.check_written()
        if isinstance(region, OwnBytes):
            unwritten = self._mask(region).find(0, address - region.start, address - region.start + size)
            if unwritten >= 0:
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} ({region.name}) are read, and "
                    f"nobody has written byte {region.start + unwritten}."
                )

    def writing(self, address: int, size: int) -> None:
        for flight in self.leaving:
            if flight.overlaps(address, size):
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} are overwritten while the "
                    f"noc_async_write of {flight.site} may still be reading them: call noc_async_writes_flushed() or "
                    "noc_async_write_barrier() before."
                )
        self._check_unpublished(address, size)
        region = self._core.region(address, size)
        if isinstance(region, OwnBytes):
            start = address - region.start
            self._mask(region)[start : start + size] = b"\1" * size

    def _check_unpublished(self, address: int, size: int) -> None:
        for fifo in self._core.fifos.values():
            if not fifo.is_aliased and _overlaps_published(fifo, address, size):
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} are overwritten while they are "
                    f"pages of circular buffer {fifo.index} that were pushed and not yet popped: write to a window "
                    f"that cb_reserve_back({fifo.index}, n) gave."
                )

    def reserving(self, fifo: Fifo, pages: int) -> None:
        size = pages * fifo.page_size
        for other in self._core.fifos.values():
            if (
                other is not fifo
                and not fifo.is_aliased
                and _overlaps_published(other, fifo.write_pointer, size)
            ):
                raise MeshError(
                    f"cb_reserve_back({fifo.index}, {pages}) gives bytes that are pages of circular buffer "
                    f"{other.index}, pushed and not yet popped: the two share their memory. Pop those first, or give "
                    "each its own memory."
                )

    def pushing(self, fifo: Fifo, pages: int) -> None:
        if pages > fifo.reserved:
            raise MeshError(
                f"cb_push_back({fifo.index}, {pages}) publishes more than the {fifo.reserved} pages that were "
                f"reserved: call cb_reserve_back({fifo.index}, {pages}) before."
            )
        for flight in self.arriving:
            if flight.overlaps(fifo.write_pointer, pages * fifo.page_size):
                raise MeshError(
                    f"cb_push_back({fifo.index}, {pages}) publishes bytes that the noc_async_read of {flight.site} "
                    "is still bringing: call noc_async_read_barrier() before."
                )

    def popping(self, fifo: Fifo, pages: int) -> None:
        if pages > fifo.waited:
            raise MeshError(
                f"cb_pop_front({fifo.index}, {pages}) gives back more than the {fifo.waited} pages that were waited "
                f"for: call cb_wait_front({fifo.index}, {pages}) before."
            )
        for flight in self.leaving:
            if flight.overlaps(fifo.read_pointer, pages * fifo.page_size):
                raise MeshError(
                    f"cb_pop_front({fifo.index}, {pages}) gives back bytes that the noc_async_write of {flight.site} "
                    "may still be reading: call noc_async_writes_flushed() or noc_async_write_barrier() before."
                )

    def left(self, flight: Flight) -> None:
        if flight in self.leaving:
            self.leaving.remove(flight)

    def _mask(self, region: OwnBytes) -> bytearray:
        if region not in self._written:
            self._written[region] = bytearray(region.end - region.start)
        return self._written[region]


def _overlaps_published(fifo: Fifo, address: int, size: int) -> bool:
    first, count = fifo.popped % fifo.capacity, fifo.available
    before_the_end = min(count, fifo.capacity - first)
    stretches = ((first, before_the_end), (0, count - before_the_end))
    return any(
        pages
        and address < fifo.address + (at + pages) * fifo.page_size
        and fifo.address + at * fifo.page_size < address + size
        for at, pages in stretches
    )
