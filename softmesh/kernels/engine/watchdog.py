"""Timeout of a launch: a watchdog thread interrupts kernels that run past the deadline, even in a loop without calls.

Between turns the scheduler looks at the clock. For a kernel that never gives its turn away there is one
sleeping thread in the process; past the deadline it raises OutOfTime inside whatever runs.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from types import TracebackType

from softmesh.errors import MeshError

TIMEOUT = "TT_METAL_OPERATION_TIMEOUT_SECONDS"
_DEFAULT_SECONDS = 300.0


class OutOfTime(BaseException):
    """Raised in the midst of a kernel; no `except Exception` of its author may hold it back."""


def seconds_allowed() -> float:
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text) if text else _DEFAULT_SECONDS
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise MeshError(f"{TIMEOUT}={text}: give a number of seconds above 0.")
    return seconds


class _Watchdog:
    """Sleeps until the earliest deadline of any launch in the process."""

    def __init__(self) -> None:
        self._deadlines: dict[Watch, tuple[float, int]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._looks_again = 0.0  # when it wakes by itself: a later deadline need not wake it now

    def add(self, watch: Watch, deadline: float) -> None:
        with self._changed:
            self._deadlines[watch] = deadline, threading.get_ident()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._guard, name="kernel watchdog", daemon=True)
                self._thread.start()
            elif deadline < self._looks_again:
                self._changed.notify()

    def remove(self, watch: Watch) -> None:
        with self._changed:
            self._deadlines.pop(watch, None)

    def _guard(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for watch, (deadline, ident) in list(self._deadlines.items()):
                    if deadline <= now:
                        del self._deadlines[watch]
                        _raise_in(ident)
                first = min((deadline for deadline, _ in self._deadlines.values()), default=None)
                self._looks_again = math.inf if first is None else first
                self._changed.wait(None if first is None else first - now)


_WATCHDOG = _Watchdog()


class Watch:
    """The deadline of one launch, for the length of a `with` block."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def __enter__(self) -> Watch:
        _WATCHDOG.add(self, self._deadline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _WATCHDOG.remove(self)

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime


def _raise_in(ident: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(OutOfTime))
