"""The computations of a plan one after the other, without the calls and tensors between them.

A plan's ops are looked up once, by what they were given in one of its runs; a later run for tensors of the same
specs and placements is these computations, and one tensor at the end. What lies between still takes its memory on
the devices while it is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from softmesh.config import CONFIG
from softmesh.dispatch.interceptors import INTERCEPTORS, Proceed, intercepting
from softmesh.dispatch.operation import Operation
from softmesh.dispatch.plan import Output
from softmesh.lenience import is_lenient
from softmesh.runtime.commands import observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.grad_mode import GRADIENTS
from softmesh.runtime.memory.claim import Claim
from softmesh.runtime.memory.pool import Pool
from softmesh.tensor.footprint import Room, room_for
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_CONSTANT = -1


class Step(NamedTuple):
    compute: Callable[..., torch.Tensor]
    operands: tuple[tuple[int, Any], ...]  # which of the values so far, or a constant
    output: Output
    program: object


def followed(op: str, run: Callable[[list[Tensor]], Any], tensors: list[Tensor]) -> tuple[Any, Chain | None]:
    """What `run` gives; and the same as a chain, where ops that are known by now are all it consists of."""
    follower = _Follower(tensors)
    with intercepting(follower):
        result = run(tensors)
    return result, follower.chain(op, result)


def can_follow(tensors: Sequence[Tensor], device: MeshDevice) -> bool:
    """Whether nobody looks on, nothing is recorded or differentiated, and all values are here."""
    if INTERCEPTORS or observed() or device.captures.recordings:
        return False
    is_training = GRADIENTS.in_use and torch.is_grad_enabled()
    for tensor in tensors:
        storage = tensor.storage
        data = storage.data
        if storage.__class__ is not Storage or data is None or storage.undefined is not None:
            return False
        if tensor.shard_positions is not None or storage.dist.spread is not None:
            return False
        if is_training and data.requires_grad:
            return False
    return True


class _Follower:
    """Looks at each op of a run, and keeps none of its tensors alive."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._places = {tensor.tensor_id: at for at, tensor in enumerate(tensors)}
        self._given = len(tensors)
        self._is_clear = len(self._places) == len(tensors)  # which operand is which
        self._steps: list[Step] = []
        self._thread = threading.get_ident()

    def __call__(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        made = proceed(*args, **kwargs)
        if self._is_clear and threading.get_ident() == self._thread:
            step = self._step(op, args, kwargs)
            self._is_clear = (
                step is not None and isinstance(made, Tensor) and made.tensor_id not in self._places
            )
            if step is not None and self._is_clear:
                self._steps.append(step)
                self._places[made.tensor_id] = self._given + len(self._steps) - 1
        return made

    def chain(self, op: str, result: Any) -> Chain | None:
        last = self._given + len(self._steps) - 1
        is_last = isinstance(result, Tensor) and self._places.get(result.tensor_id) == last
        return Chain(op, self._steps, self._given) if self._is_clear and self._steps and is_last else None

    def _step(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step | None:
        """None for an op without a known way, or on a tensor that no op made."""
        if not op.has_shortcuts:
            return None
        call, known = op.shortcuts.look_up(args, kwargs, op.circumstances(kwargs), is_training=False)
        if call is None or known is None or known.plan.is_view:
            return None
        operands = []
        for at, default in known.slots:
            value = default if at is None else call[1][at]
            place = self._places.get(value.tensor_id, _CONSTANT) if isinstance(value, Tensor) else _CONSTANT
            if isinstance(value, Tensor) and place == _CONSTANT:
                return None
            operands.append((place, None if place >= 0 else value))
        plan = known.plan
        return Step(known.compute or _finished(plan.run), tuple(operands), plan.outputs[0], plan.program)


def _finished(run: Callable[[Sequence[Any]], tuple[torch.Tensor, ...]]) -> Callable[..., torch.Tensor]:
    return lambda *values: run(values)[0]


class Chain:
    def __init__(self, op: str, steps: Sequence[Step], given: int) -> None:
        self._op, self._given = op, given
        self._steps = steps
        self._last = steps[-1].output
        self._programs = [step.program for step in steps]
        self._circumstances = is_lenient(), CONFIG.strict_ccl_topology
        read_last = {at: i for i, step in enumerate(steps) for at, _ in step.operands if at >= given}
        self._ends = [[at for at, reader in read_last.items() if reader == i] for i in range(len(steps))]
        # The pools that they were found for, where each value goes, and how much all of them take of each pool.
        self._rooms: tuple[object, list[Room], dict[Pool, int]] | None = None

    def __str__(self) -> str:
        return f"a value between the ops of distributed.{self._op}"

    def fits(self, device: MeshDevice) -> bool:
        """Whether its ops would be planned today as they were."""
        cache = device.program_cache
        for program in self._programs:
            if program not in cache:
                return False
        return self._circumstances == (is_lenient(), CONFIG.strict_ccl_topology)

    def run(self, tensors: Sequence[Tensor], device: MeshDevice) -> Tensor:
        values: list[Any] = [tensor.storage.data for tensor in tensors]
        if len(self._steps) > 1 and not self._has_room(device):
            return self._run_narrowly(values, device)
        for compute, operands, _, _ in self._steps:
            device.note_launch(None)
            values.append(compute(*[values[at] if at >= 0 else constant for at, constant in operands]))
        return self._result(values[-1], device)

    def _result(self, values: torch.Tensor, device: MeshDevice) -> Tensor:
        output = self._last
        return Tensor.make(Storage(values, output.dist, device), output.spec, output.topology)

    def _has_room(self, device: MeshDevice) -> bool:
        """Whether the devices surely have memory for all that it makes, at the same time."""
        allocator = device.memory
        if self._rooms is None or self._rooms[0] is not allocator.pools:
            rooms = [room_for(step.output.spec, allocator) for step in self._steps]
            together: dict[Pool, int] = {}
            for pool, size, _ in rooms:
                together[pool] = together.get(pool, 0) + size
            self._rooms = allocator.pools, rooms, together
        return all(pool.surely_has(size) for pool, size in self._rooms[2].items())

    def _run_narrowly(self, values: list[Any], device: MeshDevice) -> Tensor:
        """With every value in memory of its own on the devices, from its making till it is read for the last time."""
        assert self._rooms is not None
        held: dict[int, Claim] = {}
        try:
            for (compute, operands, _, _), room, ends in zip(
                self._steps, self._rooms[1], self._ends, strict=True
            ):
                device.note_launch(None)
                values.append(compute(*[values[at] if at >= 0 else constant for at, constant in operands]))
                at, (pool, size, requested) = len(values) - 1, room
                if at == self._given + len(self._steps) - 1:
                    break
                if size:
                    held[at] = pool.allocate(size, requested, self)
                for over in ends:
                    values[over] = None
                    if over in held:
                        _give_back(held.pop(over))
            return self._result(values[-1], device)
        finally:
            for claim in held.values():
                _give_back(claim)


def _give_back(claim: Claim) -> None:
    claim.pool.notes.append(claim)
