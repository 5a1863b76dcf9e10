"""A compiled plan: the computations of its ops one after the other, without the calls and tensors between them.

While a plan runs, each of its ops is recorded: where all of them are known, a later run for tensors of the same specs
and placements is their computations, and one tensor at the end. What lies between still takes its memory on the
devices while it is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from softmesh.dispatch.call_cache import Call, CompiledCall
from softmesh.dispatch.entry_point import EntryPoint, Proceed, intercepting
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.allocations import Claim
from softmesh.runtime.memory.pool import Pool
from softmesh.tensor.footprint import room_in_pool
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_CONSTANT = -1


class ChainStep(NamedTuple):
    compute: Callable[..., torch.Tensor]
    operands: tuple[tuple[int, Any], ...]  # which of the values so far, or a constant
    call: CompiledCall


def run_recorded(op: str, run: Callable[[list[Tensor]], Any], tensors: list[Tensor]) -> tuple[Any, Chain | None]:
    """What `run` gives; and the same as a chain, where compiled calls are all it consists of."""
    recorder = _CallRecorder(tensors)
    with intercepting(recorder):
        result = run(list(tensors))
    return result, recorder.chain(op, result)


class _CallRecorder:
    """Looks at each op of a run, and keeps none of its tensors alive."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._places = {tensor.tensor_id: at for at, tensor in enumerate(tensors)}
        self._given = len(tensors)
        self._is_clear = len(self._places) == len(tensors)  # which operand is which
        self._steps: list[ChainStep] = []
        self._thread = threading.get_ident()

    def __call__(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        made = proceed(*args, **kwargs)
        if self._is_clear and threading.get_ident() == self._thread:
            step = self._step(op, args, kwargs)
            self._is_clear = step is not None and isinstance(made, Tensor) and made.tensor_id not in self._places
            if step is not None and self._is_clear:
                self._steps.append(step)
                self._places[made.tensor_id] = self._given + len(self._steps) - 1
        return made

    def chain(self, op: str, result: Any) -> Chain | None:
        last = self._given + len(self._steps) - 1
        is_last = isinstance(result, Tensor) and self._places.get(result.tensor_id) == last
        return Chain(op, self._steps, self._given) if self._is_clear and self._steps and is_last else None

    def _step(self, op: EntryPoint, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ChainStep | None:
        """None for an op that was not compiled, or is on a tensor that no op made."""
        call = None if op.cache is None else op.cache.look_up(args, kwargs)
        if call is None or not isinstance(call.compiled, CompiledCall) or call.compiled.compute is None:
            return None
        operands = []
        for at, constant in call.compiled.slots:
            value = constant if at is None else call.given[at]
            place = self._places.get(value.tensor_id, _CONSTANT) if isinstance(value, Tensor) else _CONSTANT
            if isinstance(value, Tensor) and place == _CONSTANT:
                return None
            operands.append((place, None if place >= 0 else value))
        return ChainStep(call.compiled.compute, tuple(operands), call.compiled)


class Chain:
    def __init__(self, op: str, steps: Sequence[ChainStep], given: int) -> None:
        self._op, self._given = op, given
        self._steps = steps
        self._last = steps[-1].call.plan.outputs[0]
        read_last = {at: i for i, step in enumerate(steps) for at, _ in step.operands if at >= given}
        self._ends = [[at for at, reader in read_last.items() if reader == i] for i in range(len(steps))]
        # Where each value goes, and how much all of them take of each pool: found at the first run of an epoch.
        self._rooms: tuple[list[tuple[Pool, int, int]], dict[Pool, int]] | None = None

    def __str__(self) -> str:
        return f"a value between the ops of distributed.{self._op}"

    def run(self, tensors: Sequence[Tensor], device: MeshDevice) -> Tensor:
        values: list[Any] = [tensor.storage.data for tensor in tensors]
        if len(self._steps) > 1 and not self._has_room(device):
            return self._run_with_claims(values, device)
        for compute, operands, _ in self._steps:
            device.note_launch(None)
            values.append(compute(*[values[at] if at >= 0 else constant for at, constant in operands]))
        return self._result(values[-1], device)

    def _result(self, values: torch.Tensor, device: MeshDevice) -> Tensor:
        output = self._last
        return Tensor.make(Storage(values, output.dist, device), output.spec, output.topology)

    def _has_room(self, device: MeshDevice) -> bool:
        """Whether the devices surely have memory for all that it makes, at the same time."""
        if self._rooms is None:
            rooms = [room_in_pool(step.call.plan.outputs[0].spec, device.memory) for step in self._steps]
            together: dict[Pool, int] = {}
            for pool, size, _ in rooms:
                together[pool] = together.get(pool, 0) + size
            self._rooms = rooms, together
        return all(pool.guarantees_room(size) for pool, size in self._rooms[1].items())

    def _run_with_claims(self, values: list[Any], device: MeshDevice) -> Tensor:
        """With every value in memory of its own on the devices, from its making till it is read for the last time."""
        assert self._rooms is not None
        held: dict[int, Claim] = {}
        try:
            for (compute, operands, _), room, ends in zip(self._steps, self._rooms[0], self._ends, strict=True):
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
    claim.pool.pending.append(claim)


class CompiledPlan:
    """A unified op's compiled call: its chain, for the operands at these places of the given values."""

    __slots__ = ("_chain", "_is_allowed", "_operands")

    def __init__(self, chain: Chain, operands: Sequence[int], is_allowed: Callable[[], bool]) -> None:
        self._chain, self._operands, self._is_allowed = chain, operands, is_allowed

    def run(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._is_allowed():
            return NotImplemented
        return self._chain.run([call.given[at] for at in self._operands], call.device)
