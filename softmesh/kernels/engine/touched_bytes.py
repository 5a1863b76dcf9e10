"""Detects data races between kernels of a launch: who touched which bytes of one core or bank last, and in what order.

Two that touch the same bytes, one of them to write, and neither of which has waited for the other, come in any order
on a chip; so does what a kernel itself does to bytes that a transfer of its own is still moving.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from softmesh.kernels.engine.conflicts import Place, tell_conflict
from softmesh.kernels.engine.memory_order import LASTING, Access

if TYPE_CHECKING:
    from softmesh.kernels.engine.memory_order import Clock


class _Stretch:
    """Bytes that were touched together: who wrote them last, and who has read them since."""

    __slots__ = ("end", "reads", "write")

    def __init__(self, end: int, write: Access | None = None) -> None:
        self.end = end
        self.write = write
        self.reads: dict[int, Access] = {}  # by the number of the thread


class TouchedBytes:
    """Of one place, as stretches that do not overlap, by where they start."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stretches: dict[int, _Stretch] = {}
        self._starts: list[int] = []  # sorted
        self._end = 0  # of the last one

    def read(self, access: Access, start: int, size: int) -> None:
        stretch, end = self._stretches.get(start), start + size
        if stretch is not None and stretch.end == end:
            self._read(access, start, stretch)
            return
        for first, part in self._cut(start, end):
            self._read(access, first, part)

    def write(self, access: Access, start: int, size: int) -> None:
        stretch, end = self._stretches.get(start), start + size
        if stretch is not None and stretch.end == end:
            self._write(access, start, stretch)
            return
        parts = self._cut(start, end)
        for first, part in parts:
            self._write(access, first, part)
        if len(parts) > 1:
            self._merge(start, parts)

    def look(self, clock: Clock, start: int, size: int) -> None:
        """A read that counts only for what was written before: whoever polls a word races with its writer."""
        for first, stretch in self._overlapping(start, start + size):
            if stretch.write is not None and not stretch.write.is_known_to(clock):
                tell_conflict(self._place, max(first, start), (stretch.write, "writes"), (clock.now(), "reads"))

    def arrives(self, clock: Clock, start: int, end: int) -> bool:
        """Whether a transfer of this kernel is still bringing some of these bytes."""
        writes = [stretch.write for _, stretch in self._overlapping(start, end)]
        return any(write is not None and write.number == clock.number and write.over == LASTING for write in writes)

    def is_written(self, start: int, end: int) -> bool:
        return any(stretch.write is not None for _, stretch in self._overlapping(start, end))

    def drop_references(self) -> None:
        vars(self).clear()

    def _read(self, access: Access, start: int, stretch: _Stretch) -> None:
        write = stretch.write
        if write is not None and access.clock.known.get(write.number, 0) < write.over:
            tell_conflict(self._place, start, (write, "writes"), (access, "reads"))
        before = stretch.reads.get(access.number)
        if before is None or before.left != LASTING:
            stretch.reads[access.number] = access

    def _write(self, access: Access, start: int, stretch: _Stretch) -> None:
        write, known = stretch.write, access.clock.known
        if write is not None and known.get(write.number, 0) < write.over and not _are_in_line(write, access):
            tell_conflict(self._place, start, (write, "writes"), (access, "writes"))
        if stretch.reads:
            for read in stretch.reads.values():
                if known.get(read.number, 0) < read.left:
                    tell_conflict(self._place, start, (read, "reads"), (access, "writes"))
            stretch.reads = {}
        stretch.write = access

    def _overlapping(self, start: int, end: int) -> list[tuple[int, _Stretch]]:
        starts, stretches = self._starts, self._stretches
        at = max(0, bisect_right(starts, start) - 1)
        found = []
        while at < len(starts) and starts[at] < end:
            stretch = stretches[starts[at]]
            if stretch.end > start:
                found.append((starts[at], stretch))
            at += 1
        return found

    def _cut(self, start: int, end: int) -> list[tuple[int, _Stretch]]:
        """Stretches that make up exactly these bytes; one that reaches beyond them is cut in two."""
        if start >= self._end:
            self._end = end
            stretch = self._stretches[start] = _Stretch(end)
            self._starts.append(start)
            return [(start, stretch)]
        found, place = [], start
        for first, stretch in self._overlapping(start, end):
            if first < start:
                first, stretch = start, self._split(stretch, start)
            if stretch.end > end:
                self._split(stretch, end)
            if place < first:
                found.append((place, self._add(place, _Stretch(first))))
            found.append((first, stretch))
            place = stretch.end
        if place < end:
            found.append((place, self._add(place, _Stretch(end))))
        return found

    def _merge(self, start: int, parts: list[tuple[int, _Stretch]]) -> None:
        """Stretches that follow each other, and are alike by now."""
        at = bisect_right(self._starts, start)
        del self._starts[at : at + len(parts) - 1]
        for first, _ in parts[1:]:
            del self._stretches[first]
        parts[0][1].end = parts[-1][1].end

    def _split(self, stretch: _Stretch, at: int) -> _Stretch:
        """What lies behind this place, as a stretch of its own."""
        behind = _Stretch(stretch.end, stretch.write)
        behind.reads = stretch.reads.copy()
        stretch.end = at
        return self._add(at, behind)

    def _add(self, start: int, stretch: _Stretch) -> _Stretch:
        self._end = max(self._end, stretch.end)
        self._stretches[start] = stretch
        self._starts.insert(bisect_right(self._starts, start), start)
        return stretch


def _are_in_line(one: Access, other: Access) -> bool:
    """Transfers of one kernel, which keep their order."""
    return one.number == other.number and other.over == LASTING
