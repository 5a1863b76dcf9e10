"""Who runs next: kernels block as plain functions do, and take turns in an order that is always the same.

A thread runs until it must wait. What it waits for keeps a list of who waits there, and whoever changes
it puts them back in line. When nobody is left in line and some still wait, the program is stuck.
Knows turns only: nothing of memory, cores or chips beyond the names in its errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from softmesh.kernels.engine.stuck import Stuck
from softmesh.kernels.engine.watchdog import TIMEOUT, OutOfTime, Watch, seconds_allowed

if TYPE_CHECKING:
    from softmesh.kernels.engine.thread import KernelThread

_MOST_IDLE_POLLS = 10_000  # in a row, with nothing else happening anywhere


class Scheduler:
    def __init__(self) -> None:
        self.threads: list[KernelThread] = []
        self._line: deque[KernelThread] = deque()
        self._errands: deque[Callable[[], None]] = deque()
        self._idle_polls = 0
        self._running: KernelThread | None = None

    def add(self, thread: KernelThread) -> None:
        self.threads.append(thread)
        self._line.append(thread)

    def wake(self, waiting: list[KernelThread]) -> None:
        """Back in line, in the order in which they came to wait."""
        self._line.extend(waiting)
        waiting.clear()
        self._idle_polls = 0

    def later(self, errand: Callable[[], None]) -> None:
        """Done as soon as the running thread stops: what the fabric carries travels meanwhile."""
        self._errands.append(errand)

    def pass_turn(self, thread: KernelThread) -> None:
        """Let the others go first: a loop that asks again and again must not keep them from answering."""
        self._idle_polls += 1
        if self._idle_polls <= _MOST_IDLE_POLLS:
            self._line.append(thread)
        thread.pause()

    def run(self) -> None:
        seconds = seconds_allowed()
        try:
            with Watch(seconds) as watch:
                self._take_turns(watch)
            waiting = [thread for thread in self.threads if not thread.dead]
            if waiting:
                raise Stuck("The program is stuck: no kernel can go on.", waiting)
        except OutOfTime:
            busy = [thread for thread in self.threads if thread is self._running or not thread.dead]
            raise Stuck(
                f"The program has run for {seconds:g} s, which is all that {TIMEOUT} allows.", busy
            ) from None
        finally:
            for thread in self.threads:
                thread.end()

    def dismiss(self) -> None:
        for thread in self.threads:
            thread.dismiss()
        for held in (self.threads, self._line, self._errands):
            held.clear()
        self._running = None

    def _take_turns(self, watch: Watch) -> None:
        line, errands = self._line, self._errands
        while line:
            thread = line.popleft()
            if thread.asking is None:
                self._idle_polls = 0
            watch.check()
            self._running = thread
            thread.switch()
            while errands:
                errands.popleft()()
