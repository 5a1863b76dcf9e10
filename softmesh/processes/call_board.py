"""A board in shared memory on which each rank of a host writes the calls that it makes, for the others to read.

Lock-free: a rank writes only its own part, first the call and then how many there are; nobody waits. Of each rank the
last `KEPT` calls are there: the digest of everything up to the call, what it was, and the addresses of its tensors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from softmesh.processes.shared_memory import BOARD, Segment

KEPT = 256
MOST_ADDRESSES = 6
_WORD = 8
_ENTRY = 1024  # bytes: the digest, how long the text is, how many addresses, the addresses, the text
_HEAD = (3 + MOST_ADDRESSES) * _WORD
LONGEST = _ENTRY - _HEAD  # bytes of a text
_LINE = 64
_STRIDE = _LINE + KEPT * _ENTRY  # of each rank: a line for the count and the end, then its calls

_ONE = struct.Struct("=4Q")  # an entry of one address

Told = tuple[int, int, bytes, tuple[int, ...]]


class CallBoard:
    """It begins at `start` in the segment. A text has at most `LONGEST` bytes."""

    def __init__(self, segment: Segment, rank: int, size: int, start: int = BOARD) -> None:
        self._map, self._words, self._order = segment.map, segment.words, segment.order
        self._bases = [start + number * _STRIDE for number in range(size)]
        self._own = self._bases[rank]
        self._others = [base for number, base in enumerate(self._bases) if number != rank]
        self._texts: list[bytes | None] = [None] * KEPT  # that stand in the own entries: a loop writes them once

    def write(self, count: int, digest: int, told: bytes, addresses: tuple[int, ...]) -> None:
        slot = count % KEPT
        at = self._own + _LINE + slot * _ENTRY
        if self._texts[slot] is not told:
            self._texts[slot] = told
            self._map[at + _HEAD : at + _HEAD + len(told)] = told
        few = len(addresses)
        if few == 1:
            _ONE.pack_into(self._map, at, digest, len(told), 1, addresses[0])
        else:
            few = min(few, MOST_ADDRESSES)
            struct.pack_into(f"={3 + few}Q", self._map, at, digest, len(told), few, *addresses[:few])
        if self._order is not None:
            self._order()
        self._words[self._own // _WORD] = count

    def clear(self) -> None:
        self._words[self._own // _WORD] = self._words[self._own // _WORD + 1] = 0
        self._ordered()

    def end(self) -> None:
        self._words[self._own // _WORD + 1] = 1
        self._ordered()

    def has_ended(self, rank: int) -> bool:
        return bool(self._words[self._bases[rank] // _WORD + 1])

    def differs(self, count: int, digest: int) -> bool:
        """Whether a rank made other calls, as far as both it and this one have come."""
        self._ordered()
        for base in self._others:
            reached = self._words[base // _WORD]
            both = min(reached, count)
            if both and max(reached, count) - both < KEPT:
                own = digest if both == count else self._digest(self._own, both)
                is_other = own != self._digest(base, both)
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
            at = _entry(base, number)
            digest, size, few, *places = self._words[at // _WORD : (at + _HEAD) // _WORD]
            text = bytes(self._map[at + _HEAD : at + _HEAD + min(size, LONGEST)])
            yield number, digest, text, tuple(places[:few])

    def _digest(self, base: int, number: int) -> int:
        return self._words[_entry(base, number) // _WORD]

    def _ordered(self) -> None:
        if self._order is not None:
            self._order()


def _entry(base: int, number: int) -> int:
    return base + _LINE + number % KEPT * _ENTRY
