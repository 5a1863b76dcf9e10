"""Coordinates of a schedule picture: boxes of devices, bars of slots, and the arrow paths of sends between them.

Pure geometry, shared by the panels of the film strip and the animated page. `device_layouts.py` computes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from softmesh.collectives.schedules.link_traffic import Lane
from softmesh.report.drawing import Box, text_width
from softmesh.report.schedules.schedule_replay import ScheduleReplay

NEAREST = 3.5  # of a lane from the middle of its link
APART = 4.5  # lanes side by side
HEAD = 5.0  # length of an arrow's head
LABEL_SIZE = 7.5

Point = tuple[float, float]


class ArrowPath(NamedTuple):
    """A path up to the arrow's head, the tip of the head and where it points; a label stands `aside`."""

    path: str
    tip: Point
    heading: float
    middle: Point
    aside: Point  # of length 1
    is_bow: bool = False

    def label_box(self, text: str) -> Box:
        width, height = text_width(text, LABEL_SIZE, bold=True), LABEL_SIZE
        reach = width / 2 * abs(self.aside[0]) + height / 2 * abs(self.aside[1]) + 3.5
        x, y = self.middle[0] + reach * self.aside[0], self.middle[1] + reach * self.aside[1]
        return Box(x - width / 2, y - height / 2, width, height)


def straight(start: Point, end: Point) -> ArrowPath:
    base = moved(end, start, HEAD)
    path = f"M{start[0]:.1f} {start[1]:.1f}L{base[0]:.1f} {base[1]:.1f}"
    heading = math.atan2(end[1] - start[1], end[0] - start[0])
    return ArrowPath(path, end, heading, halfway(start, end), to_the_right(start, end))


def curved(start: Point, control: Point, end: Point) -> ArrowPath:
    base = moved(end, control, HEAD)
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{control[0]:.1f} {control[1]:.1f} {base[0]:.1f} {base[1]:.1f}"
    heading = math.atan2(end[1] - control[1], end[0] - control[0])
    chord = halfway(start, end)
    return ArrowPath(path, end, heading, halfway(chord, control), moved((0, 0), _minus(control, chord), 1), True)


def leaning(one: Point, other: Point, by: float, clear: float) -> ArrowPath:
    """From near one point to near another, swerving to the right so that the way back lies beside it."""
    right, middle = to_the_right(one, other), halfway(one, other)
    control = (middle[0] + 2 * by * right[0], middle[1] + 2 * by * right[1])
    return curved(moved(one, control, clear), control, moved(other, control, clear))


def moved(point: Point, towards: Point, by: float) -> Point:
    share = by / (math.dist(point, towards) or 1.0)
    return point[0] + (towards[0] - point[0]) * share, point[1] + (towards[1] - point[1]) * share


def halfway(one: Point, other: Point) -> Point:
    return (one[0] + other[0]) / 2, (one[1] + other[1]) / 2


def to_the_right(one: Point, other: Point) -> Point:
    length = math.dist(one, other) or 1.0
    return (one[1] - other[1]) / length, (other[0] - one[0]) / length


def _minus(one: Point, other: Point) -> Point:
    return one[0] - other[0], one[1] - other[1]


NAME_SIZE = 8.5
_BAR_GAP = 1.0
_ROW_GAP = 2.0
_PAD = 3.0
_MOST_SLOTS = 24  # of one device; more are summed up in one bar: how much it has of what it is to get
_WIDEST_ROW = 8  # of bars
_WIDEST_SQUARE = 16  # of a row for each device, a column for each


@dataclass(frozen=True)
class Slots:
    """How the slots of a device lie in its box: pieces side by side, the splits of a piece one above another."""

    columns: int
    rows: int
    bar: tuple[float, float]
    splits: int
    is_summed_up: bool = False

    @property
    def size(self) -> Point:
        width, height = self.bar
        return (
            self.columns * (width + _BAR_GAP) - _BAR_GAP + 2 * _PAD,
            self.rows * (height + _ROW_GAP) - _ROW_GAP + 2 * _PAD,
        )

    def bar_at(self, slot: int, corner: Point) -> Box:
        piece, split = divmod(slot, self.splits)
        line, column = divmod(piece, self.columns)
        width, height = self.bar
        x = corner[0] + _PAD + column * (width + _BAR_GAP)
        y = corner[1] + _PAD + (line * self.splits + split) * (height + _ROW_GAP)
        return Box(x, y, width, height)


def slots_of(replay: ScheduleReplay) -> Slots:
    schedule = replay.schedule
    if schedule.slots > _MOST_SLOTS:
        return Slots(1, 1, (40.0, 12.0), 1, is_summed_up=True)
    columns = min(schedule.pieces, _WIDEST_ROW)
    if replay.journeys:
        columns = min(schedule.devices, _WIDEST_SQUARE)
    rows = -(-schedule.pieces // columns) * schedule.splits
    height = {1: 18.0, 2: 11.0, 3: 8.0, 4: 7.0}.get(rows, 5.0)
    return Slots(columns, rows, (4.0 if columns > 4 else 8.0, height), schedule.splits)


@dataclass(frozen=True)
class Geometry:
    slots: Slots
    size: Point
    boxes: tuple[Box, ...]  # one for each device, around its slots
    corners: tuple[Point, ...]  # where its slots begin
    names: tuple[Point, ...]  # the middle of its name
    arrow_paths: Mapping[Lane, ArrowPath]
    tracks: tuple[str, ...]  # links at rest, as paths
    is_round: bool = False  # names stand on discs, apart from the boxes


def side_by_side(replay: ScheduleReplay) -> dict[Lane, int]:
    """The number of each lane among those with the same two ends."""
    seen: dict[tuple[int, int], int] = {}
    numbers = {}
    for lane in replay.carried:
        ends = (lane.sender, lane.receiver)
        numbers[lane] = seen[ends] = seen.get(ends, -1) + 1
    return numbers


def outermost(lanes: Mapping[Lane, int]) -> dict[Lane, int]:
    """Of those with the same two ends, the lane that bears their label."""
    last = {(lane.sender, lane.receiver): lane for lane in sorted(lanes, key=lambda lane: lanes[lane])}
    return {lane: lanes[lane] for lane in last.values()}
