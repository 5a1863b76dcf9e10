"""Goes through two runs op by op, and finds the first op that is wrong by itself.

An op is right if its value lies in the band of rounding around the reference's. Is it outside, its inputs may explain
it: they were wrong already, or the op makes much of little, which its golden function tells. What is off and comes
right again later was only kept in another order.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import torch

from softmesh.diff.alignment import aligned
from softmesh.diff.assembly import measured, same_measure
from softmesh.diff.batch_reads import BatchReads
from softmesh.diff.blame import Blame, takes_partial
from softmesh.diff.chosen_numbers import ChosenNumbers
from softmesh.diff.coverage import cover
from softmesh.diff.golden_values import inherited_error
from softmesh.diff.judged import RIGHT, Expected, Judged, Order, Piece
from softmesh.diff.orders import dealt_order
from softmesh.diff.other_arguments import is_another_computation
from softmesh.diff.other_forms import OtherForms
from softmesh.diff.piece_reads import look_for_unread
from softmesh.diff.recording import READS, Entry, Recording
from softmesh.diff.result import Reason, Verdict
from softmesh.diff.sides import Sides
from softmesh.diff.stand_ins import StandIns
from softmesh.diff.tolerances import GROWTH, Tolerances, of_cancellation, unit
from softmesh.diff.value_pairs import Pairing
from softmesh.diff.value_store import Stored
from softmesh.kinds import Kind
from softmesh.progress import counted

_RIGHT_AGAIN = 10.0  # times smaller is the error of a value whose order was put right
_MOST_GROWN = 0.5  # of a value, what may be put down to its inputs without a look at what the op makes of them


class Judgement:
    """Of all ops; `first` is the one to blame."""

    def __init__(
        self, mine: Recording, theirs: Recording, tolerances: Tolerances, pairing: Pairing | None = None
    ) -> None:
        self.mine, self.theirs, self._tolerances = mine, theirs, tolerances
        self.pairs, self._joined = pairing or Pairing(aligned(mine, theirs), {})
        tolerances.look_at(mine, theirs, self.pairs)
        self.notes: list[str] = []
        self.sides = Sides(mine, theirs)
        self.expected: dict[int, Expected] = {}  # by value of ours
        self._read_as: dict[int, Piece] = {}  # by value of ours, how the devices' shares of it make up the whole
        self._other_forms = OtherForms(self.sides, self.pairs)
        self._skips_captured = not any(one.is_captured for one in theirs.entries)
        self._stand_ins = StandIns(mine, theirs, self.pairs)
        self._by_inputs = {
            (one.name, *(each.value for each in one.inputs)): one for one in theirs.entries if one.inputs
        }
        self._gradients: dict[int, list[Entry]] = defaultdict(list)  # of each backward pass, by value
        for one in theirs.entries:
            if one.gradient_of is not None:
                self._gradients[one.gradient_of].append(one)
        self._seen_gradients: Counter[int] = Counter()  # of a value of ours
        counts = {sum(one.name in READS for one in run.entries) for run in (mine, theirs)}
        self._is_by_order = pairing is None
        self._reads_alike = pairing is not None or len(counts) == 1
        self._batch_reads = BatchReads(mine, theirs, self.pairs, READS)
        self._chosen = ChosenNumbers(mine)
        self._levels: dict[int, float] = {}  # by value: the accepted error
        self._worst = 0.0  # of these: what is taken of values that nothing is known of
        self._off: dict[int, float] = {}  # values that are wrong, or made of such, and how far off
        self.parted = False
        self.judged: list[Judged] = []
        with counted("comparing ops", len(mine.entries)) as done:
            for entry in mine.entries:
                self.judged.append(self._judge(entry))
                done()
        look_for_unread(self.judged, mine, theirs)
        self.first = Blame(self.sides, self.judged, self._off, self._known_of, self._batch_reads).first
        cover(self.judged, mine, self._known_of, is_by_op=theirs.is_by_op)

    # -- one op ----------------------------------------------------------------------------------

    def _judge(self, entry: Entry) -> Judged:
        other = self._partner(entry)
        is_apart = other is None
        if other is None:
            other = self._stand_ins.replaced(entry, self.expected)
        judged = Judged(entry, other, is_apart=is_apart)
        if self.parted:
            judged.reason = Reason.NEAR_TIE
            return judged
        if entry.is_captured and self._skips_captured:
            judged.reason, judged.partner = Reason.NO_COUNTERPART, None
            return judged
        self._expect(entry, other)
        read = {one.value: self._known_of(one.value) for one in entry.inputs}
        judged.brought = sum(self._levels.get(number, self._worst) for number in read.values())
        if entry.gradient_of is not None:
            judged.brought += self._levels.get(entry.gradient_of, 0.0) if entry.inputs else self._worst
        for at, output in enumerate(entry.outputs):
            should = self._piece(output) or self._read_by(entry, other) or self.expected.get(output.number)
            if should is not None:
                self._measure(judged, at, should)
        self._decide(judged)
        if not judged.is_right and entry.name not in READS:
            self._look_at_other_forms(judged)
        if entry.name in READS and judged.verdict not in RIGHT:
            self._look_elsewhere(judged)
        if judged.verdict is Verdict.MISTAKE:
            self._look_at_choices(judged)
        if judged.verdict is Verdict.EXACT:
            self._chosen.agreed(entry)
        if judged.is_right:
            self._other_forms.right(judged)
        for output in entry.outputs:
            if entry.name not in READS:
                self._note(output.number, judged)
        return judged

    def _partner(self, entry: Entry) -> Entry | None:
        """The op of the reference that does the same."""
        paired = self.pairs.get(entry.number)
        partner = self._gradient_partner(entry) if paired is None else self.theirs.entries[paired]
        if self._is_by_order and partner is not None and partner.site != entry.site and entry.gradient_of is None:
            return self._reader_of_the_same(entry) or partner
        return partner

    def _piece(self, output: Stored) -> Expected | None:
        """Return the expected share of one device, if that was compared."""
        origin = self.mine.origins.get(output.number)
        known, read = (None, None) if origin is None else (self.expected.get(origin), self._read_as.get(origin))
        if origin is None or known is None or read is None or known.piece is not None:
            return None
        coords, among = output.dist.coordinates(), self.mine.store.values[origin].dist.coordinates()
        if len(coords) != 1 or len(among) == 1 or coords[0] not in among:
            return None
        flat = torch.tensor(among.index(coords[0]))
        index = tuple(int(at) for at in torch.unravel_index(flat, read.whole.grid))
        found = known._replace(piece=read._replace(at=index))
        self.expected[output.number] = found
        return found

    def _look_at_other_forms(self, judged: Judged) -> None:
        """The program may compute the same in other steps: then the value is that of another op of the reference."""
        found = self._other_forms.found(judged, self._wrong_inputs(judged.entry))
        if found is None:
            return
        judged.expected, judged.measure, judged.unfit = *found, False
        judged.partner = judged.expected.entry
        judged.verdict = Verdict.EXACT if judged.severity == 0.0 else Verdict.ROUNDING
        self.expected[judged.entry.outputs[0].number] = judged.expected

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
            judged.verdict, judged.reason, self.parted = Verdict.NOT_COMPARED, Reason.NEAR_TIE, True
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
        joined = self._joined.get(entry.number)
        if joined is not None:
            stored = joined.stored[0]
            maker = next(one for one in self.theirs.entries if one.name in READS and one.outputs[0] == stored)
            return Expected(stored, maker, joined=joined)
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
        is_whole = should.piece is None and should.order is None and should.joined is None
        rank = len(stored.shape) - stored.dist.lead
        if is_whole and stored.digest and stored.digest == should.stored.digest and stored.dtype == should.stored.dtype:
            if judged.measure is None:
                judged.measure, judged.output, judged.expected = same_measure(stored), at, should
            self._read_as[stored.number] = Piece(stored.dist, rank, ())
            return
        side = self.sides.laid(stored, should, judged.entry.scale)
        if side is None:
            judged.reason = judged.reason or self._why_not(stored, should)
            return
        found = measured(side.value, side.expected, stored.dtype)
        if found is not None:
            self._read_as[stored.number] = Piece(found.value.dist, side.value.data.dim() - side.value.dist.lead, ())
        if found is None:
            judged.unfit = judged.measure is None
            judged.expected = judged.expected or should
            return
        if judged.measure is None or found.severity > judged.severity:
            own = self._tolerances.of_rounding(self.mine, judged.entry, at, should.stored.dtype)
            judged.measure, judged.output, judged.expected = found, at, should
            judged.own, judged.band = own, own + min(GROWTH * judged.brought, _MOST_GROWN)
            judged.unfit = False

    def _why_not(self, ours: Stored, should: Expected) -> Reason:
        if ours.is_kept and should.stored.is_kept:
            return Reason.OWN_VALUES
        return Reason.NO_GOLDEN if self.theirs.is_by_op else Reason.TOO_LARGE

    def _decide(self, judged: Judged) -> None:
        entry = judged.entry
        if judged.measure is None and not judged.unfit:
            judged.reason = judged.reason or Reason.NO_COUNTERPART
            return
        wrong = self._wrong_inputs(entry)
        if wrong:  # it comes right again all at once, or not at all
            judged.band = min(judged.own + min(judged.brought, _MOST_GROWN), max(wrong) / _RIGHT_AGAIN)
        is_near = judged.measure is not None and judged.severity <= judged.band and not takes_partial(judged)
        if not is_near and self._is_in_another_order(judged):
            judged.verdict = Verdict.REARRANGED
            return
        if is_near and judged.severity and not wrong and self._is_called_otherwise(judged):
            judged.verdict = Verdict.MISTAKE
            return
        if is_near and judged.measure is not None:
            exact = judged.measure.figures.max_error == 0.0
            judged.verdict = (
                Verdict.EXACT if exact else Verdict.COARSER if self._is_coarser(judged) else Verdict.ROUNDING
            )
            return
        if wrong or (judged.unfit and self._orders(entry)):
            judged.verdict = Verdict.INHERITED
            return
        is_taken = takes_partial(judged)
        if judged.measure is not None and not is_taken and self._is_explained(judged):
            judged.verdict = Verdict.ROUNDING
            return
        judged.verdict = Verdict.MISTAKE
        if self._host_chose(judged):
            judged.verdict, judged.reason = Verdict.NOT_COMPARED, Reason.NEAR_TIE
            self.parted = True

    def _is_in_another_order(self, judged: Judged) -> bool:
        """A weight whose parts are dealt out by device; or what an op makes of one, its slices in the same order."""
        entry, should = judged.entry, judged.expected
        if should is None or judged.entry.scale != 1:
            return False
        side = self.sides.of(judged)
        if side is None:
            return False
        dealt = (
            None if entry.inputs else dealt_order(side.value, side.found, side.expected, max(judged.band, judged.own))
        )
        for order in self._orders(entry) if dealt is None else [dealt]:
            ordered = should._replace(order=order)
            again = self.sides.laid(entry.outputs[judged.output], ordered)
            found = None if again is None else measured(again.value, again.expected, entry.outputs[judged.output].dtype)
            own = self._tolerances.of_rounding(self.mine, entry, judged.output, should.stored.dtype)
            band = own + min(GROWTH * judged.brought, _MOST_GROWN)
            if found is not None and found.severity <= band:
                judged.measure, judged.expected, judged.own, judged.band = found, ordered, own, band
                judged.unfit = False
                self.expected[entry.outputs[judged.output].number] = ordered
                return True
        return False

    def _orders(self, entry: Entry) -> list[Order]:
        """Those in which slices of what it reads stand."""
        known = (self.expected.get(self._known_of(one.value)) for one in entry.inputs)
        return [one.order for one in known if one is not None and one.order is not None]

    def _is_coarser(self, judged: Judged) -> bool:
        """True if the op rounds to a coarser type than the reference's, where nobody asked for wider ones."""
        assert judged.expected is not None
        ours, theirs = (unit(one.dtype) for one in (judged.entry.outputs[judged.output], judged.expected.stored))
        return not self._tolerances.lifted and ours > 2 * theirs > 0

    def _is_called_otherwise(self, judged: Judged) -> bool:
        other = judged.partner
        return other is not None and is_another_computation(self.theirs, judged.entry, other, judged.output)

    def _is_explained(self, judged: Judged) -> bool:
        """Whether the op makes so much of the small errors of its inputs, or chose between nearly equal values."""
        entry, other, measure = judged.entry, judged.partner, judged.measure
        assert measure is not None
        if entry.kind is Kind.SELECTION:
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
        side = self.sides.of(read)
        ours, theirs = (None, None) if side is None else (side.found, side.expected)
        if ours is None or theirs is None or ours.shape != theirs.shape or not ours.dim():
            return False
        if not ours.is_floating_point():
            return not torch.equal(ours, theirs)
        return not torch.equal(ours.argmax(-1), theirs.argmax(-1))

    def _note(self, number: int, judged: Judged) -> None:
        """What later ops are told of this value."""
        if judged.is_right:
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
