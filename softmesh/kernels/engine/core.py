"""One worker core while a program runs: its L1 memory, its circular buffers, and who waits for its words."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import torch

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.kernels.engine.regions import Region

if TYPE_CHECKING:
    from softmesh.kernels.engine.chip import Chip
    from softmesh.kernels.engine.fifo import Fifo
    from softmesh.kernels.engine.remote_fifo import RemoteEnd
    from softmesh.kernels.engine.strict import StrictL1
    from softmesh.kernels.engine.thread import KernelThread


class Core:
    def __init__(self, chip: Chip, place: CoreCoord) -> None:
        self.chip = chip
        self.place = place
        self.fifos: dict[int, Fifo] = {}
        self.remote_ends: dict[int, RemoteEnd] = {}  # parts in global circular buffers, by index
        self.semaphores: dict[int, int] = {}  # their addresses, by id
        self.strict: StrictL1 | None = None
        self._regions: list[Region] = []  # by their start
        self._starts: list[int] = []
        self._waiting: dict[int, list[KernelThread]] = {}  # for a change of the word at an address

    def __str__(self) -> str:
        return f"core {self.place}"

    def dismiss(self) -> None:
        for held in (self.fifos, self.remote_ends, self._regions, self._starts, self._waiting):
            held.clear()
        self.strict = None

    def add_region(self, region: Region) -> None:
        at = bisect_right(self._starts, region.start)
        self._regions.insert(at, region)
        self._starts.insert(at, region.start)

    def region(self, address: int, size: int) -> Region:
        """Whose memory this is; an error where it is nobody's, or only in part."""
        at = bisect_right(self._starts, address) - 1
        region = self._regions[at] if at >= 0 else None
        if region is None or region.end <= address:
            region = self.chip.l1_buffer(self, address)
        if region is None or address + size > region.end:
            raise MeshError(self._nobody(address, size, region))
        return region

    def _nobody(self, address: int, size: int, region: Region | None) -> str:
        text = f"L1 bytes {address} to {address + size - 1} of {self} belong to "
        if region is not None:
            return f"{text}{region.name} only up to {region.end - 1}: the transfer is {size} bytes long."
        owned = ", ".join(f"{each.name} [{each.start}, {each.end})" for each in self._regions)
        return f"{text}nobody. What this program has there: {owned or 'nothing'}."

    def read(self, address: int, size: int) -> torch.Tensor:
        if self.strict is not None:
            self.strict.reading(address, size)
        return self.region(address, size).read(address, size)

    def write(self, address: int, values: torch.Tensor) -> None:
        size = values.shape[-1]
        region = self.region(address, size)
        if self.strict is not None:
            self.strict.writing(address, size)
        region.write(address, values)
        if self._waiting:
            self._wake(address, size)

    def load(self, address: int) -> int:
        return self.region(address, 4).load(address)

    def store(self, address: int, word: int) -> None:
        region = self.region(address, 4)
        if self.strict is not None:
            self.strict.writing(address, 4)
        region.store(address, word)
        if self._waiting:
            self._wake(address, 4)

    def name_of(self, address: int) -> str:
        """What stands at an address, in the words of a report."""
        ids = [number for number, place in self.semaphores.items() if place == address]
        return f"semaphore {ids[0]}" if ids else f"address {address}"

    def waiting_for(self, address: int) -> list[KernelThread]:
        """Who waits for the word at this address to change."""
        return self._waiting.setdefault(address, [])

    def _wake(self, address: int, size: int) -> None:
        for watched, threads in self._waiting.items():
            if threads and address - 4 < watched < address + size:
                self.chip.scheduler.wake(threads)
