"""Stretches of a core's L1 memory, by who gave them: circular buffers, semaphores, buffers in L1.

Values carry the mesh dims in front, extent 1 where all devices agree. Addresses are L1 addresses throughout.
"""

from __future__ import annotations

import struct
import sys
from typing import Protocol

import torch

from softmesh.errors import MeshError
from softmesh.kernels.engine.held_bytes import HeldBytes
from softmesh.kernels.engine.memory import Box, Memory
from softmesh.kernels.engine.thread import DevicesDiffer

WORD = 4
_MASK = 0xFFFFFFFF


class Region(Protocol):
    name: str
    start: int
    end: int

    def read(self, address: int, size: int) -> torch.Tensor:
        """Bytes as `(*extents, size)`, which nobody may change: they stay as they are when others are written."""
        ...

    def write(self, address: int, values: torch.Tensor) -> None:
        """Nobody may change these values from now on."""
        ...

    def load(self, address: int) -> int:
        """The 32-bit word there, where it is the same on all devices."""
        ...

    def store(self, address: int, word: int) -> None: ...


class OwnBytes:
    """What a launch brings with it: the memory of circular buffers."""

    def __init__(self, name: str, start: int, size: int, rank: int, device: torch.device) -> None:
        self.name = name
        self.start = start
        self.end = start + size
        self._rank = rank
        self._device = device
        self._held = HeldBytes(
            lambda start, size: torch.zeros(*(1,) * rank, size, dtype=torch.uint8, device=device),
            absorbs=True,
        )

    def read(self, address: int, size: int) -> torch.Tensor:
        return self._held.read(address, size)

    def write(self, address: int, values: torch.Tensor) -> None:
        self._held.write(address, values)

    def load(self, address: int) -> int:
        return word_of(self.read(address, WORD))

    def store(self, address: int, word: int) -> None:
        self.write(address, bytes_of(word, self._rank, self._device))


class Words:
    """Semaphores: plain numbers, each in 16 bytes of its own."""

    def __init__(self, name: str, start: int, size: int, rank: int, device: torch.device) -> None:
        self.name = name
        self.start = start
        self.end = start + size
        self._rank = rank
        self._device = device
        self._words: dict[int, int] = {}

    def load(self, address: int) -> int:
        self._check(address)
        return self._words.get(address, 0)

    def store(self, address: int, word: int) -> None:
        self._check(address)
        self._words[address] = word & _MASK

    def read(self, address: int, size: int) -> torch.Tensor:
        words = [self._words.get(at, 0) for at in range(address, address + size, WORD)]
        data = torch.frombuffer(bytearray(struct.pack(f"<{len(words)}I", *words)), dtype=torch.uint8)
        return data[:size].reshape(*(1,) * self._rank, size).to(self._device)

    def write(self, address: int, values: torch.Tensor) -> None:
        for first in range(0, values.shape[-1] // WORD * WORD, WORD):
            self.store(address + first, word_of(values[..., first : first + WORD]))

    def _check(self, address: int) -> None:
        if address % WORD:
            raise MeshError(
                f"Address {address} is no word of {self.name}: words begin at multiples of {WORD}."
            )


class BufferBytes:
    """A buffer or tensor in L1: the bank that this core holds."""

    start, end = 0, sys.maxsize  # the memory itself knows where its pages are

    def __init__(self, memory: Memory, box: Box, bank: int, device: torch.device) -> None:
        self.name = f"the L1 buffer at {memory.paged.address}"
        self.memory = memory
        self._box = box
        self._bank = bank
        self._device = device

    def read(self, address: int, size: int) -> torch.Tensor:
        return self.memory.read(self._box, self._bank, address, size)

    def write(self, address: int, values: torch.Tensor) -> None:
        self.memory.write(self._box, self._bank, address, values)

    def load(self, address: int) -> int:
        return word_of(self.read(address, WORD))

    def store(self, address: int, word: int) -> None:
        self.write(address, bytes_of(word, len(self._box.extents), self._device))


def same_bytes(data: torch.Tensor) -> bytes:
    """What all devices hold; where it is not the same the launch starts again, device by device."""
    rows = data.reshape(-1, data.shape[-1])
    if len(rows) > 1 and not bool((rows == rows[0]).all()):
        raise DevicesDiffer
    return bytes(rows[0].tolist())


def word_of(data: torch.Tensor) -> int:
    return int.from_bytes(same_bytes(data), "little")


def bytes_of(word: int, rank: int, device: torch.device) -> torch.Tensor:
    values = torch.tensor(list((word & _MASK).to_bytes(WORD, "little")), dtype=torch.uint8, device=device)
    return values.reshape(*(1,) * rank, WORD)
