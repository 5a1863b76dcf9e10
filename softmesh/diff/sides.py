"""Loads both sides of a comparison in a form that can be laid side by side.

The reference is one tensor. Where each of its devices holds something of its own, the devices become leading dims of
that tensor, and the program's devices are matched with them one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from softmesh.diff.assembly import by_device, of_rank, own_axes, value_of, whole_of
from softmesh.diff.entries import Operand, Recording
from softmesh.diff.judged import Expected, Joined, Judged
from softmesh.diff.value_store import Stored
from softmesh.placement.placements import LOCAL, Shard
from softmesh.train.equivalence.values import Value, spread, whole


class Side(NamedTuple):
    """A value of the program, and what it should be."""

    value: Value
    expected: torch.Tensor

    @property
    def found(self) -> torch.Tensor | None:
        """The one tensor that the program's devices hold; None where there is no such thing."""
        return None if LOCAL in self.value.words else whole("a value", self.value)


class Sides:
    """Both runs of a comparison."""

    def __init__(self, mine: Recording, theirs: Recording) -> None:
        self.mine, self.theirs = mine, theirs

    def of(self, judged: Judged) -> Side | None:
        """The output that is furthest off; None where one side was not kept, or the two cannot be matched."""
        if judged.expected is None:
            return None
        return self.laid(judged.entry.outputs[judged.output], judged.expected, judged.entry.scale)

    def laid(self, ours: Stored | Operand, should: Expected, scale: float = 1.0) -> Side | None:
        if should.joined is not None:
            return self._beside_joined(ours, should.joined)
        value, reference = value_of(self.mine, ours), value_of(self.theirs, should.stored)
        if value is None or reference is None:
            return None
        axes = own_axes(reference)
        if axes and should.piece is None:
            if value.dist.grid != reference.dist.grid:
                return None
            value = by_device(value, axes)
        if axes:
            local = value.data.dim() - value.dist.lead - (len(axes) if should.piece is None else 0)
            reference = by_device(_with_rank(reference, local), axes)
        expected = whole("a value", reference)
        if should.piece is not None:
            share = spread(of_rank(expected, should.piece.rank), should.piece.whole)
            if share is None:
                return None
            expected = share[tuple(min(at, n - 1) for at, n in zip(should.piece.at, share.shape, strict=False))]
        if should.order is not None:
            expected = expected.index_select(should.order.dim, should.order.places)
        return Side(value, expected if scale == 1 else expected * scale)

    def _beside_joined(self, ours: Stored | Operand, joined: Joined) -> Side | None:
        value = value_of(self.mine, ours)
        parts = [whole_of(self.theirs, one) for one in joined.stored]
        known = [one for one in parts if one is not None]
        if value is None or len(known) < len(parts):
            return None
        return Side(value, torch.cat(known, joined.dim).narrow(joined.dim, joined.start, joined.size))


def _with_rank(value: Value, rank: int) -> Value:
    """With as many local dims, where those that differ have one element."""
    lead, local = value.data.shape[: value.dist.lead], list(value.data.shape[value.dist.lead :])
    if len(local) == rank or any(isinstance(word, Shard) for word in value.words):
        return value
    while len(local) > rank and local[0] == 1:
        del local[0]
    return Value(value.data.reshape(*lead, *[1] * (rank - len(local)), *local), value.dist)
