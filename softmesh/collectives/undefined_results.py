"""Collectives that leave part of their result unwritten: what stands there (NaN poison), and how tensors are marked."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from itertools import compress
from typing import Any

import torch

from softmesh.callsite import user_call_site
from softmesh.diagnosis.undefined_memory import warn_if_undefined
from softmesh.dispatch.definition import AfterRunning, Definition
from softmesh.dispatch.signature import BoundCall
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined, devices_of, mark, undefined_in

Devices = frozenset[MeshCoordinate]


def poison(dtype: DataType) -> float | int:
    """NaN for floats; for integers, which have none, the largest value."""
    known = facts(dtype)
    if known.is_float:
        return math.nan
    is_signed = dtype in (DataType.INT8, DataType.INT32)
    return int(2 ** (known.bits - is_signed) - 1)


Unwritten = Callable[[list[Tensor]], list[Devices]]  # of results: the devices on which each has unwritten places


def _leaving(
    check_read: Callable[[str, Tensor, dict[str, Any]], None],
    unwritten: Callable[[dict[str, Any]], Unwritten],
    in_rows: bool = False,
    on_zeros: bool = False,
) -> dict[str, Any]:
    """Options of a collective that does not write all of its result; in a tensor given for it, the rest stays.

    `unwritten` is asked before the call for what tells, after it, where nothing was written. `on_zeros`: what it
    makes itself is zeros first.
    """

    def rule(op: Definition, call: BoundCall) -> AfterRunning:
        arguments, given = call.named, call.targets
        for tensor in op.read(call):
            check_read(op.name, tensor, arguments)
        before = [undefined_in(tensor) for tensor in given]
        find = unwritten(arguments)

        def tell(made: list[Tensor]) -> None:
            left = find(made)
            if given:
                for result, old, coords in zip(made, before, left, strict=True):
                    mark(result, None if old is None else old.within(coords))
            elif any(left) and not on_zeros:
                site = user_call_site()
                for result, coords in zip(made, left, strict=True):
                    if coords:
                        result.storage.undefined = Undefined(op.name, site, coords, in_rows)

        return tell

    return {"undefined": rule, "leaves_undefined": True}


def writing_one_device(receiver: str, sender: str | None = None) -> dict[str, Any]:
    """The one whose coordinate is the argument `receiver`. With `sender` only that one is read, or else all are."""

    def check_read(op: str, tensor: Tensor, arguments: dict[str, Any]) -> None:
        coord = None if sender is None else arguments[sender]
        only = frozenset([coord]) if isinstance(coord, MeshCoordinate) else None
        warn_if_undefined(tensor, op, only)

    def unwritten(arguments: dict[str, Any]) -> Unwritten:
        coord = arguments[receiver]
        return lambda made: [_all_but(_own_place(coord, result), result.view_distribution()) for result in made]

    return _leaving(check_read, unwritten)


def leaving_some_everywhere() -> dict[str, Any]:
    """Every device keeps some of what the tensor given for the result held."""
    return _leaving(
        lambda op, tensor, arguments: warn_if_undefined(tensor, op),
        lambda arguments: lambda made: [devices_of(result.view_distribution()) for result in made],
    )


@lru_cache(maxsize=4096)
def _all_but(coord: MeshCoordinate, dist: Distribution) -> Devices:
    return devices_of(dist) - {coord}


def _own_place(coord: MeshCoordinate, tensor: Tensor) -> MeshCoordinate:
    """As this process counts, where several hold the mesh; outside of its block it stays as it is."""
    device = tensor.storage.device
    block = None if device is None else device.block
    if block is None or not block.contains(tuple(coord)):
        return coord
    return MeshCoordinate([at - first for at, first in zip(coord, block.origin, strict=True)])


def writing_rows(picks: bool = False, on_zeros: bool = False) -> dict[str, Any]:
    """Which rows of its first result depends on the values; the computation says so by `note_written`.

    `picks`: it reads some rows of its operands, and not those that nobody wrote. `on_zeros`: the others are 0, unless
    a tensor was given for the result.
    """

    def check_read(op: str, tensor: Tensor, arguments: dict[str, Any]) -> None:
        undefined = tensor.storage.undefined
        if undefined is not None and not (picks and undefined.in_rows):
            warn_if_undefined(tensor, op)

    def unwritten(arguments: dict[str, Any]) -> Unwritten:
        def find(made: list[Tensor]) -> list[Devices]:
            coords = made[0].view_distribution().coordinates()
            # not where several processes computed on more than is here
            left_out = _LEFT_OUT.get()
            some = frozenset(compress(coords, left_out) if len(left_out) == len(coords) else coords)
            return [some, *(frozenset[MeshCoordinate]() for _ in made[1:])]

        return find

    return _leaving(check_read, unwritten, in_rows=True, on_zeros=on_zeros)


# For each device, whether the latest computation left out rows there.
_LEFT_OUT: ContextVar[list[bool]] = ContextVar("softmesh_rows_left_out")


def note_written(is_written: torch.Tensor, lead: int) -> None:
    """(*grid, ...): which rows the computation under way writes."""
    _LEFT_OUT.set((~is_written).flatten(lead).any(-1).flatten().tolist())


def _picked(op: Definition, call: BoundCall) -> None:
    for tensor in op.read(call):
        undefined = tensor.storage.undefined
        if undefined is not None and not undefined.in_rows:
            warn_if_undefined(tensor, op.name)


PICKING_ROWS: dict[str, Any] = {"reads_other_devices": False, "undefined": _picked}
