"""What a pipeline finds out before its first step: what goes from each part to the next, and sockets for that."""

from __future__ import annotations

from typing import NamedTuple

import torch

from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import allocate_tensor_on_device
from softmesh.train.pipeline.checking import fifo_size
from softmesh.train.pipeline.links import (
    Descriptions,
    Links,
    links_of_rank,
    links_within,
    message_bytes,
    plain_spec,
)
from softmesh.train.pipeline.schedules import Connection
from softmesh.train.pipeline.simulation import Room
from softmesh.train.pipeline.stages import Stages

Specs = dict[int, TensorSpec]  # of what leaves a part, by its number


class Plan(NamedTuple):
    """For batches of one shape. A rank knows the specs of what it sends and receives."""

    specs: Specs
    links: Links

    @property
    def message_bytes(self) -> int | None:
        return max(map(message_bytes, self.specs.values()), default=None)


def planned(stages: Stages, room: Room, inputs: list[Tensor], descriptions: Descriptions | None) -> Plan:
    """`inputs` are the micro-batches, where the first part is here."""
    specs = rehearsed(stages, inputs, descriptions)
    sizes = {
        each: fifo_size(places, size)
        for each, places in room.items()
        if (size := _largest(each, specs, stages.count)) is not None
    }
    if descriptions is None:
        return Plan(specs, links_within([stage.mesh for stage in stages.here.values()], sizes))
    ((stage, own),) = stages.here.items()
    return Plan(specs, links_of_rank(stage, own.mesh, sizes))


def rehearsed(stages: Stages, inputs: list[Tensor], descriptions: Descriptions | None) -> Specs:
    """One micro-batch goes through every part but the last, in order; between ranks only its spec is told."""
    specs: Specs = {}
    last = stages.count * stages.chunks - 1
    for number in range(last):
        before, behind = number % stages.count, (number + 1) % stages.count
        if before in stages.here:
            specs[number] = _output(stages, number, inputs, specs)
            if descriptions is not None and behind != before:
                descriptions.tell(behind, specs[number])
        elif behind in stages.here and descriptions is not None:
            specs[number] = descriptions.hear(before)
    return specs


def _output(stages: Stages, number: int, inputs: list[Tensor], specs: Specs) -> TensorSpec:
    part = stages.part(number)
    assert part is not None
    given = inputs[0] if number == 0 else allocate_tensor_on_device(specs[number - 1], stages.mesh(number))
    with torch.no_grad():
        return plain_spec(number, part(given))


def _largest(connection: Connection, specs: Specs, stages: int) -> int | None:
    """The bytes of its largest message; None where this process has no end of it."""
    before = connection.sender if connection.carries == "activations" else connection.receiver
    sizes = [message_bytes(spec) for number, spec in specs.items() if number % stages == before]
    return max(sizes, default=None)
