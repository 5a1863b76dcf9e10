"""Vector clocks of kernels: what each has done and knows of others, and what it does to memory until a barrier.

A kernel knows what another has done where it waited for it: pages of a circular buffer that were pushed or popped, a
word in L1 that was set (a semaphore, a flag). A transfer is done when its barrier is, and not when its call returns.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softmesh.kernels.engine.scheduler import KernelThread

Known = dict[int, int]  # by the number of a thread, how many of its steps are known to be over
PACKET = "packet"  # a transfer to another chip that no later packet of its link has followed yet
LASTING = sys.maxsize  # the step at which a transfer is done, as long as there was no barrier


class Clock:
    """What one kernel thread has done, and knows of others."""

    __slots__ = ("_now", "answered", "known", "number", "thread")

    def __init__(self, thread: KernelThread, number: int) -> None:
        self.thread = thread
        self.number = number
        self.known: Known = {number: 1}
        self.answered = 0  # the last of its own steps that somebody knew of whom it has waited for
        self._now: Access | None = None

    @property
    def step(self) -> int:
        return self.known[self.number]

    def published(self) -> Known:
        """For whoever waits for this: all up to here. What comes after is not part of it."""
        known = self.known.copy()
        self.known[self.number] += 1
        self._now = None
        return known

    def now(self) -> Access:
        """What the kernel does in this step."""
        if self._now is None:
            self._now = Access(self)
        return self._now

    def learn(self, known: Known | None) -> None:
        if known:
            own = known.get(self.number, 0)
            if own > self.answered:
                self.answered = own
            join(self.known, known)


def join(known: Known, other: Known) -> None:
    for number, count in other.items():
        if known.get(number, 0) < count:
            known[number] = count


class Access:
    """What a kernel reads and writes in one of its steps; or from a step on, by transfers that no barrier has ended."""

    __slots__ = ("clock", "left", "number", "over", "step", "transfer")

    def __init__(self, clock: Clock, transfer: str = "") -> None:
        self.clock = clock
        self.number = clock.number
        self.step = step = clock.known[clock.number]
        self.transfer = transfer  # the call
        self.left = self.over = LASTING if transfer else step  # when all is read, and when all is written

    @property
    def thread(self) -> KernelThread:
        return self.clock.thread

    def end(self) -> None:
        """A barrier has waited for it."""
        step = self.clock.known[self.number]
        if self.left == LASTING:
            self.left = step
        if self.over == LASTING:
            self.over = step

    def leave(self) -> None:
        """Its source may change."""
        if self.left == LASTING:
            self.left = self.clock.known[self.number]

    def arrive(self) -> None:
        """Somebody has seen it there: whoever waited for the step that began it knows as much."""
        self.left = min(self.left, self.step)
        self.over = min(self.over, self.step)

    def is_known_to(self, clock: Clock) -> bool:
        return clock.known.get(self.number, 0) >= self.over
