"""A worker core while a program runs: its L1 memory by regions, its circular buffers, and the checks of strict mode.

Regions are circular buffers, semaphores, and buffers in L1. Values carry the mesh dims in front, extent 1 where all
devices agree. Addresses are L1 addresses throughout. Writing a word wakes the kernels that wait for it.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.kernels.engine.buffer_view import BufferView, MeshSlice
from softmesh.kernels.engine.byte_overlay import ByteOverlay
from softmesh.kernels.engine.memory_order import Access, Known, join
from softmesh.kernels.engine.page_contents import Content
from softmesh.kernels.engine.scheduler import DevicesDiffer, running
from softmesh.kernels.engine.signals import Signals
from softmesh.kernels.engine.touched_bytes import TouchedBytes
from softmesh.runtime.buffers.paged_memory import Sharded

if TYPE_CHECKING:
    from softmesh.kernels.engine.fifo import Fifo, RemoteEnd
    from softmesh.kernels.engine.scheduler import KernelThread
    from softmesh.kernels.engine.simulated_chip import SimulatedChip
    from softmesh.kernels.engine.transfers import PendingTransfer

# Regions: stretches of a core's L1 memory, by what allocated them. What is read stays as it is when others write, and
# nobody may change it, nor the values that were written.


WORD = 4
_MASK = 0xFFFFFFFF


class CircularBufferRegion:
    """What a launch brings with it: the memory of circular buffers."""

    def __init__(self, core: Core, name: str, start: int, size: int) -> None:
        self.name = name
        self.start = start
        self.end = start + size
        self._core = core
        self._rank = rank = core.chip.rank
        self._device = device = core.chip.mesh.torch_device
        self._held = ByteOverlay(
            lambda start, size: torch.zeros(*(1,) * rank, size, dtype=torch.uint8, device=device),
            absorbs=True,
        )

    def read(self, address: int, size: int) -> torch.Tensor:
        if not self._held.has_any(address, size):
            self._core.tell_unwritten(address)
        return self._held.read(address, size)

    def write(self, address: int, values: torch.Tensor) -> None:
        self._held.write(address, values)

    def load(self, address: int) -> int:
        return word_of(self.read(address, WORD))

    def store(self, address: int, word: int) -> None:
        self.write(address, bytes_of(word, self._rank, self._device))


class SemaphoreRegion:
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

    def _check(self, address: int) -> None:
        if address % WORD:
            raise MeshError(f"Address {address} is no word of {self.name}: words begin at multiples of {WORD}.")


class L1BufferRegion:
    """A buffer or tensor in L1: the bank that this core holds."""

    start, end = 0, sys.maxsize  # the memory itself knows where its pages are

    def __init__(
        self, memory: BufferView, mesh_slice: MeshSlice, bank: int, place: CoreCoord, device: torch.device
    ) -> None:
        self.name = f"the L1 buffer at {memory.paged.address}"
        self._place = place
        self.memory = memory
        self._mesh_slice = mesh_slice
        self._bank = bank
        self._device = device

    def slot(self, address: int) -> int:
        """Where the page begins that would cover the address."""
        paged = self.memory.paged
        return address - (address - paged.address) % paged.aligned_page_size

    def is_spare(self, address: int) -> bool:
        """Whether this bank has no page there: a buffer takes the same addresses of all banks, full or not."""
        paged = self.memory.paged
        is_sharded = isinstance(paged.layout.page_map, Sharded)
        return not is_sharded and paged.page_at(self._bank, self.slot(address)) is None

    def read(self, address: int, size: int) -> torch.Tensor:
        pages = self.memory.paged.layout.page_map
        if isinstance(pages, Sharded) and self._bank not in pages.banks:
            raise MeshError(self._elsewhere(address, "what is read there is of something else"))
        return self.memory.read(self._mesh_slice, self._bank, address, size)

    def write(self, address: int, values: torch.Tensor) -> None:
        self.memory.write(self._mesh_slice, self._bank, address, values)

    def load(self, address: int) -> int:
        self._check_word(address)
        return word_of(self.read(address, WORD))

    def store(self, address: int, word: int) -> None:
        self._check_word(address)
        self.write(address, bytes_of(word, len(self._mesh_slice.extents), self._device))

    def _check_word(self, address: int) -> None:
        if self.memory.paged.page_at(self._bank, address) is None:
            raise MeshError(self._elsewhere(address, "what is set or raised there is lost"))

    def _elsewhere(self, address: int, effect: str) -> str:
        return (
            f"Address {address} belongs to {self.name}, which has no part on core {self._place}: {effect}. Let the "
            "cores of ttnn.create_global_semaphore contain all that wait for it or are signalled to; a shard of "
            "another core is read with noc_async_read."
        )


Region = CircularBufferRegion | SemaphoreRegion | L1BufferRegion


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


class Core:
    def __init__(self, chip: SimulatedChip, place: CoreCoord) -> None:
        self.chip = chip
        self.place = place
        self.fifos: dict[int, Fifo] = {}
        self.remote_ends: dict[int, RemoteEnd] = {}  # parts in global circular buffers, by index
        self.semaphores: dict[int, int] = {}  # their addresses, by id
        self.strict: StrictL1 | None = None
        self._regions: list[Region] = []  # by their start
        self._starts: list[int] = []
        self._waiting: dict[int, list[KernelThread]] = {}  # for a change of the word at an address
        self._written: Known = {}  # what those had done by then who wrote anything from another core
        self._contents: dict[int, Content] = {}  # of pages of circular buffers, by where they begin
        self._least_content = 0  # the size of the smallest of them
        self._arriving: dict[int, Access] = {}  # transfers from other cores, by the number of the thread
        self.touched = TouchedBytes(self)
        self.signals = Signals(self)

    def __str__(self) -> str:
        return f"core {self.place}"

    def drop_references(self) -> None:
        for held in (self.fifos, self.remote_ends, self._regions, self._starts, self._waiting):
            held.clear()
        self._arriving.clear()
        self._contents.clear()
        self.touched.drop_references()
        self.signals.drop_references()
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
            held = self.chip.l1_buffer(self, address)
            region = held if held is None or not held.is_spare(address) else self._spare(held, address)
        if region is None or address + size > region.end:
            raise MeshError(self._nobody(address, size, region))
        return region

    def _spare(self, held: L1BufferRegion, address: int) -> CircularBufferRegion:
        """Room in a bank without a page of the buffer: scratch for kernels of this core during the launch."""
        name = f"room beside {held.name}"
        found = CircularBufferRegion(self, name, held.slot(address), held.memory.end - held.slot(address))
        self.add_region(found)
        return found

    def _nobody(self, address: int, size: int, region: Region | None) -> str:
        text = f"L1 bytes {address} to {address + size - 1} of {self} belong to "
        if region is not None:
            return f"{text}{region.name} only up to {region.end - 1}: the transfer is {size} bytes long."
        owned = ", ".join(f"{each.name} [{each.start}, {each.end})" for each in self._regions)
        return f"{text}nobody. What this program has there: {owned or 'nothing'}."

    def read(self, address: int, size: int, access: Access | None = None) -> torch.Tensor:
        if self.strict is not None:
            self.strict.reading(address, size)
        thread = running()
        if thread is not None and size > WORD:
            self.touched.read(access or thread.clock.now(), address, size)
        elif thread is not None:
            self._poll(thread, address, size)
        return self.region(address, size).read(address, size)

    def write(self, address: int, values: torch.Tensor, access: Access | None = None) -> None:
        size = values.shape[-1]
        thread = running()
        region = self.region(address, size)
        if isinstance(region, SemaphoreRegion):
            for at in range(0, size // WORD * WORD, WORD):
                self.store(address + at, word_of(values[..., at : at + WORD]))
            return
        is_far = thread is None or thread.core is not self
        access = access or self.chip.scheduler.access()
        if access is not None and (size > WORD or not is_far):
            self.touched.write(access, address, size)
            if is_far:
                self._arriving[access.number] = access
        if size <= WORD or is_far:
            known = self.chip.scheduler.published()
            join(self._written, known)
            if size <= WORD:
                self._check_word(address, values)
                self.signals.note(address, None, known)
        if self.strict is not None:
            self.strict.writing(address, size)
        region.write(address, values)
        if self._contents:
            self._forget_contents(address, size)
        if self._waiting:
            self._wake(address, size)

    def _check_word(self, address: int, values: torch.Tensor) -> None:
        """A word comes from elsewhere: the same one that others may send, or another one?"""
        thread = running()
        access = self.chip.scheduler.access() if thread is None else thread.clock.now()
        if access is not None and access.thread.core is not self and values.numel() == WORD:
            self.signals.check(access, address, word_of(values), adds=False)

    def _forget_contents(self, address: int, size: int) -> None:
        """Something else begins where these pages began."""
        self._contents.pop(address, None)
        if size > self._least_content:
            for start in [at for at in self._contents if address < at < address + size]:
                del self._contents[start]

    def note_content(self, address: int, size: int, content: Content | None) -> None:
        """Of what was just written there."""
        if content is not None:
            self._least_content = min(size, self._least_content) if self._contents else size
            self._contents[address] = content

    def content_at(self, address: int) -> Content | None:
        """Of a page in a circular buffer, or of a tensor in L1; None where nobody can say."""
        found, at = self._contents.get(address), bisect_right(self._starts, address) - 1
        if found is not None or (at >= 0 and address < self._regions[at].end):
            return found
        region = self.chip.l1_buffer(self, address)
        dtype = None if region is None else region.memory.dtype
        return None if dtype is None else Content(dtype, is_packed=False)

    def _poll(self, thread: KernelThread, address: int, size: int) -> None:
        """A word may be a flag: whoever finds it set knows that what came before it, or with it, is there."""
        self._learn(address)
        for access in self._arriving.values():
            access.arrive()
        self._arriving.clear()
        self.touched.look(thread.clock, address, size)

    def learn_from_wait(self, thread: KernelThread, address: int, is_met: Callable[[int], bool]) -> None:
        """A word that nobody has changed teaches nothing; one may come in a packet with others, too."""
        if not self.signals.learn(thread.clock, address, is_met) and self.touched.is_written(address, address + WORD):
            thread.clock.learn(self._written)

    def load(self, address: int) -> int:
        """The word there, where it is the same on all devices; as a kernel reads it that acts on what it finds."""
        self._learn(address)
        return self.word(address)

    def word(self, address: int) -> int:
        return self.region(address, WORD).load(address)

    def _learn(self, address: int) -> None:
        thread = running()
        if thread is not None:
            self.signals.learn_all(thread.clock, address)
            thread.clock.learn(self._written)

    def store(self, address: int, word: int, *, adds: bool = False) -> None:
        """`adds`: to what is there, in one step."""
        region = self.region(address, 4)
        access = self.chip.scheduler.access()
        if access is not None:
            self.signals.check(access, address, word, adds=adds)
        if not isinstance(region, SemaphoreRegion) or region.load(address) != word:
            self.signals.note(address, word, self.chip.scheduler.published(), adds=adds)
        if self.strict is not None:
            self.strict.writing(address, 4)
        region.store(address, word)
        if self._waiting:
            self._wake(address, 4)

    def what_is_at(self, address: int) -> tuple[str, bool]:
        for fifo in self.fifos.values():
            page, _ = divmod(address - fifo.address, fifo.page_size)
            if 0 <= page < fifo.capacity:
                return f"page {page} of circular buffer {fifo.index} on {self}", True
        return f"{self.region(address, 1).name} on {self}", False

    def tell_unwritten(self, address: int) -> None:
        """All bytes that a kernel reads are as the program before has left them."""
        thread = running()
        if thread is None:
            return
        what, _ = self.what_is_at(address)
        self.chip.launch_state.findings.add(
            (thread.kernel, "unwritten"),
            f"{thread.name} reads {what}, and nobody has written to it in this program: on a chip it holds what was "
            "there before. Fill pages before cb_push_back, and call cb_wait_front before they are read.",
            is_strict=self.chip.is_strict,
        )

    def lacks_semaphore(self, address: int) -> bool:
        """Whether this is a place for semaphores, and none was made there."""
        return isinstance(self.region(address, WORD), SemaphoreRegion) and address not in self.semaphores.values()

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


# Strict mode: follows which bytes of circular buffers were ever written, which transfers are pending over them, and
# which pages are published. Each check names the call that is missing.


class StrictL1:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.pending_reads: list[PendingTransfer] = []  # reads whose data is not there yet
        self.pending_writes: list[PendingTransfer] = []  # writes whose source must not change yet
        self._written: dict[Region, bytearray] = {}

    def reading(self, address: int, size: int) -> None:
        for pending in self.pending_reads:
            if pending.overlaps(address, size):
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} are read while the noc_async_read of "
                    f"{pending.site} is still bringing them: call noc_async_read_barrier() before."
                )
        region = self._core.region(address, size)
        if isinstance(region, L1BufferRegion):
            region.memory.check_written(is_strict=True)
        if isinstance(region, CircularBufferRegion):
            unwritten = self._mask(region).find(0, address - region.start, address - region.start + size)
            if unwritten >= 0:
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} ({region.name}) are read, and "
                    f"nobody has written byte {region.start + unwritten}."
                )

    def writing(self, address: int, size: int) -> None:
        for pending in self.pending_writes:
            if pending.overlaps(address, size):
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} are overwritten while the "
                    f"noc_async_write of {pending.site} may still be reading them: call noc_async_writes_flushed() or "
                    "noc_async_write_barrier() before."
                )
        self._check_unpublished(address, size)
        region = self._core.region(address, size)
        if isinstance(region, CircularBufferRegion):
            start = address - region.start
            self._mask(region)[start : start + size] = b"\1" * size

    def _check_unpublished(self, address: int, size: int) -> None:
        for fifo in self._core.fifos.values():
            if not fifo.is_aliased and _overlaps_published(fifo, address, size):
                raise MeshError(
                    f"L1 bytes {address} to {address + size - 1} of {self._core} are overwritten while they are "
                    f"pages of circular buffer {fifo.index} that were pushed and not yet popped: write to a window "
                    f"that cb_reserve_back({fifo.index}, n) gave."
                )

    def reserving(self, fifo: Fifo, pages: int) -> None:
        size = pages * fifo.page_size
        for other in self._core.fifos.values():
            if other is not fifo and not fifo.is_aliased and _overlaps_published(other, fifo.write_pointer, size):
                raise MeshError(
                    f"cb_reserve_back({fifo.index}, {pages}) gives bytes that are pages of circular buffer "
                    f"{other.index}, pushed and not yet popped: the two share their memory. Pop those first, or give "
                    "each its own memory."
                )

    def pushing(self, fifo: Fifo, pages: int) -> None:
        if pages > fifo.reserved and not fifo.is_aliased:
            raise MeshError(
                f"cb_push_back({fifo.index}, {pages}) publishes more than the {fifo.reserved} pages that were "
                f"reserved: call cb_reserve_back({fifo.index}, {pages}) before."
            )
        for pending in self.pending_reads:
            if pending.overlaps(fifo.write_pointer, pages * fifo.page_size):
                raise MeshError(
                    f"cb_push_back({fifo.index}, {pages}) publishes bytes that the noc_async_read of {pending.site} "
                    "is still bringing: call noc_async_read_barrier() before."
                )

    def popping(self, fifo: Fifo, pages: int) -> None:
        if pages > fifo.waited:
            raise MeshError(
                f"cb_pop_front({fifo.index}, {pages}) gives back more than the {fifo.waited} pages that were waited "
                f"for: call cb_wait_front({fifo.index}, {pages}) before."
            )
        for pending in self.pending_writes:
            if pending.overlaps(fifo.read_pointer, pages * fifo.page_size):
                raise MeshError(
                    f"cb_pop_front({fifo.index}, {pages}) gives back bytes that the noc_async_write of {pending.site} "
                    "may still be reading: call noc_async_writes_flushed() or noc_async_write_barrier() before."
                )

    def flushed(self, pending: PendingTransfer) -> None:
        if pending in self.pending_writes:
            self.pending_writes.remove(pending)

    def _mask(self, region: CircularBufferRegion) -> bytearray:
        if region not in self._written:
            self._written[region] = bytearray(region.end - region.start)
        return self._written[region]


def _overlaps_published(fifo: Fifo, address: int, size: int) -> bool:
    first, count = fifo.popped % fifo.capacity, fifo.available
    before_the_end = min(count, fifo.capacity - first)
    stretches = ((first, before_the_end), (0, count - before_the_end))
    return any(
        pages
        and address < fifo.address + (at + pages) * fifo.page_size
        and fifo.address + at * fifo.page_size < address + size
        for at, pages in stretches
    )
