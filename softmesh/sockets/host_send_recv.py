"""The ops recv_async_h2d and send_async_d2h, the device's side of host sockets; and a table of all socket ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from softmesh.arguments import checked
from softmesh.callsite import raw_call_site
from softmesh.errors import MeshError
from softmesh.kinds import Kind
from softmesh.runtime.commands import Cost, emit, observed
from softmesh.runtime.queues.queue_id import chosen_queue
from softmesh.sockets import pending_tensor
from softmesh.sockets.byte_stream import ByteStream, byte_count, from_bytes, to_bytes
from softmesh.sockets.host_sockets import D2HSocket, H2DMode, H2DSocket, HostSocket
from softmesh.sockets.pending_tensor import PendingReceive
from softmesh.sockets.recorded_transfers import record_receive, record_send, recording_of
from softmesh.sockets.send_recv import (
    SocketOperation,
    recv_async,
    recv_direct_async,
    send_async,
    send_direct_async,
)
from softmesh.sockets.tensor_message import check_covered
from softmesh.sockets.transfer_queue import TRANSFERS, Task
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import warn_before_leaving


@SocketOperation
def recv_async_h2d(output_tensor: Tensor, h2d_socket: H2DSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """The shard on the socket's device takes what the host writes; reading the tensor waits for it."""
    op = "recv_async_h2d"
    checked(op, "h2d_socket", h2d_socket, H2DSocket, "a ttnn.H2DSocket")
    now = _checked_tensor(op, "output_tensor", output_tensor, h2d_socket)
    if h2d_socket.get_h2d_mode() is not H2DMode.HOST_PUSH:
        raise MeshError(f"{op} requires an H2DMode.HOST_PUSH socket, got {h2d_socket.get_h2d_mode()}.")
    position = list(now.view_distribution().coordinates()).index(h2d_socket.core.device_coord)
    positions = now.shard_positions or range(len(now.storage.dist.coordinates()))

    def start(output: Tensor) -> None:
        pending_receive = PendingReceive(output.storage)

        def put(values: torch.Tensor) -> None:
            copy = pending_tensor.copy_now(pending_receive.storage)
            copy.write_piece(positions[position], values)
            pending_receive.complete(copy)

        task = _task(op, h2d_socket, _filling(output, h2d_socket, put), byte_count(output.spec))
        with TRANSFERS.lock:
            pending_receive.submit(task)

    recording = recording_of(op, h2d_socket.get_mesh_device(), queue_id)
    if recording is None:
        start(output_tensor)
    else:
        record_receive(recording, op, output_tensor, start)
    _note(op, (), (output_tensor,), output_tensor, h2d_socket, queue_id)
    return [output_tensor]


@SocketOperation
def send_async_d2h(input_tensor: Tensor, d2h_socket: D2HSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """The shard on the socket's device goes to whom reads the socket."""
    op = "send_async_d2h"
    checked(op, "d2h_socket", d2h_socket, D2HSocket, "a ttnn.D2HSocket")
    _checked_tensor(op, "input_tensor", input_tensor, d2h_socket)
    coord = d2h_socket.core.device_coord
    warn_before_leaving(input_tensor, op, frozenset([coord]))

    def start(tensor: Tensor) -> None:
        shard = tensor.pieces()[list(tensor.view_distribution().coordinates()).index(coord)]
        data = to_bytes(shard, tensor.spec)
        TRANSFERS.submit(_task(op, d2h_socket, d2h_socket.stream.put(data), data.numel()))

    recording = recording_of(op, d2h_socket.get_mesh_device(), queue_id)
    if recording is None:
        start(input_tensor)
    else:
        record_send(recording, op, input_tensor, start)
    _note(op, (input_tensor,), (), input_tensor, d2h_socket, queue_id)
    return []


def _filling(output: Tensor, socket: H2DSocket, done: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """`done` is called with the values, once all bytes are there."""
    data = yield from socket.stream.take(byte_count(output.spec))
    done(from_bytes(data, output.spec))


def _checked_tensor(op: str, name: str, tensor: Tensor, socket: HostSocket) -> Tensor:
    """The tensor as it is now, without waiting for what is on its way into it."""
    checked(op, name, tensor, Tensor, "a ttnn.Tensor on a mesh")
    if not socket.is_owner:
        raise MeshError(f"{op} needs the socket itself, and this is one that connect() gave.")
    mesh = socket.get_mesh_device()
    if tensor.storage.device is not mesh:
        where = tensor.storage.device or "the host"
        raise MeshError(f"{op}: {name} is on {where}, the socket on {mesh}: they must be on one mesh.")
    now = Tensor.make(pending_tensor.copy_now(tensor.storage), tensor.spec, None, tensor.shard_positions)
    now.check_readable(op)
    check_covered(op, now, socket.routes, "socket's")
    page = tensor.spec.aligned_page_size()
    if socket.get_page_size() not in (0, page):
        raise MeshError(
            f"{op}: the socket's page size is {socket.get_page_size()}, the tensor's aligned page size {page}. Call "
            f"set_page_size({page}), or do not set it."
        )
    return now


def _task(op: str, socket: HostSocket, steps: Iterator[None], nbytes: int) -> Task:
    sends = isinstance(socket, D2HSocket)
    remedy = (
        f"{nbytes} bytes are to be read on the other end of this socket, with D2HSocket.connect(...).read_tensor(...)"
        if sends
        else f"{nbytes} bytes are to be written on the other end, with H2DSocket.connect(...).write_tensor(...)"
    )
    is_local = isinstance(socket.stream, ByteStream)
    return Task(
        steps,
        socket.get_mesh_device(),
        frozenset({socket.device}),
        socket.stream,
        sends=sends,
        stuck=partial(_nothing_written, op, socket),
        wait=None if is_local else partial(socket.waiting, op, remedy, nbytes),
        origin=raw_call_site(2),
    )


def _nothing_written(op: str, socket: HostSocket) -> MeshError:
    return MeshError(
        f"{op}: nothing was written to this socket that fills the tensor ({socket.stream.buffered} bytes are there). A "
        "chip would wait for ever. Call H2DSocket.write_tensor(...) before the tensor is read."
    )


def _note(
    op: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    tensor: Tensor,
    socket: HostSocket,
    queue: int | None,
) -> None:
    socket.get_mesh_device().note_program((op, tensor.spec, socket.core))
    if observed():
        emit(
            f"experimental.{op}",
            Kind.SEND if inputs else Kind.RECEIVE,
            inputs,
            outputs,
            coords=(socket.core.device_coord,),
            queue=chosen_queue(op, queue),
            cost=lambda: Cost(0, byte_count(tensor.spec)),
            sends=(socket.stream,) if inputs and isinstance(socket.stream, ByteStream) else (),
        )


SOCKET_OPERATIONS: dict[str, object] = {
    "experimental.recv_async": recv_async,
    "experimental.recv_async_h2d": recv_async_h2d,
    "experimental.recv_direct_async": recv_direct_async,
    "experimental.send_async": send_async,
    "experimental.send_async_d2h": send_async_d2h,
    "experimental.send_direct_async": send_direct_async,
}
