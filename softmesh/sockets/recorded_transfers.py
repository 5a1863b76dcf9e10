"""Sends and receives that a trace records: each replay sends what its source holds by then, and receives anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import ref

import torch

from softmesh.placement.distribution import Distribution
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.queue_id import chosen_queue
from softmesh.runtime.traces.recording import Recording
from softmesh.runtime.traces.steps import Lookup, Memory, Read
from softmesh.runtime.traces.trace import recording_on
from softmesh.tensor.storage import Storage
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import is_unwritten

Start = Callable[[Tensor], object]


def recording_of(op: str, mesh: MeshDevice, queue: int | None) -> Recording | None:
    return recording_on(mesh, chosen_queue(op, queue))


def record_send(recording: Recording, op: str, tensor: Tensor, start: Start) -> None:
    """The capture itself sends nothing."""
    slot, placed, mesh = recording.slot(tensor.storage), tensor.storage.dist, tensor.storage.device
    spec, positions = tensor.spec, tensor.shard_positions

    def send(data: torch.Tensor | None, dist: Distribution) -> Sequence[Memory]:
        start(Tensor.make(Storage(data, dist, mesh, spec), spec, None, positions))
        return ()

    def send_again(lookup: Lookup) -> Sequence[Memory]:
        memory = lookup(slot)
        return send(memory.data, memory.dist)

    recording.act(lambda data: send(data, placed), [Read(slot)], [], send_again, op)


def record_receive(recording: Recording, op: str, output: Tensor, start: Start) -> None:
    """The capture itself receives nothing."""
    if is_unwritten(output):
        recording.first_written.append(ref(output.storage))
        output.storage.note_write()

    def receive_again(lookup: Lookup) -> Sequence[Memory]:
        start(output)
        return ()

    recording.act(lambda: start(output), [], output.storage.sharers(), receive_again, op)
