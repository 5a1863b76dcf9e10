"""Turns the call of an op into a step of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

from softmesh.dispatch.plan import Adapt, Plan
from softmesh.errors import MeshError
from softmesh.placement.tensor_topology import TensorTopology
from softmesh.runtime.buffers.global_buffers import GlobalSemaphore
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.steps import Again, Constant, Lookup, Memory, Read, Source, View
from softmesh.runtime.traces.trace import WRITES
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor


def check_compiled(recording: Recording, op: str, is_compiled: bool) -> None:
    """A launch can be recorded, the upload of its kernels cannot."""
    if not is_compiled:
        raise MeshError(
            f"{WRITES} {op} runs here for the first time with these shapes, dtypes and arguments since "
            f"{recording.site}, and its kernels would have to be uploaded. Run the same calls once before "
            "ttnn.begin_trace_capture (with the program cache enabled)."
        )


@dataclass(frozen=True)
class _Place:
    """A tensor among the arguments of a recorded call: what it is, without holding on to its values."""

    slot: int
    spec: TensorSpec
    topology: TensorTopology | None
    where: tuple[int, ...] | None

    def tensor(self, lookup: Lookup) -> Tensor:
        storage = lookup(self.slot)
        assert isinstance(storage, Storage)
        return Tensor.make(storage, self.spec, self.topology, self.where)


@dataclass(frozen=True)
class _Semaphore:
    """One that a recorded call counts on: a trace knows its address and does not keep it."""

    found: ref[GlobalSemaphore]

    def held(self) -> GlobalSemaphore:
        semaphore = self.found()
        if semaphore is None:
            raise MeshError(
                "A trace counts on a semaphore that is gone: keep what ttnn.create_global_semaphore(...) returned "
                "until ttnn.release_trace."
            )
        return semaphore


def planned_anew(recording: Recording, values: Sequence[Any], run: Callable[[list[Any]], Sequence[Memory]]) -> Again:
    """`run` takes the bound arguments of a call; here they come from the memories that a trace knows by slot."""

    def place(value: Any) -> Any:
        if isinstance(value, Tensor):
            slot = recording.slot(value.storage)
            return _Place(slot, value.spec, value.topology_label, value.shard_positions)
        if isinstance(value, GlobalSemaphore):
            recording.counts_on(value.span())
            return _Semaphore(ref(value))
        return type(value)(map(place, value)) if type(value) in (list, tuple) else value

    def tensors(value: Any, lookup: Lookup) -> Any:
        if isinstance(value, _Place):
            return value.tensor(lookup)
        if isinstance(value, _Semaphore):
            return value.held()
        return type(value)(tensors(one, lookup) for one in value) if type(value) in (list, tuple) else value

    places = [place(value) for value in values]
    return lambda lookup: run([tensors(value, lookup) for value in places])


def record_result(
    recording: Recording,
    plan: Plan,
    tensors: Sequence[Tensor],
    data: Sequence[Any],
    made: Sequence[Tensor],
    again: Again | None = None,
    name: str = "",
) -> None:
    """A call whose results are new tensors. It has run: a replay, on values of the same form, need not choose again."""
    recording.compute(
        getattr(plan.compute, "direct", plan.compute),
        list(_sources(recording, tensors, data, plan.adapts)),
        [tensor.storage for tensor in made],
        plan.finishes,
        is_several=plan.container is not None,
        again=again,
        name=name,
    )


def record_writing(
    recording: Recording,
    run: Callable[[list[Any]], object],
    tensors: Sequence[Tensor],
    data: Sequence[Any],
    targets: Sequence[Tensor],
    again: Again | None = None,
    name: str = "",
) -> None:
    """A call that writes to tensors which are there already; `run` takes the operands' data as they are."""
    as_they_are: tuple[Adapt, ...] = (None,) * len(data)
    recording.act(
        lambda *values: run(list(values)),
        list(_sources(recording, tensors, data, as_they_are)),
        [memory for target in targets for memory in target.storage.sharers()],
        again,
        name,
        is_torch=True,
    )


def _sources(
    recording: Recording, tensors: Sequence[Tensor], data: Sequence[Any], adapts: Sequence[Adapt]
) -> Iterator[Source]:
    operands = iter(tensors)
    for value, adapt in zip(data, adapts, strict=True):
        if not isinstance(value, torch.Tensor):
            yield Constant(value if adapt is None else adapt(value))
            continue
        tensor = next(operands)
        slot = recording.slot(tensor.storage)
        yield Read(slot, adapt) if tensor.shard_positions is None else View(slot, _looking(tensor, adapt))


def _looking(tensor: Tensor, adapt: Adapt) -> Callable[[], torch.Tensor]:
    return tensor.view_data if adapt is None else lambda: adapt(tensor.view_data())
