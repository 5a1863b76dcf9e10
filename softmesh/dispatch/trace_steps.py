"""How the call of an op becomes a step of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from softmesh.dispatch.plan import Adapt, Plan
from softmesh.errors import MeshError
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.steps import Constant, Read, Source, View
from softmesh.runtime.traces.trace import WRITES
from softmesh.tensor.tensor import Tensor


def check_compiled(recording: Recording, op: str, is_compiled: bool) -> None:
    """A launch can be recorded, the upload of its kernels cannot."""
    if not is_compiled:
        raise MeshError(
            f"{WRITES} {op} runs here for the first time with these shapes, dtypes and arguments since "
            f"{recording.site}, and its kernels would have to be uploaded. Run the same calls once before "
            "ttnn.begin_trace_capture (with the program cache enabled)."
        )


def record_result(
    recording: Recording, plan: Plan, tensors: Sequence[Tensor], data: Sequence[Any], made: Sequence[Tensor]
) -> None:
    """A call whose results are new tensors. It has run: a replay, on values of the same form, need not choose again."""
    recording.compute(
        getattr(plan.compute, "direct", plan.compute),
        list(_sources(recording, tensors, data, plan.adapts)),
        [tensor.storage for tensor in made],
        plan.finishes,
        is_several=plan.container is not None,
    )


def record_writing(
    recording: Recording,
    run: Callable[[list[Any]], object],
    tensors: Sequence[Tensor],
    data: Sequence[Any],
    targets: Sequence[Tensor],
) -> None:
    """A call that writes to tensors which are there already; `run` takes the operands' data as they are."""
    as_they_are: tuple[Adapt, ...] = (None,) * len(data)
    recording.act(
        lambda *values: run(list(values)),
        list(_sources(recording, tensors, data, as_they_are)),
        [target.storage for target in targets],
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
