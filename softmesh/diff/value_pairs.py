"""Pairs the ops of two runs by their values, for programs that make the same in another order, or more often.

A warm-up, a trace, or a batch in pieces shifts the order of calls. What the host reads is aligned first. Every other op
is paired with one that makes an equal value, then with one that reads the same, then with one that is read by the
same. Ops on the way to a read that differs are paired by order at last.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from softmesh.diff.alignment import comparable, form_of, in_order, name_of, same_size, size_of
from softmesh.diff.assembly import whole_of
from softmesh.diff.entries import Entry, Recording
from softmesh.diff.judged import Joined
from softmesh.diff.read_pairs import ReadPairs
from softmesh.diff.recording import READS

_BUCKETS = 64
_NEAR = 0.05  # relative distance of values that may be equal but for rounding
_STEP = 0.01  # the same of ops of other names; distances within one step are ranked by other signs

Sketch = torch.Tensor


class Pairing(NamedTuple):
    """The pairs of ops, and of reads that are cut otherwise what the reference's host reads there."""

    pairs: dict[int, int]
    joined: dict[int, Joined]


class Sketches:
    """A few sums of each value's elements with random signs: near for near values, whatever the meshes."""

    def __init__(self, run: Recording) -> None:
        self._run = run
        self._known: dict[int, Sketch | None] = {}

    def of(self, entry: Entry) -> Sketch | None:
        """None where devices hold values of their own, or they were not kept."""
        if entry.number not in self._known:
            wholes = [whole_of(self._run, output) for output in entry.outputs]
            found = [one.flatten().float() for one in wholes if one is not None]
            is_whole = len(found) == len(wholes) and sum(map(len, found)) > 0
            self._known[entry.number] = _sketch(torch.cat(found)) if is_whole else None
        return self._known[entry.number]


