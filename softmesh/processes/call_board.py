"""A board in shared memory on which each rank of a host writes the calls that it makes, for the others to read.

Lock-free: a rank writes only its own part, first the call and then how many there are; nobody waits. Of each rank the
last `KEPT` calls are there: the digest of everything up to the call, the addresses of its tensors, and the number of
the text that says what it was. A text is written once for all calls that it tells of; it stands there until `TEXTS`
others have come.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from softmesh.processes.shared_memory import BOARD, Segment

KEPT = 1024
TEXTS = 1024
MOST_ADDRESSES = 5
_WORD = 8
_LINE = 64  # bytes: of a call, and before all calls of a rank for their count and its end
_TEXT = 1024  # bytes: its number, how long it is, itself
_TEXT_HEAD = 2 * _WORD
LONGEST = _TEXT - _TEXT_HEAD  # bytes of a text
_TEXTS_FROM = _LINE + KEPT * _LINE
_STRIDE = _TEXTS_FROM + TEXTS * _TEXT  # of each rank
_UNKNOWN = b"a call that is no longer known at ?"

# A call, by how many addresses it has: its digest, the number of its text, how many addresses, the addresses.
_CALLS = tuple(struct.Struct(f"=q{2 + few}Q").pack_into for few in range(MOST_ADDRESSES + 1))
_HEADS = struct.Struct("=2Q")

Told = tuple[int, int, bytes, tuple[int, ...]]


class CallText:
    """What is said of a call, and its number on the board that it was written to last."""

    __slots__ = ("number", "text")

    def __init__(self, text: bytes) -> None:
        self.text, self.number = text[-LONGEST:], 0


class CallBoard:
    """It begins at `start` in the segment."""

    def __init__(self, segment: Segment, rank: int, size: int, start: int = BOARD) -> None:
        self._map, self._words, self._order = segment.map, segment.words, segment.order
        self._bases = [start + number * _STRIDE for number in range(size)]
        self._own = self._bases[rank]
        self._count_at, self._calls_at = self._own // _WORD, self._own + _LINE
        self._others = [base for number, base in enumerate(self._bases) if number != rank]
        self._texts: list[CallText | None] = [None] * TEXTS  # that stand there
        self._text_count = 0

    def write(self, count: int, digest: int, told: CallText, addresses: tuple[int, ...]) -> None:
        if self._texts[told.number % TEXTS] is not told:
            self._write_text(told)
        at = self._calls_at + count % KEPT * _LINE
        few = len(addresses)
        if few == 1:
            _CALLS[1](self._map, at, digest, told.number, 1, addresses[0])
        else:
            few = min(few, MOST_ADDRESSES)
            _CALLS[few](self._map, at, digest, told.number, few, *addresses[:few])
        if self._order is not None:
            self._order()
        self._words[self._count_at] = count

    def _write_text(self, told: CallText) -> None:
        self._text_count = told.number = self._text_count + 1
        self._texts[told.number % TEXTS] = told
        at, size = _text(self._own, told.number), len(told.text)
        self._map[at + _TEXT_HEAD : at + _TEXT_HEAD + size] = told.text
        _HEADS.pack_into(self._map, at, told.number, size)

    def clear(self) -> None:
        self._words[self._count_at] = self._words[self._count_at + 1] = 0
        self._ordered()

    def end(self) -> None:
        self._words[self._count_at + 1] = 1
        self._ordered()

    def has_ended(self, rank: int) -> bool:
        return bool(self._words[self._bases[rank] // _WORD + 1])

    def differs(self, count: int) -> bool:
        """Whether a rank made other calls, as far as both it and this one have come."""
        self._ordered()
        for base in self._others:
            reached = self._words[base // _WORD]
            both = min(reached, count)
            if both and max(reached, count) - both < KEPT:
                is_other = self._digest(self._own, both) != self._digest(base, both)
                if is_other and self._words[base // _WORD] - both < KEPT:  # it was not overwritten meanwhile
                    return True
        return False

    def has_other_end(self, count: int) -> bool:
        """Whether a rank has made more calls than this one ever will, or ended after fewer or more."""
        reached = [(self._words[base // _WORD], self._words[base // _WORD + 1]) for base in self._others]
        return any(other > count or (is_over and other != count) for other, is_over in reached)

    def read(self, rank: int) -> Iterator[Told]:
        """Its latest calls; not all that are kept, for it may be writing."""
        base = self._bases[rank]
        count = self._words[base // _WORD]
        for number in range(max(1, count - KEPT // 2), count + 1):
            at = _call(base, number) // _WORD
            digest, text, few, *places = self._words[at : at + _LINE // _WORD]
            yield number, digest, self._text(base, text), tuple(places[:few])

    def _text(self, base: int, number: int) -> bytes:
        at = _text(base, number)
        written, size = _HEADS.unpack_from(self._map, at)
        return bytes(self._map[at + _TEXT_HEAD : at + _TEXT_HEAD + size]) if written == number else _UNKNOWN

    def _digest(self, base: int, number: int) -> int:
        return self._words[_call(base, number) // _WORD]

    def _ordered(self) -> None:
        if self._order is not None:
            self._order()


def _call(base: int, number: int) -> int:
    return base + _LINE + number % KEPT * _LINE


def _text(base: int, number: int) -> int:
    return base + _TEXTS_FROM + number % TEXTS * _TEXT
