"""A free list: the holes of one address range, allocated first fit from below or from above.

Holes are kept in address order, cut into runs of at most `_LONGEST_RUN` with the largest size of each: a
search looks at one number for each run and then at the holes of one run, so thousands of holes cost
microseconds. Knows addresses and sizes only; who holds what, and rounding, are the pool's.

Programs free a buffer and allocate one of the same size, over and over. So the bytes freed last are kept
apart, and handed out again where first fit would come back to them: two thirds of the price of a round.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

_LONGEST_RUN = 64


class FreeList:
    """The free part of `size` bytes from `base` on.

    >>> holes = FreeList(base=0, size=100)
    >>> holes.take_low(30), holes.take_high(30), holes.take_low(50)
    (0, 70, None)
    >>> holes.give_back(0, 30); list(holes)
    [(0, 70)]
    """

    __slots__ = ("_firsts", "_largest", "_last", "_last_size", "_sizes", "_starts")

    def __init__(self, base: int, size: int) -> None:
        # One run is always there; empty, with a stale first address, where nothing is free.
        self._starts: list[list[int]] = [[base] if size else []]
        self._sizes: list[list[int]] = [[size] if size else []]
        self._firsts: list[int] = [base]  # of each run the first address
        self._largest: list[int] = [size]  # and the largest size
        self._last = self._last_size = 0  # bytes freed last, among no holes yet; size 0 for none

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Address and size of each hole, in address order."""
        self._join_last()
        for starts, sizes in zip(self._starts, self._sizes, strict=True):
            yield from zip(starts, sizes, strict=True)

    def largest(self) -> int:
        self._join_last()
        return max(self._largest)

    def guaranteed_room(self) -> int:
        """One hole has at least so many bytes; more, perhaps, once those freed last are joined to it."""
        return max(self._largest)

    def take_low(self, size: int) -> int | None:
        """The low end of the lowest hole that has `size` bytes; None where none has."""
        if self._last_size and self._last_size != size:
            self._join_last()
        at = i = 0
        for most in self._largest:
            if most >= size:
                break
            at += 1
        else:
            return self._again(self.take_low, size)
        sizes = self._sizes[at]
        for held in sizes:
            if held >= size:
                break
            i += 1
        starts = self._starts[at]
        address = starts[i]
        if self._last_size:
            if address < self._last or ((i or at) and self._is_end(self._last)):
                return self._again(self.take_low, size)
            self._last_size = 0
            return self._last
        if held == size:
            self._remove(at, i)
            return address
        starts[i] = address + size
        sizes[i] = held - size
        if i == 0:
            self._firsts[at] = address + size
        if held == most:
            self._largest[at] = max(sizes)
        return address

    def take_high(self, size: int) -> int | None:
        """The high end of the highest hole that has `size` bytes; None where none has."""
        if self._last_size and self._last_size != size:
            self._join_last()
        at = len(self._largest)
        for most in reversed(self._largest):
            at -= 1
            if most >= size:
                break
        else:
            return self._again(self.take_high, size)
        sizes = self._sizes[at]
        i = len(sizes)
        for held in reversed(sizes):
            i -= 1
            if held >= size:
                break
        address = self._starts[at][i] + held - size
        if self._last_size:
            if address > self._last or self._is_start(self._last + size):
                return self._again(self.take_high, size)
            self._last_size = 0
            return self._last
        if held == size:
            self._remove(at, i)
            return address
        sizes[i] = held - size
        if held == most:
            self._largest[at] = max(sizes)
        return address

    def take_at(self, address: int, size: int) -> bool:
        """Exactly these bytes; False where some of them are not free."""
        self._join_last()
        at, i = self._place(address)
        if i < 0:
            return False
        start, held = self._starts[at][i], self._sizes[at][i]
        below, above = address - start, start + held - address - size
        if above < 0:
            return False
        self._remove(at, i)
        for first, rest in ((start, below), (address + size, above)):
            if rest:
                self._insert(first, rest)
        return True

    def give_back(self, address: int, size: int) -> None:
        """Free these bytes, which are not free."""
        if self._last_size:
            self._join_last()
        self._last = address
        self._last_size = size

    def _again(self, take: Callable[[int], int | None], size: int) -> int | None:
        """Where the bytes freed last stood in the way: once more, with them among the holes."""
        if not self._last_size:
            return None
        self._join_last()
        return take(size)

    def _join_last(self) -> None:
        """Put the bytes freed last among the holes, joined with those that touch them."""
        size, self._last_size = self._last_size, 0
        if not size:
            return
        address, end = self._last, self._last + size
        at, i = self._place(address)
        if i >= 0 and self._starts[at][i] + self._sizes[at][i] == address:
            address = self._starts[at][i]
            size += self._sizes[at][i]
            self._remove(at, i)
        at, i = self._place(end)
        if i >= 0 and self._starts[at][i] == end:
            size += self._sizes[at][i]
            self._remove(at, i)
        self._insert(address, size)

    def _place(self, address: int) -> tuple[int, int]:
        """The run and the number in it of the last hole that starts at or below the address; -1 for none."""
        at = bisect_right(self._firsts, address) - 1
        if at < 0:
            at = 0
        return at, bisect_right(self._starts[at], address) - 1

    def _is_end(self, address: int) -> bool:
        """Whether a hole ends there."""
        at, i = self._place(address)
        return i >= 0 and self._starts[at][i] + self._sizes[at][i] == address

    def _is_start(self, address: int) -> bool:
        at, i = self._place(address)
        return i >= 0 and self._starts[at][i] == address

    def _insert(self, start: int, size: int) -> None:
        at, before = self._place(start)
        starts, sizes = self._starts[at], self._sizes[at]
        starts.insert(before + 1, start)
        sizes.insert(before + 1, size)
        if before < 0:
            self._firsts[at] = start
        if size > self._largest[at]:
            self._largest[at] = size
        if len(starts) > _LONGEST_RUN:
            self._split(at)

    def _split(self, at: int) -> None:
        starts, sizes, half = self._starts[at], self._sizes[at], _LONGEST_RUN // 2
        self._starts[at : at + 1] = starts[:half], starts[half:]
        self._sizes[at : at + 1] = sizes[:half], sizes[half:]
        self._firsts.insert(at + 1, starts[half])
        self._largest[at : at + 1] = max(sizes[:half]), max(sizes[half:])

    def _remove(self, at: int, i: int) -> None:
        starts, sizes = self._starts[at], self._sizes[at]
        if len(sizes) == 1 and len(self._sizes) > 1:
            del self._starts[at], self._sizes[at], self._firsts[at], self._largest[at]
            return
        size = sizes[i]
        del starts[i], sizes[i]
        if i == 0 and starts:
            self._firsts[at] = starts[0]
        if size == self._largest[at]:
            self._largest[at] = max(sizes, default=0)
