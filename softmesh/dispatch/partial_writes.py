"""Memory that was written in part, such as a KV cache in memory of ttnn.empty: what calls write, and what they read.

What an op writes is found by letting it write ones into a mask. What depends on values that nobody wrote is found by
running a call again with others in their place: where its results differ, they are undefined. So a slice of what was
written and attention under a mask are known to be right, whatever the op. Only memory of ttnn.empty and its kin has
such masks, and of calls that are alike ever fewer are made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from softmesh import value_free
from softmesh.dispatch.definition import Definition, operands_read
from softmesh.dispatch.plan import Plan
from softmesh.dispatch.signature import BoundCall
from softmesh.errors import SoftmeshError
from softmesh.placement.pieces import pieces_at
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined, devices_of, mark
from softmesh.tensor.written_part import WrittenPart

_KINDS = (0, 1 << 20)  # of garbage: a result may be the same with one of them by chance
RunInPlace = Callable[[Plan, list[Tensor], list[Any]], list[Tensor]]


def of_call(definition: Definition, bound: BoundCall) -> CallOnParts | None:
    """Asked before it runs; None where no operand is known in part, or the call cannot be made twice."""
    device = bound.device
    is_once = definition.draws or definition.leaves_undefined or value_free.is_on
    if is_once or device is None or device.ranks is not None or device.is_remote_only():
        return None
    call = CallOnParts(definition, bound)
    return call if call.reads or call.masks else None


class CallOnParts:
    """`reads`: of the operands, by position, those that are read and written in part. `masks`: of those it writes."""

    def __init__(self, definition: Definition, bound: BoundCall) -> None:
        self._definition, self._bound = definition, bound
        self._at = [at for at, value in enumerate(bound.data) if isinstance(value, torch.Tensor)]
        self.reads: dict[int, WrittenPart] = {}
        self.masks: dict[int, WrittenPart] = {}
        self._mark: Undefined | None = None
        in_place, read = definition.changes_in_place, operands_read(definition.signature, bound)
        for at, tensor in zip(self._at, bound.tensors, strict=True):
            undefined = tensor.storage.undefined
            if undefined is None or tensor.shard_positions is not None:
                continue
            if at in definition.writes and not in_place:
                self._note_target(at, tensor, undefined)
            elif undefined.written is not None and any(tensor is one for one in read):
                if undefined.written.is_due(definition.name):
                    self.reads[at] = undefined.written
                self._mark = undefined
        # What an op in place will have written over by then.
        self._garbled = [self._with_garbage(kind) for kind in _KINDS] if self.reads else []

    def _with_garbage(self, kind: int) -> list[Any]:
        data = enumerate(self._bound.data)
        return [self.reads[at].with_garbage(value, kind) if at in self.reads else value for at, value in data]

    def _note_target(self, at: int, tensor: Tensor, undefined: Undefined) -> None:
        storage = tensor.storage
        if undefined.written is not None:
            self.masks[at] = undefined.written
        elif undefined.is_unwritten and storage.data is not None:
            self.masks[at] = WrittenPart.none_of(storage.data, storage.dist)
        else:
            return
        self._mark = undefined

    def tell(self, plan: Plan, made: Sequence[Tensor], run_in_place: RunInPlace) -> None:
        """After it ran: marks what it has written in part, and what depends on what nobody wrote."""
        assert self._mark is not None
        if self.masks:
            self._note_writes(plan, run_in_place)
        if not self.reads:
            return
        try:
            runs = [self._run_again(plan, garbled, run_in_place) for garbled in self._garbled]
        except (SoftmeshError, RuntimeError, IndexError, ValueError):
            return  # it looks at its values, and these are not what it takes
        for tensor, *others in zip(made, *runs, strict=True):
            values = tensor.storage.data
            if values is not None and values.shape == others[0].shape:
                _mark_result(tensor, values, others, self._mark)

    def _run_again(self, plan: Plan, garbled: list[Any], run_in_place: RunInPlace) -> Sequence[torch.Tensor]:
        if not self._definition.writes:
            return plan.run(garbled)
        shadows = [self._shadow(at, garbled[at]) for at in self._definition.writes]
        run_in_place(plan, shadows, list(garbled))
        return [shadow.view_data() for shadow in shadows]

    def _note_writes(self, plan: Plan, run_in_place: RunInPlace) -> None:
        writes, data = self._definition.writes, self._bound.data
        targets = [self._bound.tensors[self._at.index(at)] for at in writes]
        shadows = [
            self._shadow(at, self.masks[at].mask if at in self.masks else torch.zeros_like(data[at])) for at in writes
        ]
        is_float = data[writes[0]].is_floating_point()
        ones = [
            torch.ones_like(value)
            if isinstance(value, torch.Tensor) and value.is_floating_point() == is_float
            else value
            for value in data
        ]
        run_in_place(plan, shadows, ones)
        assert self._mark is not None
        for at, target, shadow in zip(writes, targets, shadows, strict=True):
            part = self.masks.get(at)
            if part is None:
                continue
            is_first = part is not self._mark.written
            part.mask, part.dist = shadow.view_data(), shadow.storage.dist
            if is_first and part.is_whole():
                continue
            coords = devices_of(target.view_distribution())
            for storage in target.storage.sharers():
                storage.undefined = Undefined(self._mark.op, self._mark.site, coords, written=part)

    def _shadow(self, at: int, values: torch.Tensor) -> Tensor:
        """A tensor as this operand is, of other values; it takes no memory on the chips."""
        like = self._bound.tensors[self._at.index(at)]
        dist = self.masks[at].dist if at in self.masks else like.storage.dist
        storage = Storage(values, dist, like.storage.device)
        storage.spec = like.spec
        return Tensor.make(storage, like.spec)


def _mark_result(result: Tensor, values: torch.Tensor, others: Sequence[torch.Tensor], read: Undefined) -> None:
    same = torch.ones_like(values, dtype=torch.bool)
    for other in others:
        same &= (values == other) | (values.isnan() & other.isnan())
    if bool(same.all()):
        return
    dist = result.view_distribution()
    coords = dist.coordinates()
    kept = pieces_at(same, dist, coords).reshape(len(coords), -1).any(1).tolist()
    lost = frozenset(coord for coord, is_kept in zip(coords, kept, strict=True) if not is_kept)
    if lost:  # all of it on some devices
        mark(result, read._replace(coords=lost, is_unwritten=True, written=None))
    else:
        part = WrittenPart(same, dist)
        result.storage.undefined = read._replace(coords=devices_of(dist), is_unwritten=False, written=part)
