"""Whole numbers that a program chose, such as tokens: between values that differ by a rounding, either choice is right.

From there on the two runs go other ways, and a comparison ends.
"""

from __future__ import annotations

from collections import Counter

from softmesh.diff.entries import Entry, Recording
from softmesh.diff.recording import READS
from softmesh.diff.tolerances import unit

_LOOK_UP = ("embedding",)  # ops by which other numbers become another way
_ENOUGH_READS = 8
_FEW = 0.26  # of the numbers that a replay chose: nearly equal values are rare, and a mistake changes most


class ChosenNumbers:
    """Of the program: values that hold other numbers than the reference's by a choice within rounding."""

    def __init__(self, run: Recording) -> None:
        self._run = run
        self._values: set[int] = set()
        self._agreed: Counter[object] = Counter()  # by line: numbers of a replay that were read, and right

    def note(self, number: int, entry: Entry, at: int, severity: float) -> None:
        """An accepted value."""
        if severity and unit(entry.outputs[at].dtype) == 0.0:
            self._values.add(number)

    def agreed(self, entry: Entry) -> None:
        if self._is_of_a_replay(entry):
            self._agreed[entry.site] += 1

    def carries(self, entry: Entry, numbers: list[int]) -> bool:
        """Whether it hands on numbers that were chosen, as a reshape or a read does."""
        return unit(entry.outputs[0].dtype) == 0.0 and not self._values.isdisjoint(numbers)

    def looks_up(self, entry: Entry, numbers: list[int]) -> bool:
        """Whether it goes another way with them."""
        return entry.name in _LOOK_UP and not self._values.isdisjoint(numbers)

    def chosen_in_a_replay(self, entry: Entry, wrong: float | None) -> bool:
        """A read of numbers that were right for long, and of which few are other ones now (None: nobody knows)."""
        is_few = wrong is None or wrong <= _FEW or self._run.store.values[entry.outputs[0].number].shape[-1] == 1
        return self._is_of_a_replay(entry) and self._agreed[entry.site] >= _ENOUGH_READS and is_few

    def _is_of_a_replay(self, entry: Entry) -> bool:
        if entry.name not in READS or unit(entry.outputs[0].dtype) != 0.0:
            return False
        return any(operand.value in self._run.replayed for operand in entry.inputs)
