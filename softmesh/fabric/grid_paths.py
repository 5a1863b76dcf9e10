"""Paths of neighbouring chips through a grid: how a 1xN mesh is laid on a two-dimensional machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Place = tuple[int, int]

_MOST_STEPS = 20_000  # of a search; then the serpentine that always exists
_STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))  # right, down, left, up


def line_through(rows: int, columns: int, start: Place, length: int) -> list[Place] | None:
    """`length` places from `start`, each next to the one before; None where the search finds none.

    A grid of 2x4 or 4x2 is walked along its perimeter, clockwise. Elsewhere a closed ring is preferred,
    then any path.
    """
    if length == 1:
        return [start]
    if {rows, columns} == {2, 4}:
        return perimeter(rows, columns, start)[:length]
    grid = _Grid(rows, columns, start, length)
    from_the_corner = start == (0, 0)
    comb = _comb(rows, columns) if from_the_corner and length == rows * columns else None
    return grid.ring() or comb or grid.path() or (serpentine(rows, columns)[:length] if from_the_corner else None)


def perimeter(rows: int, columns: int, start: Place) -> list[Place]:
    """Clockwise from `start`; in a grid two wide every place lies on it."""
    top = [(0, c) for c in range(columns)]
    right = [(r, columns - 1) for r in range(1, rows)]
    bottom = [(rows - 1, c) for c in range(columns - 2, -1, -1)]
    left = [(r, 0) for r in range(rows - 2, 0, -1)]
    around = [*top, *right, *bottom, *left]
    at = around.index(start)
    return around[at:] + around[:at]


def serpentine(rows: int, columns: int) -> list[Place]:
    """Row by row, every other one backwards."""
    return [(r, c if r % 2 == 0 else columns - 1 - c) for r in range(rows) for c in range(columns)]


def _comb(rows: int, columns: int) -> list[Place] | None:
    """A closed ring through every place: along the top, then up and down the rest; None for odd grids."""
    if min(rows, columns) == 1:
        return None
    if columns % 2 == 0:
        teeth = [(r if c % 2 else rows - r, c) for c in range(columns - 1, -1, -1) for r in range(1, rows)]
        return [(0, c) for c in range(columns)] + teeth
    if rows % 2 == 0:
        turned = _comb(columns, rows)
        return [(r, c) for c, r in turned] if turned else None
    return None


class _Grid:
    """A depth-first search that tries right, down, left, up, for a bounded number of steps."""

    def __init__(self, rows: int, columns: int, start: Place, length: int) -> None:
        self.rows = rows
        self.columns = columns
        self.start = start
        self.length = length

    def ring(self) -> list[Place] | None:
        """A path whose end lies next to its start."""
        if self.length < 4 or self.length % 2:
            return None
        row, column = self.start
        return self._search(lambda place, left: abs(place[0] - row) + abs(place[1] - column) <= left + 1)

    def path(self) -> list[Place] | None:
        return self._search(lambda place, left: True)

    def _search(self, hopeful: Callable[[Place, int], bool]) -> list[Place] | None:
        path = [self.start]
        used = {self.start}
        choices = [self._around(self.start)]
        for _ in range(_MOST_STEPS):
            if len(path) == self.length:
                return path
            place = next(choices[-1], None)
            if place is None:
                choices.pop()
                used.discard(path.pop())
                if not path:
                    return None
            elif place not in used and hopeful(place, self.length - len(path) - 1):
                path.append(place)
                used.add(place)
                choices.append(self._around(place))
        return None

    def _around(self, place: Place) -> Iterator[Place]:
        for down, right in _STEPS:
            row, column = place[0] + down, place[1] + right
            if 0 <= row < self.rows and 0 <= column < self.columns:
                yield row, column
