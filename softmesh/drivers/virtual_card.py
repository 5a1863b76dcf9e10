"""Virtual card: a software card whose memory is torch tensors, on the CPU or a GPU, and grows as it is used."""

from __future__ import annotations

import threading

import torch

from softmesh.drivers.heap import chunks_of
from softmesh.drivers.protocol import Handle, data_sheet
from softmesh.drivers.software_card import Cables, SoftwareCard
from softmesh.systems.chip import P150, Chip

KIND = "virtual"
_CHUNK = 1 << 16  # bytes of every bank that come to be at a time


class TorchMemory:
    """Banks of bytes. What lies at the same addresses of all banks is one tensor, for pages are dealt to all."""

    def __init__(self, banks: int, device: torch.device) -> None:
        self._banks, self._device = banks, device
        self._chunks: dict[int, torch.Tensor] = {}
        self._writing = threading.Lock()

    def read(self, handle: Handle, offset: int, size: int) -> bytearray:
        first, last = handle.rows_around(offset, size)
        window = self._window(handle, first, last)
        found = _in_page_order(handle, window).cpu().reshape(-1)
        start = offset - first * handle.page_size * handle.banks
        return bytearray(found[start : start + size].numpy().data)

    def write(self, handle: Handle, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Rows of pages are read, changed and written back; what arrives over a cable meanwhile waits."""
        if not data:
            return
        first, last = handle.rows_around(offset, len(data))
        start = offset - first * handle.page_size * handle.banks
        given = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device)
        with self._writing:
            window = self._window(handle, first, last)
            pages = _in_page_order(handle, window)
            flat = pages.clone(memory_format=torch.contiguous_format).view(-1)
            flat[start : start + len(data)] = given
            pages.copy_(flat.view(pages.shape))
            at = handle.address + first * handle.pitch
            for number, inside, outside in chunks_of(at, window.shape[1], _CHUNK):
                self._chunk(number)[: handle.banks, inside] = window[:, outside]

    def _window(self, handle: Handle, first: int, last: int) -> torch.Tensor:
        """A copy of some rows of pages, bank by bank."""
        start, size = handle.address + first * handle.pitch, (last - first) * handle.pitch
        found = chunks_of(start, size, _CHUNK)
        pieces = [self._chunk(number)[: handle.banks, inside] for number, inside, _ in found]
        return torch.cat(pieces, dim=1)

    def _chunk(self, number: int) -> torch.Tensor:
        if number not in self._chunks:
            empty = torch.zeros(self._banks, _CHUNK, dtype=torch.uint8, device=self._device)
            self._chunks.setdefault(number, empty)  # another thread may have been here first
        return self._chunks[number]


def _in_page_order(handle: Handle, window: torch.Tensor) -> torch.Tensor:
    """A window's pages as a view (row, bank, byte), without the gaps between them."""
    return window.unflatten(1, (-1, handle.pitch))[..., : handle.page_size].transpose(0, 1)


class VirtualCard(SoftwareCard):
    def __init__(
        self,
        index: int,
        serial: str,
        *,
        chip: Chip = P150,
        cables: Cables | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        where = torch.device(device)
        info = data_sheet(chip, kind=KIND, index=index, serial=serial)
        super().__init__(info, cables or Cables([]), lambda banks: TorchMemory(banks, where))
