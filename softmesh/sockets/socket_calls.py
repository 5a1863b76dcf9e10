"""What sending and receiving over sockets between meshes have in common: what is asked, noted and put in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from softmesh import epoch
from softmesh.arguments import checked
from softmesh.dispatch.call_cache import Call
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.processes.waiting import Wait
from softmesh.runtime.commands import Cost, emit, observed
from softmesh.runtime.queues.queue_id import chosen_queue
from softmesh.sockets.channels import LocalChannel
from softmesh.sockets.config import SocketEndpoint
from softmesh.sockets.repeating import RepeatedReceive, RepeatedSend
from softmesh.sockets.socket import Lane, MeshSocket
from softmesh.sockets.transfers import Task
from softmesh.tensor.tensor import Tensor


def check(op: str, name: str, tensor: Tensor, socket: MeshSocket, end: SocketEndpoint) -> None:
    checked(op, name, tensor, Tensor, "a ttnn.Tensor on a mesh")
    checked(op, "mesh_socket", socket, MeshSocket, "a ttnn.MeshSocket")
    if socket.get_socket_endpoint_type() is not end:
        raise MeshError(
            f"{op} op requires a {end.name} socket, and this is the {socket.get_socket_endpoint_type().name}. "
            "Of ttnn.create_socket_pair(...) the first sends and the second receives."
        )
    mesh = socket.get_mesh_device()
    if tensor.storage.device is not mesh:
        where = tensor.storage.device or "the host"
        raise MeshError(f"{op}: {name} is on {where}, the socket's end on {mesh}: they must be on one mesh.")
    if "direct" in op and socket.storage_type is not BufferType.L1:
        raise MeshError(
            f"{op} requires an L1 socket storage type, got {socket.storage_type}. Make the socket with "
            "ttnn.SocketMemoryConfig(ttnn.BufferType.L1, fifo_size)."
        )
    if not socket.fifo_size:
        raise MeshError(
            f"{op}: the FIFO of this socket holds 0 bytes, so nothing ever fits and a chip would wait for ever. "
            "Give ttnn.SocketMemoryConfig a fifo_size of a page or more."
        )


class SocketCalls:
    """The compiled transfers of one op, each kept with its socket: they go when it goes."""

    def __init__(self, op: str) -> None:
        self._op = op

    def look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        known = None if kwargs or len(args) != 2 else known_of(self._op, *args)
        if known is None:
            return None
        return Call((), list(args), args[1].get_mesh_device(), epoch.current, known)


def known_of(op: str, tensor: object, socket: object) -> RepeatedSend | RepeatedReceive | None:
    """What was compiled for tensors of this spec on this socket."""
    if type(tensor) is Tensor and type(socket) is MeshSocket:
        return socket.known.get((op, tensor.spec))
    return None


def task_of(
    op: str,
    socket: MeshSocket,
    lane: Lane,
    steps: Iterator[None],
    wait: Callable[[], Wait] | None = None,
    ready: Callable[[], bool] | None = None,
) -> Task:
    return Task(
        steps,
        socket.get_mesh_device(),
        lane.devices,
        lane.channel,
        sends=socket.get_socket_endpoint_type() is SocketEndpoint.SENDER,
        stuck=partial(nothing_sent, op, socket),
        wait=wait,
        ready=ready,
    )


def nothing_sent(op: str, socket: MeshSocket) -> MeshError:
    return MeshError(
        f"{op}: nothing was sent on this socket, so nothing can be received ({socket!r}). A chip would wait for "
        "ever. Call ttnn.experimental.send_async(tensor, sender_socket) first."
    )


def note(
    op: str,
    socket: MeshSocket,
    tensor: Tensor,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    queue: int | None,
) -> None:
    """Tell the mesh, which counts its programs, and whoever observes."""
    socket.get_mesh_device().note_program((op, tensor.spec, socket.get_config_buffer_address()))
    if observed():
        ends = socket.get_active_cores()
        lanes = (lane.channel for lane in socket.lanes)
        channels = tuple(channel for channel in lanes if isinstance(channel, LocalChannel))
        emit(
            f"experimental.{op}",
            inputs,
            outputs,
            coords=tuple(dict.fromkeys(end.device_coord for end in ends)),
            arguments={"mesh_socket": socket},
            queue=chosen_queue(op, queue),
            cost=lambda: Cost(0, tensor.spec.bytes()),
            sends=channels if inputs else (),
            receives=channels if outputs else (),
        )
