"""The end of the program: messages that no rank receives are told, by the end of the socket that learns of it.

Each end says a last word to the other: the receiver at once, how many messages it took; the sender a moment later, how
many it sent, and whether it has told of what is left. Who ends later so finds the other's word, and who ends first
does not wait for it: the other may have hours to go. A send that MPI has not seen off yet is waited for, until the
receiver's last word says that nobody will take it. Where both ends share memory, the sender looks there when all have
ended.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from softmesh.callsite import CallSite, resolved
from softmesh.processes.mpi_startup import LAST_LOOKS
from softmesh.processes.wait_report import WaitKind
from softmesh.processes.waits import count_messages_with
from softmesh.sockets.channels import RankChannel
from softmesh.sockets.transfer_queue import TRANSFERS
from softmesh.strictness import warn_or_raise

_WORD = struct.Struct("<Q?I1024s")  # messages, whether what is left has been told, line and file that sent
_MOMENT = 0.4  # seconds that a sender waits: shorter than what is reported as a wait
_LATENCY = 0.2  # seconds that a word may take
_PAUSE = 1e-3
_MOST_COUNTED = 256  # channels, the latest: a report is a line of limited length

_SENDING: list[RankChannel] = []  # also of sockets that are gone
_RECEIVING: list[RankChannel] = []
_HEARING: list[_OtherEnd] = []  # MPI may write words into their memory until it has ended


def keep(channel: RankChannel, sends: bool) -> None:
    """Until the end of the program."""
    (_SENDING if sends else _RECEIVING).append(channel)
    TRANSFERS.part = _part
    count_messages_with(_messages)
    if _look_at_memory not in LAST_LOOKS:
        LAST_LOOKS.append(_look_at_memory)


def _messages() -> dict[str, int]:
    return {channel.name: channel.messages for channel in (*_SENDING, *_RECEIVING)[-_MOST_COUNTED:]}


class _OtherEnd:
    """What it says last."""

    def __init__(self, channel: RankChannel) -> None:
        self.channel = channel
        self._word = bytearray(_WORD.size)
        self._pending = channel.hear(self._word)
        _HEARING.append(self)

    def has_ended(self) -> bool:
        return self._pending.test()

    def word(self) -> tuple[int, bool, CallSite]:
        messages, is_told, line, file = _WORD.unpack(self._word)
        return messages, is_told, CallSite(file.rstrip(b"\0").decode(errors="replace"), line, "")

    def is_settled(self) -> bool:
        return self.channel.is_received() or self.has_ended()


def _part() -> None:
    """This program has ended."""
    for channel in _RECEIVING:
        channel.say(_WORD.pack(channel.received, False, 0, b""))
    until = time.monotonic() + _MOMENT
    for receiver in [_OtherEnd(channel) for channel in _SENDING]:
        _part_from_receiver(receiver, until)
    senders = [_OtherEnd(channel) for channel in _RECEIVING if not channel.is_looked_at_later]
    _wait_a_moment(senders, time.monotonic() + _LATENCY)
    for sender in senders:
        if sender.has_ended():
            _part_from_sender(sender)


def _part_from_receiver(receiver: _OtherEnd, until: float) -> None:
    channel = receiver.channel

    def is_over() -> bool:
        return receiver.is_settled() or (channel.is_seen_off() and time.monotonic() > until)

    if not is_over():
        with channel.waiting("send_async", WaitKind.SEND, "", 0) as wait:
            wait.origin = channel.origin
            wait.until(is_over)
    is_told = channel.is_looked_at_later or channel.is_received()
    if not is_told and receiver.has_ended():
        is_told = True
        _tell_unreceived(channel, channel.sent - receiver.word()[0])
    site = _last_send(channel)
    channel.say(_WORD.pack(channel.sent, is_told, site.line, site.file.encode()))


def _part_from_sender(sender: _OtherEnd) -> None:
    sent, is_told, site = sender.word()
    left = sent - sender.channel.received
    if left and not is_told:
        warn_or_raise(
            f"the end of the program: {left} sent by rank {sender.channel.other_end} with send_async ({site}) and "
            f"never received: {_REMEDY}",
            at=site,
        )


def _wait_a_moment(others: Sequence[_OtherEnd], until: float) -> None:
    while time.monotonic() < until and not all(other.has_ended() for other in others):
        time.sleep(_PAUSE)


_REMEDY = (
    "what the receiver's FIFO holds is lost, and a send that finds it full waits for ever. Call "
    "ttnn.experimental.recv_async(tensor, socket) there once for each."
)


def _tell_unreceived(channel: RankChannel, left: int) -> None:
    if left:
        site = _last_send(channel)
        warn_or_raise(
            f"the end of the program: {left} sent to rank {channel.other_end} by send_async ({site}) and never "
            f"received: {_REMEDY}",
            at=site,
        )


def _last_send(channel: RankChannel) -> CallSite:
    return CallSite("?", 0, "") if channel.origin is None else resolved(channel.origin)


def _look_at_memory() -> None:
    """All ranks have ended their programs: what lies in a FIFO now was never received."""
    for channel in _SENDING:
        if channel.is_looked_at_later:
            _tell_unreceived(channel, channel.unreceived)
