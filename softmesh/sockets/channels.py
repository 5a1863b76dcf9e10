"""Channels carry messages from one end of a socket to the other: in one process a queue, between two processes MPI.

Flow control is by credits: `Fifo` counts the bytes that were sent and not received, and a send to another rank ends
once they fit into the receiver's FIFO. Each message taken sends one credit (one byte) back.
"""

from __future__ import annotations

import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from softmesh.callsite import CallSite, RawSite
from softmesh.errors import MeshError
from softmesh.processes.context import DistributedContext, Pending
from softmesh.processes.wait_report import WaitKind, channel_name
from softmesh.processes.waits import Wait, waiting
from softmesh.runtime.device import MeshDevice
from softmesh.sockets.tensor_message import Description, ReceiveTarget, TensorMessage
from softmesh.sockets.transfer_queue import TRANSFERS, watch_fifo
from softmesh.strictness import warn_or_raise

_HEADER = struct.Struct("<QQ")  # number of the description, and its length where it is new
_LONGEST_DESCRIPTION = 1 << 26
_FIRST_TAG, _TAGS = 2, 3  # of a channel: its messages, its credits, its last word


# Channels that a credit is still to come for: MPI writes it into their memory, whoever has forgotten them.
_AWAITING_CREDIT: set[RankChannel] = set()


class Fifo:
    """How full the receiver's memory is: `sent` and `taken` count bytes of the fullest connection."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._loads: deque[int] = deque()
        self.sent = self.taken = 0

    def put(self, load: int) -> None:
        self._loads.append(load)
        self.sent += load

    def take(self) -> None:
        self.taken += self._loads.popleft()

    @property
    def buffered(self) -> int:
        return self.sent - self.taken

    def __len__(self) -> int:
        """Messages that nobody took."""
        return len(self._loads)


class LocalChannel:
    """Both ends are in this process: messages wait here, however large they are."""

    def __init__(self, mesh: MeshDevice, fifo_size: int, senders: frozenset[int], receivers: frozenset[int]) -> None:
        self.fifo = Fifo(fifo_size)
        self.senders, self.receivers = senders, receivers
        self._messages: deque[tuple[TensorMessage, CallSite]] = deque()
        self.taken = 0
        watch_fifo(self, mesh)
        mine = weakref.ref(self)
        mesh.tell_at_close.append(lambda: None if (channel := mine()) is None else channel.tell_unreceived())

    def tell_unreceived(self) -> None:
        """The sender's mesh is closed."""
        if self._messages:
            sites = ", ".join(sorted({str(site) for _, site in self._messages}))
            warn_or_raise(
                f"close_mesh_device: {len(self._messages)} sent by send_async ({sites}) and never received: "
                "what the receiver's FIFO holds is lost, and is taken for the next message where the "
                "socket lives on. Call ttnn.experimental.recv_async(tensor, receiver_socket) once for each.",
            )

    def send(self, message: TensorMessage, site: CallSite) -> Iterator[None]:
        self._messages.append((message, site))
        self.fifo.put(message.load)
        yield from ()

    def next(self) -> Iterator[None]:
        while not self._messages:
            yield

    @property
    def first(self) -> TensorMessage:
        return self._messages[0][0]

    def take(self) -> TensorMessage:
        self.fifo.take()
        self.taken += 1
        return self._messages.popleft()[0]

    def blocked(self) -> MeshError | None:
        if self.fifo.buffered <= self.fifo.size:
            return None
        site = self._messages[-1][1]
        return MeshError(
            f"send_async ({site}) never ends: {self.fifo.buffered} bytes for each connection were sent and not "
            f"received, and the FIFO holds {self.fifo.size}. A chip would wait for ever. Call "
            "ttnn.experimental.recv_async(...) on the other end first, or make fifo_size larger."
        )


