"""Where the bytes of a buffer lie: pages dealt out to banks, the same on every card and in every runtime.

Page i is in bank i % banks, (i // banks) pitches behind the buffer's address; the pitch is the page size
rounded up to the alignment of the memory. Knows arithmetic only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

MemoryKind = Literal["dram", "l1"]


def aligned(size: int, alignment: int) -> int:
    """
    >>> aligned(65, 64)
    128
    """
    return -(-size // alignment) * alignment


class Piece(NamedTuple):
    """Bytes that lie together: in this bank at this address, and from `start` on in the buffer."""

    bank: int
    address: int
    start: int
    size: int


@dataclass(frozen=True)
class Handle:
    """A buffer on one card. `size` counts its bytes without the gaps that the pitch leaves between pages."""

    address: int
    size: int
    page_size: int
    mem: MemoryKind = "dram"
    banks: int = 1
    pitch: int = 0

    def __post_init__(self) -> None:
        if not self.pitch:
            object.__setattr__(self, "pitch", self.page_size)

    @property
    def pages(self) -> int:
        return -(-self.size // self.page_size)

    @property
    def rows(self) -> int:
        """Pages in the fullest bank."""
        return -(-self.pages // self.banks)

    @property
    def bytes_per_bank(self) -> int:
        return self.rows * self.pitch

    @property
    def end(self) -> int:
        return self.address + self.bytes_per_bank

    def locate(self, page: int) -> tuple[int, int]:
        """The bank of a page, and its address there.

        >>> Handle(address=1024, size=4096, page_size=100, banks=8, pitch=128).locate(9)
        (1, 1152)
        """
        return page % self.banks, self.address + page // self.banks * self.pitch

    def pieces(self, offset: int, size: int) -> Iterator[Piece]:
        """What lies together of the bytes from `offset` on, in the order of the buffer."""
        at = offset
        while at < offset + size:
            page, within = divmod(at, self.page_size)
            bank, address = self.locate(page)
            length = min(self.page_size - within, offset + size - at)
            yield Piece(bank, address + within, at, length)
            at += length

    def rows_around(self, offset: int, size: int) -> tuple[int, int]:
        """The first row of pages that these bytes touch, and the first behind them."""
        row = self.page_size * self.banks
        return offset // row, -(-(offset + size) // row)
