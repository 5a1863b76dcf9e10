"""The driver protocol: what a mesh asks of one card, in thirteen points, three of them optional.

Everything mesh-like (coordinates, addresses, sharding, collectives) lives above this line, everything about
one card's registers and queues below it. `docs/drivers.md` tells how a card comes to speak it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from softmesh.systems.chip import Chip

# Page i of a buffer is in bank i % banks, (i // banks) pitches behind the buffer's address; the pitch is the page size
# rounded up to the alignment of the memory. The same on every card and in every runtime.


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


Xy = tuple[int, int]
Cores = int | Literal["all"] | Sequence[Xy]
# One list for all cores, one list for each core, or a function of (index, (x, y), number of cores).
Args = Sequence[int] | Sequence[Sequence[int]] | Callable[[int, Xy, int], Sequence[int]]
Peers = Mapping[int, tuple[str, int]]
Image = Any


@dataclass(frozen=True)
class DriverInfo:
    """What a card is; it does not change while the card is open."""

    kind: str
    index: int  # as the bus numbers it today
    arch: str
    board: str
    serial: str  # of the card, wherever it is plugged in
    num_cores: int
    core_grid: Xy
    l1_bytes: int  # of each core
    dram_banks: int
    dram_bytes_per_bank: int
    dram_align: int
    max_page: int
    max_transfer: int
    dram_base: int = 0  # below it, a bank belongs to the card's firmware; so does L1 below l1_base
    l1_base: int = 0


_LARGEST_PAGE = 16 * 1024
_LARGEST_TRANSFER = 1 << 30


def data_sheet(chip: Chip, *, kind: str, index: int, serial: str) -> DriverInfo:
    """Of a chip, as a driver tells it."""
    columns, rows = chip.worker_grid
    return DriverInfo(
        kind=kind,
        index=index,
        arch=chip.arch_name,
        board=chip.kind,
        serial=serial,
        num_cores=columns * rows,
        core_grid=chip.worker_grid,
        l1_bytes=chip.l1_bytes,
        dram_banks=chip.dram_banks,
        dram_bytes_per_bank=chip.dram_bank_bytes - chip.dram_reserved_bytes,
        dram_align=chip.dram_alignment,
        max_page=_LARGEST_PAGE,
        max_transfer=_LARGEST_TRANSFER,
        dram_base=chip.dram_reserved_bytes,
        l1_base=chip.l1_base,
    )


class Event:
    """One piece of submitted work. What else it holds is its driver's business."""

    def __init__(self, what: str) -> None:
        self.what = what


class Scalar(int):
    """An argument with a name: the only kind that a replay of a trace may change.

    >>> Scalar("token", 7) + 1
    8
    """

    name: str

    def __new__(cls, name: str, value: int) -> Scalar:
        made = super().__new__(cls, value)
        made.name = name
        return made


@dataclass(frozen=True)
class CircularBuffer:
    """Room in every core's L1 for some pages on their way from one kernel to the next."""

    index: int
    page_size: int
    pages: int = 2
    dtype: str = "bfloat16"


@dataclass(frozen=True, eq=False)
class ProgramSpec:
    """What to run on the cores of one card: a kernel for each role.

    Kernels are what the driver's compiler takes: Python functions on the software cards, C++ text or machine
    code on a real one. The roles every driver knows are "reader", "compute" and "writer".
    """

    kernels: Mapping[str, Any]
    cores: Cores = "all"
    cbs: Sequence[CircularBuffer] = ()
    semaphores: int = 0
    compile_args: Mapping[str, int] = field(default_factory=dict)
    name: str = "program"


class Driver(Protocol):
    """Points 1 to 9 and 13: what every card can do."""

    @property
    def info(self) -> DriverInfo: ...

    def alloc(
        self,
        size: int,
        *,
        mem: MemoryKind = "dram",
        page_size: int | None = None,
        banks: int | None = None,
        address: int | None = None,
    ) -> Handle:
        """Exactly at `address`, or MemoryError; without one, wherever the driver likes."""
        ...

    def free(self, handle: Handle) -> None: ...

    def write(self, handle: Handle, data: Any, *, offset: int = 0) -> Event | None:
        """`data` has been copied when this returns, whether or not it has arrived."""
        ...

    def read(self, handle: Handle, out: Any = None, *, offset: int = 0, size: int | None = None) -> memoryview:
        """After all work submitted to this card before."""
        ...

    def compile(self, program_spec: ProgramSpec) -> Image: ...

    def submit(self, image: Image, args: Args = (), *, cores: Cores | None = None) -> Event:
        """Returns at once; the work of a card runs in the order it was submitted."""
        ...

    def query(self, event: Event) -> bool: ...

    def wait(self, event: Event, timeout: float | None = None) -> None:
        """Raises the work's own error, or TimeoutError: the card is then unusable until `reset`."""
        ...

    def sync(self, timeout: float | None = None) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Fabric(Protocol):
    """Points 10 and 11, optional: cables between cards. A transfer is over when both sides have posted theirs.

    Transfers are posted in the order of the card's other work, but what is submitted after one does not wait for
    it: wait for its event first.
    """

    def peers(self) -> Peers:
        """Which port of which serial each of this card's ports says it is cabled to."""
        ...

    def send(self, port: int, handle: Handle, offset: int, size: int) -> Event: ...
    def recv(self, port: int, handle: Handle, offset: int, size: int) -> Event: ...


@runtime_checkable
class Traces(Protocol):
    """Point 12, optional: work recorded once and run again from the card's own memory."""

    def begin_trace(self) -> None: ...
    def end_trace(self) -> Any: ...
    def replay(self, trace: Any, params: Mapping[str, int] | None = None) -> Event: ...
