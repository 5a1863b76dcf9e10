"""Pages of one size in a memory, and at which addresses: what all paged memories have in common."""

from __future__ import annotations

from dataclasses import dataclass

from softmesh.callsite import RawSite
from softmesh.hardware.buffer_type import BufferType
from softmesh.runtime.buffers.page_map import PageMap


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


class Placed:
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
