"""Byte card: a software card of bytearrays with fault injection, to test a mesh layer without hardware."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from softmesh.drivers.heap import chunks_of
from softmesh.drivers.launches import Launch
from softmesh.drivers.protocol import Handle, data_sheet
from softmesh.drivers.software_card import Cables, SoftwareCard
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.systems.chip import P150, Chip

KIND = "bytearray"
_CHUNK = 1 << 12
OPERATIONS = ("open", "alloc", "write", "read", "run", "close")


class FaultKind(Enum):
    HANG = "never comes back, until the card is reset or closed"
    SHORT = "gives only the first half of the bytes"
    REFUSE = "raises what a card would"


class Fault(NamedTuple):
    """What goes wrong with an operation, after so many of its kind went well. It goes wrong from then on."""

    operation: str
    kind: FaultKind
    after: int = 0


class ByteMemory:
    """Banks of bytes that come to be where they are touched."""

    def __init__(self, banks: int) -> None:
        self._chunks: list[dict[int, bytearray]] = [{} for _ in range(banks)]

    def read(self, handle: Handle, offset: int, size: int) -> bytearray:
        found = bytearray(size)
        for chunk, inside, outside in self._spans(handle, offset, size):
            found[outside] = chunk[inside]
        return found

    def write(self, handle: Handle, offset: int, data: bytes | bytearray | memoryview) -> None:
        for chunk, inside, outside in self._spans(handle, offset, len(data)):
            chunk[inside] = data[outside]

    def _spans(self, handle: Handle, offset: int, size: int) -> list[tuple[bytearray, slice, slice]]:
        found = []
        for bank, address, start, length in handle.pieces(offset, size):
            for number, inside, part in chunks_of(address, length, _CHUNK):
                chunk = self._chunks[bank].setdefault(number, bytearray(_CHUNK))
                at = start - offset
                found.append((chunk, inside, slice(at + part.start, at + part.stop)))
        return found


class ByteCard(SoftwareCard):
    """
    >>> card = ByteCard(0, "SM-0000", faults=[Fault("run", FaultKind.HANG, after=1)])
    >>> card.info.dram_banks
    8
    """

    def __init__(
        self,
        index: int,
        serial: str,
        *,
        chip: Chip = P150,
        cables: Cables | None = None,
        faults: Sequence[Fault] = (),
        blind_ports: Sequence[int] = (),
    ) -> None:
        for fault in faults:
            if fault.operation not in OPERATIONS:
                raise ArgumentValueError(f"{fault}: the operations of a card are {', '.join(OPERATIONS)}")
        self._faults = tuple(faults)
        self._blind_ports = frozenset(blind_ports)
        self._seen: Counter[str] = Counter()
        self._unblocked = threading.Event()
        super().__init__(data_sheet(chip, kind=KIND, index=index, serial=serial), cables or Cables([]), ByteMemory)
        self._inject_fault("open")

    def peers(self) -> dict[int, tuple[str, int]]:
        """Without the ports that do not see their cable, though the other end may see it."""
        return {port: far for port, far in super().peers().items() if port not in self._blind_ports}

    def _place(self, handle: Handle) -> None:
        self._inject_fault("alloc")

    def _store(self, handle: Handle, offset: int, data: bytes) -> None:
        self._inject_fault("write")
        super()._store(handle, offset, data)

    def _load(self, handle: Handle, offset: int, size: int) -> Any:
        is_short = self._inject_fault("read")
        return super()._load(handle, offset, size // 2 if is_short else size)

    def _run(self, launch: Launch) -> None:
        self._inject_fault("run")
        super()._run(launch)

    def _reset(self) -> None:
        self._unblocked.set()
        self._unblocked = threading.Event()
        super()._reset()

    def _close(self) -> None:
        self._unblocked.set()
        super()._close()
        self._inject_fault("close")

    def _inject_fault(self, operation: str) -> bool:
        """The fault that is planted here, if its time has come; whether what follows is to come short."""
        seen, self._seen[operation] = self._seen[operation], self._seen[operation] + 1
        kinds = {f.kind for f in self._faults if f.operation == operation and seen >= f.after}
        if FaultKind.HANG in kinds:
            self._unblocked.wait()
            raise MeshError(f"{operation} was cut off")
        if FaultKind.REFUSE in kinds:
            raise (MemoryError if operation == "alloc" else OSError)(f"{operation} failed by a planted fault")
        return FaultKind.SHORT in kinds
