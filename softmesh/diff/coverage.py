"""Tells which ops without a value to be held against were compared all the same: through what reads their results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from softmesh.diff.entries import Recording
from softmesh.diff.judged import Judged
from softmesh.diff.recording import READS
from softmesh.diff.result import Reason, Verdict

_COMPARED = (Verdict.EXACT, Verdict.ROUNDING, Verdict.COARSER, Verdict.REARRANGED, Verdict.MISTAKE, Verdict.INHERITED)


def cover(judged: Sequence[Judged], run: Recording, known_of: Callable[[int], int], *, is_by_op: bool) -> None:
    """Changes the verdict of ops that could not be compared where they need not be.

    `is_by_op`: what reads a value was computed from the program's own, and so tells nothing of it.
    """
    if is_by_op:
        return
    readers: dict[int, list[Judged]] = defaultdict(list)
    for one in judged:
        for operand in one.entry.inputs:
            readers[known_of(operand.value)].append(one)
    compared = [one for one in judged if one.verdict in _COMPARED]
    last = compared[-1].entry.number if compared else -1
    is_replay_right = any(operand.value in run.replayed for one in compared for operand in one.entry.inputs)
    for one in reversed(judged):
        is_end = one.entry.name in READS or one.reason in (Reason.NEAR_TIE, Reason.PART_READ)
        if one.verdict is not Verdict.NOT_COMPARED or is_end:
            continue
        made = [output.number for output in one.entry.outputs]
        after = [reader.verdict for number in made for reader in readers[number] if reader is not one]
        is_read = any(verdict in _COMPARED or verdict is Verdict.THROUGH_READERS for verdict in after)
        if is_read or (one.entry.is_captured and is_replay_right):
            one.verdict = Verdict.THROUGH_READERS
        elif all(verdict is Verdict.UNREAD for verdict in after) and one.entry.number < last:
            one.verdict = Verdict.UNREAD
