"""Copy-on-write memory of a launch: written pieces laid over base bytes that are read-only.

What is written is kept and handed on as it is, never copied and never changed (zero-copy). So a tile that goes from
DRAM through a circular buffer to another place is the same torch tensor all the way, and what was read stays what it
was, whatever is written afterwards.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

Beneath = Callable[[int, int], torch.Tensor]


class ByteOverlay:
    """A stretch of memory as pieces `(*extents, bytes)` that do not overlap, by where they start.

    `beneath(start, size)` is what is there where nothing was written; nobody may change that either. It counts as
    written once it was read together with something that was, where `absorbs` says so.
    """

    __slots__ = ("_absorbs", "_beneath", "_pieces", "_starts")

    def __init__(self, beneath: Beneath, *, absorbs: bool = False) -> None:
        self._beneath = beneath
        self._absorbs = absorbs
        self._pieces: dict[int, torch.Tensor] = {}
        self._starts: list[int] = []  # sorted

    def copy(self) -> ByteOverlay:
        """The same for now; what is written to one is not written to the other."""
        made = ByteOverlay(self._beneath, absorbs=self._absorbs)
        made._pieces, made._starts = self._pieces.copy(), self._starts.copy()
        return made

    def read(self, start: int, size: int) -> torch.Tensor:
        piece = self._pieces.get(start)
        if piece is not None and piece.shape[-1] == size:
            return piece
        return self._joined(start, start + size) if self._starts else self._beneath(start, size)

    def write(self, start: int, values: torch.Tensor) -> None:
        """The caller must not change these values any more."""
        piece, size = self._pieces.get(start), values.shape[-1]
        if piece is None or piece.shape[-1] != size:
            self._clear(start, start + size)
            insort(self._starts, start)
        self._pieces[start] = values

    def has_any(self, start: int, size: int) -> bool:
        """Whether some of these bytes were written."""
        return start in self._pieces or bool(self._overlapping(start, start + size))

    def pieces(self) -> Iterable[torch.Tensor]:
        return self._pieces.values()

    def covers(self, size: int) -> bool:
        """Whether all of so many bytes were written."""
        return sum(piece.shape[-1] for piece in self._pieces.values()) == size

    def extents(self, size: int) -> torch.Size:
        """Those of everything, in a memory of so many bytes."""
        parts = list(self._pieces.values())
        return extents_of(parts if self.covers(size) else [*parts, self._beneath(0, 1)])

    def alone(self) -> ByteOverlay:
        """Where all is covered: without what is beneath."""
        made = self.copy()
        made._beneath = _nothing
        return made

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace each piece by another of the same bytes."""
        for start, piece in self._pieces.items():
            self._pieces[start] = change(piece)

    def write_to(self, flat: torch.Tensor) -> None:
        """What was written, into memory of all these bytes, which no piece is a part of."""
        for start, pieces in self.runs():
            join(pieces, flat[..., start : start + sum(piece.shape[-1] for piece in pieces)])

    def runs(self) -> Iterator[tuple[int, list[torch.Tensor]]]:
        """What was written: pieces next to each other, and where they start."""
        run: list[torch.Tensor] = []
        first = end = -1
        for start in self._starts:
            if start != end and run:
                yield first, run
                run = []
            if not run:
                first = start
            run.append(self._pieces[start])
            end = start + run[-1].shape[-1]
        if run:
            yield first, run

    def _joined(self, start: int, end: int) -> torch.Tensor:
        parts = []
        at, covered = start, 0
        for first in self._overlapping(start, end):
            piece = self._pieces[first]
            if at < first:
                parts.append(self._beneath(at, first - at))
                at = first
            parts.append(piece[..., at - first : end - first])
            covered += parts[-1].shape[-1]
            at = min(end, first + piece.shape[-1])
        if at < end:
            parts.append(self._beneath(at, end - at))
        if len(parts) == 1:
            return parts[0]
        whole = join(parts)
        if covered == end - start or self._absorbs:
            self.write(start, whole)  # the same bytes, not to be joined again for each reader
        return whole

    def _clear(self, start: int, end: int) -> None:
        """Make room; what reaches beyond it stays."""
        for first in self._overlapping(start, end):
            piece = self._pieces.pop(first)
            del self._starts[bisect_left(self._starts, first)]
            last = first + piece.shape[-1]
            if first < start:
                self._pieces[first] = piece[..., : start - first]
                insort(self._starts, first)
            if last > end:
                self._pieces[end] = piece[..., end - first :]
                insort(self._starts, end)

    def _overlapping(self, start: int, end: int) -> list[int]:
        at = bisect_right(self._starts, start)
        if at:
            first = self._starts[at - 1]
            at -= first + self._pieces[first].shape[-1] > start
        return self._starts[at : bisect_left(self._starts, end)]


def _nothing(start: int, size: int) -> torch.Tensor:
    raise AssertionError(f"bytes {start} to {start + size} were never written")


def over(pages: Callable[[], torch.Tensor]) -> ByteOverlay:
    """Bytes `(*extents, pages, bytes of a page)`, page after page; asked for when somebody reads them, once."""
    flat: torch.Tensor | None = None
    ask: Callable[[], torch.Tensor] | None = pages

    def beneath(start: int, size: int) -> torch.Tensor:
        nonlocal flat, ask
        if ask is not None:
            flat, ask = ask().flatten(-2), None  # whoever was asked is not kept alive for it
        assert flat is not None
        return flat[..., start : start + size]

    del pages
    return ByteOverlay(beneath)


def extents_of(pieces: Sequence[torch.Tensor]) -> torch.Size:
    """Those that all pieces have room in."""
    extents = pieces[0].shape[:-1]
    if all(piece.shape[:-1] == extents for piece in pieces):
        return extents
    return torch.broadcast_shapes(*(piece.shape[:-1] for piece in pieces))


def join(pieces: Sequence[torch.Tensor], room: torch.Tensor | None = None) -> torch.Tensor:
    """Next to each other, in new memory or in `room`, which no piece is a part of."""
    extents = extents_of(pieces)
    parts = [piece if piece.shape[:-1] == extents else piece.expand(*extents, -1) for piece in pieces]
    if room is None:
        return torch.cat(parts, dim=-1)
    if room.shape[:-1] == extents:
        return torch.cat(parts, dim=-1, out=room)
    return room.copy_(torch.cat(parts, dim=-1))


@contextmanager
def single_torch_thread() -> Iterator[None]:
    """Tiles are too small to share out: waking torch's threads for each takes longer than the work."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
