"""The sanitizer on and off: for a block, for a process, for a run of pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from softmesh.errors import ArgumentValueError
from softmesh.runtime.commands import attach, detach
from softmesh.runtime.sanitizer.findings import Finding
from softmesh.runtime.sanitizer.sanitizer import Sanitizer

VARIABLE = "SOFTMESH_SANITIZE"


class _Switch:
    """One sanitizer serves everybody who wants it: what it heard outside a block counts inside."""

    def __init__(self) -> None:
        self._running: Sanitizer | None = None
        self._users = 0
        self.is_asked = False  # by the environment

    def on(self) -> Sanitizer:
        if self._running is None:
            self._running = Sanitizer()
            attach(self._running)
        self._users += 1
        return self._running

    def off(self) -> None:
        self._users -= 1
        if not self._users and self._running is not None:
            detach(self._running)
            self._running = None


_SWITCH = _Switch()


def start() -> Sanitizer:
    """On, until as many have called `stop`."""
    return _SWITCH.on()


def stop() -> None:
    _SWITCH.off()


@contextmanager
def sanitize() -> Iterator[list[Finding]]:
    """Watch what a `with` block does; its findings are warnings, and in the list it yields.

    Under SOFTMESH_STRICT=1 the first one is an error.
    """
    findings: list[Finding] = []
    report = start().report
    report.listeners.append(findings)
    try:
        yield findings
    finally:
        report.listeners = [listener for listener in report.listeners if listener is not findings]
        stop()


def start_where_asked() -> None:
    """For the rest of the process, if the environment says so."""
    if is_wanted() and not _SWITCH.is_asked:
        _SWITCH.is_asked = True
        start()


def is_wanted() -> bool:
    asked = os.environ.get(VARIABLE, "").strip()
    if asked not in ("", "0", "1"):
        raise ArgumentValueError(f"{VARIABLE}={asked[:20]!r}: set it to 1 to watch for races, or to 0.")
    return asked == "1"
