"""Memory that was written in part, such as a KV cache in memory of ttnn.empty: what calls write, and what they read.

What an op writes is found by letting it write ones into a mask. What depends on values that nobody wrote is found by
running a call again with others in their place: where its results differ, they are undefined. So a slice of what was
written and attention under a mask are known to be right, whatever the op. Only memory of ttnn.empty and its kin has
such masks, and of calls that are alike ever fewer are made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from softmesh import value_free
from softmesh.dispatch.diagnosis_hooks import PlannedCall
from softmesh.dispatch.roles import Role
from softmesh.errors import SoftmeshError
from softmesh.placement.pieces import pieces_at
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import Undefined, devices_of, mark
from softmesh.tensor.untouched_memory import untouched_zeros
from softmesh.tensor.written_part import KINDS, WrittenPart


def of_call(call: PlannedCall) -> CallOnParts | None:
    """Asked before it runs; None where no operand is known in part, or the call cannot be made twice."""
    definition, device = call.definition, call.bound.device
    is_once = definition.draws or definition.leaves_undefined or value_free.is_on or call.is_tracked
    if is_once or call.recording is not None or device is None or device.is_remote_only():
        return None
    if device.ranks is not None and definition.reads_other_devices:
        return None  # all processes would have to make it again
    found = CallOnParts(call)
    return found if found.reads or found.masks else None


class CallOnParts:
    """`reads`: of the operands, by position, those that are read and written in part. `masks`: of those it writes."""

    def __init__(self, call: PlannedCall) -> None:
        definition, bound = self._definition, self._bound = call.definition, call.bound
        self._plan, self._run_in_place = call.plan, call.run_in_place
        self._at = [at for at, value in enumerate(bound.data) if isinstance(value, torch.Tensor)]
        self.reads: dict[int, WrittenPart] = {}
        self.masks: dict[int, WrittenPart] = {}
        self._marks: dict[int, Undefined] = {}
        in_place, read = definition.changes_in_place, definition.read(bound)
        for at, tensor in zip(self._at, bound.tensors, strict=True):
            undefined = tensor.storage.undefined
            if undefined is None or tensor.shard_positions is not None:
                continue
            if at in definition.writes and not in_place:
                if not self._writes_all(at):
                    self._note_target(at, tensor, undefined)
            elif any(tensor is one for one in read):
                self._note_operand(at, tensor, undefined)
        # What an op in place will have written over by then.
        self._garbled = self._with_garbage() if self.reads else []

    def _writes_all(self, at: int) -> bool:
        """True if nothing of the operand is left as it was."""
        return self._definition.role(self._definition.signature.operand_names[at]) is Role.WRITES

    def _with_garbage(self) -> list[list[Any]]:
        """Of each kind."""
        found = [list(self._bound.data) for _ in KINDS]
        for at, part in self.reads.items():
            for data, garbled in zip(found, part.with_garbage(self._bound.data[at]), strict=True):
                data[at] = garbled
        return found

    def _note_operand(self, at: int, tensor: Tensor, undefined: Undefined) -> None:
        writes, part = self._definition.writes, undefined.written
        if part is None and undefined.is_unwritten and writes and not self._definition.changes_in_place:
            part = _nothing_of(tensor.storage)  # what it writes elsewhere is undefined, and what it leaves is not
        if part is None:
            return
        self._marks[at] = undefined
        if at in writes or part.is_due(self._plan):
            if part is undefined.written and part.is_whole():
                tensor.storage.note_written_all()
            else:
                self.reads[at] = part

    def _note_target(self, at: int, tensor: Tensor, undefined: Undefined) -> None:
        part = undefined.written
        if part is None and undefined.is_unwritten:
            part = _nothing_of(tensor.storage)
        if part is not None:
            self._marks[at], self.masks[at] = undefined, part

    def tell(self, made: Sequence[Tensor]) -> None:
        """After it ran: marks what it has written in part, and what depends on what nobody wrote."""
        if self.masks:
            self._note_writes()
        if not self.reads:
            return
        try:
            runs = [self._run_again(garbled) for garbled in self._garbled]
        except (SoftmeshError, RuntimeError, IndexError, ValueError):
            return  # it looks at its values, and these are not what it takes
        read = self._marks[min(self.reads)]
        for tensor, *others in zip(made, *runs, strict=True):
            values = tensor.storage.data
            if values is not None and values.shape == others[0].shape:
                _mark_result(tensor, values, others, read)

    def _run_again(self, garbled: list[Any]) -> Sequence[torch.Tensor]:
        if not self._definition.writes:
            return self._plan.run(garbled)
        shadows = [self._shadow(at, garbled[at]) for at in self._definition.writes]
        self._run_in_place(self._plan, shadows, list(garbled))
        return [shadow.view_data() for shadow in shadows]

    def _note_writes(self) -> None:
        writes, data = self._definition.writes, list(self._bound.data)
        is_float = data[writes[0]].is_floating_point()
        given = [
            at
            for at, value in enumerate(data)
            if isinstance(value, torch.Tensor) and value.is_floating_point() == is_float and at not in writes
        ]
        for at in given:
            data[at] = torch.ones_like(data[at])
        for at in writes:
            data[at] = self._without_writes(at, data[at], is_given=bool(given))
        shadows = [self._shadow(at, data[at]) for at in writes]
        self._run_in_place(self._plan, shadows, data)
        for at, shadow in zip(writes, shadows, strict=True):
            if at in self.masks:
                self._note_mask(at, shadow, is_given=bool(given))

    def _without_writes(self, at: int, values: torch.Tensor, is_given: bool) -> torch.Tensor:
        """What an op writes ones into; or, if it is given no values and writes zeros, whatever else."""
        if not is_given:
            return torch.ones_like(values)
        return self.masks[at].mask if at in self.masks else untouched_zeros(values.shape, values.dtype, values.device)

    def _note_mask(self, at: int, shadow: Tensor, is_given: bool) -> None:
        part, before, target = self.masks[at], self._marks[at], self._bound.tensors[self._at.index(at)]
        mask = shadow.view_data()
        if not is_given:
            known = part.like(mask)
            mask = ((mask != 1) if known is None else (mask != 1) | known).to(mask.dtype)
        is_first = part is not before.written
        part.mask, part.dist = mask, shadow.storage.dist
        if is_first and part.is_whole():
            return
        coords = devices_of(target.view_distribution())
        for storage in target.storage.sharers():
            storage.undefined = Undefined(before.op, before.site, coords, written=part)

    def _shadow(self, at: int, values: torch.Tensor) -> Tensor:
        """A tensor as this operand is, of other values; it takes no memory on the chips."""
        like = self._bound.tensors[self._at.index(at)]
        dist = self.masks[at].dist if at in self.masks else like.storage.dist
        storage = Storage(values, dist, like.storage.device)
        storage.spec = like.spec
        return Tensor.make(storage, like.spec)


def _nothing_of(storage: Storage) -> WrittenPart | None:
    return None if storage.data is None else WrittenPart.none_of(storage.data, storage.dist)


def _mark_result(result: Tensor, values: torch.Tensor, others: Sequence[torch.Tensor], read: Undefined) -> None:
    own = result.storage.undefined  # of what it wrote to
    before = None if own is None or own.written is None else own.written.like(values)
    same = torch.ones_like(values, dtype=torch.bool) if before is None else before
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
