"""Circular buffers while a program runs: page queues between two kernels of a core, or between cores (global ones).

Counts pages; the bytes are in a region of the core's L1. A window, what is reserved at the back or waited
for at the front, lies in one piece: pointers walk straight through it, so it may not go around the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softmesh.cores import CoreCoord, corerange_to_cores
from softmesh.errors import MeshError
from softmesh.kernels.engine.memory_order import Known
from softmesh.kernels.engine.scheduler import DevicesDiffer, KernelThread, Wait
from softmesh.kernels.program.kernel import Processor
from softmesh.tensor.dtype import DataType
from softmesh.tensor.tile import Tile

if TYPE_CHECKING:
    from softmesh.kernels.engine.simulated_chip import SimulatedChip
    from softmesh.kernels.engine.worker_core import Core
    from softmesh.runtime.buffers.global_buffers import GlobalCircularBuffer


@dataclass(frozen=True)
class Format:
    """What one index of a circular buffer holds: its data type, its page, and the tile in a page."""

    index: int
    dtype: DataType
    page_size: int
    tile: Tile


# The steps of one end: how far each came, and what it had done by then.
_Steps = deque[tuple[int, Known]]


def _learn(thread: KernelThread, steps: _Steps, position: int) -> None:
    """That an end has come so far, and no more than that."""
    for reached, known in steps:
        if reached >= position:
            thread.clock.learn(known)
            return


def _forget(steps: _Steps, position: int) -> None:
    while steps and steps[0][0] <= position:
        steps.popleft()


class Fifo:
    def __init__(self, core: Core, format: Format, address: int, capacity: int, *, is_aliased: bool) -> None:
        self.core = core
        self.format = format
        self.index = format.index
        self.page_size = format.page_size
        self.address = address
        self.capacity = capacity
        self.is_aliased = is_aliased  # its memory is a tensor's: full of data before anybody pushes
        self.pushed = 0
        self.popped = 0
        self.reserved = 0  # pages of the window at the back
        self.waited = 0  # pages of the window at the front
        self.packed = 0  # pages of the window at the back that the packer has filled
        self.left_behind = 0  # of those, pages that were packed before the last push, and not pushed yet
        self._pushes = _Steps()
        self._pops = _Steps()
        self._ends: dict[str, KernelThread] = {}
        self._for_room: list[KernelThread] = []
        self._for_pages: list[KernelThread] = []

    @property
    def free(self) -> int:
        return self.capacity - (self.pushed - self.popped)

    @property
    def available(self) -> int:
        return self.pushed - self.popped

    @property
    def write_pointer(self) -> int:
        return self.address + self.pushed % self.capacity * self.page_size

    @property
    def read_pointer(self) -> int:
        return self.address + self.popped % self.capacity * self.page_size

    def reserve(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_reserve_back", "producer", pages, self.pushed)
        if self.free < pages:
            wait = Wait(f"cb_reserve_back({self.index}, {pages})", self._state)
            thread.wait_for(lambda: self.free >= pages, self._for_room, wait)
        self.learn_of_room(thread, pages)
        self.reserved = max(self.reserved, pages)
        strict = self.core.strict
        if strict is not None:
            strict.reserving(self, pages)

    def push(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_push_back", "producer", pages, self.pushed)
        if pages > self.free:
            raise MeshError(
                f"cb_push_back({self.index}, {pages}) overwrites pages that nobody has read: {self._state()}. "
                f"Call cb_reserve_back({self.index}, {pages}) first, which waits for room."
            )
        strict = self.core.strict
        if strict is not None:
            strict.pushing(self, pages)
        elif pages > self.reserved and not self.is_aliased:
            self._tell_unreserved(thread, pages)
        if strict is None and thread.kernel.processor is not Processor.TRISC:
            thread.transfers.pushing(self, pages)
        self.pushed += pages
        self._pushes.append((self.pushed, thread.clock.published()))
        self.reserved = max(0, self.reserved - pages)
        self.left_behind = max(0, self.left_behind + self.packed - pages)
        self.packed = 0
        self.core.chip.scheduler.wake(self._for_pages)

    def wait(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_wait_front", "consumer", pages, self.popped)
        if self.available < pages:
            wait = Wait(f"cb_wait_front({self.index}, {pages})", self._state)
            thread.wait_for(lambda: self.available >= pages, self._for_pages, wait)
        self.learn_of_pages(thread, pages)
        self.waited = max(self.waited, pages)

    def pop(self, thread: KernelThread, pages: int) -> None:
        self._check(thread, "cb_pop_front", "consumer", pages, self.popped)
        if pages > self.available:
            raise MeshError(
                f"cb_pop_front({self.index}, {pages}) takes pages that are not there: {self._state()}. "
                f"Call cb_wait_front({self.index}, {pages}) first, which waits for them."
            )
        strict = self.core.strict
        if strict is not None:
            strict.popping(self, pages)
        elif pages > self.waited and not self._knows_of(thread, pages):
            self._tell_unwaited(thread, pages)
        self.popped += pages
        self._pops.append((self.popped, thread.clock.published()))
        self.waited = max(0, self.waited - pages)
        self.core.chip.scheduler.wake(self._for_room)

    def learn_of_room(self, thread: KernelThread, pages: int) -> None:
        """Of the consumer's steps as far as they had to come."""
        _forget(self._pops, self.pushed - self.capacity)
        if pages:
            _learn(thread, self._pops, self.pushed - self.capacity + pages)

    def learn_of_pages(self, thread: KernelThread, pages: int) -> None:
        _forget(self._pushes, self.popped)
        if pages:
            _learn(thread, self._pushes, self.popped + pages)

    def _knows_of(self, thread: KernelThread, pages: int) -> bool:
        """That they were pushed, however a consumer has learned it."""
        producer = self._ends.get("producer")
        if producer is None:
            return True
        steps = (known[producer.clock.number] for reached, known in self._pushes if reached >= self.popped + pages)
        return thread.clock.known.get(producer.clock.number, 0) >= next(steps, 0)

    def _tell_unwaited(self, thread: KernelThread, pages: int) -> None:
        self.core.chip.launch_state.findings.add(
            (thread.kernel, "unwaited"),
            f"{thread.name}: cb_pop_front({self.index}, {pages}) gives back more than the {self.waited} pages that "
            f"were waited for, and on a chip they may not be there yet: call cb_wait_front({self.index}, {pages}) "
            "before.",
            is_strict=False,
        )

    def _tell_unreserved(self, thread: KernelThread, pages: int) -> None:
        self.core.chip.launch_state.findings.add(
            (thread.kernel, f"unreserved {self.index}"),
            f"{thread.name}: cb_push_back({self.index}, {pages}) publishes more than the {self.reserved} pages that "
            f"were reserved, and nothing has waited for room: call cb_reserve_back({self.index}, {pages}) before, "
            "ahead of what fills them.",
            is_strict=False,
        )

    def check_pushed(self, thread: KernelThread) -> None:
        """Before the packer goes on, and at the end: whether all that it has packed was pushed."""
        if self.left_behind:
            thread.complain(
                f"left behind {self.index}",
                f"{self.left_behind} pages of circular buffer {self.index} were packed, and not pushed: behind a "
                "cb_push_back the packer begins at the first page that was not pushed, and overwrites them. Let "
                f"cb_push_back({self.index}, n) publish as many pages as were packed.",
            )
            self.left_behind = 0

    def begin_at(self, page: int) -> None:
        """Empty, and with this page the next."""
        self.pushed = self.popped = page
        self._pushes.clear()
        self._pops.clear()

    def page_to_read(self, call: str, index: int) -> int:
        """The address of a page of the window at the front."""
        limit = self.capacity - self.popped % self.capacity if self.is_aliased else self.waited
        if not 0 <= index < limit:
            raise MeshError(
                f"{call}: page {index} of circular buffer {self.index} is not in the window of {limit} pages that was "
                f"waited for. Call cb_wait_front({self.index}, {index + 1}) first: it counts from the front."
            )
        return self.read_pointer + index * self.page_size

    def page_to_pack(self, call: str, index: int | None) -> int:
        """The address of a page of the window at the back: the next one, or the one asked for."""
        at = self.packed if index is None else index
        if not 0 <= at < self.reserved:
            raise MeshError(
                f"{call}: page {at} of circular buffer {self.index} is not in the window of {self.reserved} pages "
                f"that was reserved. Call cb_reserve_back({self.index}, {at + 1}) first."
            )
        if index is None:
            self.packed += 1
        return self.write_pointer + at * self.page_size

    def _check(self, thread: KernelThread, call: str, end: str, pages: int, position: int) -> None:
        if pages < 0:
            raise MeshError(f"{call}({self.index}, {pages}): the number of pages is 0 or more.")
        first = self._ends.setdefault(end, thread)
        if first is not thread:
            raise MeshError(
                f"{call}({self.index}, {pages}): circular buffer {self.index} already has its {end}, "
                f"{first.kernel.name} ({first.kernel.processor.name}). Each has exactly one producer and one "
                "consumer: use another index."
            )
        if position % self.capacity + pages > self.capacity:
            raise MeshError(self._too_long(call, pages, position % self.capacity))

    def _too_long(self, call: str, pages: int, at: int) -> str:
        if pages > self.capacity:
            return (
                f"{call}({self.index}, {pages}) waits for ever: circular buffer {self.index} has {self.capacity} "
                "pages in all. Make it larger, or work in smaller blocks."
            )
        return (
            f"{call}({self.index}, {pages}) goes around the end of circular buffer {self.index}: "
            f"{self.capacity - at} of its {self.capacity} pages are left before the end, and a window lies in one "
            f"piece. Let the blocks divide the number of pages: {-(-self.capacity // pages) * pages} pages would do."
        )

    def _state(self) -> str:
        """As the report of a stuck program tells it."""
        told = [text for text in (self._end_text("producer"), self._end_text("consumer")) if text]
        return "; ".join([f"{self.available} of {self.capacity} pages are full", *told])

    def ends(self) -> tuple[str | None, str | None]:
        """The kernels that push and that take pages; None where there was none."""
        names = [
            None if thread is None else f"{thread.kernel.name} ({thread.kernel.processor.name})"
            for thread in map(self._ends.get, ("producer", "consumer"))
        ]
        return names[0], names[1]

    def _end_text(self, end: str) -> str:
        thread = self._ends.get(end)
        if thread is None:
            return f"it has no {end} yet"
        return f"its {end} {thread.kernel.name} has ended" if thread.dead else ""


