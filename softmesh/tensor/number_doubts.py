"""Doubts about numbers, in strict mode: NaN that an op made, whole numbers that a dtype rounds, integers that wrap.

A mark says of a storage where its NaN or its rounded whole numbers come from. It lies beside the storage, in a table
that nobody fills outside of strict mode.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch

from softmesh import value_free
from softmesh.callsite import CallSite, user_call_site
from softmesh.strictness import doubt, is_strict
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.joined_columns import CUTS
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_LARGEST_COUNT = 1 << 24  # a whole number beyond it is a mask or a scale more often than a place or a count
_ALL_ONES = -1  # in an unsigned dtype, meant so


class Origin(NamedTuple):
    """The call that made the first NaN, or rounded the first whole number, `was`."""

    op: str
    site: CallSite
    was: float = 0.0
    became: float = 0.0


_Mark = TypeVar("_Mark")
NANS: WeakKeyDictionary[Storage, Origin] = WeakKeyDictionary()
ROUNDED: WeakKeyDictionary[Storage, Origin] = WeakKeyDictionary()


def looks_at_numbers(data: torch.Tensor | None) -> bool:
    return data is not None and not data.is_meta and not value_free.is_on and data.numel() > 0


def has_nan(data: torch.Tensor) -> bool:
    return data.is_floating_point() and bool(data.isnan().any())


def carry(source: Storage, target: Storage) -> None:
    """Let the marks of values go with them."""
    _carry_one(NANS, source, target)
    _carry_one(ROUNDED, source, target)
    _carry_one(CUTS, source, target)


def _carry_one(marks: MutableMapping[Storage, _Mark], source: Storage, target: Storage) -> None:
    found = marks.get(source)
    if found is not None:
        marks[target] = found
    elif marks:
        marks.pop(target, None)


def rounded_whole(op: str, exact: torch.Tensor, stored: torch.Tensor) -> Origin | None:
    """The first of the whole numbers that is another one as it is stored; None where not all of them are whole."""
    wide = exact.detach().double()
    differ = (wide != stored.double()) & (wide.abs() <= _LARGEST_COUNT)
    if not differ.any() or not bool((wide == wide.trunc()).all()):
        return None
    return Origin(op, user_call_site(), float(wide[differ][0]), float(stored[differ][0]))


def doubt_wrapped(op: str, exact: torch.Tensor, stored: torch.Tensor, dtype: DataType, *, keeps_ones: bool) -> None:
    """Warn of integers that the dtype does not hold; fractions are cut off, and that is no mistake."""
    wide, kept = exact.detach(), stored.long()
    if wide.is_floating_point():
        finite = wide.isfinite() & (wide.abs() < 2.0**62)
        wide = torch.where(finite, wide, 0.0).round().long()
        differ = finite & ((wide - kept).abs() > 1)
    else:
        differ = wide != kept
    if keeps_ones:
        differ &= wide != _ALL_ONES
    if differ.any():
        is_widest = dtype in (DataType.INT32, DataType.UINT32)
        remedy = "No dtype of the chip holds more: count in parts" if is_widest else "Use ttnn.int32 or ttnn.uint32"
        doubt(
            f"{op}: {int(wide[differ][0])} does not fit into {dtype.name.lower()}, and becomes {int(kept[differ][0])} "
            f"({int(differ.sum())} of {kept.numel()} values). {remedy}.",
        )


def note_stored(made: Tensor, source: torch.Tensor, where: str) -> None:
    """Compare a program's own numbers with what its dtype keeps of them."""
    stored = made.view_data()
    if not is_strict() or not looks_at_numbers(stored) or source.shape != stored.shape:
        return
    if not facts(made.dtype).is_float:
        doubt_wrapped(where, source, stored, made.dtype, keeps_ones=True)
    elif origin := rounded_whole(where, source, stored):
        ROUNDED[made.storage] = origin


def doubt_whole(op: str, tensor: Tensor, use: str) -> None:
    """Warn where rounded whole numbers are used as exact ones."""
    origin = ROUNDED.get(tensor.storage)
    if origin is not None:
        doubt(
            f"{op}: the whole numbers that {use} were rounded before: {origin.op} ({origin.site}) made "
            f"{origin.became:g} of {origin.was:g}, because {tensor.dtype.name.lower()} does not hold all whole numbers "
            "that large. Keep places and counts in ttnn.int32 or ttnn.uint32.",
        )


def doubt_nan(tensor: Tensor, doing: str) -> None:
    """Warn where the host reads NaN that an op made of numbers."""
    origin = NANS.get(tensor.storage)
    if origin is None:
        return
    data = tensor.view_data()
    if looks_at_numbers(data) and has_nan(data):
        doubt(
            f"{doing}: {int(data.isnan().sum())} of {data.numel()} values are NaN. The first op that made one, of "
            f"operands without any, is ttnn.{origin.op} ({origin.site}).",
        )