def _sketch(values: torch.Tensor) -> Sketch:
    values = values.nan_to_num(0.0, 3e38, -3e38).double()
    padded = torch.zeros(-(-len(values) // _BUCKETS) * _BUCKETS, dtype=torch.float64)
    padded[: len(values)] = values
    return (padded * _signs(len(padded))).view(-1, _BUCKETS).sum(0)


@lru_cache(maxsize=8)
def _signs(count: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, (count,), generator=draw, dtype=torch.int8) * 2 - 1


def distance(ours: Sketch | None, theirs: Sketch | None) -> float:
    """Relative to the larger; infinite where one is not known."""
    if ours is None or theirs is None:
        return math.inf
    size = max(float(ours.norm()), float(theirs.norm()))
    return float((ours - theirs).norm()) / size if size > 0 else 0.0


def paired_by_value(mine: Recording, theirs: Recording) -> Pairing:
    """Pairs that explain as many as possible of the values that the program's host reads."""
    return _ValuePairs(mine, theirs).pairing


class _ValuePairs:
    def __init__(self, mine: Recording, theirs: Recording) -> None:
        self._mine, self._theirs = mine, theirs
        self._sketches, self._others = Sketches(mine), Sketches(theirs)
        self._ours = [one for one in comparable(mine, theirs) if one.gradient_of is None]
        self._candidates = [one for one in comparable(theirs, mine) if one.gradient_of is None]
        ours, reference = ([one for one in run if one.name in READS] for run in (self._ours, self._candidates))
        reads = ReadPairs(ours, reference, lambda a, b: distance(self._sketches.of(a), self._others.of(b)))
        self._makers, self._other_makers = _makers(mine), _makers(theirs)
        self.pairs: dict[int, int] = {}
        self._taken: set[int] = set()
        self._known: dict[int, int] = {}  # the value of the reference that one of ours is
        self._by_value_and_operands()
        reads.pair_the_rest(self._is_made_by_both)
        self.pairs.update(reads.pairs)
        self._by_readers()
        self._by_order(reads)
        self.pairing = Pairing(self.pairs, reads.joined)

    def _is_made_by_both(self, read: Entry, is_ours: bool) -> bool:
        """True if the other program makes what one of them reads, though it may not read it."""
        maker = (self._makers if is_ours else self._other_makers).get(read.outputs[0].number)
        if maker is None:
            return False
        return maker.number in (self.pairs if is_ours else self._taken)

    def _pair(self, entry: Entry, other: Entry) -> None:
        self.pairs[entry.number] = other.number
        self._taken.add(other.number)

    def _by_value_and_operands(self) -> None:
        by_size: dict[Hashable, list[Entry]] = defaultdict(list)
        by_operands: dict[Hashable, list[Entry]] = defaultdict(list)
        sends = set()
        for one in self._candidates:
            if one.name not in READS:
                by_size[_sizes(one)].append(one)
                by_operands[name_of(one), tuple(read.value for read in one.inputs)].append(one)
            if one.sends:
                sends.add(one.name)
        known = self._known
        for entry in self._ours:
            if entry.name in READS:
                continue
            if entry.sends and entry.name not in sends:
                moved = next((known[one.value] for one in entry.inputs if one.value in known), None)
                if moved is not None:
                    known.update((output.number, moved) for output in entry.outputs)
                continue
            read = [known.get(self._source(one.value)) for one in entry.inputs]
            alike = by_operands.get((name_of(entry), tuple(read)), []) if read else []
            found = self._equal(entry, by_size.get(_sizes(entry), []), {one.number for one in alike})
            if found is None:
                found = next((one for one in alike if one.number not in self._taken and same_size(entry, one)), None)
            if found is not None:
                self._pair(entry, found)
                known.update((a.number, b.number) for a, b in zip(entry.outputs, found.outputs, strict=False))
            elif entry.sends and entry.inputs and read[0] is not None:
                known.update((output.number, read[0]) for output in entry.outputs)

    def _source(self, number: int) -> int:
        while number not in self._known and number in self._mine.origins:
            number = self._mine.origins[number]
        return number

    def _equal(self, entry: Entry, among: Sequence[Entry], alike: set[int]) -> Entry | None:
        """The best of those that make an equal value: of its name, of the same operands, not taken yet."""
        best: tuple[tuple[object, ...], Entry] | None = None
        sketch = self._sketches.of(entry)
        for other in among if sketch is not None else ():
            off = distance(sketch, self._others.of(other))
            if off > (_NEAR if name_of(entry) == name_of(other) else _STEP):
                continue
            rank = (
                name_of(entry) != name_of(other),
                bool(entry.inputs) != bool(other.inputs),
                bool(alike) and other.number not in alike,
                int(off / _STEP),
                other.number in self._taken,
                other.number,
            )
            if best is None or rank < best[0]:
                best = rank, other
        return None if best is None else best[1]

    def _by_readers(self) -> None:
        """What two ops of one name read in the same place is the same, if the same kind of op makes it in one size."""
        for entry in reversed(self._ours):
            partner = self.pairs.get(entry.number)
            if partner is None:
                continue
            other = self._theirs.entries[partner]
            if name_of(entry) != name_of(other) or len(entry.inputs) != len(other.inputs):
                continue
            for a, b in zip(entry.inputs, other.inputs, strict=True):
                maker, wanted = _before_moves(self._makers, a.value), _before_moves(self._other_makers, b.value)
                if maker is None or wanted is None or maker.number >= entry.number:
                    continue
                is_free = maker.number not in self.pairs and wanted.number not in self._taken
                if is_free and form_of(maker) == form_of(wanted) and _may_be_one_size(maker, wanted):
                    self._pair(maker, wanted)

    def _by_order(self, reads: ReadPairs) -> None:
        """Of ops that lead to a read that differs; all, where what the reference reads is not made at all."""
        vouched = _ancestors(self._mine, self._makers, [one for one in self._ours if one.number in reads.right])
        wrong = {own: other for own, other in reads.pairs.items() if own not in reads.right}
        ours = _ancestors(self._mine, self._makers, [self._mine.entries[one] for one in wrong])
        theirs = _ancestors(self._theirs, self._other_makers, [self._theirs.entries[one] for one in wrong.values()])
        if wrong:  # what a trace reads is behind its capture
            theirs |= {one.number for one in self._candidates if not one.inputs}
        if reads.is_lacking or not reads.pairs:
            ours, theirs = ({one.number for one in side} for side in (self._ours, self._candidates))
        left = [one for one in self._ours if one.number in ours - vouched and one.number not in self.pairs]
        left = [one for one in left if one.name not in READS and not one.sends]
        free = [one for one in self._candidates if one.number in theirs - self._taken and one.name not in READS]
        self.pairs.update(in_order(left, free))


def _may_be_one_size(ours: Entry, theirs: Entry) -> bool:
    return same_size(ours, theirs) or same_size(theirs, ours)


def _sizes(entry: Entry) -> Hashable:
    return len(entry.outputs), size_of(entry)


def _makers(run: Recording) -> dict[int, Entry]:
    return {output.number: one for one in run.entries if one.name not in READS for output in one.outputs}


def _before_moves(makers: Mapping[int, Entry], number: int) -> Entry | None:
    """The op that made a value, before collectives moved it."""
    maker = makers.get(number)
    while maker is not None and maker.sends and maker.inputs:
        maker = makers.get(maker.inputs[0].value)
    return maker


def _ancestors(run: Recording, makers: Mapping[int, Entry], entries: Sequence[Entry]) -> set[int]:
    """The ops that lead to these; not beyond a capture, whose replays read what memory holds by then."""
    found: set[int] = set()
    waiting = [number for one in entries for number in _read(run, one)]
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and maker.number not in found and not maker.is_captured:
            found.add(maker.number)
            waiting.extend(_read(run, maker))
    return found


def _read(run: Recording, entry: Entry) -> Iterator[int]:
    for operand in entry.inputs:
        number: int | None = operand.value
        while number is not None:
            yield number
            number = run.origins.get(number)
