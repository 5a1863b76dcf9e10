"""NoC transfers of a kernel, from their call to the barrier that waits for them.

Normally a transfer is complete when the call returns, and barriers have nothing to wait for; what is touched before
them is told. In strict mode data arrives at the barrier and not before, so that a kernel without one computes with what
was there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError
from softmesh.kernels.engine.memory_order import LASTING, Access
from softmesh.kernels.engine.page_contents import Content, check_stored
from softmesh.kernels.engine.scheduler import Carried
from softmesh.kernels.engine.simulated_chip import DramBank
from softmesh.kernels.engine.worker_core import WORD, Core
from softmesh.strictness import doubt

if TYPE_CHECKING:
    from softmesh.kernels.engine.fifo import Fifo
    from softmesh.kernels.engine.scheduler import KernelThread

Endpoint = Core | DramBank


class Transfers:
    """Every transfer is carried out at once; that nobody waits for it is told, and does no harm."""

    def __init__(self, thread: KernelThread) -> None:
        self.thread = thread
        self.core = thread.core
        self.trid = 0  # the transaction id that reads and writes are tagged with
        self._reading: dict[int, Access] = {}  # reads that no barrier has waited for, by their transaction id
        self._writing: dict[tuple[Endpoint, int], list[Access]] = {}  # and writes, by where they go, too

        self._words: dict[int, tuple[int, int]] = {}  # that are copied to other cores: the value, and the step
        self._raised = 0  # the step that raised a semaphore, unless a barrier has waited for it

    def read(self, source: Endpoint, address: int, size: int, to: int) -> None:
        self._check(source, address, to, size, is_read=True)
        access = self._reading.get(self.trid)
        if access is None:
            access = self._reading[self.trid] = Access(self.thread.clock, "noc_async_read")
        self.core.write(to, source.read(address, size, access), access)
        self.core.note_content(to, size, source.content_at(address))

    def write(self, start: int, size: int, target: Endpoint, address: int) -> None:
        self._check(target, address, start, size, is_read=False)
        if size <= WORD and isinstance(target, Core):
            self.before_word(target)
        accesses = self._writing.setdefault((target, self.trid), [])
        if not accesses or accesses[-1].left != LASTING:
            accesses.append(Access(self.thread.clock, "noc_async_write"))
        access = accesses[-1]
        content = self._stored(start, target, address)
        target.write(address, self.core.read(start, size, access), access)
        if isinstance(target, Core):
            target.note_content(address, size, content)

    def _stored(self, start: int, target: Endpoint, address: int) -> Content | None:
        """What is about to be written."""
        content = self.core.content_at(start)
        if content is not None:
            check_stored(self.thread, "noc_async_write", content, target.content_at(address))
        return content

    def read_barrier(self, trid: int | None = None) -> None:
        """Wait for the reads under way."""
        for number in list(self._reading) if trid is None else {trid} & self._reading.keys():
            self._reading.pop(number).end()

    def write_barrier(self, trid: int | None = None) -> None:
        """Wait until the writes under way have arrived."""
        self._words.clear()
        self._end([key for key in self._writing if trid is None or key[1] == trid])

    def pushing(self, fifo: Fifo, pages: int) -> None:
        """These pages are about to be published."""
        start, end = fifo.write_pointer, fifo.write_pointer + pages * fifo.page_size
        if self._reading and self.core.touched.arrives(self.thread.clock, start, end):
            self.read_barrier()
            self._complain(
                f"push {fifo.index}",
                f"cb_push_back({fifo.index}, {pages}) publishes bytes that a noc_async_read may still be bringing: the "
                "consumer reads what was there before. Call noc_async_read_barrier() first.",
            )

    def arrive(self) -> bool:
        """Everything arrives, for it has had all the time there is; False where nothing was under way."""
        return False

    def atomic_barrier(self) -> None:
        """Wait until the semaphores that were raised are."""
        self._raised = 0

    def flush(self) -> None:
        """Wait until the writes under way have left, so that their source may change."""
        self._words.clear()
        for accesses in self._writing.values():
            accesses[-1].leave()

    def before_word(self, target: Core) -> None:
        """A word is about to be written to that core: on one NoC, writes to one place keep their order."""
        self._end([key for key in self._writing if key[0] is target])

    def before_increment(self, target: Core) -> None:
        """A word there is about to be counted up: this may overtake writes."""
        self._raised = self.thread.clock.step

    def copies_word(self, address: int, word: int) -> None:
        """A word of this core is about to be sent to others."""
        self._words[address] = word, self.thread.clock.step

    def before_set(self, address: int, to: int) -> None:
        """A word of this core is about to be set."""
        word, step = self._words.pop(address, (to, 0))
        if word != to and step > self.thread.clock.answered:
            self._complain(
                "word",
                f"{self.core.name_of(address)} is set to {to} while it may still be on its way to other cores as "
                f"{word}: they may get {to}. Call noc_async_writes_flushed() before, or send a word that stays.",
            )

    def check_completed(self) -> None:
        """The kernel has come to its end."""
        if self._writing:
            self._complain(
                "end of writes",
                "The kernel ends while its noc_async_write may still be under way: the program counts as done before "
                "the bytes are there. Call noc_async_write_barrier() at the end.",
            )
        if self._reading:
            self._complain(
                "end of reads",
                "The kernel ends while its noc_async_read may still be under way: the bytes come into memory that "
                "belongs to the next program by then. Call noc_async_read_barrier() at the end.",
            )
        self._check_raised()

    def _check_raised(self) -> None:
        if self._raised > self.thread.clock.answered:
            doubt(
                "The kernel ends while a semaphore that it raised on another core may still be on its way: it may come "
                "when the next program has set it back. Call noc_async_atomic_barrier() at the end. "
                f"[{self.thread.name}]",
                at=self.thread.kernel.site,
            )

    def _end(self, keys: Iterable[tuple[Endpoint, int]]) -> None:
        for key in keys:
            for access in self._writing.pop(key):
                access.end()

    def _check(self, far: Endpoint, far_address: int, near_address: int, size: int, *, is_read: bool) -> None:
        if size <= 0:
            raise MeshError(f"A transfer of {size} bytes: give a size above 0.")
        chip = self.core.chip.mesh.system.chip
        alignment = chip.dram_alignment if is_read and isinstance(far, DramBank) else chip.l1_alignment
        if far_address % alignment != near_address % alignment:
            self._complain(
                "alignment",
                f"A NoC {'read from' if is_read else 'write to'} {far}: address {far_address} there and "
                f"{near_address} in L1 must be alike modulo {alignment}, or the chip moves other bytes than these.",
            )

    def _complain(self, kind: str, message: str) -> None:
        self.thread.complain(kind, message)


@dataclass(eq=False)
class PendingTransfer:
    """Bytes between two places. `near` and `size` are the stretch of the kernel's own L1."""

    near: int
    size: int
    values: torch.Tensor
    target: Endpoint
    address: int
    trid: int
    site: CallSite
    content: Content | None

    def overlaps(self, address: int, size: int) -> bool:
        return address < self.near + self.size and self.near < address + size

    def reaches(self, address: int, size: int) -> bool:
        """At its other end."""
        return address < self.address + self.size and self.address < address + size

    def complete(self) -> None:
        self.target.write(self.address, self.values)
        if isinstance(self.target, Core):
            self.target.note_content(self.address, self.size, self.content)


