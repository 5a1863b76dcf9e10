"""Puts a value of the mesh together by its placement, and measures how far it is from what it should be.

`Shard` is concatenated, `Partial` combined, `Replicate` is one copy. Of `Local`, where each device holds something of
its own, every reading that fits the size of the reference is tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from softmesh.diff.recording import Operand, Recording
from softmesh.diff.result import Figures
from softmesh.diff.value_store import Stored
from softmesh.hardware.enums import DataType
from softmesh.mesh import MeshCoordinate
from softmesh.placement.pieces import along_the_mesh
from softmesh.placement.placements import LOCAL, REPLICATE, Partial, Placement, Shard
from softmesh.tensor.pearson_correlation import pearson_correlation_coefficient
from softmesh.train.equivalence.values import Value, spread, whole

_ROW = 8.0  # of the largest error of a row, what counts like an error of the whole: noise has rows that are worse
_STEPS = {DataType.BFLOAT16: 8, DataType.FLOAT32: 24, DataType.BFLOAT8_B: 7, DataType.BFLOAT4_B: 3}
_MOST_READINGS = 64
_SHARED_EXPONENTS = (DataType.BFLOAT8_B, DataType.BFLOAT4_B)  # what is small beside what is large was lost in them
_SAMPLES, _FEW = 4096, 200
_SMALLEST_MASK = 30.0
_MASKED = 8.0  # times larger than the largest of all others, and nearly constant: what a mask adds


class Measure(NamedTuple):
    """How far a value is off, by the reading of it that fits best."""

    figures: Figures
    severity: float  # the relative error, or that of the worst row where it stands out
    errors: tuple[tuple[MeshCoordinate, float], ...]
    value: Value  # as it was read


def value_of(run: Recording, what: Stored | Operand) -> Value | None:
    """What devices hold, in a type that sums can be made in; None where it was not kept."""
    stored = run.store.values[what.value] if isinstance(what, Operand) else what
    if not stored.is_kept:
        return None
    data = run.store.load(stored)
    if isinstance(what, Operand) and tuple(data.shape) != what.shape:
        if data.numel() != math.prod(what.shape):
            return None
        data = data.reshape(what.shape)
    data = data.float() if data.is_floating_point() else data.long()
    return Value(*along_the_mesh(data, what.dist))


def own_axes(*values: Value) -> tuple[int, ...]:
    """The mesh axes along which each device holds something of its own."""
    return tuple(sorted({axis for value in values for axis, word in enumerate(value.words) if word is LOCAL}))


def by_device(value: Value, axes: tuple[int, ...]) -> Value:
    """The same with a leading dim for each of these mesh axes, along which the devices are told apart."""
    dist, local = value.dist, value.data.shape[value.dist.lead :]
    lead = [n if axis in axes else m for axis, (n, m) in enumerate(zip(dist.grid, value.data.shape, strict=False))]
    data = value.data.expand(*lead, *local).reshape(*lead, *(1 for _ in axes), *local)
    words = [_moved(word, axes, axis, len(local)) for axis, word in enumerate(dist.placements)]
    return Value(data, dist.with_placements(tuple(words)))


def _moved(word: Placement, axes: tuple[int, ...], axis: int, rank: int) -> Placement:
    if axis in axes:
        return Shard(axes.index(axis))
    return Shard(word.dim % rank + len(axes), word.size) if isinstance(word, Shard) else word


def whole_of(run: Recording, what: Stored | Operand) -> torch.Tensor | None:
    """The one tensor; None where there is no such thing."""
    value = value_of(run, what)
    if value is None or LOCAL in value.words:
        return None
    return whole("a value", value)


def whole_shape(stored: Stored) -> tuple[int, ...] | None:
    """By placement; None where each device holds something of its own."""
    shape = list(stored.shape[stored.dist.lead :])
    for word, n in zip(stored.dist.placements, stored.dist.grid, strict=True):
        if word is LOCAL:
            return None
        if isinstance(word, Shard):
            at = word.dim % len(shape)
            shape[at] = shape[at] * n if word.size is None else word.size
    return tuple(shape)


def readings(value: Value, expected: torch.Tensor) -> Iterator[Value]:
    """The value with every word in place of Local, or of a Shard that does not fit, that the sizes allow."""
    local = value.data.shape[value.dist.lead :]
    choices: list[list[Placement]] = []
    for axis, word in enumerate(value.words):
        n = value.dist.grid[axis]
        dims = [d for d in range(len(local)) if d < expected.dim() and local[d] * n == expected.shape[d]]
        if word is REPLICATE and n > 1 and dims:
            choices.append([word, *map(Shard, dims)])  # made on each device in the size of its share: zeros, a repeat
        elif isinstance(word, Shard) and n > 1 and dims and word.dim % len(local) not in dims:
            choices.append([word, *map(Shard, dims)])  # of a dim with one element, it does not matter which one
        elif word is not LOCAL:
            choices.append([word])
        else:
            means = [Partial("avg")] if expected.numel() == 1 else []  # a loss that each device has of its own rows
            choices.append([LOCAL, *map(Shard, dims), Partial("sum"), *means])
    for words in itertools.islice(itertools.product(*choices), _MOST_READINGS):
        dist = value.dist.with_placements(words)
        yield Value(value.data.expand(*map(max, value.data.shape[: dist.lead], dist.extents), *local), dist)


def like(expected: torch.Tensor, value: Value) -> torch.Tensor:
    """The reference with as many dims as the value has, where those that differ have one element."""
    return of_rank(expected, value.data.dim() - value.dist.lead)


def of_rank(expected: torch.Tensor, wanted: int) -> torch.Tensor:
    """The same with so many dims, where those that differ have one element."""
    while expected.dim() > wanted and expected.shape[0] == 1:
        expected = expected[0]
    while expected.dim() < wanted:
        expected = expected[None]
    return expected


def measured(value: Value, expected: torch.Tensor, dtype: object) -> Measure | None:
    """None where no reading has the size of the reference."""
    expected = like(expected, value)
    best: Measure | None = None
    for reading in readings(value, expected):
        found = _measure(reading, expected, dtype)
        if found is not None and (best is None or found.severity < best.severity):
            best = found
    return best


def same_measure(value: Stored) -> Measure:
    """Of a value that is known to be the reference's."""
    errors = tuple((coord, 0.0) for coord in value.dist.coordinates())
    return Measure(Figures(0.0, 1.0, 0.0, 0.0), 0.0, errors, Value(torch.empty(0), value.dist))


