"""What a data movement kernel has under way on the NoC.

Normally a transfer is over when the call returns, and barriers have nothing to wait for. In strict mode
data arrives at the barrier and not before, so that a kernel without one computes with what was there.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.kernels.engine.chip import DramBank
from softmesh.kernels.engine.core import Core

if TYPE_CHECKING:
    from softmesh.kernels.engine.thread import KernelThread

Endpoint = Core | DramBank


class Transfers:
    """Every transfer is carried out at once."""

    def __init__(self, thread: KernelThread) -> None:
        self.thread = thread
        self.core = thread.core
        self.trid = 0  # the transaction id that reads and writes are tagged with

    def read(self, source: Endpoint, address: int, size: int, to: int) -> None:
        self._check(source, address, to, size, is_read=True)
        self.core.write(to, source.read(address, size))

    def write(self, start: int, size: int, target: Endpoint, address: int) -> None:
        self._check(target, address, start, size, is_read=False)
        target.write(address, self.core.read(start, size))

    def read_barrier(self, trid: int | None = None) -> None:
        """Wait for the reads under way."""

    def write_barrier(self, trid: int | None = None) -> None:
        """Wait until the writes under way have arrived."""

    def flush(self) -> None:
        """Wait until the writes under way have left, so that their source may change."""

    def before_word(self, target: Core) -> None:
        """A word is about to be written to that core: on one NoC, writes to one place keep their order."""

    def before_increment(self, target: Core) -> None:
        """A word there is about to be counted up: this may overtake writes."""

    def at_the_end(self) -> None:
        """The kernel has come to its end."""

    def _check(self, far: Endpoint, far_address: int, near_address: int, size: int, *, is_read: bool) -> None:
        if size <= 0:
            raise MeshError(f"A transfer of {size} bytes: give a size above 0.")
        chip = self.core.chip.mesh.system.chip
        alignment = chip.dram_alignment if is_read and isinstance(far, DramBank) else chip.l1_alignment
        if far_address % alignment != near_address % alignment:
            self._complain(
                f"A NoC {'read from' if is_read else 'write to'} {far}: address {far_address} there and "
                f"{near_address} in L1 must be alike modulo {alignment}, or the chip moves other bytes than these."
            )

    def _complain(self, message: str) -> None:
        if self.core.chip.is_strict:
            raise MeshError(message)
        site = user_call_site()
        warnings.warn_explicit(f"{message} [{self.thread.name}]", SoftmeshWarning, site.file, site.line)


@dataclass(eq=False)
class Flight:
    """Bytes between two places. `near` and `size` are the stretch of the kernel's own L1."""

    near: int
    size: int
    values: torch.Tensor
    target: Endpoint
    address: int
    trid: int
    site: CallSite

    def overlaps(self, address: int, size: int) -> bool:
        return address < self.near + self.size and self.near < address + size

    def land(self) -> None:
        self.target.write(self.address, self.values)


class DelayedTransfers(Transfers):
    """Strict mode: everything stays in the air until its barrier."""

    def __init__(self, thread: KernelThread) -> None:
        super().__init__(thread)
        assert thread.core.strict is not None
        self._strict = thread.core.strict
        self._reads: list[Flight] = []
        self._writes: list[Flight] = []

    def read(self, source: Endpoint, address: int, size: int, to: int) -> None:
        self._check(source, address, to, size, is_read=True)
        values = source.read(address, size)
        flight = Flight(to, size, values, self.core, to, self.trid, user_call_site())
        self._reads.append(flight)
        self._strict.arriving.append(flight)

    def write(self, start: int, size: int, target: Endpoint, address: int) -> None:
        self._check(target, address, start, size, is_read=False)
        values = self.core.read(start, size)
        flight = Flight(start, size, values, target, address, self.trid, user_call_site())
        self._writes.append(flight)
        self._strict.leaving.append(flight)

    def read_barrier(self, trid: int | None = None) -> None:
        for flight in _of(self._reads, trid):
            self._reads.remove(flight)
            self._strict.arriving.remove(flight)
            flight.land()

    def write_barrier(self, trid: int | None = None) -> None:
        self._land(_of(self._writes, trid))

    def flush(self) -> None:
        for flight in self._writes:
            self._strict.left(flight)

    def before_word(self, target: Core) -> None:
        self._land([flight for flight in self._writes if flight.target is target])

    def before_increment(self, target: Core) -> None:
        for flight in self._writes:
            if flight.target is target:
                raise MeshError(
                    f"A semaphore of {target} is raised while the write of {flight.site} to that core may still be "
                    "under way: the other side would read old bytes. Call noc_async_write_barrier() before."
                )

    def at_the_end(self) -> None:
        for flights, call in (
            (self._reads, "noc_async_read_barrier"),
            (self._writes, "noc_async_write_barrier"),
        ):
            if flights:
                raise MeshError(
                    f"The kernel ends while the transfer of {flights[0].site} is under way: call {call}() at the end."
                )

    def _land(self, flights: list[Flight]) -> None:
        for flight in flights:
            self._writes.remove(flight)
            self._strict.left(flight)
            flight.land()


def _of(flights: list[Flight], trid: int | None) -> list[Flight]:
    return [flight for flight in flights if trid is None or flight.trid == trid]
