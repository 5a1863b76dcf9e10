"""L1Pointer: reads and writes single numbers in the L1 of a core, as C++ does through a `tt_l1_ptr`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch

from softmesh.errors import ArgumentError
from softmesh.kernels.calls.kernel_arguments import float32, int32_t, uint32_t
from softmesh.kernels.engine.scheduler import here
from softmesh.kernels.engine.worker_core import same_bytes


class uint8_t(int):
    """One byte."""


class uint16_t(int):
    """Two bytes; the bits of a bfloat16, for example."""


_CODES = {uint8_t: "B", uint16_t: "H", uint32_t: "I", int32_t: "i", int: "I", float32: "f", float: "f"}


class L1Pointer:
    """`pointer[i]` reads and writes the i-th number from an address on; a slice takes and gives a list.

    It counts as its address wherever one is asked for. Where the devices that a kernel stands for hold
    different numbers there, reading one makes the program start again with a run for each device.
    """

    def __init__(self, address: int, type: type = uint32_t) -> None:
        if type not in _CODES:
            known = ", ".join(kind.__name__ for kind in _CODES)
            raise ArgumentError(f"L1Pointer(): type must be one of {known}, got {type!r}.")
        self.address = int(address)
        self._code = _CODES[type]
        self._size = struct.calcsize(self._code)

    def __repr__(self) -> str:
        return f"L1Pointer({self.address:#x}, numbers of {self._size} bytes)"

    def __index__(self) -> int:
        return self.address

    def __add__(self, count: int) -> L1Pointer:
        moved = L1Pointer(self.address + count * self._size)
        moved._code, moved._size = self._code, self._size
        return moved

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return list(self._read(*_stretch(index)))
        (value,) = self._read(index, 1)
        self._notice_repetition(index, value)
        return value

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            first, count = _stretch(index)
            self._write(first, list(value) if isinstance(value, Sequence) else [value] * count)
        else:
            self._write(index, [value])

    def _read(self, first: int, count: int) -> tuple[Any, ...]:
        core = here("L1Pointer").core
        data = core.read(self.address + first * self._size, count * self._size)
        return struct.unpack(f"<{count}{self._code}", same_bytes(data))

    def _write(self, first: int, values: Sequence[Any]) -> None:
        core = here("L1Pointer").core
        try:
            packed = struct.pack(f"<{len(values)}{self._code}", *values)
        except struct.error as error:
            raise ArgumentError(f"L1Pointer[...] = {values!r}: {error}.") from None
        data = torch.frombuffer(bytearray(packed), dtype=torch.uint8).to(core.chip.mesh.torch_device)
        core.write(self.address + first * self._size, data.reshape(*(1,) * core.chip.rank, -1))

    def _notice_repetition(self, index: int, value: Any) -> None:
        """A loop that reads the same word again and again waits for somebody else, and finds it changed by then."""
        thread = here("L1Pointer")
        at = self.address + index * self._size
        place, last = thread.last_load or (None, None)
        if (place, last) == (at, value):
            thread.poll(f"L1Pointer({at})[0], which is {value}")
        elif place == at:
            thread.scheduler.note_answer()
        thread.last_load = at, value


def _stretch(index: slice) -> tuple[int, int]:
    if index.start is None or index.stop is None or index.step not in (None, 1):
        raise ArgumentError("L1Pointer[a:b]: give both ends of the slice, and no step.")
    return index.start, index.stop - index.start
