"""Checks after a kernel launch: pages left in circular buffers, open connections, semaphores that were never reset.

Circular buffers begin empty at each launch, so that pages which are left are lost. Global semaphores keep their value:
a kernel that waits for one which an earlier launch has met, and nobody has set back since, does not wait at all.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from softmesh.callsite import CallSite, user_call_site
from softmesh.errors import MeshError
from softmesh.kernels.engine.scheduler import DevicesDiffer
from softmesh.kernels.engine.worker_core import Core, L1BufferRegion
from softmesh.runtime.buffers.mesh_memory import MemoryWithLayout, TensorVersion
from softmesh.strictness import doubt, warn_or_raise

if TYPE_CHECKING:
    from softmesh.kernels.engine.fifo import Fifo
    from softmesh.kernels.engine.simulated_chip import SimulatedChip

IsMet = Callable[[int], bool]
Place = tuple[str, object, int]  # devices, core and address


class Met(NamedTuple):
    """A wait that has come to its end, for the word of a semaphore that stays when the launch is over."""

    core: Core
    address: int
    is_met: IsMet
    memory: MemoryWithLayout
    site: CallSite

    @property
    def place(self) -> Place:
        return self.core.chip.name, self.core.place, self.address


class Consumed(NamedTuple):
    """The value that a wait of an earlier launch was met by, and the memory as it was after that launch."""

    value: int
    version: TensorVersion
    site: CallSite


# Of each memory that semaphores lie in.
_CONSUMED: weakref.WeakKeyDictionary[MemoryWithLayout, dict[Place, Consumed]] = weakref.WeakKeyDictionary()


class SemaphoreWaits:
    """The waits of one launch."""

    def __init__(self) -> None:
        self._met: dict[Place, Met] = {}
        self._stale: dict[Place, str] = {}

    def note(self, call: str, core: Core, address: int, is_met: IsMet) -> None:
        """A wait was met. Semaphores of the program itself begin anew at each launch."""
        region = None if address in core.semaphores.values() else core.region(address, 4)
        if not isinstance(region, L1BufferRegion):
            return
        met = Met(core, address, is_met, region.memory.paged, user_call_site())
        if met.place in self._met:
            return
        self._met[met.place] = met
        before = _CONSUMED.get(met.memory, {}).get(met.place)
        if before is not None and is_met(before.value) and before.version.is_unchanged(met.memory.data):
            self._stale[met.place] = (
                f"{call} [{met.site}] on {core} of {core.chip.name}: the global semaphore at {address} stood at "
                f"{before.value} when the program began, as an earlier launch left it that had waited for it "
                f"[{before.site}]. It is met before anybody signals. Set it back behind the wait, "
                "noc_semaphore_set(address, 0), or between the launches, "
                "ttnn.reset_global_semaphore_value(semaphore, 0)."
            )

    def values(self) -> dict[Place, tuple[Met, int]]:
        """Of those that still hold what was waited for, at the end of the launch."""
        found = {}
        for place, met in self._met.items():
            try:
                value = met.core.word(met.address)
            except DevicesDiffer:
                continue
            if met.is_met(value):
                found[place] = met, value
        return found

    def tell(self) -> None:
        for message in self._stale.values():
            warn_or_raise(message)


def remember(values: dict[Place, tuple[Met, int]]) -> None:
    """After the memory was written: for launches to come."""
    for place, (met, value) in values.items():
        known = _CONSUMED.setdefault(met.memory, {})
        known[place] = Consumed(value, TensorVersion(met.memory.data), met.site)


def tell_open_connections(chips: Iterable[SimulatedChip]) -> None:
    for chip in chips:
        for link in chip.links.values():
            if link.holder is not None:
                message = (
                    f"{link.holder.name} ends, and its connection to the {link} is open still: the fabric goes on "
                    "serving it, and the next worker that opens one waits for ever. Call close() at the end."
                )
                if chip.is_strict:
                    raise MeshError(message)
                warn_or_raise(message)


def tell_undrained(chips: Iterable[SimulatedChip]) -> None:
    """Of kernels that run on many cores, once."""
    told: set[tuple[object, ...]] = set()
    for chip in chips:
        for core in chip.cores():
            for fifo in core.fifos.values():
                key = fifo.index, fifo.ends()
                if fifo.available and not fifo.is_aliased and key not in told:
                    told.add(key)
                    _tell_pages_left(fifo, f"circular buffer {fifo.index} on {core} of {chip.name}", chip.is_strict)


def _tell_pages_left(fifo: Fifo, where: str, is_strict: bool) -> None:
    """Those that were waited for may be constants, and what nobody ever takes from may be room to work in."""
    lost = fifo.available - fifo.waited
    producer, consumer = fifo.ends()
    if lost > 0 and consumer is not None:
        message = (
            f"The program ends with {lost} of {fifo.pushed} pages in {where} that were pushed by {producer} and that "
            f"nobody waited for: they are lost. Let {consumer} take as many as are pushed: cb_wait_front({fifo.index}, "
            f"n) and cb_pop_front({fifo.index}, n)."
        )
        if is_strict:
            raise MeshError(message)
        warn_or_raise(message)
    elif is_strict and (fifo.popped or consumer is None):
        taken = "that nobody ever takes from" if consumer is None else f"of which {fifo.popped} were popped"
        doubt(
            f"The program ends with {fifo.available} of {fifo.pushed} pages in {where}, {taken}. Was a "
            f"cb_pop_front({fifo.index}, n) forgotten?",
        )
