"""What was allocated where a replay writes."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from softmesh.runtime.memory.pool import next_number
from softmesh.runtime.sanitizer.findings import FindingKind, Report, overwritten

if TYPE_CHECKING:
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.traces.trace import Trace


class Replays:
    """Each allocation is looked at once for each trace: neither of them moves."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._looked_at: weakref.WeakKeyDictionary[Trace, int] = weakref.WeakKeyDictionary()

    def check(self, command: Command, device: MeshDevice, trace: Trace) -> None:
        known = self._looked_at.get(trace, trace.began)
        self._looked_at[trace] = next_number()
        for allocation in trace.written.overwritten_since(known):
            if allocation.number not in device.captures.corruptible:
                sites = [trace.site, *([allocation.site] if allocation.site else ()), command.site]
                words = partial(overwritten, allocation, trace.site, command.site)
                self._report.tell(FindingKind.OVERWRITTEN_BY_REPLAY, sites, words)
