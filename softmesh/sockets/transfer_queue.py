"""The queue of socket transfers: each begins when the earlier ones on its devices are over, as in a chip's queue.

A transfer (`Task`) is a generator that yields while it cannot go on; it is pending until it is done, with or without
an error. Progress is cooperative: a thread that waits for one transfer steps all of them. While no thread waits and
another process is involved, a background thread makes progress, as a chip would; it ends some time after the last
transfer. A task is orphaned when its mesh was closed before anything came: it ends with the error `stuck`.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from softmesh.callsite import RawSite, resolved
from softmesh.errors import MeshError
from softmesh.processes import current_context
from softmesh.processes.context import Pending
from softmesh.processes.waits import Wait
from softmesh.runtime.device import MeshDevice

_FIRST_PAUSE, _LONGEST_PAUSE = 1e-4, 2e-3
_LINGER = 0.5  # seconds
_SECONDS_TO_STOP = 5.0


class LocalStream(Protocol):
    """The stream of one socket within this process; `senders` are the devices that fill it."""

    senders: frozenset[int]

    def blocked(self) -> MeshError | None:
        """Why a chip would wait for ever, where what was sent does not fit into the FIFO."""


@dataclass(eq=False)
class Task:
    """One send or receive. `stuck` is why nothing can come, where no other process is involved."""

    steps: Iterator[None]
    mesh: MeshDevice
    devices: frozenset[int]
    stream: object  # the stream of its socket
    sends: bool
    stuck: Callable[[], MeshError]
    wait: Callable[[], Wait] | None = None  # for another process
    ready: Callable[[], bool] | None = None  # a cheap look whether a step would lead anywhere
    origin: RawSite | None = None  # the line that asked for it
    done: bool = field(default=False, init=False)
    error: Exception | None = field(default=None, init=False)

    @property
    def is_orphaned(self) -> bool:
        """Its mesh was closed before anything came; its devices may belong to another mesh by now."""
        return self.wait is None and not self.mesh.is_open

    def step(self) -> None:
        try:
            next(self.steps)
        except StopIteration:
            self.done = True
        except Exception as error:  # kept for the thread that waits for it
            self.error, self.done = self.placed(error), True

    def placed(self, error: Exception) -> Exception:
        """Add the line that asked for it: the program may be anywhere by now."""
        if self.origin is not None:
            error.args = (f"{error} It was asked for at {resolved(self.origin)}.", *error.args[1:])
        return error


class Transfers:
    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._failed: list[Task] = []
        self._outgoing: list[Pending] = []
        self.lock = threading.RLock()  # for several steps that nothing may come between
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._rounds = 0
        self.part: Callable[[], None] = lambda: None  # from the other ends of sockets, when the program has ended

    def submit(self, task: Task) -> None:
        """Begin it, or put it behind those that its devices still do; returns at once."""
        with self.lock:
            self._raise_failed()
            self._tasks.append(task)
            self.advance()
            if task.error is not None:
                self.result(task)
            self._ensure_thread()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing that a new transfer would have to wait for."""
        return not (self._tasks or self._failed)

    def remove(self, task: Task) -> None:
        with self.lock:
            self._tasks.remove(task)

    def track_send(self, pending: Pending) -> None:
        """Something that left, and only has to be seen off."""
        if not pending.test():
            self._outgoing.append(pending)

    def advance(self) -> None:
        with self.lock:
            if len(self._tasks) == 1 and not self._outgoing:
                self._advance_single(self._tasks[0])
                return
            while self._advance_all_once():
                pass

    def _advance_single(self, task: Task) -> None:
        """What a round does, where there is nothing to be kept in order."""
        self._rounds += 1
        if task.is_orphaned:
            task.error, task.done = task.stuck(), True
            self._tasks.clear()
        elif task.ready is None or task.ready():
            task.step()
            if task.done:
                self._tasks.clear()
                if task.error is not None:
                    self._failed.append(task)

    def _advance_all_once(self) -> bool:
        """Whether something ended, which may let others begin."""
        self._rounds += 1
        self._outgoing = [pending for pending in self._outgoing if not pending.test()]
        busy: dict[int, Task] = {}
        left: list[Task] = []
        for task in self._tasks:
            if task.is_orphaned:
                task.error, task.done = task.stuck(), True
                continue
            is_worthwhile = task.ready is None or task.ready()
            if is_worthwhile and all(_may_follow(task, busy.get(device)) for device in task.devices):
                task.step()
            if not task.done:
                left.append(task)
                for device in task.devices:
                    busy[device] = task
            elif task.error is not None:
                self._failed.append(task)
        ended = len(left) < len(self._tasks)
        self._tasks = left
        return ended

    def result(self, task: Task) -> None:
        """Raise what went wrong with it."""
        if task in self._failed:
            self._failed.remove(task)
        if task.error is not None:
            raise task.error

    def _raise_failed(self) -> None:
        if self._failed:
            self.result(self._failed[0])

    def finish(self, task: Task) -> None:
        """Wait for it, and with it for all that its devices do before."""
        self.advance()
        while not task.done:
            blocker = self._blocker(task)
            if blocker.wait is None:
                raise blocker.placed(blocker.stuck())
            with blocker.wait() as wait:
                wait.origin = blocker.origin
                wait.until(self._progress_test(blocker))
            self.advance()
        self.result(task)

    def _progress_test(self, task: Task) -> Callable[[], bool]:
        """A look whether it is over, or may be: the cheapest, as it is asked often."""
        ready, is_alone = task.ready, len(self._tasks) == 1 and not self._outgoing
        if ready is None or not is_alone or ready():
            return partial(self._advance_and_test, task)
        return lambda: task.done or ready()

    def _advance_and_test(self, task: Task) -> bool:
        self.advance()
        return task.done

    def _blocker(self, task: Task) -> Task:
        """The one that has to move first."""
        with self.lock:
            for earlier in self._tasks:
                if earlier is task:
                    break
                if not earlier.devices.isdisjoint(task.devices):
                    return self._blocker(earlier)
            feeding = [other for other in self._tasks if other.sends and other.stream is task.stream]
            if task.wait is None and not task.sends and feeding:
                return self._blocker(feeding[0])
            return task

    def is_blocked_by_itself(self, task: Task) -> bool:
        return not task.done and self._blocker(task) is task

    def finish_all(self, devices: frozenset[int] | None = None) -> None:
        """Wait for whatever these devices do; None: for everything."""
        while self._tasks and (mine := self._of(devices)):
            self.finish(mine[0])
        self._raise_failed()

    def _of(self, devices: frozenset[int] | None) -> list[Task]:
        with self.lock:
            mine = [task for task in self._tasks if devices is None or not task.devices.isdisjoint(devices)]
            return [task for task in mine if not task.is_orphaned]

    # -- while nobody waits ------------------------------------------------------------------------

    def _ensure_thread(self) -> None:
        if self._thread is None and self._is_remote():
            self._thread = threading.Thread(target=self._progress_loop, name="softmesh-sockets", daemon=True)
            self._thread.start()

    def _is_remote(self) -> bool:
        return bool(self._outgoing) or any(task.wait is not None for task in self._tasks)

    def _progress_loop(self) -> None:
        """Keeps out of the way of who waits, and ends some time after the last transfer: a new start costs more."""
        pause, idle, rounds = _FIRST_PAUSE, 0.0, self._rounds
        while not self._ends.wait(pause):
            if self._rounds != rounds:  # somebody else looks after them
                pause, idle, rounds = _LONGEST_PAUSE, 0.0, self._rounds
                continue
            with self.lock:
                before = len(self._tasks)
                self.advance()
                rounds = self._rounds
                idle = 0.0 if self._is_remote() else idle + pause
                if idle > _LINGER:
                    self._thread = None
                    return
                moved = len(self._tasks) < before
            pause = _FIRST_PAUSE if moved else min(pause * 1.25, _LONGEST_PAUSE)

    def stop(self) -> None:
        """At the end of the process: everything is seen through, or the job ends with the reason."""
        thread = self._thread
        try:
            self.finish_all()
            self.part()
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr.flush()
            current_context.world_context().abort(1)
        self._ends.set()
        if thread is not None:
            thread.join(_SECONDS_TO_STOP)


def _may_follow(task: Task, before: Task | None) -> bool:
    """A send may enter its own socket behind another: they leave it in order anyhow."""
    return before is None or (task.sends and before.sends and task.stream is before.stream)


TRANSFERS = Transfers()
_LOCAL_STREAMS: weakref.WeakKeyDictionary[LocalStream, MeshDevice] = weakref.WeakKeyDictionary()


def watch_fifo(stream: LocalStream, mesh: MeshDevice) -> None:
    """Look at its FIFO when the sending mesh is waited for."""
    _LOCAL_STREAMS[stream] = mesh


def has_local_streams() -> bool:
    """Whether there is a socket within this process at all."""
    return bool(_LOCAL_STREAMS)


def check_room(devices: frozenset[int]) -> None:
    """Refuse to wait for devices that would wait themselves, as nobody takes what they sent."""
    for stream, mesh in tuple(_LOCAL_STREAMS.items()):
        if mesh.is_open and not stream.senders.isdisjoint(devices) and (problem := stream.blocked()):
            raise problem


def drain_at_exit() -> None:
    """Called once MPI is there: what is registered later runs earlier, so MPI still is when this runs."""
    atexit.unregister(TRANSFERS.stop)
    atexit.register(TRANSFERS.stop)
