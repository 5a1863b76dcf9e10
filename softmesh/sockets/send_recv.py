"""The ops send_async and recv_async, and their direct variants: tensors over a socket between meshes, shard to
shard.

A call takes the fast path where the socket has a compiled transfer for the tensor's spec, else it is checked in
full, and submitted to the transfer queue. A receive returns at once: reading the tensor waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from softmesh import epoch
from softmesh.arguments import checked, reject_unknown_keywords
from softmesh.callsite import raw_call_site, user_call_site
from softmesh.dispatch.call_cache import Call
from softmesh.dispatch.entry_point import Function
from softmesh.errors import MeshError
from softmesh.hardware.memory_config import BufferType
from softmesh.kinds import Kind
from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waits import Wait
from softmesh.runtime.commands import Cost, emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.queues.queue_base import on_synchronize
from softmesh.runtime.queues.queue_id import chosen_queue
from softmesh.sockets import pending_tensor
from softmesh.sockets.channels import LocalChannel, RankChannel
from softmesh.sockets.compiled_transfer import CheckedTransfer, CompiledReceive, CompiledSend
from softmesh.sockets.mesh_socket import Lane, MeshSocket
from softmesh.sockets.pending_tensor import PendingReceive
from softmesh.sockets.recorded_transfers import record_receive, record_send, recording_of
from softmesh.sockets.socket_config import SocketEndpoint
from softmesh.sockets.tensor_message import (
    ReceiveTarget,
    TensorMessage,
    check_covered,
    check_spec,
    fingerprint,
    load_of,
    pack_message,
)
from softmesh.sockets.transfer_queue import TRANSFERS, Task, check_room, has_local_streams
from softmesh.strictness import warn_or_raise
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import warn_before_leaving


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


AnyCompiled = CompiledSend | CompiledReceive | CheckedTransfer


class SocketCalls:
    """The compiled transfers of one op, each kept with its socket: they go when it goes."""

    def __init__(self, op: str) -> None:
        self._op = op

    def look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        compiled = None if kwargs or len(args) != 2 else lookup_compiled(self._op, *args)
        if compiled is None:
            return None
        return Call((), list(args), args[1].get_mesh_device(), epoch.current, compiled)


def lookup_compiled(op: str, tensor: object, socket: object) -> AnyCompiled | None:
    """What was compiled for tensors of this spec on this socket."""
    if type(tensor) is Tensor and type(socket) is MeshSocket:
        return socket.compiled_transfers.get((op, tensor.spec))
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
        stuck=partial(nothing_sent, op, socket, lane.channel),
        wait=wait,
        ready=ready,
        origin=raw_call_site(2),
    )


def nothing_sent(op: str, socket: MeshSocket, channel: object) -> MeshError:
    taken = channel.taken if isinstance(channel, LocalChannel) else 0
    sent = "nothing was sent on this socket, so nothing can be received"
    if taken:
        sent = f"message {taken + 1} of this socket was never sent: {taken} sent, {taken} received"
    return MeshError(
        f"{op}: {sent} ({socket!r}). A chip would wait for ever. Call ttnn.experimental.send_async(tensor, "
        "sender_socket) first."
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
            Kind.SEND if inputs else Kind.RECEIVE,
            inputs,
            outputs,
            coords=tuple(dict.fromkeys(end.device_coord for end in ends)),
            arguments={"mesh_socket": socket},
            queue=chosen_queue(op, queue),
            cost=lambda: Cost(0, tensor.spec.bytes()),
            sends=channels if inputs else (),
            receives=channels if outputs else (),
        )


class SocketOperation(Function):
    """A transfer over a socket: what `ttnn.experimental.send_async` is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(reject_unknown_keywords(function), f"experimental.{function.__name__}")
        self.cache = SocketCalls(function.__name__)


