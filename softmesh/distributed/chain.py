"""The computations of a plan one after the other, without the calls and tensors between them.

A plan's ops are looked up once, by what they were given in one of its runs; a later run for tensors of the same
specs and placements is these computations, and one tensor at the end. What lies between still takes its memory on
the devices while it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from softmesh.autograd.graph import GRADIENTS
from softmesh.config import CONFIG
from softmesh.errors import MeshError
from softmesh.lenience import is_lenient
from softmesh.ops.interception import INTERCEPTORS, Proceed, intercepting
from softmesh.ops.plan import Output
from softmesh.ops.registry import Operation
from softmesh.ops.shortcuts import Shortcut
from softmesh.runtime.commands import observed
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.footprint import footprint
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor

_CONSTANT = -1


class Called(NamedTuple):
    op: Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: Any


class Step(NamedTuple):
    compute: Callable[..., torch.Tensor]
    operands: tuple[tuple[int, Any], ...]  # which of the values so far, or a constant
    output: Output
    program: object


def followed(run: Callable[[list[Tensor]], Any], tensors: list[Tensor]) -> tuple[Any, Chain | None]:
    """What `run` gives; and the same as a chain, where ops that are known by now are all it consists of."""
    given, calls = list(tensors), list[Called]()

    def note(op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Proceed) -> Any:
        made = proceed(*args, **kwargs)
        calls.append(Called(op, args, kwargs, made))
        return made

    with intercepting(note):
        result = run(tensors)
    is_one = bool(calls) and calls[-1].made is result and isinstance(result, Tensor)
    steps = _steps(calls, given) if is_one else None
    return result, None if steps is None else Chain(steps)


def can_follow(tensors: Iterable[Tensor], device: MeshDevice) -> bool:
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


def _steps(calls: Sequence[Called], tensors: Sequence[Tensor]) -> list[Step] | None:
    places = {id(tensor): at for at, tensor in enumerate(tensors)}
    steps: list[Step] = []
    for called in calls:
        known = _known(called)
        if known is None or known.plan.is_view or id(called.made) in places:
            return None
        given = [*called.args, *called.kwargs.values()]
        operands = []
        for at, default in known.slots:
            value = default if at is None else given[at]
            place = places.get(id(value), _CONSTANT)
            if isinstance(value, Tensor) and place == _CONSTANT:  # made by something that is no op
                return None
            operands.append((place, None if place >= 0 else value))
        plan = known.plan
        compute = known.compute or _finished(plan.run)
        steps.append(Step(compute, tuple(operands), plan.outputs[0], plan.program))
        places[id(called.made)] = len(tensors) + len(steps) - 1
    return steps


def _known(called: Called) -> Shortcut | None:
    op, args, kwargs, _ = called
    if not op.has_shortcuts:
        return None
    call = op.shortcuts.described(args, kwargs, op.circumstances(kwargs), is_training=False)
    return None if call is None else op.shortcuts.find(call)


def _finished(run: Callable[[Sequence[Any]], tuple[torch.Tensor, ...]]) -> Callable[..., torch.Tensor]:
    return lambda *values: run(values)[0]


class Chain:
    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._between = [step.output.spec for step in steps[:-1]]
        self._last = steps[-1].output
        self._programs = [step.program for step in steps]
        self._circumstances = is_lenient(), CONFIG.strict_ccl_topology

    def fits(self, device: MeshDevice) -> bool:
        """Whether its ops would be planned today as they were."""
        cache = device._program_cache
        return self._circumstances == (is_lenient(), CONFIG.strict_ccl_topology) and all(
            program in cache for program in self._programs
        )

    def run(self, tensors: Sequence[Tensor], device: MeshDevice) -> Tensor:
        values: list[Any] = [tensor._storage.data for tensor in tensors]
        places = self._places_between(device) if self._between else []
        output = self._last
        try:
            for compute, operands, _, _ in self._steps:
                device.note_launch(None)
                values.append(compute(*[values[at] if at >= 0 else constant for at, constant in operands]))
            return Tensor.make(Storage(values[-1], output.dist, device), output.spec, output.topology)
        finally:
            _give_back(places)

    def _places_between(self, device: MeshDevice) -> list[tuple[Any, int]]:
        """Memory on the devices for what lies between, till the end of the run."""
        allocator = device.memory
        found: list[tuple[Any, int]] = []
        try:
            for spec in self._between:
                _, buffer_type, size, requested = footprint(spec, allocator.memory_map)
                if size:
                    pool = allocator.pools[buffer_type]
                    found.append((pool.returned, pool.allocate(size, requested, self)))
        except MeshError:
            _give_back(found)
            raise
        return found


def _give_back(places: list[tuple[Any, int]]) -> None:
    for returned, address in places:
        returned.append(address)
