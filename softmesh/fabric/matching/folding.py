"""Lines and rings of chips folded into rectangles, where a search for a long path would lose its way.

A path through all chips of a grid is a hard puzzle; the grid itself is an easy one. So a 1x32 ring is first
sought as an 8x4 grid, numbered along a closed tour of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from softmesh.fabric.matching.backtracking import Search
from softmesh.fabric.matching.wiring import bits
from softmesh.fabric.mesh_graph import LogicalMesh

Pair = tuple[int, int]


def is_line(mesh: LogicalMesh) -> bool:
    """One chip wide, and more than two long: where a path has to be found."""
    return min(mesh.shape) == 1 and mesh.size > 2


def is_closed(mesh: LogicalMesh) -> bool:
    return mesh.wraps(0) or mesh.wraps(1)


def foldings(mesh: LogicalMesh) -> Iterator[list[Pair]]:
    """Neighbour pairs of grids whose tour is this line or ring; the most square grid first."""
    for height, width in _rectangles(mesh.size):
        tour = _closed_tour(height, width) if is_closed(mesh) else _snake(height, width)
        if tour is not None:
            yield _grid_pairs(tour)


def _rectangles(size: int) -> list[Pair]:
    pairs = [(size // width, width) for width in range(2, size // 2 + 1) if size % width == 0]
    return sorted(pairs, key=lambda pair: (abs(pair[0] - pair[1]), -pair[0]))


def _snake(height: int, width: int) -> list[Pair]:
    return [
        (row, column if row % 2 == 0 else width - 1 - column)
        for row in range(height)
        for column in range(width)
    ]


def _closed_tour(height: int, width: int) -> list[Pair] | None:
    """Along the first row, to and fro over the rest, home up the first column; an even height closes it."""
    if height % 2:
        return None
    inner = [(row, column + 1) for row, column in _snake(height, width - 1)]
    return [(0, 0), *inner, *((row, 0) for row in range(height - 1, 0, -1))]


def _grid_pairs(tour: list[Pair]) -> list[Pair]:
    number = {place: i for i, place in enumerate(tour)}
    return [
        (i, number[near])
        for (row, column), i in number.items()
        for near in ((row, column + 1), (row + 1, column))
        if near in number
    ]


class PathPruning:
    """Tells early that the head of a path has cut itself off from the chips it still needs."""

    def __init__(self, joined: list[int], region: int, size: int, closed: bool) -> None:
        self.joined = joined
        self.region = region
        self.size = size
        self.closed = closed

    def fewest_ways_on(self, search: Search, variable: int, domain: int) -> list[int]:
        """Warnsdorff's order: the chip that will be hardest to reach later comes first."""
        open_chips = search.available & self.region
        return sorted(bits(domain), key=lambda chip: ((self.joined[chip] & open_chips).bit_count(), chip))

    def is_cut_off(self, search: Search) -> bool:
        missing = self.size - len(search.values)
        if missing < 2:
            return False
        head = search.values[len(search.values) - 1]
        reached = self._reach(head, search.available & self.region)
        home = self.joined[search.values[0]] & reached if self.closed else -1
        if not home or reached.bit_count() < missing:
            return True
        return self._dead_ends(search, head, reached) > reached.bit_count() - missing + (not self.closed)

    def _reach(self, head: int, free: int) -> int:
        reached = edge = self.joined[head] & free
        while edge:
            near = 0
            for chip in bits(edge):
                near |= self.joined[chip]
            edge = near & free & ~reached
            reached |= edge
        return reached

    def _dead_ends(self, search: Search, head: int, reached: int) -> int:
        """Free chips that a path can enter but not leave."""
        ways = reached | 1 << head | (1 << search.values[0] if self.closed else 0)
        return sum((self.joined[chip] & ways).bit_count() < 2 for chip in bits(reached))
