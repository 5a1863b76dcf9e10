"""The handshake of two processes that make a socket: which ranks they are, and whether their configs agree."""

from __future__ import annotations

import json
import math
import struct
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.mesh import MeshCoordinate
from softmesh.placement.process_blocks import Block
from softmesh.processes.context import DistributedContext
from softmesh.processes.rank_grid import mesh_ids
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.socket_checks import ALONE, check_ranks
from softmesh.sockets.socket_config import SocketConfig, SocketConnection, SocketEndpoint

_PAIRS: weakref.WeakKeyDictionary[DistributedContext, dict[int, DistributedContext]] = weakref.WeakKeyDictionary()
_COUNTS: weakref.WeakKeyDictionary[DistributedContext, int] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Side:
    """The processes at one end; where they hold its mesh together, each has a block of it."""

    ranks: tuple[int, ...]
    blocks: tuple[Block, ...] = ()

    def rank_of(self, coord: MeshCoordinate) -> int:
        if not self.blocks:
            return self.ranks[0]
        return next(rank for rank, block in zip(self.ranks, self.blocks, strict=True) if block.contains(tuple(coord)))


Sides = tuple[Side, Side]


def sides_of(config: SocketConfig, mesh: MeshDevice, world: DistributedContext) -> tuple[Sides, SocketEndpoint]:
    """Sender and receiver as ranks of the context, and which of the two this process is."""
    sender, receiver = config._mesh_ids
    if sender is None or receiver is None:
        ranks = check_ranks(config._ranks, world.rank, world.size)
        return (Side(ranks[:1]), Side(ranks[1:])), SocketEndpoint(ranks.index(world.rank))
    if world.size == 1 or sender == receiver:
        alone = f" {ALONE}" if world.size == 1 else ""
        raise MeshError(
            f"MeshSocket must only be used for communication between different host ranks: mesh {sender} and mesh "
            f"{receiver} are not in different processes.{alone} Use ttnn.create_socket_pair(...) in one process."
        )
    ids = mesh_ids(world) or list(range(world.size))  # where nobody said, rank and mesh id are the same
    sides = (_side(sender, ids, mesh), _side(receiver, ids, mesh))
    for endpoint, side in zip(SocketEndpoint, sides, strict=True):
        if world.rank in side.ranks:
            return sides, endpoint
    raise MeshError(
        f"MeshSocket: this is rank {world.rank} with mesh {ids[world.rank]}, and the socket goes from mesh {sender} to "
        f"mesh {receiver}. Only their processes make it; let the others pass by."
    )


def _side(mesh_id: int, ids: Sequence[int], mesh: MeshDevice) -> Side:
    ranks = tuple(rank for rank, id in enumerate(ids) if id == mesh_id)
    if len(ranks) == 1:
        return Side(ranks)
    declared = next((one for one in mesh.system.meshes if one.id == mesh_id), None)
    if not ranks or declared is None or math.prod(declared.hosts) != len(ranks):
        why = f"ranks {list(ranks)} have it" if ranks else "no rank has it"
        raise MeshError(
            f"Invalid socket mesh id {mesh_id} specified: {why}, and the mesh graph does not say how they share it. "
            f"The mesh ids of the ranks are {list(ids)}; give sender_rank and receiver_rank instead."
        )
    places = product(*(range(n) for n in declared.hosts))
    return Side(ranks, tuple(Block(tuple(declared.shape), tuple(declared.hosts), at) for at in places))


def bound_mesh_id() -> int | None:
    """The mesh that the launcher bound this process to."""
    from softmesh.fabric.mesh_binding import Binding

    return Binding.from_environment().mesh_id


def pair_with(peer: int, world: DistributedContext) -> DistributedContext:
    """A context of this rank and another one, where the messages of sockets mix with no others."""
    pairs = _PAIRS.setdefault(world, {})
    if peer not in pairs:
        pairs[peer] = world.create_sub_context(sorted((world.rank, peer)))
    return pairs[peer]


def next_number(pair: DistributedContext) -> int:
    """Sockets of a pair are numbered as they are made; the handshake compares the numbers."""
    number = _COUNTS.get(pair, 0)
    _COUNTS[pair] = number + 1
    return number


_LENGTH = struct.Struct("<Q")
_LONGEST = 1 << 26
_TAG = 0
_OP = "MeshSocket"


