"""send_async, recv_async and their direct variants: tensors over sockets, from shard to shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from softmesh.arguments import checked, knows_its_names
from softmesh.callsite import user_call_site
from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.lenience import warn_or_raise
from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waiting import Wait
from softmesh.runtime.commands import Cost, emit, observed
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.pending import finishes_with
from softmesh.runtime.queues.queue_id import chosen_queue
from softmesh.sockets import arriving
from softmesh.sockets.channels import LocalChannel, RankChannel
from softmesh.sockets.config import SocketEndpoint
from softmesh.sockets.parcel import Parcel, Target, check_covered, check_spec, fingerprint, load_of, packed
from softmesh.sockets.receipt import Receipt
from softmesh.sockets.socket import Lane, MeshSocket
from softmesh.sockets.transfers import TRANSFERS, Task, check_room, has_lanes
from softmesh.tensor.memory import BufferType
from softmesh.tensor.tensor import Tensor
from softmesh.tensor.undefined import warn_if_undefined


class SocketOperation:
    """A callable op: what `ttnn.experimental.send_async` is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.name = f"experimental.{function.__name__}"
        self._function = knows_its_names(function)

    @property
    def python_fully_qualified_name(self) -> str:
        return f"ttnn.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<operation ttnn.{self.name}>"


@SocketOperation
def send_async(input_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None) -> list[Tensor]:
    """Each connection streams the shard at its sender; returns at once, and the tensor may be overwritten."""
    return _send("send_async", input_tensor, mesh_socket, queue_id)


@SocketOperation
def recv_async(
    output_tensor: Tensor, mesh_socket: MeshSocket, *, queue_id: int | None = None
) -> list[Tensor]:
    """The next message into the shards at the receivers; reading the tensor waits for it."""
    return _receive("recv_async", output_tensor, mesh_socket, queue_id)


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
    return _receive("recv_direct_async", output_tensor, mesh_socket, queue_id)


def _send(op: str, tensor: Tensor, socket: MeshSocket, queue: int | None) -> list[Tensor]:
    _check(op, "input_tensor", tensor, socket, SocketEndpoint.SENDER)
    tensor.check_readable(op)
    for lane in socket.lanes:
        warn_if_undefined(tensor, op, lane.routes.devices)
    parcels = [packed(tensor, lane.routes, op) for lane in socket.lanes]
    _note(op, socket, tensor, (tensor,), (), queue)
    for lane, parcel in zip(socket.lanes, parcels, strict=True):
        with TRANSFERS.together():
            is_sent = (
                TRANSFERS.is_idle and isinstance(lane.channel, RankChannel) and lane.channel.send_now(parcel)
            )
            if not is_sent:
                TRANSFERS.submit(_leaving(op, parcel, socket, lane))
    return []


def _leaving(op: str, parcel: Parcel, socket: MeshSocket, lane: Lane) -> Task:
    channel = lane.channel
    if isinstance(channel, LocalChannel):
        return _task(op, socket, lane, channel.send(parcel, user_call_site()))

    def wait() -> Wait:
        return channel.waiting(op, WaitKind.SEND, parcel.description.fingerprint, parcel.payload.nbytes)

    return _task(op, socket, lane, channel.send(parcel), wait)


def _task(
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
        stuck=partial(_nothing_sent, op, socket),
        wait=wait,
        ready=ready,
    )


def _receive(op: str, output: Tensor, socket: MeshSocket, queue: int | None) -> list[Tensor]:
    _check(op, "output_tensor", output, socket, SocketEndpoint.RECEIVER)
    if socket.conflict:
        raise MeshError(f"{op}: {socket.conflict}")
    now = Tensor.make(arriving.copy_now(output._storage), output.spec, None, output._where)
    now.check_readable(op)
    for lane in socket.lanes:
        check_covered(op, now, lane.routes, "receiver")
    for lane in socket.lanes:
        _expect(op, output, socket, lane)
    _note(op, socket, output, (), (output,), queue)
    return [output]


