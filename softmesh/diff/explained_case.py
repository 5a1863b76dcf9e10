"""A wrong op with all that explanations look at, and what one of them says."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from softmesh.diff.assembly import like, measured, value_of, whole_of
from softmesh.diff.judged import Judged
from softmesh.diff.judgement import Judgement
from softmesh.diff.result import Cause
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement

CLOSE = 0.05  # the relative error that an explanation may leave, at most
_ADDITIVE = ("add", "subtract")


class Finding(NamedTuple):
    cause: Cause
    text: str


class Case:
    """A wrong op with all that explanations look at."""

    def __init__(self, judgement: Judgement, judged: Judged) -> None:
        self.judgement, self.judged = judgement, judged
        self.entry, self.partner = judged.entry, judged.partner
        side = judgement.sides.of(judged)
        self.value = value_of(judgement.mine, self.entry.outputs[judged.output]) if side is None else side.value
        self.expected = None if side is None else like(side.expected, side.value)
        self.found = whole_of(judgement.mine, self.entry.outputs[judged.output]) if side is None else side.found
        self.words = [one.dist.placements for one in self.entry.inputs]
        self.made: tuple[Placement, ...] = self.entry.outputs[judged.output].dist.placements

    @property
    def grid(self) -> tuple[int, ...]:
        return self.entry.outputs[self.judged.output].dist.grid

    @property
    def room(self) -> float:
        """The relative error that an explanation may leave: far less than there is to explain."""
        measure = self.judged.measure
        own = math.inf if measure is None else measure.figures.error / 2
        return min(max(2 * self.judged.band, 1e-5), CLOSE, own)

    def fits(self, other: torch.Tensor) -> bool:
        """Whether the value is this one, within what rounding and the inputs explain."""
        if self.value is None:
            return False
        found = measured(self.value, other, self.entry.outputs[self.judged.output].dtype)
        return found is not None and found.severity <= self.room

    def same(self, found: torch.Tensor) -> bool:
        """Whether this is what the value should be."""
        if self.expected is None or found.numel() != self.expected.numel():
            return False
        expected = self.expected.float()
        off = float((found.reshape(expected.shape).float() - expected).norm())
        return off <= self.room * float(expected.norm())

    def input_axes(self, kind: type[Placement]) -> list[tuple[int, Placement]]:
        """Axes along which an input has such a placement and the result is nobody's piece."""
        return [
            (axis, word)
            for words in self.words
            for axis, word in enumerate(words)
            if isinstance(word, kind) and axis < len(self.made) and self._is_lost(axis)
        ]

    def _is_lost(self, axis: int) -> bool:
        """A bias added on each device is no part of the whole, though the result may be reduced yet."""
        shares = any(axis < len(words) and words[axis] is REPLICATE for words in self.words)
        is_added_to = self.entry.name in _ADDITIVE and isinstance(self.made[axis], Partial) and shares
        return self.made[axis] is LOCAL or is_added_to
