"""Checks made when a socket is created: the cores, the meshes they are on, the ranks, and the fabric between them."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import described
from softmesh.cores import CoreCoord
from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.hardware import SubDeviceId
from softmesh.hardware.memory_config import BufferType
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.socket_config import SocketConnection, SocketEndpoint, SocketMemoryConfig

ALONE = (
    "This process is alone: to have others, start the program with tt-run --rank-binding BINDING -- python ... "
    "(softmesh bindings writes bindings)."
)


def check_connections(connections: Sequence[SocketConnection]) -> None:
    if not connections:
        raise MeshError(
            "Socket connection config cannot be empty. Give at least one ttnn.SocketConnection(sender, receiver)."
        )
    seen: set[object] = set()
    for number, connection in enumerate(connections):
        if connection.receiver_core in seen:
            raise MeshError(
                f"Cannot reuse receiver cores in a single socket. Connection {number} ends at "
                f"{connection.receiver_core}, where an earlier one ends: choose another core of that device."
            )
        seen.add(connection.receiver_core)


def check_end(
    mesh: MeshDevice,
    endpoint: SocketEndpoint,
    connections: Sequence[SocketConnection],
    memory: SocketMemoryConfig,
) -> None:
    """Every core of one end is a worker core of its mesh, and of the sub-device where one is named."""
    mesh.check_open("MeshSocket")
    mesh.check_local("MeshSocket")
    for number, connection in enumerate(connections):
        core = connection.end(endpoint)
        if not mesh.shape.contains(core.device_coord):
            raise MeshError(
                f"Coordinate {core.device_coord} not found in mesh {mesh.shape}: it is the {endpoint.name.lower()} of "
                f"connection {number}. Coordinates count from 0 in the mesh (or submesh) of their own end."
            )
        check_core(mesh, core.core_coord, memory.sub_device(endpoint))


def check_core(mesh: MeshDevice, core: CoreCoord, sub_device: SubDeviceId | None) -> None:
    if sub_device is None:
        mesh.worker_core_from_logical_core(core)
        return
    loaded = {one: mesh.sub_devices.cores(one) for one in mesh.sub_devices.ids()}
    if sub_device not in loaded or not loaded[sub_device].contains(core):
        raise MeshError(
            f"Socket cores must be contained in the specified sub device: core ({core.x},{core.y}) is not in "
            f"{sub_device}. The loaded sub-devices are {loaded}."
        )


def check_fabric(devices: set[int] | None, same_mesh: bool) -> None:
    """`devices` are all that take part; None: they belong to several processes."""
    config = settings.active().config
    if not settings.active().is_on:
        if devices is None or len(devices) > 1:
            raise MeshError(
                "Can only create multi-device sockets with fabric enabled. Call "
                "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D) before the mesh is opened."
            )
        return
    if config in settings.ONE_DIMENSIONAL and not same_mesh:
        raise MeshError(
            f"1D Fabric requires sender and receiver to be on the same mesh, and {config} is set. Packets leave "
            "their mesh only under ttnn.FabricConfig.FABRIC_2D and its tori."
        )


def check_meshes_are_joined(mesh: MeshDevice, sender: int | None, receiver: int | None) -> None:
    """Two meshes of a descriptor talk over the connections that it has between them, and over no others."""
    graph = getattr(mesh.system, "declared", None)
    if graph is None or sender is None or receiver is None or max(sender, receiver) >= len(graph.meshes):
        return
    if receiver not in graph.reachable_from(sender):
        raise MeshError(
            f"MeshSocket: mesh {sender} and mesh {receiver} cannot talk: {graph.source} has no connections between "
            f"them. Write into its graph:\n{graph.connection_to_write(sender, receiver)}"
        )


_FIFO_MEMORIES = (BufferType.L1, BufferType.DRAM)
SMALLEST_FIFO = 1024  # bytes: room for one packet


def check_fifo(memory: SocketMemoryConfig) -> None:
    """The FIFO lies on the receiver's cores or in their DRAM, and has room for a packet."""
    kind = memory.socket_storage_type
    if kind not in _FIFO_MEMORIES:
        raise MeshError(
            f"Socket FIFOs live in L1 or DRAM, not in {kind.name}: write SocketMemoryConfig(ttnn.BufferType.L1, bytes)."
        )
    if 0 < memory.fifo_size < SMALLEST_FIFO:
        raise MeshError(
            f"The FIFO of a socket must hold at least one packet: fifo_size={memory.fifo_size} B is less than "
            f"{SMALLEST_FIFO} B."
        )


def check_ranks(ranks: tuple[int | None, int | None], rank: int, size: int) -> tuple[int, int]:
    """Sender and receiver: two ranks that exist, one of which is this one."""
    sender, receiver = ranks
    if sender is None or receiver is None or not (0 <= sender < size and 0 <= receiver < size):
        known = f"only rank 0. {ALONE}" if size == 1 else f"ranks 0 to {size - 1}."
        raise MeshError(
            f"Invalid socket sender rank {described(sender)} or receiver rank {described(receiver)} specified. "
            f"This job has {known} Between meshes of one process use ttnn.create_socket_pair(...)."
        )
    if sender == receiver:
        raise MeshError(
            "MeshSocket must only be used for communication between different host ranks, not within the same "
            f"rank: both ends are rank {sender}. Use ttnn.create_socket_pair(sender_mesh, receiver_mesh, config)."
        )
    if rank not in (sender, receiver):
        raise MeshError(
            f"MeshSocket: this is rank {rank}, and the socket goes from rank {sender} to rank {receiver}. Only "
            "those two make it; let the others pass by."
        )
    return sender, receiver