class DelayedTransfers(Transfers):
    """Strict mode: everything stays in the air until its barrier."""

    def __init__(self, thread: KernelThread) -> None:
        super().__init__(thread)
        assert thread.core.strict is not None
        self._strict = thread.core.strict
        self._reads: list[PendingTransfer] = []
        self._writes: list[PendingTransfer] = []

    def read(self, source: Endpoint, address: int, size: int, to: int) -> None:
        self._check(source, address, to, size, is_read=True)
        self._check_arrived(source, address, size)
        values = source.read(address, size)
        content = source.content_at(address)
        pending = PendingTransfer(to, size, values, self.core, to, self.trid, user_call_site(), content)
        self._reads.append(pending)
        self._strict.pending_reads.append(pending)

    def write(self, start: int, size: int, target: Endpoint, address: int) -> None:
        self._check(target, address, start, size, is_read=False)
        content = self._stored(start, target, address)
        values = self.core.read(start, size)
        pending = PendingTransfer(start, size, values, target, address, self.trid, user_call_site(), content)
        self._writes.append(pending)
        self._strict.pending_writes.append(pending)

    def _check_arrived(self, source: Endpoint, address: int, size: int) -> None:
        for pending in self._writes:
            if pending.target is source and pending.reaches(address, size):
                raise MeshError(
                    f"Bytes {address} to {address + size - 1} of {source} are read while the noc_async_write of "
                    f"{pending.site} to them may still be under way: call noc_async_write_barrier() before."
                )

    def read_barrier(self, trid: int | None = None) -> None:
        for pending in _of(self._reads, trid):
            self._reads.remove(pending)
            self._strict.pending_reads.remove(pending)
            pending.complete()

    def write_barrier(self, trid: int | None = None) -> None:
        super().write_barrier(trid)
        self._complete(_of(self._writes, trid))

    def arrive(self) -> bool:
        issued, clock = list(self._writes), self.thread.clock
        if issued:
            with self.thread.scheduler.delivering(Carried(clock.now(), clock.published())):
                self._complete(issued)
        return bool(issued)

    def flush(self) -> None:
        super().flush()
        for pending in self._writes:
            self._strict.flushed(pending)

    def before_word(self, target: Core) -> None:
        self._complete([pending for pending in self._writes if pending.target is target])

    def before_increment(self, target: Core) -> None:
        super().before_increment(target)
        for pending in self._writes:
            if pending.target is target:
                raise MeshError(
                    f"A semaphore of {target} is raised while the write of {pending.site} to that core may still be "
                    "under way: the other side would read old bytes. Call noc_async_write_barrier() before."
                )

    def check_completed(self) -> None:
        for issued, call in (
            (self._reads, "noc_async_read_barrier"),
            (self._writes, "noc_async_write_barrier"),
        ):
            if issued:
                raise MeshError(
                    f"The kernel ends while the transfer of {issued[0].site} is under way: call {call}() at the end."
                )
        self._check_raised()

    def _complete(self, issued: list[PendingTransfer]) -> None:
        for pending in issued:
            self._writes.remove(pending)
            self._strict.flushed(pending)
            pending.complete()


def _of(issued: list[PendingTransfer], trid: int | None) -> list[PendingTransfer]:
    return [pending for pending in issued if trid is None or pending.trid == trid]
