"""Finds the op to blame among those that are off: the first mistake whose error reaches the end.

What is off and comes right again was only kept in another order, or computed in other steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch

from softmesh.diff.batch_reads import BatchReads
from softmesh.diff.entries import Entry
from softmesh.diff.golden_values import golden_of, wholes
from softmesh.diff.judged import Judged
from softmesh.diff.orders import is_reordered
from softmesh.diff.recording import READS
from softmesh.diff.result import Verdict
from softmesh.diff.sides import Sides
from softmesh.diff.tolerances import unit
from softmesh.kinds import Kind
from softmesh.placement.placements import LOCAL, Partial

_SMALL = 0.05
_NOTICED, _TINY = 4.0, 1e-6  # times its band, by which a reader would be off


class Blame:
    """The search for the op to blame (`first`) in a comparison whose ops are all judged."""

    def __init__(
        self,
        sides: Sides,
        judged: Sequence[Judged],
        off: Mapping[int, float],
        known_of: Callable[[int], int],
        batch_reads: BatchReads,
    ) -> None:
        self.sides, self.judged, self._off, self._known_of = sides, judged, off, known_of
        self._batch_reads = batch_reads
        self._trace_on()
        self.first = self._blamed()

    def _trace_on(self) -> None:
        """An op is to blame if its error reaches the end, or a value that nothing reads."""
        readers: dict[int, list[Judged]] = defaultdict(list)
        for one in self.judged:
            for operand in one.entry.inputs:
                readers[self._known_of(operand.value)].append(one)
        wrong = (Verdict.MISTAKE, Verdict.INHERITED)
        for one in reversed(self.judged):
            if one.is_right:
                continue
            made = [] if one.entry.name in READS else [output.number for output in one.entry.outputs]
            after = [reader for number in made for reader in readers[number] if reader is not one]
            is_end = one.verdict in wrong or any(number in self._off for number in made)
            one.may_be_carried = any(reader.may_be_carried for reader in after) if after else is_end
            one.is_carried = any(reader.is_carried for reader in after) if after else one.verdict in wrong
            if one.verdict is Verdict.MISTAKE and not one.is_carried:
                one.is_carried = not self._is_vouched_for(one, after) and self._is_carried_otherwise(one)

    def _is_carried_otherwise(self, mistake: Judged) -> bool:
        """By the values themselves, where none of its readers carries it on."""
        return mistake.may_be_carried or not self._is_rearranged(mistake)

    def _is_vouched_for(self, mistake: Judged, readers: Sequence[Judged]) -> bool:
        """True if a reader is right that would not be if this value were wrong: the op has another counterpart."""
        return any(self._would_notice(reader, mistake) for reader in readers if reader.is_right)

    def _would_notice(self, reader: Judged, mistake: Judged) -> bool:
        side, read = self.sides.of(mistake), wholes(self.sides.mine, reader.entry)
        if side is None or read is None or mistake.unfit or takes_partial(mistake) or reader.entry.sends:
            return False
        number, expected = mistake.entry.outputs[mistake.output].number, side.expected
        instead = [
            expected.reshape(one.shape) if operand.value == number and one.numel() == expected.numel() else one
            for operand, one in zip(reader.entry.inputs, read.tensors, strict=True)
        ]
        if reader.entry.name in READS:
            made, other = read.tensors, instead
        else:
            made, other = (golden_of(reader.entry, one) or [] for one in (read, read._replace(tensors=instead)))
        if min(len(made), len(other)) <= reader.output:
            return False
        now, then = made[reader.output].double(), other[reader.output].double()
        return float((now - then).norm()) > _NOTICED * max(reader.band, _TINY) * float(now.norm())

    def _blamed(self) -> Judged | None:
        """The first mistake that reaches the end.

        Where an op that was compared stands behind some that were not, one of these may be the cause.
        """
        wrong = [one for one in self.judged if one.verdict is Verdict.MISTAKE and one.is_carried]
        if self._batch_reads.is_cut_otherwise:
            wrong = self._beside_the_cut(wrong)
        inherited = (one for one in self.judged if one.verdict is Verdict.INHERITED and one.is_carried)
        first = next((one for one in wrong if not self._may_be_chosen(one)), None) or next(iter(wrong), None)
        first = first or next(inherited, None)
        return None if first is None else self._apart_before(first)

    def _beside_the_cut(self, wrong: list[Judged]) -> list[Judged]:
        """Without what differs because the batch is cut otherwise: other shares of it, and pages by other numbers.

        Is nothing left, an op that reads such pages should have made the same of them.
        """
        cut = [one for one in wrong if not one.entry.inputs and (one.unfit or self._is_renumbered(one))]
        if not cut:
            return wrong
        reads = [one for one in self.judged if one.entry.name in READS and one.verdict is Verdict.INHERITED]
        left = [one for one in wrong if one not in cut and not self._may_be_chosen(one)]
        left = sorted(left + reads, key=lambda one: one.entry.number)
        pages = {output.number for one in cut if not one.unfit for output in one.entry.outputs}
        readers = [
            one
            for one in self.judged
            if one.is_carried and one.verdict is Verdict.INHERITED and one.measure is not None
            if any(operand.value in pages for operand in one.entry.inputs) and one.entry.kind is not Kind.CACHE
        ]
        return sorted(left + readers[:1], key=lambda one: one.entry.number) or wrong

    def _is_renumbered(self, judged: Judged) -> bool:
        """Pages: on each device numbers from 0 on, each once, as in the reference; only which is whose differs."""
        if not _is_control(judged.entry) or judged.measure is None or judged.expected is None:
            return False
        side = self.sides.of(judged)
        if side is None:
            return False
        value, theirs = judged.measure.value, side.expected
        shares = value.data.flatten(0, value.dist.lead - 1).flatten(1)
        if shares.shape[1] < 2:
            return False
        return all(torch.equal(one.flatten().sort().values, torch.arange(one.numel())) for one in (*shares, theirs))

    def _may_be_chosen(self, judged: Judged) -> bool:
        """Whole numbers that the host wrote when it had read values that were wrong already: tokens, perhaps."""
        entry = judged.entry
        if entry.inputs or unit(entry.outputs[0].dtype) != 0.0:
            return False
        before = (one for one in self.judged[: entry.number] if one.entry.name in READS)
        return any(one.verdict in (Verdict.MISTAKE, Verdict.INHERITED) for one in before)

    def _apart_before(self, judged: Judged) -> Judged:
        """The first op on the way to it that was not compared and made of one value something of each device's own."""
        makers = {output.number: one for one in self.judged for output in one.entry.outputs}
        found, waiting, seen = judged, [judged], {judged.entry.number}
        while waiting:
            for operand in waiting.pop().entry.inputs:
                maker = makers.get(self._known_of(operand.value))
                if maker is None or maker.verdict is not Verdict.NOT_COMPARED or maker.entry.number in seen:
                    continue
                seen.add(maker.entry.number)
                waiting.append(maker)
                if falls_apart(maker.entry) and maker.entry.number < found.entry.number:
                    found = maker
        return found

    def _is_rearranged(self, judged: Judged) -> bool:
        """True if what is off may come right again: only its order or its size is another, or it is nobody's whole.

        Else what looks right later does so because little of it is left there.
        """
        if judged.unfit or judged.is_apart or judged.measure is None or judged.expected is None:
            return True
        if takes_partial(judged):
            return False
        if _is_control(judged.entry):
            return True  # pages, positions: nothing of them is left where what they led to is right
        side = self.sides.laid(judged.entry.outputs[judged.output], judged.expected)
        if side is None or side.found is None:
            return True
        return is_reordered(side.found, side.expected, min(max(judged.band, 1e-6), _SMALL)) is not None


def takes_partial(judged: Judged) -> bool:
    """True if the placements say that each device went on with its own contribution to a sum."""
    measure, entry = judged.measure, judged.entry
    if measure is None or entry.sends:
        return False
    made = entry.outputs[judged.output].dist.placements
    for operand in entry.inputs:
        pairs = zip(operand.dist.placements, made, measure.value.words, strict=False)
        if any(word is Partial("sum") and now is LOCAL and read is LOCAL for word, now, read in pairs):
            return True
    return False


def _is_control(entry: Entry) -> bool:
    """Whole numbers that the host wrote."""
    return not entry.inputs and unit(entry.outputs[0].dtype) == 0.0


def falls_apart(entry: Entry) -> bool:
    """True if devices hold something of their own only after the op."""
    if entry.kind is Kind.STATISTICS:
        return False  # what it is for
    made = entry.outputs[0].dist.placements
    return any(
        word is LOCAL
        and not any(axis < len(one.dist.placements) and one.dist.placements[axis] is LOCAL for one in entry.inputs)
        for axis, word in enumerate(made)
    )
