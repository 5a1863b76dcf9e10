"""A global circular buffer while a program runs: one core writes pages into the L1 of its receivers, which read them.

Positions are counted in bytes since the buffer was made, go on from one program to the next, and are the same for
sender and receivers: the next page begins at a multiple of its size, and a page that would not fit before the end
begins at the start again. So both sides may change the size of their pages, at the same place of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from softmesh.cores import CoreCoord, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.kernels.engine.thread import DevicesDiffer, KernelThread, Wait

if TYPE_CHECKING:
    from softmesh.kernels.engine.chip import Chip
    from softmesh.runtime.buffers.global_circular_buffer import GlobalCircularBuffer

_SENDER = 0  # its place among the positions; receivers follow
_PAGE_ALIGNMENT = 16


def checked_page_size(where: str, page_size: int) -> int:
    if page_size <= 0 or page_size % _PAGE_ALIGNMENT:
        raise MeshError(
            f"{where}: a page of a global circular buffer has a multiple of {_PAGE_ALIGNMENT} bytes, got {page_size}."
        )
    return page_size


class RemoteFifo:
    """One sender and its receivers, on the devices that a chip stands for."""

    def __init__(
        self, chip: Chip, buffer: GlobalCircularBuffer, sender: CoreCoord, receivers: Sequence[CoreCoord]
    ) -> None:
        self.address = buffer.buffer_address()
        self.size = buffer.size()
        self.parts = [sender, *receivers]
        self.waiting: list[KernelThread] = []
        self._chip = chip
        self._buffer = buffer
        self._positions: list[int] = []  # empty until somebody asks

    @property
    def positions(self) -> list[int]:
        """How far each of `parts` has got."""
        if not self._positions:
            start = (0,) * len(self.parts)
            sender, progress = self.parts[_SENDER], self._buffer.progress
            known = {progress.get((device, sender), start) for device in self._chip.box.place}
            if len(known) > 1:
                raise DevicesDiffer
            self._positions = list(known.pop())
        return self._positions

    def keep(self) -> None:
        """The program has ended well: the next one goes on from here."""
        if self._positions:
            for device in self._chip.box.place:
                self._buffer.progress[device, self.parts[_SENDER]] = tuple(self._positions)

    def start_of_page(self, position: int, page_size: int) -> int:
        """Where the next page of this size begins."""
        turn, offset = divmod(position, self.size)
        aligned = -(-offset // page_size) * page_size
        return (turn + 1) * self.size if aligned + page_size > self.size else turn * self.size + aligned

    def moved(self, part: int, position: int) -> None:
        self.positions[part] = position
        self._chip.scheduler.wake(self.waiting)


class RemoteEnd:
    """What one core of a global circular buffer sees under the index of a program."""

    def __init__(self, fifo: RemoteFifo, part: int, index: int, page_size: int) -> None:
        self.fifo = fifo
        self.part = part
        self.index = index
        self.page_size = page_size

    @property
    def is_sender(self) -> bool:
        return self.part == _SENDER

    @property
    def _start(self) -> int:
        return self.fifo.start_of_page(self.fifo.positions[self.part], self.page_size)

    @property
    def pointer(self) -> int:
        """The L1 address of the next page, the same on sender and receivers."""
        return self.fifo.address + self._start % self.fifo.size

    def has_room(self, pages: int) -> bool:
        """Whether every receiver has read what lies there."""
        fifo = self.fifo
        return self._start + pages * self.page_size - min(fifo.positions[1:]) <= fifo.size

    def has_pages(self, pages: int) -> bool:
        return self.fifo.positions[_SENDER] - self._start >= pages * self.page_size

    def wait(self, thread: KernelThread, call: str, pages: int) -> None:
        """A sender for room, a receiver for pages."""
        self.check(f"{call}({self.index}, {pages})", pages)
        is_met = self.has_room if self.is_sender else self.has_pages
        if not is_met(pages):
            wait = Wait(f"{call}({self.index}, {pages})", self.state)
            thread.wait_for(lambda: is_met(pages), self.fifo.waiting, wait)

    def go_on(self, pages: int) -> None:
        """Past the next pages: they are sent, or read."""
        self.fifo.moved(self.part, self._start + pages * self.page_size)

    def check(self, call: str, pages: int) -> None:
        size, whole = pages * self.page_size, self.fifo.size // self.page_size
        if pages < 0:
            raise MeshError(f"{call}: the number of pages is 0 or more.")
        if pages > whole:
            raise MeshError(
                f"{call} waits for ever: global circular buffer {self.index} has {self.fifo.size} bytes, {whole} "
                f"pages of {self.page_size}. Make it larger, or work in smaller blocks."
            )
        left = self.fifo.size - self._start % self.fifo.size
        if size > left:
            raise MeshError(
                f"{call} goes around the end of global circular buffer {self.index}: {left // self.page_size} pages "
                f"of {self.page_size} bytes are left before it, and a block lies in one piece. Let the blocks divide "
                f"the {whole} pages."
            )

    def state(self) -> str:
        """As the report of a stuck program tells it."""
        sent, *read = self.fifo.positions
        unread = ", ".join(
            f"{sent - position} for core {core}"
            for core, position in zip(self.fifo.parts[1:], read, strict=True)
        )
        return f"of {self.fifo.size} bytes are unread: {unread}"


def end_of(
    chip: Chip, buffer: GlobalCircularBuffer, core: CoreCoord, index: int, page_size: int
) -> RemoteEnd:
    """The part that a core has in a global circular buffer."""
    for sender, receivers in buffer.sender_receiver_core_mapping():
        parts = [sender, *corerange_to_cores(receivers)]
        if core in parts:
            key = (id(buffer), sender)
            if key not in chip.remote_fifos:
                chip.remote_fifos[key] = RemoteFifo(chip, buffer, sender, parts[1:])
            return RemoteEnd(chip.remote_fifos[key], parts.index(core), index, page_size)
    raise MeshError(f"Core {core} has no part in {buffer!r}.")  # refused when the program was made
