"""What the two ends of a socket tell each other when it is made, and whether they agree."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.processes.context import DistributedContext
from softmesh.sockets.config import SocketConfig, SocketConnection, SocketEndpoint

_LENGTH = struct.Struct("<Q")
_LONGEST = 1 << 26
_TAG = 0
_OP = "MeshSocket"


@dataclass(frozen=True)
class Introduction:
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
    def decoded(cls, data: bytes) -> Introduction:
        return cls(**json.loads(data))


def introduction(
    config: SocketConfig,
    connections: Sequence[SocketConnection],
    ranks: tuple[int, int],
    number: int,
    mesh_id: int | None,
    nodes: list[list[int]],
) -> Introduction:
    memory = config._memory
    sub_devices = [memory.sub_device(endpoint) for endpoint in SocketEndpoint]
    numbers = [None if part is None else part.id for part in sub_devices]
    return Introduction(
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


def exchanged(pair: DistributedContext, mine: Introduction) -> Introduction:
    """The other end's words; an error on both sides where they differ."""
    text = mine.encoded()
    peer = 1 - pair.rank
    leaving = [pair.isend(part, peer, _TAG, op=_OP) for part in (_LENGTH.pack(len(text)), text)]
    length = bytearray(_LENGTH.size)
    pair.recv(length, peer, _TAG, op=_OP, fingerprint=_summary(mine))
    size = _LENGTH.unpack(length)[0]
    if size > _LONGEST:
        raise MeshError(f"MeshSocket: the other end introduced itself with {size} bytes")
    data = bytearray(size)
    pair.recv(data, peer, _TAG, op=_OP)
    for part in leaving:
        part.wait()
    theirs = Introduction.decoded(bytes(data))
    check_agreement(mine, theirs)
    return theirs


def _summary(mine: Introduction) -> str:
    return f"socket from rank {mine.sender_rank} to rank {mine.receiver_rank}"


def check_agreement(mine: Introduction, theirs: Introduction) -> None:
    for name, words in _FIELDS.items():
        here, there = getattr(mine, name), getattr(theirs, name)
        if here != there:
            raise MeshError(_difference(name, words, here, there))


def _difference(name: str, words: str, here: Any, there: Any) -> str:
    remedy = "Both ends of a socket are made of the same ttnn.SocketConfig, in the same order on both ranks."
    if name != "connections":
        return (
            f"Mismatch in {words} during handshake. It is {here} here and {there} on the other end. {remedy}"
        )
    if len(here) != len(there):
        return (
            f"Mismatch in number of socket connections during handshake. There are {len(here)} here and "
            f"{len(there)} on the other end. {remedy}"
        )
    number = next(i for i, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
    parts = ("sender device", "sender core", "receiver device", "receiver core")
    part, a, b = next(
        (part, a, b) for part, a, b in zip(parts, here[number], there[number], strict=True) if a != b
    )
    return (
        f"Mismatch in socket connections during handshake. The {part} of connection {number} is {a} here and {b} "
        f"on the other end. {remedy}"
    )
