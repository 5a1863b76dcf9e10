"""Schedule generators on a grid: the one-dimensional schedule along each axis, axis after axis.

Devices are numbered row by row. All lines of devices along an axis work side by side; what one axis has
brought together moves along the next as a bundle of pieces. A gather goes through the axes in order, so
rows (axis 0) come first, as in the routes of the fabric. A sum goes through them in order, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product

from softmesh.collectives.schedules import line_generators
from softmesh.collectives.schedules.language import Held, Schedule, Send, Step
from softmesh.collectives.schedules.line_generators import (
    Path,
    backwards,
    gather_then_sum,
    scatter_then_gather,
    side_by_side,
)

Coordinate = tuple[int, ...]
Bundles = Sequence[Sequence[int]]  # for each piece of a line's schedule, the pieces of the grid it stands for
ONE_PIECE: Bundles = [[0]]


@dataclass(frozen=True)
class Grid:
    """One path for each axis."""

    paths: tuple[Path, ...]

    @cached_property
    def coordinates(self) -> list[Coordinate]:
        """Of each device, by its number."""
        return list(product(*(range(path.devices) for path in self.paths)))

    @property
    def devices(self) -> int:
        return math.prod(path.devices for path in self.paths)

    @property
    def splits(self) -> int:
        return math.lcm(*(path.splits for path in self.paths))

    @property
    def axes(self) -> range:
        return range(len(self.paths))

    def number(self, coordinate: Coordinate) -> int:
        number = 0
        for path, index in zip(self.paths, coordinate, strict=True):
            number = number * path.devices + index
        return number

    def line(self, axis: int, through: Coordinate) -> list[int]:
        """The devices along an axis that share the other coordinates of `through`."""
        extent = self.paths[axis].devices
        return [self.number((*through[:axis], i, *through[axis + 1 :])) for i in range(extent)]

    def lines(self, axis: int) -> Iterator[tuple[Coordinate, list[int]]]:
        """Every line along an axis, with its first coordinate."""
        for first in self.coordinates:
            if first[axis] == 0:
                yield first, self.line(axis, first)

    def mirrored(self) -> Grid:
        return Grid(tuple(path.mirrored() for path in self.paths))


def all_gather(grid: Grid) -> Schedule:
    """Piece d starts at device d; in the end every device has every piece."""
    return _gather(
        "all_gather", grid, grid.axes, [line_generators.all_gather(path) for path in grid.paths], grid.splits
    )


def reduce_scatter(grid: Grid) -> Schedule:
    """Every device starts with all pieces; in the end piece d, summed over the devices, is at device d."""
    return backwards(_gather_from_last_axis(grid.mirrored()), "reduce_scatter")


def all_reduce(grid: Grid) -> Schedule:
    """A reduce_scatter through the axes in order, then an all_gather that takes the same way back."""
    return scatter_then_gather(reduce_scatter(grid), _gather_from_last_axis(grid))


def all_reduce_direct(grid: Grid) -> Schedule:
    """Device d's whole value is piece d, travels to all, and is added there: the sum is piece 0."""
    return gather_then_sum(all_gather(grid))


def barrier(grid: Grid) -> Schedule:
    """Everyone's token, of no bytes, reaches everyone; a device leaves when it has them all."""
    return _gather("barrier", grid, grid.axes, [line_generators.barrier(path) for path in grid.paths], splits=1)


def broadcast(grid: Grid, root: int) -> Schedule:
    """Along axis 0 from the root; then along axis 1 from each device of that line; and so on."""
    line_generators.check_member(grid.devices, "root", root)
    at, splits = grid.coordinates[root], grid.splits
    steps: list[Step] = []
    for axis, path in enumerate(grid.paths):
        along = line_generators.broadcast(path, at[axis])
        informed = [line for first, line in grid.lines(axis) if first[axis + 1 :] == at[axis + 1 :]]
        steps += side_by_side(_embedded(along, line, ONE_PIECE, splits) for line in informed)
    start: Held = {(root, slot): frozenset({root}) for slot in range(splits)}
    goal: Held = {(device, slot): frozenset({root}) for device in range(grid.devices) for slot in range(splits)}
    return Schedule("broadcast", grid.devices, 1, splits, tuple(steps), start, goal)


def reduce_to(grid: Grid, root: int) -> Schedule:
    """Everyone's one piece is summed at `root`: a broadcast run backwards."""
    return backwards(broadcast(grid.mirrored(), root), "reduce_to")


