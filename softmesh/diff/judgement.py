"""Goes through two runs op by op, and finds the first op that is wrong by itself.

An op is right if its value lies in the band of rounding around the reference's. Is it outside, its inputs may explain
it: they were wrong already, or the op makes much of little, which its golden function tells. What is off and comes
right again later was only kept in another order.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import torch

from softmesh.diff.alignment import aligned
from softmesh.diff.assembly import Measure, measured, same_measure, value_of, whole_of
from softmesh.diff.batch_reads import BatchReads
from softmesh.diff.chosen_numbers import ChosenNumbers
from softmesh.diff.golden_values import inherited_error
from softmesh.diff.orders import is_reordered, out_of_order
from softmesh.diff.other_arguments import is_another_computation
from softmesh.diff.recording import READS, Entry, Recording
from softmesh.diff.result import Verdict
from softmesh.diff.stand_ins import StandIns
from softmesh.diff.tolerances import GROWTH, Tolerances, of_cancellation, unit
from softmesh.diff.value_store import Stored
from softmesh.placement.placements import LOCAL, Partial
from softmesh.progress import tracked

_RIGHT_AGAIN = 10.0  # times smaller is the error of a value whose order was put right
_SMALL = 0.05
_MOST_GROWN = 0.5  # of a value, what may be put down to its inputs without a look at what the op makes of them
_CHOSEN = ("argmax", "topk", "sampling", "sort")


class Expected(NamedTuple):
    """What a value should be: one of the reference's run."""

    stored: Stored
    entry: Entry


@dataclass
class Judged:
    """One op of the program, measured."""

    entry: Entry
    partner: Entry | None
    output: int = 0  # the one that is furthest off
    expected: Expected | None = None
    measure: Measure | None = None
    own: float = 0.0  # what the op itself may add to the error
    band: float = 0.0
    brought: float = 0.0  # the error of what it read
    verdict: Verdict = Verdict.NOT_COMPARED
    is_carried: bool = False
    may_be_carried: bool = False  # to ops that were not compared
    is_apart: bool = False  # the reference has no such op: it may do the same in other steps
    unfit: bool = False  # there is a reference, and no reading has its size

    @property
    def severity(self) -> float:
        return 0.0 if self.measure is None else self.measure.severity

    @property
    def final_verdict(self) -> Verdict:
        is_healed = self.verdict in (Verdict.MISTAKE, Verdict.INHERITED) and not self.is_carried
        return Verdict.REARRANGED if is_healed else self.verdict