def _expect(op: str, output: Tensor, socket: MeshSocket, lane: Lane) -> None:
    receipt = Receipt(output._storage)
    channel = lane.channel
    with TRANSFERS.together():
        if isinstance(channel, LocalChannel):
            _warn_of_full_fifo(op, channel)
            task = _task(op, socket, lane, _from_here(op, channel, output, receipt, lane))
        else:
            steps = _from_rank(op, channel, output, receipt, lane)
            if TRANSFERS.is_idle and channel.ready is not None and channel.ready() and _ends_at_once(steps):
                return
            task = _task(
                op, socket, lane, steps, partial(_wait_for, op, channel, output, lane), channel.ready
            )
        receipt.follow(task)
        _check_possible(op, task, receipt, socket, channel)


def _wait_for(op: str, channel: RankChannel, output: Tensor, lane: Lane) -> Wait:
    nbytes = load_of(output.spec, lane.routes)
    return channel.waiting(op, WaitKind.RECEIVE, fingerprint(output.spec), nbytes)


def _ends_at_once(steps: Iterator[None]) -> bool:
    for _ in steps:
        return False
    return True


def _from_rank(op: str, channel: RankChannel, output: Tensor, receipt: Receipt, lane: Lane) -> Iterator[None]:
    yield from channel.next()
    description = channel.announced
    assert description is not None
    check_spec(op, description, output.spec)
    copy = arriving.copy_now(receipt.storage)
    target = Target(copy, output, description, lane.routes)
    yield from channel.take(target)
    target.finish()
    receipt.settle(copy)


def _from_here(
    op: str, channel: LocalChannel, output: Tensor, receipt: Receipt, lane: Lane
) -> Iterator[None]:
    yield from channel.next()
    check_spec(op, channel.first.description, output.spec)
    parcel = channel.take()
    copy = arriving.copy_now(receipt.storage)
    target = Target(copy, output, parcel.description, lane.routes)
    target.fill(parcel.payload)
    target.finish()
    receipt.settle(copy)


def _check(op: str, name: str, tensor: Tensor, socket: MeshSocket, end: SocketEndpoint) -> None:
    checked(op, name, tensor, Tensor, "a ttnn.Tensor on a mesh")
    checked(op, "mesh_socket", socket, MeshSocket, "a ttnn.MeshSocket")
    if socket.get_socket_endpoint_type() is not end:
        raise MeshError(
            f"{op} op requires a {end.name} socket, and this is the {socket.get_socket_endpoint_type().name}. "
            "Of ttnn.create_socket_pair(...) the first sends and the second receives."
        )
    mesh = socket.get_mesh_device()
    if tensor._storage.device is not mesh:
        where = tensor._storage.device or "the host"
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


def _nothing_sent(op: str, socket: MeshSocket) -> MeshError:
    return MeshError(
        f"{op}: nothing was sent on this socket, so nothing can be received ({socket!r}). A chip would wait for "
        "ever. Call ttnn.experimental.send_async(tensor, sender_socket) first."
    )


def _check_possible(
    op: str, task: Task, receipt: Receipt, socket: MeshSocket, channel: LocalChannel | RankChannel
) -> None:
    """A device that waits for a message cannot send it as well."""
    if not isinstance(channel, LocalChannel) or channel.senders.isdisjoint(channel.receivers):
        return
    if TRANSFERS.is_blocked_by_itself(task):
        TRANSFERS.withdraw(task)
        receipt.give_up()
        raise _nothing_sent(op, socket)


def _warn_of_full_fifo(op: str, channel: LocalChannel) -> None:
    if channel.fifo.held > channel.fifo.size and not channel.senders.isdisjoint(channel.receivers):
        warn_or_raise(
            f"{op}: the send before it put {channel.fifo.held} bytes into a FIFO of {channel.fifo.size}, on devices "
            "that this receive needs as well. A chip's queue would not come to the receive, and wait for ever. "
            "Make fifo_size larger, or receive on other devices.",
            SoftmeshWarning,
            MeshError,
        )


def _note(
    op: str,
    socket: MeshSocket,
    tensor: Tensor,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    queue: int | None,
) -> None:
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


@finishes_with
def finish_transfers(mesh: MeshDevice) -> None:
    """Wait until the mesh has sent and received all it was told to: what `synchronize_device` does."""
    if TRANSFERS.is_idle and not has_lanes():
        return
    devices = frozenset(mesh.get_device_ids())
    TRANSFERS.finish_all(devices)
    check_room(devices)
