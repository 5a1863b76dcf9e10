"""What was allocated where a replay writes."""

from __future__ import annotations

import weakref
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from softmesh.callsite import RawSite, is_ours, raw_callers, resolved
from softmesh.runtime.memory.pool import next_number
from softmesh.runtime.sanitizer.findings import FindingKind, Report, overwritten

if TYPE_CHECKING:
    from softmesh.runtime.commands import Command
    from softmesh.runtime.device import MeshDevice
    from softmesh.runtime.traces.trace import Trace


_MOST_CALLERS = 3
_FRAMES_OF_OURS = 4  # at least: here, the sanitizer, and who hands it the command
_MOST = 4096  # allocations whose callers are known; the latest


class Replays:
    """Each allocation is looked at once for each trace: neither of them moves."""

    def __init__(self, report: Report) -> None:
        self._report = report
        # Of what was made while there are traces, by the number of the allocation.
        self._callers: dict[int, list[RawSite]] = {}
        self._looked_at: weakref.WeakKeyDictionary[Trace, int] = weakref.WeakKeyDictionary()

    def remember(self, command: Command) -> None:
        """Called from within the user's call: how it came to what the command made."""
        callers = self._callers
        for tensor in command.outputs:
            span = tensor.storage.span()
            if span is not None and span.number not in callers:
                callers[span.number] = raw_callers(command.raw_site, _FRAMES_OF_OURS, _MOST_CALLERS)
        if len(callers) > _MOST:
            self._callers = dict(islice(callers.items(), _MOST // 2, None))

    def check(self, command: Command, device: MeshDevice, trace: Trace) -> None:
        seen = self._looked_at.get(trace, trace.began)
        self._looked_at[trace] = next_number()
        for allocation in trace.written.overwritten_since(seen):
            if allocation.number not in device.captures.corruptible:
                sites = [trace.site, *([allocation.site] if allocation.site else ()), command.site]
                callers = map(resolved, self._callers.get(allocation.number, ()))
                known = [site for site in callers if not is_ours(site.file)]
                words = partial(overwritten, allocation, known, trace.site, command.site)
                self._report.tell(FindingKind.OVERWRITTEN_BY_REPLAY, sites, words)
