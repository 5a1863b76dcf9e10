"""MeshSocket and create_socket_pair: the two ends of a socket, both in one process, or one in each of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from softmesh.arguments import checked, reject_unknown_keywords
from softmesh.errors import MeshError, OutOfDeviceMemory
from softmesh.hardware.fabric_config import FabricNodeId, MeshId
from softmesh.hardware.memory_config import BufferType
from softmesh.mesh import MeshCoordinate
from softmesh.processes import current_context
from softmesh.processes.context import DistributedContext
from softmesh.runtime.device import MeshDevice
from softmesh.sockets import handshake, last_words
from softmesh.sockets.channels import LocalChannel, RankChannel
from softmesh.sockets.compiled_transfer import CheckedTransfer, CompiledReceive, CompiledSend
from softmesh.sockets.handshake import HandshakeMessage, exchange_handshake, handshake_message
from softmesh.sockets.shm_channel import channel_between
from softmesh.sockets.socket_checks import (
    check_connections,
    check_end,
    check_fabric,
    check_fifo,
    check_meshes_are_joined,
)
from softmesh.sockets.socket_config import (
    MeshCoreCoord,
    SocketConfig,
    SocketConnection,
    SocketEndpoint,
    SocketMemoryConfig,
    config_addresses,
)
from softmesh.sockets.tensor_message import Route, Routes
from softmesh.sockets.transfer_queue import drain_at_exit
from softmesh.tensor.spec import TensorSpec

_A_MESH = "a MeshDevice such as ttnn.open_mesh_device(...) gives"
_ADDRESSES = config_addresses(0x10000)
_MOST_COMPILED = 64  # kinds of tensors
_Nodes = dict[SocketEndpoint, dict[MeshCoordinate, tuple[int, int]]]


class Lane(NamedTuple):
    """The part of a socket between two processes: all of it, unless several hold one mesh together."""

    channel: LocalChannel | RankChannel
    routes: Routes
    devices: frozenset[int]


class MeshSocket:
    """This process's end of a socket to another one. Waits until that one has made its end, too."""

    def __init__(self, device: MeshDevice, config: SocketConfig) -> None:
        mesh = checked("MeshSocket", "device", device, MeshDevice, _A_MESH)
        _checked_config("MeshSocket", config)
        check_connections(config._connections)
        world = current_context.init()
        sides, endpoint = handshake.sides_of(config, mesh, world)
        check_end(mesh, endpoint, config._connections, config._memory)
        check_fifo(config._memory)
        check_fabric(None, same_mesh=True)
        nodes: _Nodes = {end: {} for end in SocketEndpoint}
        lanes = [
            _connect_lane(mesh, config, endpoint, between, ranks, world, nodes)
            for ranks, between in _between_ranks(config, sides, endpoint, world.rank)
        ]
        self._fill(mesh, config, endpoint, lanes, nodes)
        drain_at_exit()

    def _fill(
        self,
        mesh: MeshDevice,
        config: SocketConfig,
        endpoint: SocketEndpoint,
        lanes: list[Lane],
        nodes: _Nodes,
    ) -> None:
        self._mesh, self._config, self._endpoint, self.lanes = mesh, config, endpoint, lanes
        self._address = next(_ADDRESSES)
        self._nodes = nodes
        if endpoint is SocketEndpoint.RECEIVER and config._memory.fifo_size:
            self._take_fifo(config._memory)
        self.compiled_transfers: dict[tuple[str, TensorSpec], CompiledSend | CompiledReceive | CheckedTransfer] = {}

    def _take_fifo(self, memory: SocketMemoryConfig) -> None:
        """The receiver's memory between the two, given back when the socket is gone."""
        size, kind = memory.fifo_size, memory.socket_storage_type
        try:
            self._mesh.allocator().allocate(size, kind, owner=self, label="the FIFO of a socket")
        except OutOfDeviceMemory as error:
            elsewhere = ", or one in ttnn.BufferType.DRAM" if kind is BufferType.L1 else ""
            raise OutOfDeviceMemory(
                f"{error}\nIt is the FIFO of a socket, on each core of its receiver: give SocketMemoryConfig a "
                f"fifo_size smaller than {size} B{elsewhere}."
            ) from None

    def keep_compiled(
        self, op: str, spec: TensorSpec, compiled: CompiledSend | CompiledReceive | CheckedTransfer | None
    ) -> None:
        """For the op's next transfer of a tensor of this spec."""
        if compiled is not None:
            if len(self.compiled_transfers) >= _MOST_COMPILED:
                self.compiled_transfers.clear()
            self.compiled_transfers[op, spec] = compiled

    @cached_property
    def conflict(self) -> str:
        """Why no tensor can be received: a device would be written by two. Empty where none is."""
        sources: dict[MeshCoordinate, MeshCoordinate] = {}
        for connection in self._config._connections:
            receiver, sender = connection.receiver_core.device_coord, connection.sender_core.device_coord
            if (first := sources.setdefault(receiver, sender)) != sender:
                return (
                    f"the shard at {receiver} would be written from {first} and from {sender}. Let the connections "
                    "to one device come from one device, or use a socket and a tensor for each."
                )
        return ""

    @property
    def storage_type(self) -> BufferType:
        return self._config._memory.socket_storage_type

    @property
    def fifo_size(self) -> int:
        return self._config._memory.fifo_size

    def get_active_cores(self) -> list[MeshCoreCoord]:
        """This end's cores, in the order of the connections."""
        return [connection.end(self._endpoint).copy() for connection in self._config._connections]

    def get_connection_config(self) -> list[SocketConnection]:
        return [connection.copy() for connection in self._config._connections]

    def get_mesh_device(self) -> MeshDevice:
        return self._mesh

    def get_socket_endpoint_type(self) -> SocketEndpoint:
        return self._endpoint

    def get_config_buffer_address(self) -> int:
        return self._address

    def get_fabric_node_id(self, endpoint: SocketEndpoint, coord: MeshCoordinate) -> FabricNodeId:
        where = "get_fabric_node_id"
        nodes = self._nodes[checked(where, "endpoint", endpoint, SocketEndpoint, "a ttnn.SocketEndpoint")]
        checked(where, "coord", coord, MeshCoordinate, "a MeshCoordinate")
        if coord not in nodes:
            raise MeshError(
                f"Coordinate {coord} is no {endpoint.name.lower()} of this socket, which has {list(nodes)[:4]}."
            )
        mesh_id, chip = nodes[coord]
        return FabricNodeId(MeshId(mesh_id), chip)

    def node_pairs(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Mesh id and chip id of the two ends of each connection, the sender first."""
        ends = (SocketEndpoint.SENDER, SocketEndpoint.RECEIVER)
        senders, receivers = (self._nodes[end] for end in ends)
        connections = self.get_connection_config()
        pairs = [(one.sender_core.device_coord, one.receiver_core.device_coord) for one in connections]
        return [(senders[a], receivers[b]) for a, b in pairs if a in senders and b in receivers]

    def __repr__(self) -> str:
        count = len(self._config._connections)
        return f"MeshSocket({self._endpoint.name}, {count} connection{'s' * (count != 1)})"


@reject_unknown_keywords
def create_socket_pair(
    sender_mesh_device: MeshDevice, receiver_mesh_device: MeshDevice, socket_config: SocketConfig
) -> tuple[MeshSocket, MeshSocket]:
    """Both ends in this process. The meshes may be one, submeshes of one, or have nothing in common."""
    where = "create_socket_pair"
    meshes = [
        checked(where, name, mesh, MeshDevice, _A_MESH)
        for name, mesh in (
            ("sender_mesh_device", sender_mesh_device),
            ("receiver_mesh_device", receiver_mesh_device),
        )
    ]
    config = _checked_config(where, socket_config)
    _check_same_process(config)
    connections = config._connections
    check_connections(connections)
    check_fifo(config._memory)
    for mesh, endpoint in zip(meshes, SocketEndpoint, strict=True):
        check_end(mesh, endpoint, connections, config._memory)
    devices = [_devices(mesh, connections, endpoint) for mesh, endpoint in zip(meshes, SocketEndpoint, strict=True)]
    check_fabric(set(devices[0] | devices[1]), len({mesh.get_system_mesh_id() for mesh in meshes}) == 1)
    channel = LocalChannel(meshes[0], config._memory.fifo_size, *devices)
    nodes: _Nodes = {
        endpoint: _nodes(mesh, connections, endpoint) for mesh, endpoint in zip(meshes, SocketEndpoint, strict=True)
    }
    ends = []
    for mesh, endpoint, held in zip(meshes, SocketEndpoint, devices, strict=True):
        end = MeshSocket.__new__(MeshSocket)
        end._fill(mesh, config, endpoint, [Lane(channel, _routes(mesh, connections, endpoint), held)], nodes)
        ends.append(end)
    return ends[0], ends[1]


def _checked_config(where: str, config: object) -> SocketConfig:
    name = "config" if where == "MeshSocket" else "socket_config"
    return checked(where, name, config, SocketConfig, "a ttnn.SocketConfig(connections, memory_config)")


def _check_same_process(config: SocketConfig) -> None:
    named = {rank for rank in config._ranks if rank is not None}
    if named and named != {own := current_context.init().rank}:
        raise MeshError(
            f"create_socket_pair makes both ends in this process, rank {own}, and the config names "
            f"ranks {sorted(named)}. Leave sender_rank and receiver_rank out, or make each end with ttnn.MeshSocket."
        )


def _between_ranks(
    config: SocketConfig, sides: handshake.Sides, endpoint: SocketEndpoint, rank: int
) -> list[tuple[tuple[int, int], list[SocketConnection]]]:
    """The connections that this rank has an end of, by the two ranks; lower ranks meet first."""
    found: dict[tuple[int, int], list[SocketConnection]] = {}
    for connection in config._connections:
        sender, receiver = (
            side.rank_of(connection.end(end).device_coord) for side, end in zip(sides, SocketEndpoint, strict=True)
        )
        if rank == (sender, receiver)[endpoint.value]:
            found.setdefault((sender, receiver), []).append(connection)
    return sorted(found.items())


def _connect_lane(
    mesh: MeshDevice,
    config: SocketConfig,
    endpoint: SocketEndpoint,
    connections: list[SocketConnection],
    ranks: tuple[int, int],
    world: DistributedContext,
    nodes: _Nodes,
) -> Lane:
    """Meet the process of the other end, compare, and remember what it calls its devices."""
    pair = handshake.pair_with(sum(ranks) - world.rank, world)
    number = handshake.next_number(pair)
    mesh_id = handshake.bound_mesh_id()
    own = _nodes(mesh, connections, endpoint, mesh_id)
    named = [list(own[connection.end(endpoint).device_coord]) for connection in connections]
    mine = handshake_message(config, connections, ranks, number, mesh_id, named)
    theirs = exchange_handshake(pair, mine)
    check_fabric(None, same_mesh=mine.mesh_id is not None and mine.mesh_id == theirs.mesh_id)
    ends = (mine, theirs) if endpoint is SocketEndpoint.SENDER else (theirs, mine)
    _check_mesh_ids(config, ends)
    check_meshes_are_joined(mesh, ends[0].mesh_id, ends[1].mesh_id)
    for end, words in zip(SocketEndpoint, ends, strict=True):
        for connection, node in zip(connections, words.nodes, strict=True):
            nodes[end][connection.end(end).device_coord] = (node[0], node[1])
    channel = channel_between(pair, number, config._memory.fifo_size)
    last_words.keep(channel, sends=endpoint is SocketEndpoint.SENDER)
    return Lane(channel, _routes(mesh, connections, endpoint), _devices(mesh, connections, endpoint))


def _check_mesh_ids(config: SocketConfig, ends: tuple[HandshakeMessage, HandshakeMessage]) -> None:
    for name, wanted, end in zip(("sender", "receiver"), config._mesh_ids, ends, strict=True):
        if wanted is not None and end.mesh_id is not None and end.mesh_id != wanted:
            raise MeshError(
                f"Mismatch in {name} mesh id during handshake. The config says {wanted}, and that process is bound "
                f"to mesh {end.mesh_id}."
            )


def _devices(mesh: MeshDevice, connections: Sequence[SocketConnection], endpoint: SocketEndpoint) -> frozenset[int]:
    return frozenset(mesh.get_device_id(connection.end(endpoint).device_coord) for connection in connections)


def _nodes(
    mesh: MeshDevice,
    connections: Sequence[SocketConnection],
    endpoint: SocketEndpoint,
    mesh_id: int | None = None,
) -> dict[MeshCoordinate, tuple[int, int]]:
    """Mesh id and chip id of each device, as the fabric names them in the whole job."""
    found = {}
    for connection in connections:
        coord = connection.end(endpoint).device_coord
        own, chip = mesh.system.node_of(mesh.get_device_id(coord))
        found[coord] = (own if mesh_id is None else mesh_id, chip)
    return found


def _routes(mesh: MeshDevice, connections: Sequence[SocketConnection], endpoint: SocketEndpoint) -> Routes:
    """One for each pair of devices, in the order in which the connections name them."""
    pairs = Counter(
        (connection.sender_core.device_coord, connection.receiver_core.device_coord) for connection in connections
    )
    held = [_held(mesh, pair[endpoint.value]) for pair in pairs]
    routes = tuple(Route(coord, count) for coord, count in zip(held, pairs.values(), strict=True))
    return Routes(routes, straight=all(sender == receiver for sender, receiver in pairs))


def _held(mesh: MeshDevice, coord: MeshCoordinate) -> MeshCoordinate:
    """Where this process, which may hold only a block of the mesh, keeps the shard of a device."""
    if mesh.block is None:
        return coord
    if not mesh.block.contains(tuple(coord)):
        raise MeshError(
            f"MeshSocket: {coord} of {mesh.shape} is held by another process. Name the ends by sender_mesh_id and "
            "receiver_mesh_id, so that each process takes part with its own devices."
        )
    return MeshCoordinate([c - first for c, first in zip(coord, mesh.block.origin, strict=True)])