class Judgement:
    """Of all ops; `first` is the one to blame."""

    def __init__(
        self, mine: Recording, theirs: Recording, tolerances: Tolerances, pairs: dict[int, int] | None = None
    ) -> None:
        self.mine, self.theirs, self._tolerances = mine, theirs, tolerances
        self.pairs = aligned(mine, theirs) if pairs is None else pairs
        tolerances.look_at(mine, theirs, self.pairs)
        self.notes: list[str] = []
        self.expected: dict[int, Expected] = {}  # by value of ours
        self._stand_ins = StandIns(mine, theirs, self.pairs)
        self._by_inputs = {
            (one.name, *(each.value for each in one.inputs)): one for one in theirs.entries if one.inputs
        }
        self._gradients: dict[int, list[Entry]] = defaultdict(list)  # of each backward pass, by value
        for one in theirs.entries:
            if one.gradient_of is not None:
                self._gradients[one.gradient_of].append(one)
        self._seen_gradients: Counter[int] = Counter()  # of a value of ours
        self._reads_alike = len({sum(one.name in READS for one in run.entries) for run in (mine, theirs)}) == 1
        self._batch_reads = BatchReads(mine, theirs, self.pairs, READS)
        self._chosen = ChosenNumbers(mine)
        self._levels: dict[int, float] = {}  # by value: the accepted error
        self._worst = 0.0  # of these: what is taken of values that nothing is known of
        self._off: dict[int, float] = {}  # values that are wrong, or made of such, and how far off
        self.parted = False
        self.judged: list[Judged] = []
        for entry in tracked(mine.entries, "comparing op by op"):
            self.judged.append(self._judge(entry))
        self._trace_on()
        self.first = self._blamed()

    # -- one op ----------------------------------------------------------------------------------

    def _judge(self, entry: Entry) -> Judged:
        other = self._partner(entry)
        is_apart = other is None
        if other is None:
            other = self._stand_ins.replaced(entry, self.expected)
        judged = Judged(entry, other, is_apart=is_apart)
        if self.parted:
            return judged
        self._expect(entry, other)
        read = {one.value: self._known_of(one.value) for one in entry.inputs}
        judged.brought = sum(self._levels.get(number, self._worst) for number in read.values())
        if entry.gradient_of is not None:
            judged.brought += self._levels.get(entry.gradient_of, 0.0) if entry.inputs else self._worst
        for at, output in enumerate(entry.outputs):
            should = self._read_by(entry, other) or self.expected.get(output.number)
            if should is not None:
                self._measure(judged, at, should)
        self._decide(judged)
        if entry.name in READS and judged.verdict not in (Verdict.EXACT, Verdict.ROUNDING):
            self._look_elsewhere(judged)
        if judged.verdict is Verdict.MISTAKE:
            self._look_at_choices(judged)
        if judged.verdict is Verdict.EXACT:
            self._chosen.agreed(entry)
        for output in entry.outputs:
            if entry.name not in READS:
                self._note(output.number, judged)
        return judged

    def _partner(self, entry: Entry) -> Entry | None:
        """The op of the reference that does the same."""
        paired = self.pairs.get(entry.number)
        partner = self._gradient_partner(entry) if paired is None else self.theirs.entries[paired]
        if partner is not None and partner.site != entry.site and entry.gradient_of is None:
            return self._reader_of_the_same(entry) or partner
        return partner

    def _look_elsewhere(self, judged: Judged) -> None:
        """Where the programs cut their batch otherwise: for another read of the reference's host, or a part of it."""
        entry = judged.entry
        own = self._tolerances.of_rounding(self.mine, entry, 0, entry.outputs[0].dtype)
        band = own + min(GROWTH * self._worst, _MOST_GROWN)
        found = self._batch_reads.found(entry, band)
        if found is not None:
            judged.partner, judged.measure = found
            judged.expected = Expected(judged.partner.outputs[0], judged.partner)
            judged.own, judged.band, judged.unfit = own, band, False
            judged.verdict = Verdict.EXACT if judged.severity == 0.0 else Verdict.ROUNDING
        elif judged.measure is None and self._batch_reads.is_sought(entry):
            judged.unfit = True
            judged.verdict = Verdict.INHERITED if self._wrong_inputs(entry) else Verdict.MISTAKE

    def _look_at_choices(self, judged: Judged) -> None:
        """Other numbers may have been chosen, between values that differ by a rounding."""
        entry, measure = judged.entry, judged.measure
        read = [self._known_of(one.value) for one in entry.inputs]
        is_replayed = self._chosen.chosen_in_a_replay(entry, None if measure is None else measure.figures.error)
        if is_replayed or self._chosen.looks_up(entry, read):
            where = "a trace chose these numbers" if is_replayed else "these numbers were chosen"
            self.notes.append(
                f"From {entry.name} ({entry.site}) on the runs take other ways: {where} between values that agree "
                "within rounding, and they are others than the reference's. What follows is not compared."
            )
            judged.verdict, self.parted = Verdict.NOT_COMPARED, True
        elif self._chosen.carries(entry, read):
            judged.verdict = Verdict.ROUNDING

    def _known_of(self, number: int) -> int:
        """The value; or what it is a part of, where no op has made it."""
        while number in self.mine.origins and number not in self._levels and number not in self._off:
            number = self.mine.origins[number]
        return number

    def _wrong_inputs(self, entry: Entry) -> list[float]:
        """How far off those are that are off."""
        read = (self._known_of(one.value) for one in entry.inputs)
        return [self._off[number] for number in read if number in self._off]

    def _read_by(self, entry: Entry, other: Entry | None) -> Expected | None:
        """What the reference's host reads here, where both read as often: it may be another op's result."""
        is_read = entry.name in READS and other is not None and self._reads_alike
        return Expected(other.outputs[0], other) if is_read and other is not None else None

    def _reader_of_the_same(self, entry: Entry) -> Entry | None:
        """Ops of other lines are paired by order only: one that reads what this one reads is the better partner."""
        known = [self.expected.get(one.value) for one in entry.inputs]
        return self._by_inputs.get((entry.name, *(None if one is None else one.stored.number for one in known)))

    def _gradient_partner(self, entry: Entry) -> Entry | None:
        """The gradient that came back to the same value of the reference, in the same backward pass."""
        should = None if entry.gradient_of is None else self.expected.get(entry.gradient_of)
        if should is None or entry.gradient_of is None:
            return None
        at = self._seen_gradients[entry.gradient_of]
        self._seen_gradients[entry.gradient_of] += 1
        found = self._gradients[should.stored.number]
        return found[min(at, len(found) - 1)] if found else None

    def _expect(self, entry: Entry, other: Entry | None) -> None:
        if entry.name in READS and other is not None and other.outputs:
            self.expected.setdefault(entry.outputs[0].number, Expected(other.outputs[0], other))
        elif other is not None and len(other.outputs) == len(entry.outputs):
            for output, theirs in zip(entry.outputs, other.outputs, strict=True):
                self.expected[output.number] = Expected(theirs, other)
        elif other is None and entry.sends and len(entry.outputs) == 1:
            known = [self.expected[one.value] for one in entry.inputs if one.value in self.expected]
            if known:
                self.expected[entry.outputs[0].number] = known[0]  # it moves a value, and leaves it what it is
        elif other is None:
            source = self._stand_ins.skipped(entry, self.expected)
            if source is not None:
                self.expected[entry.outputs[0].number] = Expected(
                    source.stored, self.expected[entry.inputs[0].value].entry
                )

    def _measure(self, judged: Judged, at: int, should: Expected) -> None:
        stored = judged.entry.outputs[at]
        if stored.digest and stored.digest == should.stored.digest and stored.dtype == should.stored.dtype:
            if judged.measure is None:
                judged.measure, judged.output, judged.expected = same_measure(stored), at, should
            return
        value = value_of(self.mine, judged.entry.outputs[at])
        expected = whole_of(self.theirs, should.stored)
        if value is None or expected is None:
            return
        expected = expected if judged.entry.scale == 1 else expected * judged.entry.scale
        found = measured(value, expected, judged.entry.outputs[at].dtype)
        if found is None:
            judged.unfit = judged.measure is None
            judged.expected = judged.expected or should
            return
        if judged.measure is None or found.severity > judged.severity:
            own = self._tolerances.of_rounding(self.mine, judged.entry, at, should.stored.dtype)
            judged.measure, judged.output, judged.expected = found, at, should
            judged.own, judged.band = own, own + min(GROWTH * judged.brought, _MOST_GROWN)
            judged.unfit = False

    def _decide(self, judged: Judged) -> None:
        entry = judged.entry
        if judged.measure is None and not judged.unfit:
            return
        wrong = self._wrong_inputs(entry)
        if wrong:  # it comes right again all at once, or not at all
            judged.band = min(judged.own + judged.brought, max(wrong) / _RIGHT_AGAIN)
        is_near = judged.measure is not None and judged.severity <= judged.band and not self._takes_partial(judged)
        if is_near and judged.severity and not wrong and self._is_called_otherwise(judged):
            judged.verdict = Verdict.MISTAKE
            return
        if is_near and judged.measure is not None:
            exact = judged.measure.figures.max_error == 0.0
            judged.verdict = Verdict.EXACT if exact else Verdict.ROUNDING
            return
        if wrong:
            judged.verdict = Verdict.INHERITED
            return
        is_taken = self._takes_partial(judged)
        if judged.measure is not None and not is_taken and self._is_explained(judged):
            judged.verdict = Verdict.ROUNDING
            return
        judged.verdict = Verdict.MISTAKE
        if self._host_chose(judged):
            judged.verdict = Verdict.NOT_COMPARED
            self.parted = True

    @staticmethod
    def _takes_partial(judged: Judged) -> bool:
        """Whether the placements say that each device went on with its own contribution to a sum."""
        measure, entry = judged.measure, judged.entry
        if measure is None or entry.sends:
            return False
        made = entry.outputs[judged.output].dist.placements
        for operand in entry.inputs:
            pairs = zip(operand.dist.placements, made, measure.value.words, strict=False)
            if any(word is Partial("sum") and now is LOCAL and read is LOCAL for word, now, read in pairs):
                return True
        return False

    def _is_called_otherwise(self, judged: Judged) -> bool:
        other = judged.partner
        return other is not None and is_another_computation(self.theirs, judged.entry, other, judged.output)

    def _is_explained(self, judged: Judged) -> bool:
        """Whether the op makes so much of the small errors of its inputs, or chose between nearly equal values."""
        entry, other, measure = judged.entry, judged.partner, judged.measure
        assert measure is not None
        if entry.name.rpartition(".")[2] in _CHOSEN:
            return judged.brought > 0 or measure.figures.error < 0.05
        added, factor = of_cancellation(self.mine, entry, judged.output)
        if added or factor > 1:
            judged.band = max(judged.band, judged.own + added + GROWTH * factor * judged.brought)
            if judged.severity <= judged.band:
                return True
        if other is None or not judged.brought:
            return False
        moved = inherited_error(self.mine, entry, self.theirs, other, judged.output)
        if moved is None:
            return False
        judged.band = judged.own + GROWTH * moved
        return judged.severity <= judged.band

    def _host_chose(self, judged: Judged) -> bool:
        """Numbers that the host wrote after it had read values on which the runs disagree within rounding only."""
        entry, measure = judged.entry, judged.measure
        if entry.inputs and not entry.name.startswith("copy_host"):
            return False
        if measure is None or unit(entry.outputs[0].dtype) != 0.0:
            return False
        for earlier in (one for one in self.judged if one.entry.name in READS):
            if earlier.verdict is Verdict.ROUNDING and self._chooses_otherwise(earlier):
                self.notes.append(
                    f"From {entry.name} ({entry.site}) on the runs take other ways: what the host read before "
                    f"({earlier.entry.site}) agrees within rounding, and its largest values do not stand in the same "
                    "places. What follows is not compared."
                )
                return True
        return False

    def _chooses_otherwise(self, read: Judged) -> bool:
        value = value_of(self.mine, read.entry.outputs[0])
        if value is None or LOCAL in value.words or read.expected is None:
            return False
        ours, theirs = whole_of(self.mine, read.entry.outputs[0]), whole_of(self.theirs, read.expected.stored)
        if ours is None or theirs is None or ours.shape != theirs.shape or not ours.dim():
            return False
        if not ours.is_floating_point():
            return not torch.equal(ours, theirs)
        return not torch.equal(ours.argmax(-1), theirs.argmax(-1))

    def _note(self, number: int, judged: Judged) -> None:
        """What later ops are told of this value."""
        if judged.verdict in (Verdict.EXACT, Verdict.ROUNDING):
            self._levels[number] = judged.severity
            self._chosen.note(number, judged.entry, judged.output, judged.severity)
            if unit(judged.entry.outputs[judged.output].dtype) != 0.0:  # numbers that were chosen tell nothing
                self._worst = max(self._worst, judged.severity)
        elif judged.verdict is Verdict.NOT_COMPARED:
            self._levels[number] = judged.brought
            wrong = self._wrong_inputs(judged.entry)
            if wrong:
                self._off[number] = max(wrong)
        else:
            self._off[number] = math.inf if judged.measure is None else judged.severity
            self._levels[number] = judged.own + judged.brought  # as if it were right: what follows may come right again

    # -- what becomes of what is off -------------------------------------------------------------

    def _trace_on(self) -> None:
        """An op is to blame if its error reaches the end, or a value that nothing reads."""
        readers: dict[int, list[Judged]] = defaultdict(list)
        for one in self.judged:
            for operand in one.entry.inputs:
                readers[self._known_of(operand.value)].append(one)
        wrong = (Verdict.MISTAKE, Verdict.INHERITED)
        for one in reversed(self.judged):
            if one.verdict in (Verdict.EXACT, Verdict.ROUNDING):
                continue
            made = [] if one.entry.name in READS else [output.number for output in one.entry.outputs]
            after = [reader for number in made for reader in readers[number] if reader is not one]
            is_end = one.verdict in wrong or any(number in self._off for number in made)
            one.may_be_carried = any(reader.may_be_carried for reader in after) if after else is_end
            one.is_carried = any(reader.is_carried for reader in after) if after else one.verdict in wrong
            if one.verdict is Verdict.MISTAKE and not one.is_carried:
                one.is_carried = self._is_carried_otherwise(one)

    def _is_carried_otherwise(self, mistake: Judged) -> bool:
        """By the values themselves, where none of its readers carries it on."""
        return (mistake.may_be_carried and not self._is_dealt(mistake)) or not self._is_rearranged(mistake)

    def _blamed(self) -> Judged | None:
        """The first mistake that reaches the end. A fused weight that was dealt out to devices is none, if there is
        another; and where an op that was compared stands behind some that were not, one of these may be the cause."""
        wrong = [one for one in self.judged if one.verdict is Verdict.MISTAKE and one.is_carried]
        first = next((one for one in wrong if not self._is_dealt(one)), None)
        is_late = first is None or self._may_be_chosen(first)
        if is_late and wrong and (self.mine.error is None or not self._is_dealt(wrong[0])):
            first = wrong[0]
        return None if first is None else self._apart_before(first)

    def _may_be_chosen(self, judged: Judged) -> bool:
        """Whole numbers that the host wrote when it had read values that were wrong already: tokens, perhaps."""
        entry = judged.entry
        if entry.inputs or unit(entry.outputs[0].dtype) != 0.0:
            return False
        before = (one for one in self.judged[: entry.number] if one.entry.name in READS)
        return any(one.verdict in (Verdict.MISTAKE, Verdict.INHERITED) for one in before)

    def _is_dealt(self, judged: Judged) -> bool:
        if judged.entry.inputs or judged.measure is None or judged.expected is None:
            return False
        ours, theirs = whole_of(self.mine, judged.entry.outputs[0]), whole_of(self.theirs, judged.expected.stored)
        if ours is None or theirs is None or ours.numel() != theirs.numel():
            return False
        dealt = out_of_order(judged.measure.value, ours, theirs.reshape(ours.shape))
        return dealt is not None and not dealt[1]

    def _apart_before(self, judged: Judged) -> Judged:
        """The first op on the way to it that was not compared and made of one value something of each device's own."""
        makers = {output.number: one for one in self.judged for output in one.entry.outputs}
        found, waiting, seen = judged, [judged], {judged.entry.number}
        while waiting:
            for operand in waiting.pop().entry.inputs:
                maker = makers.get(operand.value)
                if maker is None or maker.verdict is not Verdict.NOT_COMPARED or maker.entry.number in seen:
                    continue
                seen.add(maker.entry.number)
                waiting.append(maker)
                if falls_apart(maker.entry) and maker.entry.number < found.entry.number:
                    found = maker
        return found

    def _is_rearranged(self, judged: Judged) -> bool:
        """Whether what is off may come right again: only its order or its size is another, or it is nobody's whole.

        Else what looks right later does so because little of it is left there.
        """
        if judged.unfit or judged.is_apart or judged.measure is None or judged.expected is None:
            return True
        if self._takes_partial(judged):
            return False
        if _is_control(judged.entry):
            return True  # pages, positions: nothing of them is left where what they led to is right
        ours = whole_of(self.mine, judged.entry.outputs[judged.output])
        theirs = whole_of(self.theirs, judged.expected.stored)
        if ours is None or theirs is None:
            return True
        return self._is_dealt(judged) or is_reordered(ours, theirs, min(max(judged.band, 1e-6), _SMALL)) is not None


def _is_control(entry: Entry) -> bool:
    """Whole numbers that the host wrote."""
    return not entry.inputs and unit(entry.outputs[0].dtype) == 0.0


def falls_apart(entry: Entry) -> bool:
    """Whether devices hold something of their own only after the op."""
    if entry.name.endswith("pre_all_gather"):
        return False  # what it is for
    made = entry.outputs[0].dist.placements
    return any(
        word is LOCAL
        and not any(axis < len(one.dist.placements) and one.dist.placements[axis] is LOCAL for one in entry.inputs)
        for axis, word in enumerate(made)
    )
