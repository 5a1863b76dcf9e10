"""The configuration of a socket: connections between cores of two meshes, the FIFO memory between them, and the two
ranks or mesh ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from copy import copy
from typing import overload

from softmesh.arguments import checked, checked_all, checked_int, refused
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.hardware import SubDeviceId
from softmesh.hardware.enums import NativeEnum
from softmesh.hardware.fabric_config import MeshId
from softmesh.hardware.memory_config import BufferType
from softmesh.mesh import MeshCoordinate
from softmesh.processes.context_api import Rank

_CONFIG_BYTES = 64  # of the configuration a socket keeps on each core
_A_COORDINATE = "a MeshCoordinate such as ttnn.MeshCoordinate(0, 0)"


class MeshCoreCoord:
    """Compares by value.

    >>> MeshCoreCoord(MeshCoordinate(0, 1), CoreCoord(2, 3))
    MeshCoreCoord(device=MeshCoordinate([0, 1]), core=(2,3))
    """

    __slots__ = ("_core", "_device")

    def __init__(self, device_coord: MeshCoordinate, core_coord: CoreCoord | Sequence[int]) -> None:
        self.device_coord = device_coord
        self.core_coord = core_coord

    @property
    def device_coord(self) -> MeshCoordinate:
        return self._device

    @device_coord.setter
    def device_coord(self, coord: MeshCoordinate) -> None:
        self._device = checked("MeshCoreCoord", "device_coord", coord, MeshCoordinate, _A_COORDINATE)

    @property
    def core_coord(self) -> CoreCoord:
        return self._core

    @core_coord.setter
    def core_coord(self, core: CoreCoord | Sequence[int]) -> None:
        self._core = CoreCoord.of(core)

    def copy(self) -> MeshCoreCoord:
        return MeshCoreCoord(self._device, self._core)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MeshCoreCoord):
            return NotImplemented
        return self._device == other._device and self._core == other._core

    def __hash__(self) -> int:
        return hash((self._device, self._core))

    def __repr__(self) -> str:
        return f"MeshCoreCoord(device={self._device}, core=({self._core.x},{self._core.y}))"


def config_addresses(first: int) -> Iterator[int]:
    return itertools.count(first + _CONFIG_BYTES, _CONFIG_BYTES)


_A_CORE = "a ttnn.MeshCoreCoord(device_coord, core_coord)"


class SocketEndpoint(NativeEnum):
    SENDER = 0
    RECEIVER = 1


class SocketConnection:
    """One stream, from a core of the sender mesh to a core of the receiver mesh."""

    def __init__(self, sender_core: MeshCoreCoord, receiver_core: MeshCoreCoord) -> None:
        where = "SocketConnection"
        self.sender_core = checked(where, "sender_core", sender_core, MeshCoreCoord, _A_CORE)
        self.receiver_core = checked(where, "receiver_core", receiver_core, MeshCoreCoord, _A_CORE)

    def __repr__(self) -> str:
        return f"SocketConnection({self.sender_core!r}, {self.receiver_core!r})"

    def copy(self) -> SocketConnection:
        return SocketConnection(self.sender_core.copy(), self.receiver_core.copy())

    def end(self, endpoint: SocketEndpoint) -> MeshCoreCoord:
        return self.sender_core if endpoint is SocketEndpoint.SENDER else self.receiver_core


class SocketMemoryConfig:
    """Where the receiver's FIFO lies, and how many bytes each connection has in it."""

    def __init__(
        self,
        socket_storage_type: BufferType,
        fifo_size: int,
        sender_sub_device: SubDeviceId | None = None,
        receiver_sub_device: SubDeviceId | None = None,
        per_core_allocation: bool = False,
    ) -> None:
        where = "SocketMemoryConfig"
        self.socket_storage_type = checked(
            where, "socket_storage_type", socket_storage_type, BufferType, "ttnn.BufferType.L1 or DRAM"
        )
        self.fifo_size = checked_int(where, "fifo_size", fifo_size)
        if self.fifo_size < 0:
            raise refused(where, f"fifo_size counts bytes, got {fifo_size}")
        self.sender_sub_device = _sub_device("sender_sub_device", sender_sub_device)
        self.receiver_sub_device = _sub_device("receiver_sub_device", receiver_sub_device)
        self.per_core_allocation = bool(per_core_allocation)

    def __repr__(self) -> str:
        return f"SocketMemoryConfig({self.socket_storage_type}, fifo_size={self.fifo_size})"

    def copy(self) -> SocketMemoryConfig:
        return copy(self)

    def sub_device(self, endpoint: SocketEndpoint) -> SubDeviceId | None:
        return self.sender_sub_device if endpoint is SocketEndpoint.SENDER else self.receiver_sub_device


