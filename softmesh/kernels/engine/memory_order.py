"""Detects data races between kernels of a launch: DRAM that two touch, one to write, unordered by vector clocks.

A kernel knows what another has done where it waited for it: pages of a circular buffer that were pushed or popped, a
word in L1 that was set (a semaphore, a flag). Two that touch the same bytes, one of them to write, and neither of which
has waited for the other, come in any order on a chip. What is found is told when the launch has come to its end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.hardware.memory_config import BufferType
from softmesh.strictness import warn_or_raise

if TYPE_CHECKING:
    from softmesh.kernels.engine.scheduler import KernelThread
    from softmesh.kernels.engine.simulated_chip import SimulatedChip

Known = dict[int, int]  # by the number of a thread, how many of its steps are known to be over
_CHUNK = 11  # bits: touches are kept by stretches of so many bytes


class Clock:
    """What one kernel thread has done, and knows of others."""

    __slots__ = ("known", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.known: Known = {number: 1}

    def published(self) -> Known:
        """For whoever waits for this: all up to here. What comes after is not part of it."""
        known = dict(self.known)
        self.known[self.number] += 1
        return known

    def learn(self, known: Known | None) -> None:
        if known:
            join(self.known, known)


def join(known: Known, other: Known) -> None:
    for number, count in other.items():
        if known.get(number, 0) < count:
            known[number] = count


class Touch(NamedTuple):
    start: int
    end: int
    thread: KernelThread
    step: int  # of that thread

    def meets(self, start: int, end: int) -> bool:
        return self.start < end and start < self.end


class _Chunk:
    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes: list[Touch] = []
        self.reads: dict[KernelThread, Touch] = {}


class MemoryOrder:
    """Of one launch. With a single kernel there is nothing to order."""

    def __init__(self) -> None:
        self._chunks: defaultdict[tuple[SimulatedChip, int, int], _Chunk] = defaultdict(_Chunk)
        self._found: dict[tuple[object, ...], tuple[str, CallSite, bool]] = {}

    def reads(self, thread: KernelThread | None, chip: SimulatedChip, bank: int, address: int, size: int) -> None:
        """`thread` is None where the fabric acts for one that has gone on."""
        if thread is None or len(chip.scheduler.threads) == 1:
            return
        touch = Touch(address, address + size, thread, thread.clock.known[thread.clock.number])
        for chunk in self._touched(chip, bank, touch):
            for old in chunk.writes:
                if old.thread is not thread and old.meets(touch.start, touch.end):
                    self._check(chip, bank, old, "writes", touch, "reads")
            before = chunk.reads.get(thread)
            if before is not None:
                touch = touch._replace(start=min(before.start, address), end=max(before.end, touch.end))
            chunk.reads[thread] = touch

    def writes(self, thread: KernelThread | None, chip: SimulatedChip, bank: int, address: int, size: int) -> None:
        if thread is None or len(chip.scheduler.threads) == 1:
            return
        touch = Touch(address, address + size, thread, thread.clock.known[thread.clock.number])
        for chunk in self._touched(chip, bank, touch):
            for kind, olds in (("writes", chunk.writes), ("reads", list(chunk.reads.values()))):
                for old in olds:
                    if old.thread is not thread and old.meets(touch.start, touch.end):
                        self._check(chip, bank, old, kind, touch, "writes")
            chunk.writes = [old for old in chunk.writes if old.start < touch.start or touch.end < old.end]
            chunk.writes.append(touch)

    def _touched(self, chip: SimulatedChip, bank: int, touch: Touch) -> list[_Chunk]:
        return [self._chunks[chip, bank, at] for at in range(touch.start >> _CHUNK, (touch.end - 1 >> _CHUNK) + 1)]

    def _check(self, chip: SimulatedChip, bank: int, old: Touch, did: str, new: Touch, does: str) -> None:
        if new.thread.clock.known.get(old.thread.clock.number, 0) >= old.step:
            return
        key = old.thread.kernel, new.thread.kernel, did, does
        if key in self._found:
            return
        start = max(old.start, new.start)
        memory = chip.memory(BufferType.DRAM, start)
        place = memory.paged.page_at(bank, start)
        page = "" if place is None else f"page {place[0]} of "
        self._found[key] = (
            f"{old.thread.name} {did}, and {new.thread.name} {does} {page}the DRAM buffer at {memory.paged.address}, "
            "and neither has waited for the other: on a chip either may come first. Give each core pages of its own, "
            "or let one wait for a semaphore that the other sets behind its noc_async_write_barrier().",
            user_call_site(),
            chip.is_strict,
        )

    def tell(self) -> None:
        for message, site, is_strict in self._found.values():
            if is_strict:
                raise MeshError(f"{message} [{site}]")
            warn_or_raise(f"{message} [{site}]", SoftmeshWarning, MeshError)

    def drop_references(self) -> None:
        self._chunks.clear()
        self._found.clear()
