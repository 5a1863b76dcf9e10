"""Tolerances of ops for rounding alone: from their dtypes, what they add up, and what their inputs bring along."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from softmesh.diff.assembly import value_of, whole_of, whole_shape
from softmesh.diff.entries import Entry, Recording
from softmesh.diff.gradient_recording import MOVED
from softmesh.hardware.enums import DataType
from softmesh.placement.placements import Partial

# The relative error of one rounding. A block of a block float has one exponent, that of its largest value: what is
# smaller has fewer bits.
UNITS: dict[object, float] = {
    DataType.FLOAT32: 2.0**-22,
    DataType.BFLOAT16: 2.0**-8,
    DataType.BFLOAT8_B: 2.0**-6,
    DataType.BFLOAT4_B: 2.0**-2,
    DataType.FP8_E4M3: 2.0**-3,
}
GROWTH = 4.0  # what an op may make of the relative errors of its inputs before it is looked at closely
_ROOM = 2.0
_OF_A_STEP = 0.1  # of how far a step moves a parameter: it may divide by gradients that are nearly zero
_COARSEST_UNASKED = UNITS[DataType.BFLOAT8_B]
_MANY = 0.2
_NEAR = 2.0**10  # a dtype that is coarser by more than this is another choice of precision


def unit(dtype: object) -> float:
    """Of whole numbers: none."""
    return UNITS.get(dtype, 0.0)


class Tolerances:
    """Of one comparison. `lifted`: the reference is the same program in wider types, so coarser ones are meant."""

    def __init__(self, given: float | None, lifted: bool) -> None:
        self._given = given
        self.lifted = lifted
        self._is_coarser = False

    def look_at(self, mine: Recording, theirs: Recording, pairs: Mapping[int, int]) -> None:
        """Where many results have a coarser type than the reference's, the program is in another precision."""
        kinds = [
            (unit(mine.entries[ours].outputs[0].dtype), unit(theirs.entries[other].outputs[0].dtype))
            for ours, other in pairs.items()
        ]
        kinds = [(ours, other) for ours, other in kinds if ours and other]
        self._is_coarser = sum(ours > other for ours, other in kinds) > _MANY * len(kinds)

    def of_rounding(self, run: Recording, entry: Entry, at: int, theirs: object) -> float:
        """What the op itself may add to the error of its output."""
        if self._given is not None:
            return self._given
        own = unit(entry.outputs[at].dtype)
        read = max((unit(run.store.values[operand.value].dtype) for operand in entry.inputs), default=0.0)
        allowed = self._allowed(max(own, read / 2), theirs)
        moved = entry.arguments.get(MOVED)
        if isinstance(moved, float):
            return max(allowed, _OF_A_STEP * moved)
        if own == 0.0 and not entry.inputs:
            return 0.0  # numbers that the host wrote
        return _ROOM * allowed * _accumulation(run, entry, allowed) * self._cancellation(run, entry, at)

    def _allowed(self, ours: float, theirs: object) -> float:
        reference = unit(theirs)
        if self.lifted or reference == 0.0 or ours <= reference:
            return max(ours, reference)
        is_near = self._is_coarser or ours / reference < _NEAR
        return ours if is_near and ours <= _COARSEST_UNASKED else reference

    @staticmethod
    def _cancellation(run: Recording, entry: Entry, at: int) -> float:
        """Contributions that nearly cancel are rounded by their own size, not by that of their sum."""
        output = entry.outputs[at]
        if not any(isinstance(word, Partial) for word in output.dist.placements):
            return 1.0
        value = value_of(run, output)
        if value is None:
            return 1.0
        parts = float(value.data.float().norm())
        total = float(value.combined().data.float().norm())
        return max(1.0, parts / total) if total > 0 else 1.0


def of_cancellation(run: Recording, entry: Entry, at: int) -> tuple[float, float]:
    """What terms that nearly cancel add: to the op's own error, and as a factor of what its inputs bring along.

    A sum is off by what its terms are, and not by what is left of them: the gradient of a bias to which a softmax is
    indifferent is all noise.
    """
    value = whole_of(run, entry.outputs[at])
    parts = None if value is None else _terms(run, entry)
    size = 0.0 if value is None else float(value.double().norm())
    if parts is None or value is None or parts.numel() <= value.numel() or value.numel() == 0:
        return 0.0, 1.0
    squares = parts.double().square().sum_to_size(_same_rank(value.shape, parts.dim()))
    lengths = parts.numel() / value.numel()
    if not size > 0:
        return math.inf, 1.0
    spread = float(squares.sum().sqrt())
    return UNITS[DataType.FLOAT32] * math.sqrt(lengths) * spread / size, max(1.0, spread / size)


def _terms(run: Recording, entry: Entry) -> torch.Tensor | None:
    """What is added up over whole dims: by a sum or a mean, or where a small tensor's gradient comes back."""
    is_sum = entry.gradient_of is not None or entry.name in ("sum", "mean")
    found = whole_of(run, entry.inputs[0]) if is_sum and entry.inputs else None
    made = tuple(run.store.values[entry.outputs[0].number].shape)[entry.outputs[0].dist.lead :]
    if found is None or len(made) > found.dim():
        return None
    wanted = _same_rank(whole_shape(entry.outputs[0]) or made, found.dim())
    return found if all(n in (1, size) for n, size in zip(wanted, found.shape, strict=True)) else None


def _same_rank(shape: Sequence[int], rank: int) -> list[int]:
    return [1] * (rank - len(shape)) + list(shape)


def _accumulation(run: Recording, entry: Entry, allowed: float) -> float:
    """Sums are kept in float32 and rounded once; only float32 results show the order in which they were made.

    A collective may round at every hop.
    """
    if entry.sends:
        return math.sqrt(max(run.store.values[operand.value].dist.grid[-1] for operand in entry.inputs) or 1)
    if allowed > UNITS[DataType.FLOAT32]:
        return 1.0
    length = max((math.prod(operand.shape[-2:]) for operand in entry.inputs), default=1)
    return max(1.0, math.sqrt(length) / 4)