def _sub_device(name: str, given: SubDeviceId | None) -> SubDeviceId | None:
    if given is None:
        return None
    return checked("SocketMemoryConfig", name, given, SubDeviceId, "a ttnn.SubDeviceId")


class SocketConfig:
    """Both ends must be made of the same one. The ends are ranks, or mesh ids, or (in one process) neither."""

    @overload
    def __init__(
        self,
        connections: Sequence[SocketConnection],
        memory_config: SocketMemoryConfig,
        sender_rank: int | Rank | None = None,
        receiver_rank: int | Rank | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        connections: Sequence[SocketConnection],
        memory_config: SocketMemoryConfig,
        *,
        sender_mesh_id: int | MeshId,
        receiver_mesh_id: int | MeshId,
    ) -> None: ...
    def __init__(
        self,
        connections: Sequence[SocketConnection],
        memory_config: SocketMemoryConfig,
        sender_rank: int | Rank | MeshId | None = None,
        receiver_rank: int | Rank | MeshId | None = None,
        *,
        sender_mesh_id: int | Rank | MeshId | None = None,
        receiver_mesh_id: int | Rank | MeshId | None = None,
    ) -> None:
        where = "SocketConfig"
        if isinstance(sender_rank, MeshId):  # by position both forms look alike
            sender_mesh_id, receiver_mesh_id = sender_rank, receiver_rank
            sender_rank = receiver_rank = None
        listed = checked_all(where, "connections", connections, (SocketConnection,), "ttnn.SocketConnections")
        memory = checked(where, "memory_config", memory_config, SocketMemoryConfig, "a SocketMemoryConfig")
        self._connections = tuple(connection.copy() for connection in listed)
        self._memory = memory.copy()
        self._ranks = (_number("sender_rank", sender_rank), _number("receiver_rank", receiver_rank))
        self._mesh_ids = (
            _number("sender_mesh_id", sender_mesh_id),
            _number("receiver_mesh_id", receiver_mesh_id),
        )
        if self._mesh_ids.count(None) == 1:
            raise MeshError(
                "SocketConfig must specify both sender and receiver mesh IDs or neither. Got sender_mesh_id="
                f"{sender_mesh_id}, receiver_mesh_id={receiver_mesh_id}."
            )
        if self._ranks != (None, None) and self._mesh_ids != (None, None):
            raise refused(where, "give sender_rank and receiver_rank, or the two mesh ids, but not both")

    def __repr__(self) -> str:
        kind, (sender, receiver) = ("mesh", self._mesh_ids) if self._ranks == (None, None) else ("rank", self._ranks)
        ends = "" if sender is None and receiver is None else f", {kind} {sender} to {kind} {receiver}"
        count = len(self._connections)
        return f"SocketConfig({count} connection{'s' * (count != 1)}{ends}, {self._memory!r})"


def _number(name: str, given: object) -> int | None:
    """TT-NN wraps ranks and mesh ids; plain ints do as well."""
    if given is None:
        return None
    return int(given) if isinstance(given, Rank | MeshId) else checked_int("SocketConfig", name, given)