def all_to_all(grid: Grid) -> Schedule:
    """Piece s * devices + d starts at device s and ends at device d."""
    n, splits = grid.devices, grid.splits
    steps: list[Step] = []
    for axis, path in enumerate(grid.paths):
        along = line_generators.all_to_all(path)
        passing = _passing(grid, axis)
        steps += side_by_side(
            _embedded(along, line, [passing[first, piece] for piece in range(along.pieces)], splits)
            for first, line in grid.lines(axis)
        )
    start, goal = line_generators.ends_of_all_to_all(n, splits)
    return Schedule("all_to_all", n, n * n, splits, tuple(steps), start, goal)


def point_to_point(grid: Grid, src: int, dst: int) -> Schedule:
    """Rows first: along axis 0 to the row of `dst`, then along it. Ties in a ring as the fabric breaks them."""
    line_generators.check_member(grid.devices, "src", src)
    line_generators.check_member(grid.devices, "dst", dst)
    splits = math.lcm(*(path.links for path in grid.paths))
    here, target = grid.coordinates[src], grid.coordinates[dst]
    steps: list[Step] = []
    for axis, path in enumerate(grid.paths):
        # Of two equal ways the fabric takes east rather than west, but north (backward) rather than south.
        is_last = axis == len(grid.paths) - 1
        along = line_generators.point_to_point(path, here[axis], target[axis], tie_forward=is_last)
        steps += _embedded(along, grid.line(axis, here), ONE_PIECE, splits)
        here = (*target[: axis + 1], *here[axis + 1 :])
    start: Held = {(src, slot): frozenset({src}) for slot in range(splits)}
    goal: Held = {(dst, slot): frozenset({src}) for slot in range(splits)}
    return Schedule("point_to_point", grid.devices, 1, splits, tuple(steps), start, goal)


def _gather_from_last_axis(grid: Grid) -> Schedule:
    along = [line_generators.all_gather(path) for path in grid.paths]
    return _gather("all_gather", grid, list(reversed(grid.axes)), along, grid.splits)


def _gather(name: str, grid: Grid, order: Sequence[int], along: Sequence[Schedule], splits: int) -> Schedule:
    steps: list[Step] = []
    for position, axis in enumerate(order):
        bundles = _bundles(grid, done=order[:position])
        steps += side_by_side(
            _embedded(along[axis], line, [bundles[device] for device in line], splits) for _, line in grid.lines(axis)
        )
    ends = line_generators.ends_of_gather(grid.devices, splits)
    return Schedule(name, grid.devices, grid.devices, splits, tuple(steps), *ends)


def _bundles(grid: Grid, done: Sequence[int]) -> list[list[int]]:
    """What each device has gathered over the axes done: pieces of those that share its other coordinates."""

    def others(coordinate: Coordinate) -> Coordinate:
        return tuple(index for axis, index in enumerate(coordinate) if axis not in done)

    together: dict[Coordinate, list[int]] = {}
    for device, coordinate in enumerate(grid.coordinates):
        together.setdefault(others(coordinate), []).append(device)
    return [together[others(coordinate)] for coordinate in grid.coordinates]


def _passing(grid: Grid, axis: int) -> dict[tuple[Coordinate, int], list[int]]:
    """Which pieces of an all_to_all cross a line along the axis, by the line's first and the line's own piece.

    A piece has by then its target's coordinates along the axes before, and its source's along those after.
    """
    passing: dict[tuple[Coordinate, int], list[int]] = {}
    extent = grid.paths[axis].devices
    for piece, (source, target) in enumerate(product(grid.coordinates, repeat=2)):
        first = (*target[:axis], 0, *source[axis + 1 :])
        passing.setdefault((first, source[axis] * extent + target[axis]), []).append(piece)
    return passing


def _embedded(along: Schedule, line: Sequence[int], bundles: Bundles, splits: int) -> list[Step]:
    """The steps of a line's schedule at these devices of the grid, each piece standing for a bundle."""
    finer = splits // along.splits  # splits of the grid to each split of the line

    def placed(send: Send) -> Iterator[Send]:
        piece, split = divmod(send.slot, along.splits)
        for bundled in bundles[piece]:
            for slot in range(bundled * splits + split * finer, bundled * splits + (split + 1) * finer):
                yield send._replace(sender=line[send.sender], receiver=line[send.receiver], slot=slot, target=slot)

    return [tuple(chain.from_iterable(map(placed, step))) for step in along.steps]
