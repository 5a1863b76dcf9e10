"""Aligns what the hosts of two programs read: by values and order, by pieces of a batch, and at last by order alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from softmesh.diff.assembly import whole_shape
from softmesh.diff.entries import Entry
from softmesh.diff.judged import Joined

_NEAR = 0.05  # relative distance of reads that may be equal but for rounding
_MOST = 4_000_000  # pairs of reads that are looked at


class ReadPairs:
    """The pairs of reads: those whose values are near (`right`), and those that only stand in the same place."""

    def __init__(self, ours: Sequence[Entry], theirs: Sequence[Entry], off: Callable[[Entry, Entry], float]) -> None:
        self._off = off
        self.pairs: dict[int, int] = {}
        self.joined: dict[int, Joined] = {}
        self.right: set[int] = set()
        self._places: set[Hashable] = set()  # lines with a pair: other reads there are of the same loop
        self.is_lacking = False  # the reference reads what the program does not make
        self._gaps = self._aligned(ours, theirs)
        for own, other in self._gaps:
            self._join(own, other)
        self._pair_moved()

    def _aligned(self, ours: Sequence[Entry], theirs: Sequence[Entry]) -> list[tuple[list[Entry], list[Entry]]]:
        """Pairs the most alike in one order; what is left stands between them."""
        gaps: list[tuple[list[Entry], list[Entry]]] = [([], [])]
        at = [0, 0]
        for a, b in self._best(ours, theirs) if len(ours) * len(theirs) <= _MOST else []:
            gaps[-1][0].extend(ours[at[0] : a])
            gaps[-1][1].extend(theirs[at[1] : b])
            self._pair(ours[a], theirs[b])
            gaps.append(([], []))
            at = [a + 1, b + 1]
        gaps[-1][0].extend(ours[at[0] :])
        gaps[-1][1].extend(theirs[at[1] :])
        return gaps

    def _best(self, ours: Sequence[Entry], theirs: Sequence[Entry]) -> list[tuple[int, int]]:
        """The common subsequence of the largest likeness."""
        rows = [[0.0] * (len(theirs) + 1)]
        likeness = [[self._likeness(own, other) for other in theirs] for own in ours]
        for alike in likeness:
            above, row = rows[-1], [0.0]
            for b, value in enumerate(alike):
                row.append(max(above[b + 1], row[b], above[b] + value))
            rows.append(row)
        found, a, b = [], len(ours), len(theirs)
        while a and b:
            if likeness[a - 1][b - 1] and rows[a][b] == rows[a - 1][b - 1] + likeness[a - 1][b - 1]:
                a, b = a - 1, b - 1
                found.append((a, b))
            elif rows[a][b] == rows[a - 1][b]:
                a -= 1
            else:
                b -= 1
        return found[::-1]

    def _likeness(self, own: Entry, other: Entry) -> float:
        off = self._off(own, other) if _count(own) == _count(other) else math.inf
        return 0.0 if off > _NEAR else 1.0 - off

    def _pair(self, own: Entry, other: Entry) -> None:
        self.pairs[own.number] = other.number
        self.right.add(own.number)
        self._places.update((_place(own), _place(other)))

    def _join(self, own: list[Entry], other: list[Entry]) -> None:
        """Reads of one place that make up, one behind the other, what reads of another place do."""
        for place in _by_place(own):
            for others in _by_place(other):
                joined = _joined(place, others)
                if joined is not None:
                    self.joined.update(joined)
                    self.right.update(joined)  # each is measured against its part
                    own[:] = [one for one in own if one not in place]
                    other[:] = [one for one in other if one not in others]
                    break

    def _pair_moved(self) -> None:
        """Calls that do not depend on each other may be made in another order; rounds of one loop may not."""
        left, right = ([one for gap in self._gaps for one in gap[side]] for side in (0, 1))
        for own in left:
            for other in right:
                alone = all(
                    sum(_place(one) == _place(each) for one in side) == 1
                    for side, each in ((left, own), (right, other))
                )
                if alone and _count(own) == _count(other) and self._off(own, other) <= _NEAR:
                    self._pair(own, other)
                    for a, b in self._gaps:
                        a[:] = [one for one in a if one is not own]
                        b[:] = [one for one in b if one is not other]
                    right.remove(other)
                    break

    def pair_the_rest(self, is_made_by_both: Callable[[Entry, bool], bool]) -> None:
        """Reads that differ: what stands in the same place, and then in any, unless it is only read beside the rest."""
        rest: tuple[list[Entry], list[Entry]] = ([], [])
        for own, other in self._gaps:
            left, right = self._in_order(own, other)
            beside = [*(is_made_by_both(one, True) for one in left), *(is_made_by_both(one, False) for one in right)]
            if len(left) == len(right) and not all(beside):
                self.pairs.update((a.number, b.number) for a, b in zip(left, right, strict=True))
                continue
            rest[0].extend(left)
            rest[1].extend(right)
        left = [one for one in rest[0] if _place(one) in self._places or not is_made_by_both(one, True)]
        right = [one for one in rest[1] if _place(one) in self._places or not is_made_by_both(one, False)]
        _, right = self._in_order(left, right)
        self.is_lacking = bool(right)

    def _in_order(self, own: list[Entry], other: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        left, right = [], list(other)
        for one in own:
            found = next((each for each in right if whole_shape(each.outputs[0]) == whole_shape(one.outputs[0])), None)
            if found is None:
                left.append(one)
            else:
                self.pairs[one.number] = found.number
                right.remove(found)
        return left, right


def _count(read: Entry) -> int:
    return math.prod(whole_shape(read.outputs[0]) or (0,))


def _place(read: Entry) -> Hashable:
    return read.site, read.callers


def _by_place(reads: Sequence[Entry]) -> list[list[Entry]]:
    found: dict[Hashable, list[Entry]] = defaultdict(list)
    for one in reads:
        found[_place(one)].append(one)
    return list(found.values())


def _joined(ours: Sequence[Entry], theirs: Sequence[Entry]) -> dict[int, Joined] | None:
    """None where the two do not make up one tensor that is cut along one dim."""
    shapes = [whole_shape(one.outputs[0]) for one in (*ours, *theirs)]
    known = [one for one in shapes if one is not None]
    if len(known) < len(shapes) or len({len(one) for one in known}) != 1:
        return None
    dims = [dim for dim, sizes in enumerate(zip(*known, strict=True)) if len(set(sizes)) > 1]
    if len(dims) != 1:
        return None
    dim = dims[0]
    sizes, others = [one[dim] for one in known[: len(ours)]], [one[dim] for one in known[len(ours) :]]
    if sum(sizes) != sum(others):
        return None
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    stored = tuple(one.outputs[0] for one in theirs)
    return {one.number: Joined(stored, dim, start, n) for one, start, n in zip(ours, starts, sizes, strict=True)}
