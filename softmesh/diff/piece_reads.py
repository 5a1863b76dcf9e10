"""Reads of a value by pieces: whether the host has seen the whole of it, as the reference's host has."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from softmesh.diff.entries import Recording
from softmesh.diff.judged import Judged
from softmesh.diff.recording import READS
from softmesh.diff.result import Reason, Verdict
from softmesh.placement.placements import Shard


def look_for_unread(judged: Sequence[Judged], mine: Recording, theirs: Recording) -> None:
    """Changes the verdict on the last read of a value of which a share was never read.

    Are enough pieces read to make up the whole, copies were taken for shares. Else nothing tells what was meant.
    """
    whole_reads = {one.outputs[0].number for one in theirs.entries if one.name in READS}
    reads: dict[int, list[Judged]] = defaultdict(list)
    for one in judged:
        should = one.expected
        if one.entry.name in READS and should is not None and should.piece is not None:
            origin = mine.origins.get(one.entry.outputs[0].number)
            if origin is not None and should.stored.number in whole_reads:
                reads[origin].append(one)
    for pieces in reads.values():
        shares, seen = _shares(pieces)
        if len(seen) < shares and all(one.is_right for one in pieces):
            last = pieces[-1]
            if len(pieces) >= shares:
                last.verdict = Verdict.MISTAKE
            else:
                last.verdict, last.reason = Verdict.NOT_COMPARED, Reason.PART_READ


def _shares(pieces: Sequence[Judged]) -> tuple[int, set[tuple[int, ...]]]:
    """The number of shares of a whole, and those that were read."""
    found = [one.expected.piece for one in pieces if one.expected is not None and one.expected.piece is not None]
    whole = found[0].whole
    axes = [axis for axis, word in enumerate(whole.placements) if isinstance(word, Shard)]
    return math.prod(whole.grid[axis] for axis in axes), {tuple(one.at[axis] for axis in axes) for one in found}


def unread_text(judged: Judged) -> str:
    """Return the shares that no read takes."""
    piece = None if judged.expected is None else judged.expected.piece
    if piece is None or judged.severity > judged.band:
        return ""
    axes = [axis for axis, word in enumerate(piece.whole.placements) if isinstance(word, Shard)]
    shares = math.prod(piece.whole.grid[axis] for axis in axes)
    return (
        f"the value lies in {shares} shares along mesh ax{'is' if len(axes) == 1 else 'es'} "
        f"{' and '.join(map(str, axes))}, and the host reads some of them several times and others never: it takes "
        "copies for shares."
    )
