"""Channels in shared memory, between two processes of one host: a message is written once, and read where it lies.

A channel is a lock-free ring buffer of entries with one producer and one consumer. An entry says where in the shared
memory a message lies. The sender counts the entries it has posted, the receiver those it has taken; each writes only
its own count and polls the other's, so neither blocks. A large message becomes the receiver's tensor without a copy;
its block is free again when nothing reads it any more (`release_unread`). Where no block can be had, the message goes
by MPI.
"""

from __future__ import annotations

import math
import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from softmesh.processes.block_allocator import ALL, FIRST, SLOTS, Block, BlockAllocator, retire, rounded
from softmesh.processes.context import DistributedContext
from softmesh.processes.shared_memory import SPAN, Segment, shared_segment
from softmesh.sockets.channels import RankChannel
from softmesh.sockets.tensor_message import Description, ReceiveTarget, TensorMessage, is_usable

# The memory of a pair: each process allocates blocks in its half and reads in the other's. For each block its writer
# counts how often it was used, and its reader how often it has done with it; where the counts are equal the block is
# free. So neither waits for the other.


WORD = 8
RING = 4096  # bytes of a channel
FIRST_RING = 2 * SLOTS * WORD  # before: for each process, how often the other has done with each of its blocks
MOST_CHANNELS = (FIRST - FIRST_RING) // RING
_HALVES = (FIRST, SPAN // 2, SPAN - RING)  # of the addresses


class SharedPair:
    """What two processes write for each other."""

    def __init__(self, pair: DistributedContext, segment: Segment) -> None:
        self.segment = segment
        rank = pair.rank
        self._allocator = BlockAllocator(segment, _HALVES[rank], _HALVES[rank + 1])
        self._words = segment.words
        self._done_by_other, self._done_here = rank * SLOTS, (1 - rank) * SLOTS  # words
        self._free = ALL
        self._uses = [0] * SLOTS
        self._out: deque[Block] = deque()  # not known to be free again
        self._in: dict[int, Block] = {}  # the other's, by slot
        self._read: deque[Block] = deque()  # of these, what this process may still read

    def take(self, size: int) -> Block | None:
        """Memory for a message; None where the other process holds on to too much already."""
        self.release_unread()
        retire(self._out, self._is_done_with, self._free_block)
        found = self._allocator.take(size, self._free, releases_memory=True)
        if found is not None:
            self._allocator.reclaim_holes()
            self._use(found)
        return found

    def take_again(self, block: Block) -> bool:
        """The same memory for another message, if it is free."""
        if not self._allocator.has(block):
            return False
        if self._free & block.bit:
            self._use(block)
            return True
        if not self._is_done_with(block):
            return False
        self._uses[block.slot] += 1
        return True

    def _is_done_with(self, block: Block) -> bool:
        return self._words[self._done_by_other + block.slot] == self._uses[block.slot]

    def _free_block(self, block: Block) -> None:
        self._free |= block.bit

    def _use(self, block: Block) -> None:
        self._free &= ~block.bit
        self._uses[block.slot] += 1
        self._out.append(block)

    def block(self, slot: int, offset: int, size: int) -> Block:
        """The other's memory."""
        known = self._in.get(slot)
        if known is None or known.offset != offset or known.size != size:
            known = self._in[slot] = Block(slot, offset, size, self.segment.tensor(offset, size))
        known.trim_views()
        return known

    def release_when_unread(self, block: Block) -> None:
        self._read.append(block)

    def done(self, block: Block) -> None:
        if self.segment.order is not None:
            self.segment.order()
        self._words[self._done_here + block.slot] += 1

    def release_unread(self) -> None:
        """Give back what nothing reads any more."""
        retire(self._read, Block.is_idle, self.done)


_LINE = 64  # bytes that processors keep together: the two counts have one each, before the entries
_ENTRY = struct.Struct("<QQQQ")  # number and length of the description, slot, offset, bytes of the payload
ENTRIES = (RING - 2 * _LINE) // _ENTRY.size
_NO_PLACE = 0  # an offset: the payload comes as a message
_KEPT_FROM = 1 << 14  # bytes of a payload that becomes the tensor; smaller ones are quicker copied
_BITS_OF_NUMBER = 32
_TURNS = 4  # blocks of memory that messages of one kind take in turns

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


class MessageFormat:
    """The values of messages of one kind, as a tensor in shared memory."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.room = rounded(self.nbytes)

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        return memory[: self.nbytes].view(self.dtype).view(self.shape)


class MessageBlock(NamedTuple):
    block: Block
    values: torch.Tensor
    entry: bytes  # of the ring


class BlockRotation:
    """Where messages of one description are written: memory that they take in turns."""

    def __init__(self, memory: SharedPair, number: int, form: MessageFormat) -> None:
        self._memory, self._number, self._form = memory, number, form
        self._turns: deque[MessageBlock] = deque(maxlen=_TURNS)

    def next(self) -> MessageBlock | None:
        """None where too many are in use."""
        turns, memory, form = self._turns, self._memory, self._form
        if turns and memory.take_again(turns[0].block):
            turns.rotate(-1)
            return turns[-1]
        block = memory.take(form.room)
        if block is None:
            return None
        entry = _ENTRY.pack(self._number, block.slot, block.offset, form.nbytes)
        turns.append(MessageBlock(block, block.views(self, form.view), entry))
        return turns[-1]


class SharedChannel(RankChannel):
    is_looked_at_later = True

    def __init__(self, pair: DistributedContext, number: int, fifo_size: int, memory: SharedPair) -> None:
        super().__init__(pair, number, fifo_size)
        self._memory, self._order = memory, memory.segment.order
        self._words, self._map = memory.segment.words, memory.segment.map
        self._ring = FIRST_RING + number * RING
        self._first_entry = self._ring + 2 * _LINE
        self._sent_at, self._taken_at = self._ring // WORD, (self._ring + _LINE) // WORD
        self._outbox: deque[TensorMessage] = deque()
        self._posted = self._taken = 0
        self._next_entry: tuple[int, ...] = ()

    @property
    def ready(self) -> Callable[[], bool]:
        return self.has_message

    @property
    def messages(self) -> int:
        return max(self._posted + len(self._outbox), self._taken)

    @property
    def unreceived(self) -> int:
        """Messages that are there and were not taken."""
        return self._posted - int(self._words[self._taken_at])

    def has_message(self) -> bool:
        return self._words[self._sent_at] > self._taken or self.announced is not None

    def send_now(self, message: TensorMessage) -> bool:
        if not self._has_room(message.load):
            return False
        self.fifo.put(message.load)
        self._post(message)
        return True

    def _has_room(self, load: int) -> bool:
        if self._words[self._taken_at] != self._taken:
            self._collect_credits()
        is_full = self._posted - self._taken == ENTRIES or self.fifo.buffered + load > self.fifo.size
        return not (self._outbox or is_full)

    def blocks_for(self, description: Description, form: MessageFormat) -> BlockRotation | None:
        """For more messages like one that was sent."""
        number = self._described.get(description)
        return None if number is None else BlockRotation(self._memory, number, form)

    def send_again(self, data: torch.Tensor, blocks: BlockRotation, load: int) -> bool:
        """Send values in the form that the blocks have, if that needs no waiting."""
        if not self._has_room(load):
            return False
        place = blocks.next()
        if place is None:
            return False
        place.values.copy_(data)
        self.fifo.put(load)
        self._announce(place.entry)
        return True

    def send(self, message: TensorMessage) -> Iterator[None]:
        """Ends once it is there, and all that was sent and not received fits into the FIFO."""
        self._outbox.append(message)
        turn = self._posted + len(self._outbox)
        self.fifo.put(message.load)
        enough = self.fifo.sent - self.fifo.size
        self._collect_credits()
        while self._posted < turn or self.fifo.taken < enough:
            yield
            self._collect_credits()

    def _collect_credits(self) -> None:
        while self._taken < self._words[self._taken_at]:
            self._taken += 1
            self.fifo.take()
        while self._outbox and self._posted - self._taken < ENTRIES:
            self._post(self._outbox.popleft())

    def _post(self, message: TensorMessage) -> None:
        number, text = self._named(message.description)
        payload = message.payload
        begin = -(-len(text) // _LINE) * _LINE
        block = self._memory.take(rounded(begin + payload.nbytes))
        if block is None:
            where = (_NO_PLACE, _NO_PLACE)
            for part in (text, payload) if text else (payload,):
                self._isend(part)
        else:
            where = (block.slot, block.offset)
            self._map[block.offset : block.offset + len(text)] = text
            dtype, shape = payload.dtype, payload.shape
            place = block.views((begin, dtype, shape), partial(_part, begin, payload.nbytes, dtype, shape))
            place.copy_(payload)
        self._announce(_ENTRY.pack(number | len(text) << _BITS_OF_NUMBER, *where, payload.nbytes))

    def _announce(self, entry: bytes) -> None:
        at = self._first_entry + self._posted % ENTRIES * _ENTRY.size
        self._map[at : at + _ENTRY.size] = entry
        if self._order is not None:
            self._order()
        self._posted += 1
        self._words[self._sent_at] = self._posted

    def next(self) -> Iterator[None]:
        if self.announced is not None:
            return
        while self._words[self._sent_at] <= self._taken:
            yield
        number, length, offset = self._read_entry()
        if length and offset == _NO_PLACE:
            text = bytearray(length)
            yield from self._arrived(text)
            self._descriptions[number] = Description.decoded(bytes(text))
        elif length:
            self._descriptions[number] = Description.decoded(self._map[offset : offset + length])
        self.announced = self._descriptions[number]

    def is_described_as(self, description: Description) -> bool:
        """Whether the message that has come is so described, in the words of an earlier one."""
        if self.announced is None:
            number, length, _ = self._read_entry()
            if length or self._descriptions[number] is not description:
                return False
            self.announced = description
        return self.announced is description

    def _read_entry(self) -> tuple[int, int, int]:
        if self._order is not None:
            self._order()
        at = self._first_entry + self._taken % ENTRIES * _ENTRY.size
        named, slot, offset, nbytes = _ENTRY.unpack_from(self._map, at)
        number, length = named & (1 << _BITS_OF_NUMBER) - 1, named >> _BITS_OF_NUMBER
        self._next_entry = (slot, offset, -(-length // _LINE) * _LINE, nbytes)
        return number, length, offset

    def take(self, target: ReceiveTarget) -> Iterator[None]:
        slot, offset, begin, nbytes = self._next_entry
        if offset == _NO_PLACE:
            yield from self._arrived(target.buffer)
        else:
            self._read(self._memory.block(slot, offset, rounded(begin + nbytes)), begin, nbytes, target)
        self._acknowledge()

    def release_unread(self) -> None:
        """Give back what was taken and is not read any more: best while there is nothing else to do."""
        self._memory.release_unread()

    def take_again(self, form: MessageFormat, old: torch.Tensor) -> torch.Tensor | None:
        """What was announced, where it lies there as a whole: copied into the `old` values, or as it is."""
        slot, offset, begin, nbytes = self._next_entry
        if begin or offset == _NO_PLACE or nbytes != form.nbytes:
            return None
        memory = self._memory
        block = memory.block(slot, offset, form.room)
        there = block.views(form, form.view)
        if nbytes < _KEPT_FROM:
            values = old if is_usable(old, form.shape) else torch.empty(form.shape, dtype=form.dtype)
            values.copy_(there)
            memory.done(block)
        else:
            values = block.share_view(there)
            memory.release_when_unread(block)
        self._acknowledge()
        return values

    def _acknowledge(self) -> None:
        self.announced = None
        self._taken += 1
        self._words[self._taken_at] = self._taken

    def _read(self, block: Block, begin: int, nbytes: int, target: ReceiveTarget) -> None:
        there = block.views(
            (begin, target.dtype, target.shape), partial(_part, begin, nbytes, target.dtype, target.shape)
        )
        self._memory.release_unread()
        if nbytes < _KEPT_FROM:
            target.buffer.copy_(there)
            self._memory.done(block)
        else:
            self._memory.release_when_unread(block)
            target.buffer = block.share_view(there)


def _part(begin: int, nbytes: int, dtype: torch.dtype, shape: tuple[int, ...], memory: torch.Tensor) -> torch.Tensor:
    return memory[begin : begin + nbytes].view(dtype).view(shape)
