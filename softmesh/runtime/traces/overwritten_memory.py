"""Tensors that a replay writes over: they were allocated where a capture had put results that were freed again.

A chip writes those results again at each replay. Here the tensor keeps its values and is marked: who reads it is told,
unless it was written anew by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import ref

from softmesh.callsite import CallSite, user_call_site
from softmesh.runtime.memory.pool import next_number
from softmesh.strictness import warn_or_raise

if TYPE_CHECKING:
    from softmesh.runtime.memory.allocations import Allocation
    from softmesh.runtime.traces.trace import Captures, Trace


@runtime_checkable
class Loser(Protocol):
    """Memory of tensors, which can be marked."""

    def lose_values(self, captured: CallSite, replayed: CallSite) -> None: ...


def tells_of_itself(allocation: Allocation) -> bool:
    return isinstance(allocation.owner, Loser)


class OverwrittenMemory:
    """Of one trace: who lies where it writes. Looked for again when something was allocated."""

    def __init__(self, began: int) -> None:
        self._seen = began
        self._losers: list[ref[Loser]] = []

    def mark(self, trace: Trace, captures: Captures) -> None:
        """After a replay."""
        now = next_number()
        if now != self._seen + 1:
            self._look(trace, captures)
        self._seen = now
        if self._losers:
            self._tell(trace, captures)

    def _look(self, trace: Trace, captures: Captures) -> None:
        for allocation in trace.written.overwritten_since(self._seen):
            if trace.written.counts_in(allocation):
                _warn_of_lost_semaphore(trace, allocation)
                continue
            owner = allocation.owner
            if isinstance(owner, Loser) and allocation.number not in captures.corruptible:
                self._losers.append(ref(owner))

    def _tell(self, trace: Trace, captures: Captures) -> None:
        self._losers = [loser for loser in self._losers if loser() is not None]
        site = user_call_site()
        for loser in self._losers:
            if (memory := loser()) is not None:
                memory.lose_values(trace.site, site)
                captures.has_overwritten = True


def _warn_of_lost_semaphore(trace: Trace, allocation: Allocation) -> None:
    warn_or_raise(
        f"execute_trace: what was captured at {trace.site} counts on a semaphore that is gone, and its memory is that "
        f"of {allocation.label} now, allocated at {allocation.site}. On silicon each damages the other: the op waits "
        "for ever, or does not wait at all. Keep what ttnn.create_global_semaphore(...) returned until "
        "ttnn.release_trace.",
    )
