"""Waits for another process of the host that need not be a rank of the job: bounded, and explained."""

from __future__ import annotations

import os
from collections.abc import Callable

from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waiting import Group, HangError, Wait


class HostWait(Wait):
    """`remedy` says what the other process has to do.

    To the launcher it is a call of this process alone, so it is never taken for a part of a deadlock.
    """

    def __init__(self, op: str, what: str, remedy: str, nbytes: int = 0) -> None:
        group = Group(f"{what} in process {os.getpid()}", ())
        super().__init__(op, WaitKind.COLLECTIVE, group, None, 0, None, remedy, nbytes)

    def until(self, done: Callable[[], object]) -> None:
        try:
            super().until(done)
        except HangError as hang:
            report = hang.report
            raise HangError(
                f"{report.op} timed out after {report.seconds:.0f} s at {report.site}: {report.fingerprint}",
                report,
            ) from None
