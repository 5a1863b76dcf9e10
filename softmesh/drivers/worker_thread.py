"""A worker thread with a task queue, and tasks that others can wait for with a deadline."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from softmesh.drivers.protocol import Event
from softmesh.errors import MeshError


class Task(Event):
    """Work that is done once `finish` was called, by whoever did it; what it says first counts."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.result: Any = None
        self.error: BaseException | None = None
        self._done = threading.Event()
        self._finishing = threading.Lock()

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        with self._finishing:
            if not self._done.is_set():
                self.result, self.error = result, error
                self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float) -> Any:
        """The result. Raises what the work raised, or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"{self.what} did not finish within {timeout:g} s")
        if self.error is not None:
            raise self.error
        return self.result


class Worker:
    """Runs what is posted to it, in order. Its thread starts with the first task and keeps no program alive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: SimpleQueue[tuple[Task, Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def post(self, what: str, work: Callable[[], Any]) -> Task:
        task = Task(what)
        self._tasks.put((task, work))
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=_serve, args=(self._tasks,), name=self.name, daemon=True)
                self._thread.start()
        return task

    def close(self, grace: float) -> None:
        """No more tasks. Those posted have so long to come to their end."""
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(grace)
            if self._thread.is_alive():
                self.drop("its card was closed")

    def drop(self, reason: str) -> None:
        """No more tasks, and none of those that have not begun. Waits for nothing."""
        with contextlib.suppress(Empty):
            while (posted := self._tasks.get_nowait()) is not None:
                posted[0].finish(error=MeshError(f"{posted[0].what} did not begin: {reason}"))
        self._tasks.put(None)


def _serve(tasks: SimpleQueue[tuple[Task, Callable[[], Any]] | None]) -> None:
    while (posted := tasks.get()) is not None:
        task, work = posted
        try:
            task.finish(work())
        except BaseException as error:  # whoever waits for the task hears of it, whatever it is
            task.finish(error=error)
        del posted, task, work  # a waiting worker keeps nothing alive


class Deadline:
    """A time by which several waits must all be over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())
