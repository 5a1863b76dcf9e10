"""What stands where a collective writes nothing, and collectives that leave such places."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from itertools import compress
from typing import Any

import torch

from softmesh.callsite import user_call_site
from softmesh.collectives.collective import Collective
from softmesh.dispatch.definition import Definition
from softmesh.dispatch.operation import Marking
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Distribution
from softmesh.tensor.dtype import DataType, facts
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined, devices_of, mark, undefined_in, warn_if_undefined

Devices = frozenset[MeshCoordinate]


def poison(dtype: DataType) -> float | int:
    """NaN for floats; for integers, which have none, the largest value."""
    known = facts(dtype)
    if known.is_float:
        return math.nan
    is_signed = dtype in (DataType.INT8, DataType.INT32)
    return int(2 ** (known.bits - is_signed) - 1)


class Undefining(Collective, ABC):
    """A collective that does not write all of its result. In a tensor given for it, the rest stays as it was."""

    leaves_undefined = True
    in_rows = False

    def _marking(self, values: list[Any], tensors: list[Tensor], target: Any) -> Marking:
        arguments = self._signature.named(values, range(len(values)))
        given = list(target) if isinstance(target, list | tuple) else [] if target is None else [target]
        for tensor in tensors[: len(tensors) - len(given)]:  # the outputs come last
            self._check_read(tensor, arguments)
        before = [undefined_in(tensor) for tensor in given]
        find = self._unwritten(arguments)

        def tell(made: list[Tensor]) -> None:
            left = find(made)
            if given:
                for result, old, coords in zip(made, before, left, strict=True):
                    mark(result, None if old is None else old.within(coords))
            elif any(left):
                site = user_call_site()
                for result, coords in zip(made, left, strict=True):
                    if coords:
                        result.storage.undefined = Undefined(self.name, site, coords, self.in_rows)

        return tell

    def _check_read(self, tensor: Tensor, arguments: dict[str, Any]) -> None:
        warn_if_undefined(tensor, self.name)

    @abstractmethod
    def _unwritten(self, arguments: dict[str, Any]) -> Callable[[list[Tensor]], list[Devices]]:
        """Asked before the call: what tells, after it, the devices on which each result has unwritten places."""


class WritingOneDevice(Undefining):
    """Its coordinate is the argument `receiver`. With `sender` only that one is read, or else all are."""

    def __init__(self, definition: Definition, receiver: str, sender: str | None = None) -> None:
        super().__init__(definition)
        self._receiver = receiver
        self._sender = sender

    def _check_read(self, tensor: Tensor, arguments: dict[str, Any]) -> None:
        sender = None if self._sender is None else arguments[self._sender]
        only = frozenset([sender]) if isinstance(sender, MeshCoordinate) else None
        warn_if_undefined(tensor, self.name, only)

    def _unwritten(self, arguments: dict[str, Any]) -> Callable[[list[Tensor]], list[Devices]]:
        receiver = arguments[self._receiver]
        return lambda made: [
            _all_but(_own_place(receiver, result), result.view_distribution()) for result in made
        ]


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


class WritingRows(Undefining):
    """Which rows of its first result depends on the values; the computation says so by `note_written`."""

    in_rows = True

    def __init__(self, definition: Definition, picks: bool = False) -> None:
        super().__init__(definition)
        self._picks = picks  # it reads some rows of its operands, and not those that nobody wrote

    def _check_read(self, tensor: Tensor, arguments: dict[str, Any]) -> None:
        undefined = tensor.storage.undefined
        if undefined is not None and not (self._picks and undefined.in_rows):
            warn_if_undefined(tensor, self.name)

    def _unwritten(self, arguments: dict[str, Any]) -> Callable[[list[Tensor]], list[Devices]]:
        noted: list[list[bool]] = []
        _NOTED.set(noted)

        def find(made: list[Tensor]) -> list[Devices]:
            coords = made[0].view_distribution().coordinates()
            is_known = len(noted[-1]) == len(
                coords
            )  # not where several processes computed on more than is here
            some = frozenset(compress(coords, noted[-1]) if is_known else coords)
            return [some, *(frozenset[MeshCoordinate]() for _ in made[1:])]

        return find


# What the collective under way is told by its own computation, the last run of it last.
_NOTED: ContextVar[list[list[bool]] | None] = ContextVar("softmesh_rows_left_out", default=None)


def note_written(is_written: torch.Tensor, lead: int) -> None:
    """(*grid, ...): which rows the computation under way writes."""
    noted = _NOTED.get()
    if noted is not None:
        noted.append((~is_written).flatten(lead).any(-1).flatten().tolist())
