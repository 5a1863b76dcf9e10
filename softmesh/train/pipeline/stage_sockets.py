"""Sockets between pipeline stages: activations one way, gradients the other, with a FIFO for each direction.

Before the first step one micro-batch goes through all parts but the last, so that the specs of what travels, and
with them the FIFO sizes, are known. Within a process both ends of a socket are made here; between ranks each makes
its own, all in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.mesh import MeshCoordinateRange
from softmesh.processes import current_context
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.grad_mode import without_gradients
from softmesh.sockets.mesh_socket import MeshSocket, create_socket_pair
from softmesh.sockets.send_recv import recv_async, send_async
from softmesh.sockets.socket_config import MeshCoreCoord, SocketConfig, SocketConnection, SocketMemoryConfig
from softmesh.tensor.device_allocation import allocate_tensor_on_device
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.train.pipeline.analysis import fifo_size
from softmesh.train.pipeline.simulation import Room
from softmesh.train.pipeline.stage_schedules import Connection
from softmesh.train.pipeline.stages import Stages

_LONGEST_DESCRIPTION = 512  # bytes
_TAG = 0

Sizes = Mapping[Connection, int]  # bytes of each FIFO


class Links:
    """The ends that this process has of the sockets of a pipeline."""

    def __init__(self, senders: dict[Connection, MeshSocket], receivers: dict[Connection, MeshSocket]) -> None:
        self._senders, self._receivers = senders, receivers

    def send(self, connection: Connection, tensor: Tensor) -> None:
        send_async(tensor.detach(), self._senders[connection])

    def receive(self, connection: Connection, spec: TensorSpec) -> Tensor:
        socket = self._receivers[connection]
        arrived = allocate_tensor_on_device(spec, socket.get_mesh_device())
        recv_async(arrived, socket)
        return arrived


def links_within(meshes: Sequence[MeshDevice], sizes: Sizes) -> Links:
    """Between meshes of this process, one for each stage."""
    senders, receivers = {}, {}
    for each, size in sizes.items():
        ends = meshes[each.sender], meshes[each.receiver]
        senders[each], receivers[each] = create_socket_pair(*ends, _config(ends[0], size))
    return Links(senders, receivers)


def links_of_rank(stage: int, mesh: MeshDevice, sizes: Sizes) -> Links:
    """Of one stage to its neighbours, which are ranks of the same numbers. Waits until they have made theirs."""
    senders: dict[Connection, MeshSocket] = {}
    receivers: dict[Connection, MeshSocket] = {}
    for each, size in sorted(sizes.items()):  # in one order for all, so nobody waits in a ring
        if stage in (each.sender, each.receiver):
            ranks = {"sender_rank": each.sender, "receiver_rank": each.receiver}
            ends = senders if stage == each.sender else receivers
            ends[each] = MeshSocket(mesh, _config(mesh, size, **ranks))
    return Links(senders, receivers)


def _config(mesh: MeshDevice, fifo_size: int, **ranks: int) -> SocketConfig:
    """Every device with its counterpart."""
    core = CoreCoord(0, 0)
    ends = [MeshCoreCoord(at, core) for at in MeshCoordinateRange(mesh.shape)]
    connections = [SocketConnection(end, end) for end in ends]
    return SocketConfig(connections, SocketMemoryConfig(BufferType.DRAM, fifo_size), **ranks)


# -- what travels, told before it does ---------------------------------------------------------


def plain_spec(part: int, output: object) -> TensorSpec:
    """The spec of what a part of the model hands on, which the next one can be told in a few words."""
    if not isinstance(output, Tensor):
        raise MeshError(
            f"Part {part} of the pipeline returned {type(output).__name__}: what goes on to the next part is one "
            "ttnn.Tensor."
        )
    spec = output.spec
    if not facts(spec.dtype).is_float:
        raise MeshError(f"Part {part} of the pipeline returned {spec.dtype}: no gradient comes back for that.")
    plain = TensorSpec(list(spec.shape), spec.dtype, spec.layout)
    if plain != spec:
        raise MeshError(
            f"Part {part} of the pipeline returned a tensor in {spec.memory_config} with {spec.tile}. What goes on to "
            "the next part lies in DRAM, interleaved: end it with ttnn.to_memory_config(y, ttnn.DRAM_MEMORY_CONFIG)."
        )
    return plain


def message_bytes(spec: TensorSpec) -> int:
    """What one message takes of the FIFO at each device."""
    return spec.num_pages() * spec.aligned_page_size()


class Descriptions:
    """Specs sent between ranks, ahead of the tensors."""

    def __init__(self) -> None:
        self._world = current_context.init().duplicate()

    def send_spec(self, rank: int, spec: TensorSpec) -> None:
        words = json.dumps([list(spec.shape), spec.dtype.name, spec.layout.name]).encode()
        if len(words) > _LONGEST_DESCRIPTION:
            raise MeshError(f"Pipeline: the shape {spec.shape} has too many dims to tell the next rank.")
        self._world.send(words.ljust(_LONGEST_DESCRIPTION), rank, _TAG, op="Pipeline")

    def receive_spec(self, rank: int) -> TensorSpec:
        words = bytearray(_LONGEST_DESCRIPTION)
        self._world.recv(words, rank, _TAG, op="Pipeline")
        shape, dtype, layout = json.loads(words)
        return TensorSpec(shape, DataType[dtype], Layout[layout])


Specs = dict[int, TensorSpec]  # of what leaves a part, by its number


class Plan(NamedTuple):
    """For batches of one shape. A rank knows the specs of what it sends and receives."""

    specs: Specs
    links: Links

    @property
    def message_bytes(self) -> int | None:
        return max(map(message_bytes, self.specs.values()), default=None)


def plan_for(stages: Stages, room: Room, inputs: list[Tensor], descriptions: Descriptions | None) -> Plan:
    """`inputs` are the micro-batches, where the first part is here."""
    specs = infer_specs(stages, inputs, descriptions)
    sizes = {
        each: fifo_size(places, size)
        for each, places in room.items()
        if (size := _largest(each, specs, stages.count)) is not None
    }
    if descriptions is None:
        return Plan(specs, links_within([stage.mesh for stage in stages.here.values()], sizes))
    ((stage, own),) = stages.here.items()
    return Plan(specs, links_of_rank(stage, own.mesh, sizes))


def infer_specs(stages: Stages, inputs: list[Tensor], descriptions: Descriptions | None) -> Specs:
    """One micro-batch goes through every part but the last, in order; between ranks only its spec is told."""
    specs: Specs = {}
    last = stages.count * stages.chunks - 1
    for number in range(last):
        before, behind = number % stages.count, (number + 1) % stages.count
        if before in stages.here:
            specs[number] = _output(stages, number, inputs, specs)
            if descriptions is not None and behind != before:
                descriptions.send_spec(behind, specs[number])
        elif behind in stages.here and descriptions is not None:
            specs[number] = descriptions.receive_spec(before)
    return specs


def _output(stages: Stages, number: int, inputs: list[Tensor], specs: Specs) -> TensorSpec:
    part = stages.part(number)
    assert part is not None
    given = inputs[0] if number == 0 else allocate_tensor_on_device(specs[number - 1], stages.mesh(number))
    given.storage.note_write()  # of what is made of it only the spec is read
    return plain_spec(number, without_gradients(lambda: part(given)))


def _largest(connection: Connection, specs: Specs, stages: int) -> int | None:
    """The bytes of its largest message; None where this process has no end of it."""
    before = connection.sender if connection.carries == "activations" else connection.receiver
    sizes = [message_bytes(spec) for number, spec in specs.items() if number % stages == before]
    return max(sizes, default=None)