@dataclass(frozen=True)
class HandshakeMessage:
    """One end: its view of the whole socket, and what only it knows of its mesh."""

    sender_rank: int
    receiver_rank: int
    connections: list[list[list[int]]]  # sender device, sender core, receiver device, receiver core
    storage_type: str
    fifo_size: int
    sender_sub_device: int | None
    receiver_sub_device: int | None
    per_core_allocation: bool
    fabric_config: str
    number: int  # of the socket among those of the two ranks
    mesh_id: int | None  # None: bound to none, a mesh of its own
    nodes: list[list[int]]  # mesh id and chip id of this end's device in each connection

    def encoded(self) -> bytes:
        return json.dumps(self.__dict__).encode()

    @classmethod
    def decoded(cls, data: bytes) -> HandshakeMessage:
        return cls(**json.loads(data))


def handshake_message(
    config: SocketConfig,
    connections: Sequence[SocketConnection],
    ranks: tuple[int, int],
    number: int,
    mesh_id: int | None,
    nodes: list[list[int]],
) -> HandshakeMessage:
    memory = config._memory
    sub_devices = [memory.sub_device(endpoint) for endpoint in SocketEndpoint]
    numbers = [None if part is None else part.id for part in sub_devices]
    return HandshakeMessage(
        *ranks,
        connections=[_cores(connection) for connection in connections],
        storage_type=str(memory.socket_storage_type),
        fifo_size=memory.fifo_size,
        sender_sub_device=numbers[0],
        receiver_sub_device=numbers[1],
        per_core_allocation=memory.per_core_allocation,
        fabric_config=str(settings.active().config),
        number=number,
        mesh_id=mesh_id,
        nodes=nodes,
    )


def _cores(connection: SocketConnection) -> list[list[int]]:
    ends = (connection.sender_core, connection.receiver_core)
    return [part for end in ends for part in (list(end.device_coord), [end.core_coord.x, end.core_coord.y])]


# The first difference is the one that is told; the earlier ones explain the later ones.
_FIELDS = {
    "sender_rank": "sender rank",
    "receiver_rank": "receiver rank",
    "connections": "socket connections",
    "storage_type": "socket storage type",
    "fifo_size": "socket FIFO size",
    "sender_sub_device": "sender sub-device",
    "receiver_sub_device": "receiver sub-device",
    "per_core_allocation": "per core allocation",
    "fabric_config": "fabric config",
    "number": "number of sockets made between the two ranks",
}


def exchange_handshake(pair: DistributedContext, mine: HandshakeMessage) -> HandshakeMessage:
    """The other end's words; an error on both sides where they differ."""
    text = mine.encoded()
    peer = 1 - pair.rank
    leaving = [pair.isend(part, peer, _TAG, op=_OP) for part in (_LENGTH.pack(len(text)), text)]
    length = bytearray(_LENGTH.size)
    summary = f"socket from rank {mine.sender_rank} to rank {mine.receiver_rank}"
    pair.recv(length, peer, _TAG, op=_OP, fingerprint=summary)
    size = _LENGTH.unpack(length)[0]
    if size > _LONGEST:
        raise MeshError(f"MeshSocket: the other end introduced itself with {size} bytes")
    data = bytearray(size)
    pair.recv(data, peer, _TAG, op=_OP)
    for part in leaving:
        part.wait()
    theirs = HandshakeMessage.decoded(bytes(data))
    check_agreement(mine, theirs)
    return theirs


def check_agreement(mine: HandshakeMessage, theirs: HandshakeMessage) -> None:
    for name, words in _FIELDS.items():
        here, there = getattr(mine, name), getattr(theirs, name)
        if here != there:
            raise MeshError(_difference(name, words, here, there))


def _difference(name: str, words: str, here: Any, there: Any) -> str:
    remedy = "Both ends of a socket are made of the same ttnn.SocketConfig, in the same order on both ranks."
    if name != "connections":
        return f"Mismatch in {words} during handshake. It is {here} here and {there} on the other end. {remedy}"
    if len(here) != len(there):
        return (
            f"Mismatch in number of socket connections during handshake. There are {len(here)} here and "
            f"{len(there)} on the other end. {remedy}"
        )
    number = next(i for i, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
    parts = ("sender device", "sender core", "receiver device", "receiver core")
    part, a, b = next((part, a, b) for part, a, b in zip(parts, here[number], there[number], strict=True) if a != b)
    return (
        f"Mismatch in socket connections during handshake. The {part} of connection {number} is {a} here and {b} "
        f"on the other end. {remedy}"
    )
