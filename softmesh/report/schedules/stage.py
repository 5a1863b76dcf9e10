"""Where the devices of a group stand, where their slots lie, and which way a send takes between them.

Pure geometry: the panels of the film strip and the page that plays stand on the same stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softmesh.collectives.traffic import Lane
from softmesh.report.schedules.story import Story
from softmesh.report.schedules.ways import Point, Way
from softmesh.report.wiring.box import Box

NAME_SIZE = 8.5
_BAR_GAP = 1.0
_ROW_GAP = 2.0
_PAD = 3.0
_MOST_SLOTS = 128  # of one device; more are summed up in one bar
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


def slots_of(story: Story) -> Slots:
    schedule = story.schedule
    if schedule.slots > _MOST_SLOTS:
        return Slots(1, 1, (24.0, 10.0), 1, is_summed_up=True)
    columns = min(schedule.pieces, _WIDEST_ROW)
    if story.journeys:
        columns = min(schedule.devices, _WIDEST_SQUARE)
    rows = -(-schedule.pieces // columns) * schedule.splits
    height = {1: 18.0, 2: 11.0, 3: 8.0, 4: 7.0}.get(rows, 5.0)
    return Slots(columns, rows, (4.0 if columns > 4 else 8.0, height), schedule.splits)


@dataclass(frozen=True)
class Stage:
    slots: Slots
    size: Point
    boxes: tuple[Box, ...]  # one for each device, around its slots
    corners: tuple[Point, ...]  # where its slots begin
    names: tuple[Point, ...]  # the middle of its name
    ways: Mapping[Lane, Way]
    tracks: tuple[str, ...]  # links at rest, as paths
    is_round: bool = False  # names stand on discs, apart from the boxes


def side_by_side(story: Story) -> dict[Lane, int]:
    """The number of each lane among those with the same two ends."""
    seen: dict[tuple[int, int], int] = {}
    numbers = {}
    for lane in story.carried:
        ends = (lane.sender, lane.receiver)
        numbers[lane] = seen[ends] = seen.get(ends, -1) + 1
    return numbers


def outermost(lanes: Mapping[Lane, int]) -> dict[Lane, int]:
    """Of those with the same two ends, the lane that bears their label."""
    last = {(lane.sender, lane.receiver): lane for lane in sorted(lanes, key=lambda lane: lanes[lane])}
    return {lane: lanes[lane] for lane in last.values()}
