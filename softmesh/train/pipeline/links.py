"""The sockets between the stages: activations one way, gradients the other, each pair of stages with its own FIFOs.

Within a process both ends are made here; between ranks each makes its own, all in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.mesh import MeshCoordinateRange
from softmesh.processes import context
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.config import SocketConfig, SocketConnection, SocketMemoryConfig
from softmesh.sockets.core_coord import MeshCoreCoord
from softmesh.sockets.sending import recv_async, send_async
from softmesh.sockets.socket import MeshSocket, create_socket_pair
from softmesh.tensor.dtype import DataType, Layout, facts
from softmesh.tensor.spec import TensorSpec
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.transfer import allocate_tensor_on_device
from softmesh.train.pipeline.schedules import Connection

_LONGEST_DESCRIPTION = 512  # bytes
_TAG = 0

Sizes = Mapping[Connection, int]  # bytes of each FIFO


class Links:
    """The ends that this process has of the sockets of a pipeline."""

    def __init__(
        self, senders: dict[Connection, MeshSocket], receivers: dict[Connection, MeshSocket]
    ) -> None:
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
        raise MeshError(
            f"Part {part} of the pipeline returned {spec.dtype}: no gradient comes back for that."
        )
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
        self._world = context.init().duplicate()

    def tell(self, rank: int, spec: TensorSpec) -> None:
        words = json.dumps([list(spec.shape), spec.dtype.name, spec.layout.name]).encode()
        if len(words) > _LONGEST_DESCRIPTION:
            raise MeshError(f"Pipeline: the shape {spec.shape} has too many dims to tell the next rank.")
        self._world.send(words.ljust(_LONGEST_DESCRIPTION), rank, _TAG, op="Pipeline")

    def hear(self, rank: int) -> TensorSpec:
        words = bytearray(_LONGEST_DESCRIPTION)
        self._world.recv(words, rank, _TAG, op="Pipeline")
        shape, dtype, layout = json.loads(words)
        return TensorSpec(shape, DataType[dtype], Layout[layout])
