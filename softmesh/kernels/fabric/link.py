"""A worker's end of a link: slots for packets that have not left yet, and their way to where they are written.

What a kernel sends travels while other kernels run, in order on each link. A slot is free again once its
packet has arrived: that is the credit a sender waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from softmesh.callsite import user_call_site
from softmesh.errors import MeshError, SoftmeshError
from softmesh.fabric import settings
from softmesh.fabric.routing.packets import payload_bytes
from softmesh.hardware import Arch, RoutingDirection
from softmesh.kernels.engine.chip import Chip
from softmesh.kernels.engine.thread import KernelThread, Wait
from softmesh.kernels.fabric.ways import Ways

# The fewest slots that the fabric has for a worker, in 1-D and in 2-D.
_SLOTS = {Arch.WORMHOLE_B0: (8, 4), Arch.BLACKHOLE: (8, 8)}


class Link:
    """Shared by all connections of one chip in one direction on one plane; one of them is open at a time."""

    def __init__(self, chip: Chip, ways: Ways, direction: RoutingDirection, plane: int) -> None:
        self.chip = chip
        self.ways = ways
        self.direction = direction
        self.plane = plane
        self.slots = _SLOTS[chip.mesh.arch()][ways.is_two_dimensional]
        self.free = self.slots
        self.holder: KernelThread | None = None
        chosen, largest = settings.active().max_payload, chip.mesh.system.chip.largest_packet_bytes
        self.max_payload = payload_bytes(chosen, largest)
        self._for_slots: list[KernelThread] = []

    def __str__(self) -> str:
        return f"link {self.plane} {self.direction.name} of {self.chip.name}"

    def open(self, thread: KernelThread) -> None:
        if self.holder is not None and self.holder is not thread:
            raise MeshError(
                f"The {self} is in use by {self.holder.name}: one worker holds a link at a time. Give them different "
                "link indexes, or let the first close() its connection."
            )
        self.holder = thread

    def close(self) -> None:
        self.holder = None

    def wait_for_slot(self, thread: KernelThread) -> None:
        if not self.free:
            wait = Wait(
                f"wait_for_empty_write_slot() on the {self}",
                lambda: f"{self.free} of {self.slots} slots are free",
            )
            thread.wait_for(lambda: self.free > 0, self._for_slots, wait)

    def wait_until_sent(self, thread: KernelThread) -> None:
        if self.free < self.slots:
            wait = Wait(
                f"a blocking send on the {self}", lambda: f"{self.free} of {self.slots} slots are free"
            )
            thread.wait_for(lambda: self.free == self.slots, self._for_slots, wait)

    def send(self, thread: KernelThread, deliver: Callable[[], None]) -> None:
        """Take a slot, and have the packet delivered as soon as others have a turn."""
        if self.holder is not thread:
            raise MeshError(f"The connection to the {self} is not open: call open() before sending.")
        if not self.free:
            raise MeshError(
                f"The {self} has no free slot: call wait_for_empty_write_slot() before each packet."
            )
        self.free -= 1
        where = f"{thread.name}, {user_call_site()}"

        def arrive() -> None:
            self.free += 1
            try:
                deliver()
            except SoftmeshError as error:
                error.args = (f"{error} [a packet of {where}]",)
                raise
            self.chip.scheduler.wake(self._for_slots)

        self.chip.scheduler.later(arrive)
