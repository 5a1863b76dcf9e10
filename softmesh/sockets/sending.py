"""send_async, recv_async and their direct variants: tensors over sockets, from shard to shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.arguments import knows_its_names
from softmesh.callsite import user_call_site
from softmesh.dispatch.entry_point import Function
from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waiting import Wait
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.pending import finishes_with
from softmesh.sockets.channels import LocalChannel, RankChannel
from softmesh.sockets.config import SocketEndpoint
from softmesh.sockets.parcel import Parcel, packed
from softmesh.sockets.receiving import receive
from softmesh.sockets.repeating import RepeatedSend
from softmesh.sockets.socket import Lane, MeshSocket
from softmesh.sockets.socket_calls import SocketCalls, check, known_of, note, task_of
from softmesh.sockets.transfers import TRANSFERS, Task, check_room, has_lanes
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import warn_if_undefined


class SocketOperation(Function):
    """A transfer over a socket: what `ttnn.experimental.send_async` is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(knows_its_names(function), f"experimental.{function.__name__}")
        self.cache = SocketCalls(function.__name__)


@SocketOperation
def send_async(input_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """Each connection streams the shard at its sender; returns at once, and the tensor may be overwritten."""
    return _send("send_async", input_tensor, mesh_socket, queue_id)


@SocketOperation
def recv_async(
    output_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """The next message into the shards at the receivers; reading the tensor waits for it."""
    return receive("recv_async", output_tensor, mesh_socket, queue_id)


@SocketOperation
def send_direct_async(
    input_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """As `send_async`; on a chip the data goes straight into the receiver's tensor."""
    return _send("send_direct_async", input_tensor, mesh_socket, queue_id)


@SocketOperation
def recv_direct_async(
    output_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """As `recv_async`, for what `send_direct_async` sends."""
    return receive("recv_direct_async", output_tensor, mesh_socket, queue_id)


def _send(op: str, tensor: Tensor, socket: MeshSocket, queue: int | None) -> list[Tensor]:
    parcels = _send_in_full(op, tensor, socket, queue)
    known = known_of(op, tensor, socket)
    if len(socket.lanes) == 1 and (known is None or not known.is_known(tensor)):
        lane = socket.lanes[0]
        socket.remember(op, tensor.spec, RepeatedSend.of(tensor, lane.channel, lane.routes, parcels[0]))
    return []


def _send_in_full(op: str, tensor: Tensor, socket: MeshSocket, queue: int | None) -> list[Parcel]:
    check(op, "input_tensor", tensor, socket, SocketEndpoint.SENDER)
    tensor.check_readable(op)
    for lane in socket.lanes:
        warn_if_undefined(tensor, op, lane.routes.devices)
    parcels = [packed(tensor, lane.routes, op) for lane in socket.lanes]
    note(op, socket, tensor, (tensor,), (), queue)
    for lane, parcel in zip(socket.lanes, parcels, strict=True):
        with TRANSFERS.lock:
            is_sent = (
                TRANSFERS.is_idle and isinstance(lane.channel, RankChannel) and lane.channel.send_now(parcel)
            )
            if not is_sent:
                TRANSFERS.submit(_leaving(op, parcel, socket, lane))
    return parcels


def _leaving(op: str, parcel: Parcel, socket: MeshSocket, lane: Lane) -> Task:
    channel = lane.channel
    if isinstance(channel, LocalChannel):
        return task_of(op, socket, lane, channel.send(parcel, user_call_site()))

    def wait() -> Wait:
        return channel.waiting(op, WaitKind.SEND, parcel.description.fingerprint, parcel.payload.nbytes)

    return task_of(op, socket, lane, channel.send(parcel), wait)


@finishes_with
def finish_transfers(mesh: MeshDevice) -> None:
    """Wait until the mesh has sent and received all it was told to: what `synchronize_device` does."""
    if TRANSFERS.is_idle and not has_lanes():
        return
    devices = frozenset(mesh.get_device_ids())
    TRANSFERS.finish_all(devices)
    if has_lanes():
        check_room(devices)
