"""Ops that only one of two runs has: which op of the reference one stands in for, and which it has no need of.

What an op reads tells it: the values of one run are known as those of the other by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Protocol

import torch

from softmesh.diff.alignment import same_size
from softmesh.diff.assembly import whole_of
from softmesh.diff.entries import Entry, Recording
from softmesh.diff.recording import READS
from softmesh.diff.value_store import Stored
from softmesh.kinds import Kind

_CHAIN = 4  # ops in a row that the reference does not have


class Known(Protocol):
    """A value of the reference's run."""

    @property
    def stored(self) -> Stored: ...


class StandIns:
    """Of the ops that no pair has: `replaced` and `skipped` ask of one of the program's."""

    def __init__(self, mine: Recording, theirs: Recording, pairs: Mapping[int, int]) -> None:
        self._theirs, self._pairs = theirs, pairs
        taken = set(pairs.values())
        self._free: dict[int, list[Entry]] = defaultdict(list)  # by each value that they read
        for one in theirs.entries:
            if one.number not in taken and _computes(one):
                for number in {operand.value for operand in one.inputs}:
                    self._free[number].append(one)
        self._readers: dict[int, list[tuple[int, Entry]]] = defaultdict(list)
        self._roots = [
            {one.gradient_of for one in run.entries if one.gradient_of is not None and not one.inputs}
            for run in (mine, theirs)
        ]
        for one in mine.entries:
            for at, operand in enumerate(one.inputs):
                self._readers[operand.value].append((at, one))

    def replaced(self, entry: Entry, known: Mapping[int, Known]) -> Entry | None:
        """The op of the reference that reads the same and makes as much, and that the program does not run."""
        source = known.get(entry.inputs[0].value) if _computes(entry) else None
        if source is None:
            return None
        free = self._free.get(source.stored.number, [])
        alike = (one for one in free if same_size(entry, one) and _reads_same(entry, one, known))
        found = next((one for one in alike if not self._copies(one)), None)
        if found is not None:
            for number in {operand.value for operand in found.inputs}:
                self._free[number].remove(found)
        return found

    def _copies(self, one: Entry) -> bool:
        """True if it hands on what it reads, and computes nothing."""
        read, made = ([whole_of(self._theirs, each) for each in side] for side in (one.inputs, one.outputs))
        result = made[0]
        return result is not None and any(
            each is not None and torch.equal(each.flatten(), result.flatten()) for each in read
        )

    def skipped(self, entry: Entry, known: Mapping[int, Known]) -> Known | None:
        """What it reads, where the reference goes on with that in place of what it makes."""
        source = known.get(entry.inputs[0].value) if _computes(entry) else None
        if source is None or len(entry.outputs) != 1:
            return None
        wanted, ours, theirs = source.stored.number, *self._roots
        is_loss = entry.outputs[0].number in ours and wanted in theirs
        return source if is_loss or wanted in self._read_instead(entry) else None

    def _read_instead(self, entry: Entry, depth: int = _CHAIN) -> Iterator[int]:
        """What the reference's partners of those that read the result read in its place; behind a few such ops, too."""
        for at, reader in self._readers[entry.outputs[0].number]:
            partner = self._pairs.get(reader.number)
            other = None if partner is None else self._theirs.entries[partner]
            if other is not None and at < len(other.inputs):
                yield other.inputs[at].value
            elif other is None and depth and _computes(reader) and reader.number > entry.number:
                yield from self._read_instead(reader, depth - 1)


def _computes(entry: Entry) -> bool:
    is_half = entry.kind is Kind.STATISTICS  # of a norm: nobody's whole
    return bool(entry.inputs) and not (entry.sends or is_half or entry.name in READS) and entry.gradient_of is None


def _reads_same(entry: Entry, other: Entry, known: Mapping[int, Known]) -> bool:
    """All that both read; one may read a weight or a bias more."""
    ours = {None if one is None else one.stored.number for one in (known.get(read.value) for read in entry.inputs)}
    theirs = {read.value for read in other.inputs}
    return ours <= theirs or ours >= theirs
