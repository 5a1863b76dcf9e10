"""The memory that a replay writes: results that somebody still holds, and all that were freed again meanwhile."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softmesh.runtime.memory.pool import Pool
    from softmesh.runtime.memory.records import Allocation
    from softmesh.runtime.memory.span import Span


class Written:
    """`numbers` are those of the allocations that the trace itself writes to."""

    def __init__(self, spans: Iterable[Span | None]) -> None:
        self.numbers: set[int] = set()
        extents: dict[Pool, list[tuple[int, int]]] = {}
        for span in spans:
            if span is not None and span.pool is not None:
                self.numbers.add(span.number)
                extents.setdefault(span.pool, []).append((span.start, span.end))
        self._extents = {pool: _merged(found) for pool, found in extents.items()}

    def overwritten_since(self, number: int) -> list[Allocation]:
        """What others allocated after the allocation of this number, and a replay writes to."""
        return [
            allocation
            for pool, extents in self._extents.items()
            for allocation in pool.since(number)
            if allocation.number not in self.numbers and _meets(extents, allocation)
        ]


def _merged(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(extents):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _meets(extents: list[tuple[int, int]], allocation: Allocation) -> bool:
    """Whether the last extent that begins before the allocation's end reaches beyond its start."""
    before = bisect_left(extents, (allocation.end,)) - 1
    return before >= 0 and extents[before][1] > allocation.address
