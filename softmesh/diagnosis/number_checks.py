"""Strict-mode checks of the numbers of a call: results that their dtype does not hold, and the first NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from softmesh.callsite import CallSite, user_call_site
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.plan import Plan
from softmesh.dispatch.signature import BoundCall
from softmesh.strictness import doubt, is_strict
from softmesh.tensor.dtype import facts
from softmesh.tensor.joined_columns import (
    are_columns_of_products,
    are_of_each_device,
    carry_order,
    carry_pieces,
    doubt_cut_pieces,
    follow_joins,
    may_be_cut,
    may_be_weights,
    note_open_join,
    note_product,
)
from softmesh.tensor.number_doubts import (
    NANS,
    ROUNDED,
    Origin,
    doubt_whole,
    doubt_wrapped,
    has_nan,
    looks_at_numbers,
    rounded_whole,
)
from softmesh.tensor.persistent_results import doubt_lost, note_read, note_written
from softmesh.tensor.stacked_copies import note_made_whole
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_FIRST_GAP = 256  # the whole numbers that every float dtype holds
_ABSORBED = 16  # as many times the steps that a dtype tells apart: such a value may swallow what is added to it


class _Stack(NamedTuple):
    """Contributions to a sum that a collective put side by side, and what to say if they are not added up next."""

    devices: int
    text: str
    site: CallSite


_STACKS: WeakKeyDictionary[Storage, _Stack] = WeakKeyDictionary()


def is_meant(definition: Definition, bound: BoundCall) -> bool:
    """True if columns were put in order for what each device does with its own, or may have been."""
    if definition.joins_columns:
        return are_columns_of_products(bound.tensors) or (is_strict() and may_be_weights(bound.tensors))
    if definition.reads_other_devices:
        return are_of_each_device(bound.tensors[0])
    return definition.cuts_columns and may_be_cut(bound.tensors[0])


class NumberCheck:
    """Made before a call runs, because it may write over what it reads."""

    def __init__(self, definition: Definition, plan: Plan, bound: BoundCall) -> None:
        self._op, self._definition, self._plan = definition.name, definition, plan
        self._open_join = ""
        if definition.joins_columns and plan.doubts and not are_columns_of_products(bound.tensors):
            self._open_join = plan.doubts[0] if may_be_weights(bound.tensors) else ""
        self._operands = bound.tensors
        self._cuts_columns = definition.cuts_columns and not plan.doubts  # otherwise it is said already
        self._fills_buffers = bound.target is not None
        written = [*bound.targets, *(bound.tensors[at] for at in definition.writes)]
        read = [tensor for tensor in bound.tensors if all(tensor is not one for one in written)]
        note_read(read)
        for tensor in read:
            doubt_lost(tensor, definition.name)
        data = [value.detach() if isinstance(value, torch.Tensor) else value for value in bound.data]
        values = [value for value in data if isinstance(value, torch.Tensor)]
        self._is_on = all(map(looks_at_numbers, values))
        self._exact: torch.Tensor | None = None
        self._before: torch.Tensor | None = None
        if not self._is_on:
            return
        if definition.rows_by and isinstance(rows := bound.named[definition.rows_by], Tensor):
            doubt_whole(self._op, rows, "choose rows")
        self._had_nan = any(map(has_nan, values))
        if plan.exact is not None:
            wide = (_wide(value) if isinstance(value, torch.Tensor) else value for value in data)
            adapted = [v if adapt is None else adapt(v) for adapt, v in zip(plan.adapts, wide, strict=True)]
            self._exact, self._before = plan.exact(*adapted), adapted[0]

    def look(self, made: Sequence[Tensor]) -> None:
        """Compare what came out with what would have, and mark it."""
        for tensor in () if self._fills_buffers else made:
            note_written(tensor.storage)
        if not carry_pieces(self._operands, made) and self._cuts_columns:
            doubt_cut_pieces(self._op, self._operands)
        self._follow_stacks(made)
        follow_joins(self._operands, made, self._is_moved())
        if self._open_join:
            note_open_join(made[0], self._open_join)
        note_made_whole(self._operands, made, self._definition.reads_other_devices)
        if self._definition.is_matmul:
            note_product(made[0])
        elif self._is_moved():
            carry_order(self._operands[0], made[0])
        for tensor in made if self._is_on else ():
            data = tensor.storage.data
            if looks_at_numbers(data):
                assert data is not None
                self._mark_nan(tensor, data.detach())
                if tensor.storage.undefined is None:  # what nobody wrote may be any number
                    self._look_at_whole(tensor, data.detach())

    def _is_moved(self) -> bool:
        """True if the results are the values of the operands, in other places or another dtype."""
        return self._definition.precision == "data" or (self._exact is not None and self._exact is self._before)

    def _follow_stacks(self, made: Sequence[Tensor]) -> None:
        is_moved = self._is_moved()
        for operand in self._operands if _STACKS else ():
            stack = _STACKS.get(operand.storage)
            if stack is not None and all(
                stack.devices * one.logical_volume() != operand.logical_volume() for one in made
            ):
                if is_moved:
                    _STACKS.update((one.storage, stack) for one in made)
                else:
                    doubt(stack.text, at=stack.site)
        for text in self._plan.open_doubts:
            devices = made[0].logical_volume() // max(self._operands[0].logical_volume(), 1)
            _STACKS[made[0].storage] = _Stack(devices, text, user_call_site())

    def _mark_nan(self, made: Tensor, data: torch.Tensor) -> None:
        known = next((NANS[one.storage] for one in self._operands if one.storage in NANS), None)
        NANS.pop(made.storage, None)
        is_meant = made.storage.undefined is not None  # NaN stands for what nobody wrote
        if not is_meant and (known is not None or not self._had_nan) and has_nan(data):
            NANS[made.storage] = known or Origin(self._op, user_call_site())

    def _look_at_whole(self, made: Tensor, data: torch.Tensor) -> None:
        known = next((one for one in self._operands if one.storage in ROUNDED), None)
        origin = None if known is None else ROUNDED[known.storage]
        exact = self._exact
        is_float = facts(made.dtype).is_float
        if exact is not None and exact.shape == data.shape:
            if not is_float:
                is_cast = len(self._operands) == 1 and exact is self._before
                doubt_wrapped(self._op, exact, data, made.dtype, keeps_ones=is_cast)
                if known is not None:
                    doubt_whole(self._op, known, "become integers")
            else:
                self._doubt_standstill(made, exact, data)
                origin = origin or rounded_whole(self._op, exact, data)
        if origin is not None and is_float and _is_large_and_whole(data):
            ROUNDED[made.storage] = origin
        else:
            ROUNDED.pop(made.storage, None)

    def _doubt_standstill(self, made: Tensor, exact: torch.Tensor, data: torch.Tensor) -> None:
        """Warn where each value should have moved by 1 or more, and none has."""
        before = self._before
        if before is None or before.shape != data.shape:
            return
        step = (exact - before).abs()
        is_still = bool((data == before).all()) and bool((step >= 1).all())
        most = _ABSORBED / torch.finfo(data.dtype).eps
        if is_still and bool(((before > 0) & (before <= step * most)).all()):
            doubt(
                f"{self._op}: nothing changes: {float(before.flatten()[0]):g} should become "
                f"{float(exact.flatten()[0]):g}, which {made.dtype.name.lower()} does not hold. Count in ttnn.int32, "
                "ttnn.uint32 or ttnn.float32.",
            )


def _wide(data: torch.Tensor) -> torch.Tensor:
    """A copy in a dtype that holds the results of a sum or a product, too."""
    if not data.is_floating_point():
        return data.to(torch.int64, copy=True)
    return data.to(torch.float64 if data.dtype is torch.float32 else torch.float32, copy=True)


def _is_large_and_whole(data: torch.Tensor) -> bool:
    wide = data.float()
    return bool((wide.abs() >= _FIRST_GAP).any()) and bool((wide == wide.trunc()).all())