@SocketOperation
def send_async(input_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """Each connection streams the shard at its sender; returns at once, and the tensor may be overwritten."""
    return _send("send_async", input_tensor, mesh_socket, queue_id)


@SocketOperation
def recv_async(output_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """The next message into the shards at the receivers; reading the tensor waits for it."""
    return receive("recv_async", output_tensor, mesh_socket, queue_id)


@SocketOperation
def send_direct_async(input_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """As `send_async`; on a chip the data goes straight into the receiver's tensor."""
    return _send("send_direct_async", input_tensor, mesh_socket, queue_id)


@SocketOperation
def recv_direct_async(output_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """As `recv_async`, for what `send_direct_async` sends."""
    return receive("recv_direct_async", output_tensor, mesh_socket, queue_id)


def _send(op: str, tensor: Tensor, socket: MeshSocket, queue: int | None) -> list[Tensor]:
    check(op, "input_tensor", tensor, socket, SocketEndpoint.SENDER)
    tensor.check_readable(op)
    for lane in socket.lanes:
        warn_before_leaving(tensor, op, lane.routes.devices)
    messages = [pack_message(tensor, lane.routes, op) for lane in socket.lanes]
    note(op, socket, tensor, (tensor,), (), queue)
    recording = recording_of(op, socket.get_mesh_device(), queue)
    if recording is not None:
        record_send(recording, op, tensor, lambda source: _send_again(op, source, socket))
        return []
    _start_send(op, messages, socket)
    compiled = lookup_compiled(op, tensor, socket)
    if compiled is None or not compiled.is_known(tensor):
        lane = socket.lanes[0]
        found: AnyCompiled | None = None
        if len(socket.lanes) == 1:
            found = CompiledSend.of(tensor, lane.channel, lane.routes, messages[0])
        socket.keep_compiled(op, tensor.spec, found or CheckedTransfer(tensor, partial(_send_again, op)))
    return []


def _send_again(op: str, tensor: Tensor, socket: MeshSocket) -> list[Tensor]:
    _start_send(op, [pack_message(tensor, lane.routes, op) for lane in socket.lanes], socket)
    return []


def _start_send(op: str, messages: Sequence[TensorMessage], socket: MeshSocket) -> None:
    for lane, message in zip(socket.lanes, messages, strict=True):
        if isinstance(lane.channel, RankChannel):
            lane.channel.origin = raw_call_site(2)
        with TRANSFERS.lock:
            is_sent = TRANSFERS.is_idle and isinstance(lane.channel, RankChannel) and lane.channel.send_now(message)
            if not is_sent:
                TRANSFERS.submit(_send_task(op, message, socket, lane))


def _send_task(op: str, message: TensorMessage, socket: MeshSocket, lane: Lane) -> Task:
    channel = lane.channel
    if isinstance(channel, LocalChannel):
        return task_of(op, socket, lane, channel.send(message, user_call_site()))

    def wait() -> Wait:
        return channel.waiting(op, WaitKind.SEND, message.description.fingerprint, message.payload.nbytes)

    return task_of(op, socket, lane, channel.send(message), wait)


@on_synchronize
def finish_transfers(mesh: MeshDevice) -> None:
    """Wait until the mesh has sent and received all it was told to: what `synchronize_device` does."""
    if TRANSFERS.is_idle and not has_local_streams():
        return
    devices = frozenset(mesh.get_device_ids())
    TRANSFERS.finish_all(devices)
    if has_local_streams():
        check_room(devices)


def receive(op: str, output: Tensor, socket: MeshSocket, queue: int | None) -> list[Tensor]:
    compiled = lookup_compiled(op, output, socket)
    if isinstance(compiled, CompiledReceive) and compiled.accepts(output):
        _submit_receive(op, output, socket, socket.lanes[0], compiled)
        return [output]
    check(op, "output_tensor", output, socket, SocketEndpoint.RECEIVER)
    if socket.conflict:
        raise MeshError(f"{op}: {socket.conflict}")
    now = Tensor.make(pending_tensor.copy_now(output.storage), output.spec, None, output.shard_positions)
    now.check_readable(op)
    for lane in socket.lanes:
        check_covered(op, now, lane.routes, "receiver")
    recording = recording_of(op, socket.get_mesh_device(), queue)
    if recording is not None:
        record_receive(recording, op, output, lambda target: _receive_again(op, target, socket))
        note(op, socket, output, (), (output,), queue)
        return [output]
    if compiled is None or not compiled.is_known(output):
        socket.keep_compiled(op, output.spec, CheckedTransfer(output, partial(_receive_again, op)))
    _receive_again(op, output, socket)
    note(op, socket, output, (), (output,), queue)
    return [output]


def _receive_again(op: str, output: Tensor, socket: MeshSocket) -> list[Tensor]:
    for lane in socket.lanes:
        _submit_receive(op, output, socket, lane)
    return [output]


def _submit_receive(
    op: str, output: Tensor, socket: MeshSocket, lane: Lane, compiled: CompiledReceive | None = None
) -> None:
    pending_receive = PendingReceive(output.storage)
    channel = lane.channel
    with TRANSFERS.lock:
        if isinstance(channel, LocalChannel):
            _warn_of_full_fifo(op, channel)
            task = task_of(op, socket, lane, _from_here(op, channel, output, pending_receive, lane))
        else:
            steps = _from_rank(op, channel, output, pending_receive, socket, lane, compiled)
            if TRANSFERS.is_idle and channel.ready is not None and channel.ready() and _ends_at_once(steps):
                return
            task = task_of(op, socket, lane, steps, partial(_wait_for, op, channel, output, lane), channel.ready)
        pending_receive.submit(task)
        _check_possible(op, task, pending_receive, socket, channel)


def _wait_for(op: str, channel: RankChannel, output: Tensor, lane: Lane) -> Wait:
    nbytes = load_of(output.spec, lane.routes)
    return channel.waiting(op, WaitKind.RECEIVE, fingerprint(output.spec), nbytes)


def _ends_at_once(steps: Iterator[None]) -> bool:
    for _ in steps:
        return False
    return True


def _from_rank(
    op: str,
    channel: RankChannel,
    output: Tensor,
    pending_receive: PendingReceive,
    socket: MeshSocket,
    lane: Lane,
    compiled: CompiledReceive | None,
) -> Iterator[None]:
    yield from channel.next()
    if compiled is not None and compiled.try_receive(output):
        pending_receive.stop_waiting()
        return
    description = channel.announced
    assert description is not None
    check_spec(op, description, output.spec)
    copy = pending_tensor.copy_now(pending_receive.storage)
    before = copy.dist
    target = ReceiveTarget(copy, output, description, lane.routes)
    yield from channel.take(target)
    target.finish()
    pending_receive.complete(copy)
    if len(socket.lanes) == 1:
        found = CompiledReceive.of(output, channel, lane.routes, description, before)
        socket.keep_compiled(op, output.spec, found)


def _from_here(
    op: str, channel: LocalChannel, output: Tensor, pending_receive: PendingReceive, lane: Lane
) -> Iterator[None]:
    yield from channel.next()
    check_spec(op, channel.first.description, output.spec)
    message = channel.take()
    copy = pending_tensor.copy_now(pending_receive.storage)
    target = ReceiveTarget(copy, output, message.description, lane.routes)
    target.fill(message.payload)
    target.finish()
    pending_receive.complete(copy)


def _check_possible(
    op: str,
    task: Task,
    pending_receive: PendingReceive,
    socket: MeshSocket,
    channel: LocalChannel | RankChannel,
) -> None:
    """A device that waits for a message cannot send it as well."""
    if not isinstance(channel, LocalChannel) or channel.senders.isdisjoint(channel.receivers):
        return
    if TRANSFERS.is_blocked_by_itself(task):
        TRANSFERS.remove(task)
        pending_receive.stop_waiting()
        raise nothing_sent(op, socket, channel)


def _warn_of_full_fifo(op: str, channel: LocalChannel) -> None:
    if channel.fifo.buffered > channel.fifo.size and not channel.senders.isdisjoint(channel.receivers):
        warn_or_raise(
            f"{op}: the send before it put {channel.fifo.buffered} bytes into a FIFO of {channel.fifo.size}, on "
            "devices that this receive needs as well. A chip's queue would not come to the receive, and wait for ever. "
            "Make fifo_size larger, or receive on other devices.",
        )
