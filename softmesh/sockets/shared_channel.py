"""Messages between two processes of one host: written once, into memory that both see, and read there.

A channel has a ring of entries, each of which says where in the shared memory a message lies. Its sender counts what
it has put there, its receiver what it has taken, and neither waits inside anything: each looks at the other's count.
A large message becomes the receiver's tensor as it is; its place is free again when nothing reads it any more.
"""

from __future__ import annotations

import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import torch

from softmesh.processes.context import DistributedContext
from softmesh.processes.shared_memory import SPAN, Segment, shared_segment
from softmesh.processes.shelf import ALL, FIRST, SLOTS, Block, Shelf, rounded
from softmesh.sockets.channels import RankChannel
from softmesh.sockets.parcel import Description, Parcel, Target

_WORD = 8
_LINE = 64  # bytes that processors keep together
_RING = 4096  # bytes of a channel: a line for each of its two counts, and the entries
_ENTRY = struct.Struct("<QQQQ")  # number and length of the description, slot, offset, bytes of the payload
_ENTRIES = (_RING - 2 * _LINE) // _ENTRY.size
_COUNTS = SLOTS * _WORD  # for each process: how often the other has done with each of its blocks
_FIRST_RING = 2 * _COUNTS
MOST_CHANNELS = (FIRST - _FIRST_RING) // _RING
_HALVES = (FIRST, SPAN // 2, SPAN - _RING)  # of the addresses: each process fills its own
_NO_PLACE = 0  # an offset: the payload comes as a message
_KEPT_FROM = 1 << 17  # bytes of a payload that becomes the tensor; smaller ones are quicker copied
_MOST_LOOKS = 16
_BITS_OF_NUMBER = 32


class SharedPair:
    """What two processes write for each other."""

    def __init__(self, pair: DistributedContext, segment: Segment) -> None:
        self.segment = segment
        rank = pair.rank
        self._shelf = Shelf(segment, _HALVES[rank], _HALVES[rank + 1])
        self._done_by_other, self._done_here = rank * SLOTS, (1 - rank) * SLOTS  # words
        self._free = ALL
        self._uses = [0] * SLOTS
        self._out: deque[Block] = deque()  # not known to be free again
        self._in: dict[int, Block] = {}  # the other's, by slot
        self._read: deque[Block] = deque()  # of these, what this process may still read

    def take(self, size: int) -> Block | None:
        """Memory for a message; None where the other process holds on to too much already."""
        self.look()
        for _ in range(min(len(self._out), _MOST_LOOKS)):
            block = self._out.popleft()
            if self.segment.words[self._done_by_other + block.slot] == self._uses[block.slot]:
                self._free |= block.bit
            else:
                self._out.append(block)
        found = self._shelf.take(size, self._free, forgets=True)
        if found is not None:
            self._shelf.settle()
            self._free &= ~found.bit
            self._uses[found.slot] += 1
            self._out.append(found)
        return found

    def block(self, slot: int, offset: int, size: int) -> Block:
        """The other's memory."""
        known = self._in.get(slot)
        if known is None or (known.offset, known.size) != (offset, size):
            known = self._in[slot] = Block(slot, offset, size, self.segment.tensor(offset, size))
        known.rest()
        return known

    def read_later(self, block: Block) -> None:
        self._read.append(block)

    def done(self, block: Block) -> None:
        if self.segment.order is not None:
            self.segment.order()
        self.segment.words[self._done_here + block.slot] += 1

    def look(self) -> None:
        """Give back what nothing reads any more."""
        for _ in range(min(len(self._read), _MOST_LOOKS)):
            block = self._read.popleft()
            if block.is_idle():
                self.done(block)
            else:
                self._read.append(block)


_PAIRS: weakref.WeakKeyDictionary[DistributedContext, SharedPair | None] = weakref.WeakKeyDictionary()


def channel_between(pair: DistributedContext, number: int, fifo_size: int) -> RankChannel:
    """Both processes of the pair call it, for the same channels in the same order."""
    if pair not in _PAIRS:
        segment = shared_segment(pair, "MeshSocket")
        _PAIRS[pair] = None if segment is None else SharedPair(pair, segment)
    memory = _PAIRS[pair]
    if memory is None or number >= MOST_CHANNELS:
        return RankChannel(pair, number, fifo_size)
    return SharedChannel(pair, number, fifo_size, memory)


class SharedChannel(RankChannel):
    def __init__(self, pair: DistributedContext, number: int, fifo_size: int, memory: SharedPair) -> None:
        super().__init__(pair, number, fifo_size)
        self._memory = memory
        self._words, self._map = memory.segment.words, memory.segment.map
        self._ring = _FIRST_RING + number * _RING
        self._sent_at, self._taken_at = self._ring // _WORD, (self._ring + _LINE) // _WORD
        self._outbox: deque[Parcel] = deque()
        self._posted = self._taken = 0
        self._coming: tuple[int, ...] = ()

    @property
    def ready(self) -> Callable[[], bool]:
        return self._has_come

    def _has_come(self) -> bool:
        return self.announced is not None or self._words[self._sent_at] > self._taken

    def send_now(self, parcel: Parcel) -> bool:
        self._collect_credits()
        is_full = self._posted - self._taken == _ENTRIES or self.fifo.held + parcel.load > self.fifo.size
        if self._outbox or is_full:
            return False
        self.fifo.put(parcel.load)
        self._post(parcel)
        return True

    def send(self, parcel: Parcel) -> Iterator[None]:
        """Ends once it is there, and all that was sent and not received fits into the FIFO."""
        self._outbox.append(parcel)
        turn = self._posted + len(self._outbox)
        self.fifo.put(parcel.load)
        enough = self.fifo.sent - self.fifo.size
        self._collect_credits()
        while self._posted < turn or self.fifo.taken < enough:
            yield
            self._collect_credits()

    def _collect_credits(self) -> None:
        while self._taken < self._words[self._taken_at]:
            self._taken += 1
            self.fifo.take()
        while self._outbox and self._posted - self._taken < _ENTRIES:
            self._post(self._outbox.popleft())

    def _post(self, parcel: Parcel) -> None:
        number, text = self._named(parcel.description)
        payload = parcel.payload
        begin = -(-len(text) // _LINE) * _LINE
        block = self._memory.take(rounded(begin + payload.nbytes))
        if block is None:
            where = (_NO_PLACE, _NO_PLACE)
            for part in (text, payload) if text else (payload,):
                self._leave(part)
        else:
            where = (block.slot, block.offset)
            self._map[block.offset : block.offset + len(text)] = text
            dtype, shape = payload.dtype, payload.shape
            place = block.views((begin, dtype, shape), partial(_part, begin, payload.nbytes, dtype, shape))
            place.copy_(payload)
        at = self._ring + 2 * _LINE + self._posted % _ENTRIES * _ENTRY.size
        _ENTRY.pack_into(self._map, at, number | len(text) << _BITS_OF_NUMBER, *where, payload.nbytes)
        if self._memory.segment.order is not None:
            self._memory.segment.order()
        self._posted += 1
        self._words[self._sent_at] = self._posted

    def next(self) -> Iterator[None]:
        if self.announced is not None:
            return
        while self._words[self._sent_at] <= self._taken:
            yield
        if self._memory.segment.order is not None:
            self._memory.segment.order()
        self._memory.look()
        at = self._ring + 2 * _LINE + self._taken % _ENTRIES * _ENTRY.size
        named, slot, offset, nbytes = _ENTRY.unpack_from(self._map, at)
        number, length = named & (1 << _BITS_OF_NUMBER) - 1, named >> _BITS_OF_NUMBER
        if length and offset == _NO_PLACE:
            text = bytearray(length)
            yield from self._arrived(text)
            self._descriptions[number] = Description.decoded(bytes(text))
        elif length:
            self._descriptions[number] = Description.decoded(self._map[offset : offset + length])
        self._coming = (slot, offset, -(-length // _LINE) * _LINE, nbytes)
        self.announced = self._descriptions[number]

    def take(self, target: Target) -> Iterator[None]:
        slot, offset, begin, nbytes = self._coming
        self.announced = None
        if offset == _NO_PLACE:
            yield from self._arrived(target.buffer)
        else:
            self._read(self._memory.block(slot, offset, rounded(begin + nbytes)), begin, nbytes, target)
        self._taken += 1
        self._words[self._taken_at] = self._taken

    def _read(self, block: Block, begin: int, nbytes: int, target: Target) -> None:
        there = block.views(
            (begin, target.dtype, target.shape), partial(_part, begin, nbytes, target.dtype, target.shape)
        )
        if nbytes < _KEPT_FROM:
            target.buffer.copy_(there)
            self._memory.done(block)
        else:
            self._memory.read_later(block)
            target.buffer = block.lend(there)


def _part(
    begin: int, nbytes: int, dtype: torch.dtype, shape: tuple[int, ...], memory: torch.Tensor
) -> torch.Tensor:
    return memory[begin : begin + nbytes].view(dtype).view(shape)