def _measure(value: Value, expected: torch.Tensor, dtype: object) -> Measure | None:
    found, dist = value.combined()
    dealt = spread(expected, dist)
    if dealt is None or dealt.shape[dist.lead :] != found.shape[dist.lead :]:
        return None
    if not found.numel():
        return Measure(Figures(0.0, 1.0, 0.0, 0.0), 0.0, (), value)
    is_exact = not expected.is_floating_point() and not found.is_floating_point()
    dealt = dealt.float().expand_as(found)
    found = found.float()
    wrong, sure = found - dealt, dealt
    if not math.isfinite(float(wrong.sum())):
        wrong = wrong.masked_fill((found == dealt) | (found.isnan() & dealt.isnan()), 0.0)
        wrong = wrong.nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf)
        sure = dealt.nan_to_num(0.0, 0.0, 0.0)
    if wrong.dim() == dist.lead:  # of each chip a scalar, which is a row of one
        wrong, sure = wrong[..., None], sure[..., None]
    off = _Rows.of(wrong, sure)
    size, largest = _largest(sure), _largest(wrong)
    if is_exact:
        error = float((wrong != 0).float().mean())
        severity = 1.0 if error else 0.0
    else:
        error, severity = off.relative()
        can_be_masked = size > _SMALLEST_MASK and dtype not in _SHARED_EXPONENTS
        unmasked = ordinary(sure) if can_be_masked and largest else None
        if unmasked is not None:
            others = _Rows.of(wrong * unmasked, sure * unmasked)
            if others.relative()[1] > severity:
                (error, severity), off = others.relative(), others
    steps = 2.0 ** (math.floor(math.log2(size)) + 1 - _STEPS.get(dtype, 24)) if size > 0 else 1.0  # type: ignore[call-overload]
    pcc = 1.0 if largest == 0 else _correlation(sure, found) if math.isfinite(largest) else 0.0
    by_chip = off.by_chip(wrong.shape[: dist.lead]).expand(dist.grid).flatten().tolist()
    errors = tuple(zip(dist.coordinates(), by_chip, strict=True))
    return Measure(Figures(error, pcc, largest, largest / steps), severity, errors, value)


def _largest(values: torch.Tensor) -> float:
    low, high = torch.aminmax(values)
    return max(-float(low), float(high))


def _correlation(expected: torch.Tensor, found: torch.Tensor) -> float:
    if not math.isfinite(float(found.sum())):
        found = found.nan_to_num(0.0, 0.0, 0.0)
    both = torch.stack((expected.reshape(-1), found.reshape(-1))).double()
    both -= both.mean(1, keepdim=True)
    (own, shared), (_, other) = (both @ both.T).tolist()
    if own * other == 0.0:
        return pearson_correlation_coefficient(expected, found)
    return min(1.0, shared / math.sqrt(own * other))


class _Rows(NamedTuple):
    """The sizes of a value's rows, and of the errors in them."""

    wrong: torch.Tensor
    expected: torch.Tensor

    @classmethod
    def of(cls, wrong: torch.Tensor, expected: torch.Tensor) -> _Rows:
        return cls(torch.linalg.vector_norm(wrong, dim=-1), torch.linalg.vector_norm(expected, dim=-1))

    def relative(self) -> tuple[float, float]:
        """Of the whole; and of the worst row, where it stands out."""
        size, off = float(self.expected.norm()), float(self.wrong.norm())
        error = 0.0 if off == 0 else off / size if size > 0 else math.inf
        if size == 0 or error == 0 or not math.isfinite(error):
            return error, error
        usual = size / math.sqrt(self.expected.numel())
        return error, max(error, float((self.wrong / self.expected.clamp(min=usual)).max()) / _ROW)

    def by_chip(self, lead: torch.Size) -> torch.Tensor:
        off, size = (one.reshape(*lead, -1).norm(dim=-1) for one in self)
        usual = float(size.norm()) / math.sqrt(size.numel())
        return off / size.clamp(min=max(usual, 1e-30))


def ordinary(values: torch.Tensor) -> torch.Tensor | None:
    """Where there is a mask, what is not masked: beside its huge numbers, a wrong one would count for nothing."""
    flat = values.flatten()
    if len(flat) > _SAMPLES:  # at random: every n-th would be of the same column
        flat = flat[torch.randint(len(flat), (_SAMPLES,), generator=torch.Generator().manual_seed(0))]
    sizes = flat.abs().float()
    sizes = sizes[sizes > 0].sort().values
    few = len(sizes) // _FEW
    if few < 1:
        return None
    steps = sizes[few:-few] / sizes[few - 1 : -few - 1]
    if not len(steps) or float(steps.max()) < _MASKED:
        return None
    at = int(steps.argmax()) + few
    return values.abs() < sizes[at] if float(sizes[-1]) < 4 * float(sizes[at]) else None
