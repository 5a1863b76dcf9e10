"""What anything that holds bytes in device memory can answer: which page lies where, and what is in it.

Mesh buffers and tensors both speak this, so a kernel reads and writes either without knowing which it is.
A bank is a DRAM bank, or a core for memory in L1 (by the allocator's map of bank ids to cores). Addresses
are the ones kernels use, counted from the start of a bank, and are the same on every chip.
"""

from __future__ import annotations

from typing import Protocol

import torch

from softmesh.hardware.buffer_type import BufferType


class PagedMemory(Protocol):
    """`num_pages` pages of `page_size` bytes, on every chip of a mesh, from `address` on in each bank."""

    @property
    def address(self) -> int: ...
    @property
    def buffer_type(self) -> BufferType: ...
    @property
    def page_size(self) -> int: ...
    @property
    def aligned_page_size(self) -> int:
        """The distance between two pages of one bank."""
        ...

    @property
    def num_pages(self) -> int: ...
    @property
    def num_banks(self) -> int:
        """The banks that its pages are spread over."""
        ...

    def locate(self, page: int) -> tuple[int, int]:
        """The bank that holds a page, and the page's address there."""
        ...

    def page_at(self, bank: int, address: int) -> tuple[int, int] | None:
        """The page that covers an address of a bank, and the offset in it; None in padding and outside."""
        ...

    @property
    def data(self) -> torch.Tensor:
        """The bytes, `(*extents, num_pages, page_size)` of torch.uint8; to be changed in place.

        One extent for each mesh dim: its size, or 1 where all devices along it hold the same bytes.
        """
        ...

    def materialise(self) -> torch.Tensor:
        """`data` with the mesh's full extents, so that one device can be written without the others."""
        ...

    def store(self) -> None:
        """Put what was written into `data` back to whom it belongs (a tensor's values). Call after writing."""
        ...