# Global circular buffers. Positions are counted in bytes since the buffer was made, go on from one program to the
# next, and are the same for sender and receivers: the next page begins at a multiple of its size, and a page that
# would not fit before the end begins at the start again. So both sides may change the size of their pages, at the
# same place of the stream.


_MOST_STEPS = 64  # of each part that are remembered; who needs an earlier one counts as having waited for these
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
        self,
        chip: SimulatedChip,
        buffer: GlobalCircularBuffer,
        sender: CoreCoord,
        receivers: Sequence[CoreCoord],
    ) -> None:
        self.address = buffer.buffer_address()
        self.size = buffer.size()
        self.parts = [sender, *receivers]
        self.waiting: list[KernelThread] = []
        self._steps = [_Steps(maxlen=_MOST_STEPS) for _ in self.parts]
        self._chip = chip
        self._buffer = buffer
        self._positions: list[int] = []  # empty until somebody asks

    @property
    def positions(self) -> list[int]:
        """How far each of `parts` has got."""
        if not self._positions:
            start = (0,) * len(self.parts)
            sender, progress = self.parts[_SENDER], self._buffer.progress
            known = {progress.get((device, sender), start) for device in self._chip.mesh_slice.place}
            if len(known) > 1:
                raise DevicesDiffer
            self._positions = list(known.pop())
        return self._positions

    def store_positions(self) -> None:
        """The program has ended well: the next one goes on from here."""
        if self._positions:
            for device in self._chip.mesh_slice.place:
                self._buffer.progress[device, self.parts[_SENDER]] = tuple(self._positions)

    def start_of_page(self, position: int, page_size: int) -> int:
        """Where the next page of this size begins."""
        turn, offset = divmod(position, self.size)
        aligned = -(-offset // page_size) * page_size
        return (turn + 1) * self.size if aligned + page_size > self.size else turn * self.size + aligned

    def learn(self, thread: KernelThread, part: int, position: int) -> None:
        """That a part has come so far."""
        _learn(thread, self._steps[part], position)

    def set_position(self, part: int, position: int) -> None:
        self._steps[part].append((position, self._chip.scheduler.published()))
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
        end = self._start + pages * self.page_size
        for part in range(1, len(self.fifo.parts)) if self.is_sender else [_SENDER]:
            self.fifo.learn(thread, part, end - self.fifo.size if self.is_sender else end)

    def advance(self, pages: int) -> None:
        """Past the next pages: they are sent, or read."""
        self.fifo.set_position(self.part, self._start + pages * self.page_size)

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
            f"{sent - position} for core {core}" for core, position in zip(self.fifo.parts[1:], read, strict=True)
        )
        return f"of {self.fifo.size} bytes are unread: {unread}"


def remote_end_of(
    chip: SimulatedChip, buffer: GlobalCircularBuffer, core: CoreCoord, index: int, page_size: int
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
