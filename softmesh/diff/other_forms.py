"""Finds a value in the reference where the program computes it in other steps, as `x * (1 + s)` for `x * s + x`.

Ops are paired by name and order, so the steps of another form meet ops that make something else. A few steps later the
two forms hold the same value again: that of an op which nothing of the program's was found to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from softmesh.diff.alignment import same_size
from softmesh.diff.assembly import Measure, measured
from softmesh.diff.entries import Entry
from softmesh.diff.judged import Expected, Judged
from softmesh.diff.recording import READS
from softmesh.diff.sides import Sides
from softmesh.diff.tolerances import unit

_STEPS = 4  # behind the first op that is another
_NEAR = 8  # ops of the reference among which the value is sought
_ROOM, _MOST_ROOM = 4.0, 8.0  # roundings in which two forms may differ
_CLOSER = 10.0  # times, than to what the op is paired with


class OtherForms:
    """The other forms of one comparison, tried for every op that is not right."""

    def __init__(self, sides: Sides, pairs: Mapping[int, int]) -> None:
        self._sides, self._pairs = sides, pairs
        self._steps: dict[int, int] = {}  # by value of ours that is another: how many steps ago it became so
        self._taken: set[int] = set()  # values of the reference that right ones of ours are
        self._place = 0

    def right(self, judged: Judged) -> None:
        """An op that is right: no other can be what it is."""
        if judged.expected is not None:
            self._taken.add(judged.expected.stored.number)
            self._place = max(self._place, judged.expected.entry.number)

    def found(self, judged: Judged, wrong: Sequence[float]) -> tuple[Expected, Measure] | None:
        """The value of the reference that the op's result is."""
        entry = judged.entry
        steps = min((self._steps[one.value] + 1 for one in entry.inputs if one.value in self._steps), default=0)
        self._steps.update((output.number, steps) for output in entry.outputs)
        if steps > _STEPS or not steps or len(entry.outputs) != 1 or entry.gradient_of is not None or entry.sends:
            return None
        if unit(entry.outputs[0].dtype) == 0.0:
            return None
        closer = [one / _CLOSER for one in (*wrong, judged.severity) if one]
        known = None if judged.expected is None else judged.expected.stored.number
        for other in self._candidates(entry, known):
            should = Expected(other.outputs[0], other)
            side = self._sides.laid(entry.outputs[0], should)
            found = None if side is None else measured(side.value, side.expected, entry.outputs[0].dtype)
            if side is None or found is None or not side.expected.is_floating_point() or not side.expected.numel():
                continue
            rounding = max(unit(entry.outputs[0].dtype), unit(should.stored.dtype))
            varies = bool((side.expected != side.expected.flatten()[0]).any())
            if varies and found.severity <= min(_ROOM * rounding + judged.brought, _MOST_ROOM * rounding, *closer):
                return should, found
        return None

    def _candidates(self, entry: Entry, known: int | None) -> list[Entry]:
        entries = self._sides.theirs.entries
        place = self._pairs.get(entry.number, self._place)
        near = entries[max(0, place - _NEAR) : place + _NEAR + 1]
        return [
            one
            for one in near
            if one.inputs and one.name not in READS and len(one.outputs) == 1 and not one.sends
            if one.outputs[0].number not in self._taken | {known} and same_size(entry, one)
        ]
