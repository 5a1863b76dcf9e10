"""Reads of the host where the two programs cut their batch otherwise: users in other rows, calls, or shares.

One device may take users one by one, and the mesh two at a time; then the host reads the same results in another order,
or a part of them at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import torch

from softmesh.diff.assembly import Measure, measured, value_of, whole_of, whole_shape
from softmesh.diff.entries import Entry, Recording
from softmesh.diff.tolerances import unit

_AHEAD = 32  # reads of the reference among which one is sought
_MOST_PARTS = 32


class BatchReads:
    """Finds what the reference reads for a read of the program; each part of it once."""

    def __init__(self, mine: Recording, theirs: Recording, pairs: Mapping[int, int], names: tuple[str, ...]) -> None:
        self._mine, self._theirs = mine, theirs
        couples = ((mine.entries[own], theirs.entries[other]) for own, other in pairs.items())
        self.is_cut_otherwise = any(_is_other_share(own, other) for own, other in couples)
        self._left = [one for one in theirs.entries if one.name in names] if self.is_cut_otherwise else []
        self._lines = {(one.site.file, one.site.line) for one in self._left}
        self._taken: dict[int, set[tuple[int, int]]] = {}  # of a read: the parts (dim, number) that were found

    def is_sought(self, entry: Entry) -> bool:
        """Whether the reference reads on this line too, in other pieces perhaps."""
        return (entry.site.file, entry.site.line) in self._lines

    def found(self, entry: Entry, band: float) -> tuple[Entry, Measure] | None:
        """A read of the reference that agrees, as a whole or in one of its parts."""
        stored = entry.outputs[0]
        value = value_of(self._mine, stored) if self.is_cut_otherwise else None
        if value is None:
            return None
        count = value.data[(0,) * value.dist.lead].numel()
        for other in islice(self._left, _AHEAD):
            whole = whole_of(self._theirs, other.outputs[0])
            for place, part in () if whole is None else _parts(whole, count):
                if place in self._taken.get(other.number, ()):
                    continue
                measure = measured(value, part, stored.dtype)
                if measure is not None and measure.severity <= band:
                    self._take(other, place, 1 if whole is None else whole.numel() // count)
                    return other, measure
        return None

    def _take(self, other: Entry, place: tuple[int, int], parts: int) -> None:
        taken = self._taken.setdefault(other.number, set())
        taken.add(place)
        if len(taken) == parts:
            self._left.remove(other)


def _is_other_share(own: Entry, other: Entry) -> bool:
    """Whole numbers that the host wrote, for more or fewer users than the reference at a time."""
    if own.inputs or other.inputs or unit(own.outputs[0].dtype) != 0.0 or unit(other.outputs[0].dtype) != 0.0:
        return False
    shapes = [whole_shape(one.outputs[0]) for one in (own, other)]
    return None not in shapes and shapes[0] != shapes[1]


def _parts(whole: torch.Tensor, count: int) -> Iterator[tuple[tuple[int, int], torch.Tensor]]:
    """With so many elements each, cut along any dim."""
    if whole.numel() == count:
        yield (0, 0), whole
        return
    n, rest = divmod(whole.numel(), max(count, 1))
    for dim, size in enumerate(whole.shape):
        if not rest and 1 < n <= _MOST_PARTS and size % n == 0:
            yield from (((dim, at), part) for at, part in enumerate(whole.chunk(n, dim)))
