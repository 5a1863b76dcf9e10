"""One op of the program beside the reference: what its value should be, how it was measured, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from softmesh.diff.assembly import Measure
from softmesh.diff.entries import Entry
from softmesh.diff.result import Reason, Verdict
from softmesh.diff.value_store import Stored
from softmesh.placement.distribution import Distribution


class Order(NamedTuple):
    """The order in which slices of the reference stand in the program: of a weight that is dealt out by device."""

    dim: int  # from the end
    places: torch.Tensor


class Piece(NamedTuple):
    """One device's share of a value: where it stands in the whole, as the program's whole was read."""

    whole: Distribution
    rank: int
    at: tuple[int, ...]


class Joined(NamedTuple):
    """A range of several values of the reference's, one behind the other along a dim: a batch that is cut otherwise."""

    stored: tuple[Stored, ...]
    dim: int
    start: int
    size: int


class Expected(NamedTuple):
    """The expected value: one of the reference's run, or a part of it."""

    stored: Stored
    entry: Entry
    piece: Piece | None = None
    order: Order | None = None
    joined: Joined | None = None


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
    reason: Reason | None = None  # why it could not be compared
    is_carried: bool = False
    may_be_carried: bool = False  # to ops that were not compared
    is_apart: bool = False  # the reference has no such op: it may do the same in other steps
    unfit: bool = False  # there is a reference, and no reading has its size

    @property
    def severity(self) -> float:
        return 0.0 if self.measure is None else self.measure.severity

    @property
    def is_right(self) -> bool:
        return self.verdict in RIGHT

    @property
    def final_verdict(self) -> Verdict:
        is_healed = self.verdict in (Verdict.MISTAKE, Verdict.INHERITED) and not self.is_carried
        return Verdict.REARRANGED if is_healed else self.verdict


RIGHT = (Verdict.EXACT, Verdict.ROUNDING, Verdict.COARSER, Verdict.REARRANGED)
