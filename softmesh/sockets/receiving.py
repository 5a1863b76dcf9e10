"""Receiving: the next message of a socket into a tensor, now or as soon as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.lenience import warn_or_raise
from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waiting import Wait
from softmesh.sockets import arriving
from softmesh.sockets.channels import LocalChannel, RankChannel
from softmesh.sockets.config import SocketEndpoint
from softmesh.sockets.landing import Target
from softmesh.sockets.parcel import check_covered, check_spec, fingerprint, load_of
from softmesh.sockets.receipt import Receipt
from softmesh.sockets.repeating import RepeatedReceive
from softmesh.sockets.socket import Lane, MeshSocket
from softmesh.sockets.socket_calls import check, known_of, note, nothing_sent, task_of
from softmesh.sockets.transfers import TRANSFERS, Task
from softmesh.tensor.tensor import Tensor


def receive(op: str, output: Tensor, socket: MeshSocket, queue: int | None) -> list[Tensor]:
    known = known_of(op, output, socket)
    if isinstance(known, RepeatedReceive) and known.accepts(output):
        _expect(op, output, socket, socket.lanes[0], known)
        return [output]
    check(op, "output_tensor", output, socket, SocketEndpoint.RECEIVER)
    if socket.conflict:
        raise MeshError(f"{op}: {socket.conflict}")
    now = Tensor.make(arriving.copy_now(output.storage), output.spec, None, output.shard_positions)
    now.check_readable(op)
    for lane in socket.lanes:
        check_covered(op, now, lane.routes, "receiver")
    for lane in socket.lanes:
        _expect(op, output, socket, lane)
    note(op, socket, output, (), (output,), queue)
    return [output]


def _expect(
    op: str, output: Tensor, socket: MeshSocket, lane: Lane, known: RepeatedReceive | None = None
) -> None:
    receipt = Receipt(output.storage)
    channel = lane.channel
    with TRANSFERS.lock:
        if isinstance(channel, LocalChannel):
            _warn_of_full_fifo(op, channel)
            task = task_of(op, socket, lane, _from_here(op, channel, output, receipt, lane))
        else:
            steps = _from_rank(op, channel, output, receipt, socket, lane, known)
            if TRANSFERS.is_idle and channel.ready is not None and channel.ready() and _ends_at_once(steps):
                return
            task = task_of(
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


def _from_rank(
    op: str,
    channel: RankChannel,
    output: Tensor,
    receipt: Receipt,
    socket: MeshSocket,
    lane: Lane,
    known: RepeatedReceive | None,
) -> Iterator[None]:
    yield from channel.next()
    if known is not None and known.takes(output):
        receipt.give_up()
        return
    description = channel.announced
    assert description is not None
    check_spec(op, description, output.spec)
    copy = arriving.copy_now(receipt.storage)
    before = copy.dist
    target = Target(copy, output, description, lane.routes)
    yield from channel.take(target)
    target.finish()
    receipt.settle(copy)
    if len(socket.lanes) == 1:
        found = RepeatedReceive.of(output, channel, lane.routes, description, before)
        socket.remember(op, output.spec, found)


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


def _check_possible(
    op: str, task: Task, receipt: Receipt, socket: MeshSocket, channel: LocalChannel | RankChannel
) -> None:
    """A device that waits for a message cannot send it as well."""
    if not isinstance(channel, LocalChannel) or channel.senders.isdisjoint(channel.receivers):
        return
    if TRANSFERS.is_blocked_by_itself(task):
        TRANSFERS.withdraw(task)
        receipt.give_up()
        raise nothing_sent(op, socket)


def _warn_of_full_fifo(op: str, channel: LocalChannel) -> None:
    if channel.fifo.held > channel.fifo.size and not channel.senders.isdisjoint(channel.receivers):
        warn_or_raise(
            f"{op}: the send before it put {channel.fifo.held} bytes into a FIFO of {channel.fifo.size}, on devices "
            "that this receive needs as well. A chip's queue would not come to the receive, and wait for ever. "
            "Make fifo_size larger, or receive on other devices.",
            SoftmeshWarning,
            MeshError,
        )