class RankChannel:
    """The other end is in another process; `peer` is its rank in `pair`, a context of the two."""

    is_looked_at_later = False  # how much is unreceived is seen in shared memory, when all programs have ended

    def __init__(self, pair: DistributedContext, number: int, fifo_size: int) -> None:
        self._pair, self._peer = pair, 1 - pair.rank
        self._tag, self._credit_tag, self._word_tag = (_FIRST_TAG + _TAGS * number + one for one in range(_TAGS))
        self.fifo = Fifo(fifo_size)
        self.sent = self.received = 0  # messages
        self._leaving: deque[Pending] = deque()  # parts of messages that MPI still has to see off
        self._described: dict[Description, int] = {}
        self._descriptions: dict[int, Description] = {}
        self.announced: Description | None = None  # its bytes have not been taken yet
        self.origin: RawSite | None = None  # the line of the last send that was checked in full
        self._credit: Pending | None = None
        self._credit_byte = bytearray(1)

    @property
    def other_end(self) -> int:
        """Its world rank."""
        return self._pair.group.ranks[self._peer]

    @property
    def messages(self) -> int:
        """Count the messages sent, at the sender's end, or taken, at the receiver's."""
        return self.sent + self.received

    @property
    def name(self) -> str:
        """The same at both ends."""
        return channel_name(self._pair.group.name, self._tag)

    @property
    def unreceived(self) -> int:
        """Messages that were sent and not taken, as far as is known here."""
        return len(self.fifo)

    @property
    def ready(self) -> Callable[[], bool] | None:
        """A cheap look whether a message has come, where there is one."""
        return None

    def send_now(self, message: TensorMessage) -> bool:
        """Send it, if that needs no waiting."""
        return False

    def send(self, message: TensorMessage) -> Iterator[None]:
        """Ends once all that was sent and not received fits into the FIFO."""
        number, text = self._named(message.description)
        self._isend(_HEADER.pack(number, len(text)))
        if text:
            self._isend(text)
        self._isend(message.payload)
        self.sent += 1
        self.fifo.put(message.load)
        enough = self.fifo.sent - self.fifo.size
        self._collect_credits()
        while self.fifo.taken < enough:
            yield
            self._collect_credits()

    def _named(self, description: Description) -> tuple[int, bytes]:
        """The number of a description, and its text where the other end does not know it yet."""
        known = self._described.get(description)
        if known is not None:
            return known, b""
        number = self._described[description] = len(self._described)
        return number, description.encoded()

    def _isend(self, data: Any) -> None:
        pending = self._pair.isend(data, self._peer, self._tag, op="send_async")
        TRANSFERS.track_send(pending)
        self._leaving.append(pending)
        self.is_seen_off()

    def is_seen_off(self) -> bool:
        """Whether nothing that was sent still needs this process."""
        while self._leaving and self._leaving[0].test():
            self._leaving.popleft()
        return not self._leaving

    def is_received(self) -> bool:
        """Whether the other end is known to have taken all that was sent."""
        self._collect_credits()
        return not len(self.fifo)

    def _collect_credits(self) -> None:
        _AWAITING_CREDIT.add(self)
        while len(self.fifo):
            if self._credit is None:
                self._credit = self._pair.irecv(self._credit_byte, self._peer, self._credit_tag, op="send_async")
            if not self._credit.test():
                return
            self._credit = None
            self.fifo.take()
        _AWAITING_CREDIT.discard(self)

    def next(self) -> Iterator[None]:
        """Until it is known what comes next."""
        if self.announced is not None:
            return
        header = bytearray(_HEADER.size)
        yield from self._arrived(header)
        number, length = _HEADER.unpack(header)
        if length > _LONGEST_DESCRIPTION:
            raise MeshError(f"recv_async: the sender announced a description of {length} bytes")
        if length:
            text = bytearray(length)
            yield from self._arrived(text)
            self._descriptions[number] = Description.decoded(bytes(text))
        self.announced = self._descriptions[number]

    def take(self, target: ReceiveTarget) -> Iterator[None]:
        self.announced = None
        yield from self._arrived(target.buffer)
        self.received += 1
        TRANSFERS.track_send(self._pair.isend(b"\0", self._peer, self._credit_tag, op="recv_async"))

    def _arrived(self, target: Any) -> Iterator[None]:
        pending = self._pair.irecv(target, self._peer, self._tag, op="recv_async")
        while not pending.test():
            yield

    def say(self, word: bytes) -> None:
        """The last that this end says."""
        TRANSFERS.track_send(self._pair.isend(word, self._peer, self._word_tag, op="the end of the program"))

    def hear(self, word: bytearray) -> Pending:
        """The last that the other end says, all bytes of it."""
        return self._pair.irecv(word, self._peer, self._word_tag, op="the end of the program")

    def waiting(self, op: str, kind: WaitKind, fingerprint: str, nbytes: int) -> Wait:
        """Wait for the other end: to take what was sent, or to send the next message."""
        return waiting(
            op,
            kind=kind,
            group=self._pair.group,
            peer=self.other_end,
            tag=self._tag,
            sequence=self.messages + (kind is WaitKind.RECEIVE),
            fingerprint=fingerprint,
            nbytes=nbytes,
        )
