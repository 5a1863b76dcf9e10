"""Base class of blackhole-py drivers: boards and their data sheets, and DRAM buffers where the mesh places them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from softmesh.drivers.protocol import DriverInfo, Handle, Xy, data_sheet
from softmesh.drivers.serial_card import SerialCard
from softmesh.errors import ArgumentValueError
from softmesh.systems.chip import P100, P150, Chip

BOARDS: dict[str, Chip] = {"P100A": P100, "P150A": P150, "P150B": P150, "P150C": P150}


class Identity(NamedTuple):
    """What is printed on a card: blackhole-py goes by bus numbers, a mesh by serials."""

    serial: str
    board: str


Identify = Callable[[int], Identity]


class DramRange(NamedTuple):
    """The DRAM that a mesh may use of a card, in each of these banks."""

    banks: int
    base: int
    bytes_per_bank: int


def info_of(
    kind: str,
    index: int,
    identity: Identity,
    cores: Sequence[Xy],
    heap: DramRange,
    max_page: int,
    max_transfer: int,
) -> DriverInfo:
    chip = chip_of(identity)
    return replace(
        data_sheet(chip, kind=kind, index=index, serial=identity.serial),
        board=identity.board,
        num_cores=len(cores),
        core_grid=(len({x for x, _ in cores}), len({y for _, y in cores})),
        dram_banks=heap.banks,
        dram_bytes_per_bank=heap.bytes_per_bank,
        max_page=max_page,
        max_transfer=max_transfer,
        dram_base=heap.base,
    )


def chip_of(identity: Identity) -> Chip:
    if identity.board not in BOARDS:
        raise ArgumentValueError(f"blackhole-py drives {', '.join(BOARDS)}; {identity} is another board")
    return BOARDS[identity.board]


class BlackholeCard(SerialCard):
    """Buffers are whole rows of pages for these libraries; the rest of a partial access is read and written back."""

    _device: Any  # the library's own

    def _close(self) -> None:
        self._device.close()

    def _buffer(self, handle: Handle) -> Any:
        """The library's own buffer object for these pages."""
        raise NotImplementedError

    def _write_whole(self, buffer: Any, data: bytes) -> None:
        raise NotImplementedError

    def _read_whole(self, buffer: Any) -> bytes:
        raise NotImplementedError

    def _place(self, handle: Handle) -> None:
        if handle.mem != "dram" or handle.banks != self.info.dram_banks:
            raise ArgumentValueError(
                f"a {self.info.kind} card has buffers in DRAM, over all of its {self.info.dram_banks} banks; asked for "
                f"{handle.mem} over {handle.banks}"
            )

    def _store(self, handle: Handle, offset: int, data: bytes) -> None:
        window, start = _rows_around(handle, offset, len(data))
        payload = data
        if len(data) < window.size:
            held = bytearray(self._read_whole(self._buffer(window)))
            held[start : start + len(data)] = data
            payload = bytes(held)
        self._write_whole(self._buffer(window), payload)

    def _load(self, handle: Handle, offset: int, size: int) -> bytes:
        window, start = _rows_around(handle, offset, size)
        return self._read_whole(self._buffer(window))[start : start + size]


def _rows_around(handle: Handle, offset: int, size: int) -> tuple[Handle, int]:
    """A buffer of the rows of pages that these bytes touch, and where in it they begin."""
    first, last = handle.rows_around(offset, max(size, 1))
    row = handle.page_size * handle.banks
    count = min(last * row, handle.pages * handle.page_size) - first * row
    return replace(handle, address=handle.address + first * handle.pitch, size=count), offset - first * row
