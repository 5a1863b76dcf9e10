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

from softmesh.autograd.graph import GRADIENTS
from softmesh.config import CONFIG
from softmesh.lenience import is_lenient
from softmesh.ops.interception import INTERCEPTORS, Proceed, intercepting
from softmesh.ops.plan import Output
from softmesh.ops.registry import Operation
from softmesh.runtime.commands import observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.pool import Pool
from softmesh.tensor.footprint import footprint
from softmesh.tensor.spec import TensorSpec
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
        storage = tensor._storage
        data = storage.data
        if storage.__class__ is not Storage or data is None or storage.undefined is not None:
            return False
        if tensor._where is not None or storage.dist.spread is not None:
            return False
        if is_training and data.requires_grad:
            return False
    return True


class _Follower:
    """Looks at each op of a run, and keeps none of its tensors alive."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._places = {tensor._id: at for at, tensor in enumerate(tensors)}
        self._given = len(tensors)
        self._is_clear = len(self._places) == len(tensors)  # which operand is which
        self._steps: list[Step] = []
        self._thread = threading.get_ident()

    def __call__(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        made = proceed(*args, **kwargs)
        if self._is_clear and threading.get_ident() == self._thread:
            step = self._step(op, args, kwargs)
            self._is_clear = step is not None and isinstance(made, Tensor) and made._id not in self._places
            if step is not None and self._is_clear:
                self._steps.append(step)
                self._places[made._id] = self._given + len(self._steps) - 1
        return made

    def chain(self, op: str, result: Any) -> Chain | None:
        last = self._given + len(self._steps) - 1
        is_last = isinstance(result, Tensor) and self._places.get(result._id) == last
        return Chain(op, self._steps, self._given) if self._is_clear and self._steps and is_last else None

    def _step(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step | None:
        """None for an op without a known way, or on a tensor that no op made."""
        if not op.has_shortcuts:
            return None
        call = op.shortcuts.described(args, kwargs, op.circumstances(kwargs), is_training=False)
        known = None if call is None else op.shortcuts.find(call)
        if call is None or known is None or known.plan.is_view:
            return None
        operands = []
        for at, default in known.slots:
            value = default if at is None else call.given[at]
            place = self._places.get(value._id, _CONSTANT) if isinstance(value, Tensor) else _CONSTANT
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
        self._last = steps[-1].output
        self._programs = [step.program for step in steps]
        self._circumstances = is_lenient(), CONFIG.strict_ccl_topology
        read_last = {at: i for i, step in enumerate(steps) for at, _ in step.operands if at >= given}
        # Of each step: computation, operands, what it makes if not the result, and what it is the last to read.
        self._steps = [
            (
                step.compute,
                step.operands,
                None if i == len(steps) - 1 else step.output.spec,
                [at for at, reader in read_last.items() if reader == i],
            )
            for i, step in enumerate(steps)
        ]

    def __str__(self) -> str:
        return f"a value between the ops of distributed.{self._op}"

    def fits(self, device: MeshDevice) -> bool:
        """Whether its ops would be planned today as they were."""
        cache = device._program_cache
        return self._circumstances == (is_lenient(), CONFIG.strict_ccl_topology) and all(
            program in cache for program in self._programs
        )

    def run(self, tensors: Sequence[Tensor], device: MeshDevice) -> Tensor:
        values: list[Any] = [tensor._storage.data for tensor in tensors]
        rooms: dict[int, tuple[Pool, int]] = {}  # on the devices, of what lies between
        output = self._last
        try:
            for compute, operands, spec, ends in self._steps:
                device.note_launch(None)
                values.append(compute(*[values[at] if at >= 0 else constant for at, constant in operands]))
                if spec is None:
                    return Tensor.make(Storage(values[-1], output.dist, device), output.spec, output.topology)
                self._take_room(rooms, len(values) - 1, spec, device)
                for at in ends:
                    values[at] = None
                    if at in rooms:
                        _give_back(*rooms.pop(at))
            raise AssertionError("a chain ends with its result")
        finally:
            for room in rooms.values():
                _give_back(*room)

    def _take_room(
        self, rooms: dict[int, tuple[Pool, int]], at: int, spec: TensorSpec, device: MeshDevice
    ) -> None:
        allocator = device.memory
        _, buffer_type, size, requested = footprint(spec, allocator.memory_map)
        if size:
            pool = allocator.pools[buffer_type]
            rooms[at] = pool, pool.allocate(size, requested, self)


def _give_back(pool: Pool, address: int) -> None:
    pool.returned.append(address)
