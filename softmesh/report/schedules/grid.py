"""The stage of a line or a grid: a box for each device, links in the gaps, wrap-around links as bows."""

from __future__ import annotations

import math
from collections.abc import Iterable

from softmesh.collectives.traffic import Lane
from softmesh.report.drawing import text_width
from softmesh.report.schedules.stage import NAME_SIZE, Stage, side_by_side, slots_of
from softmesh.report.schedules.story import Story
from softmesh.report.schedules.ways import (
    APART,
    LABEL_SIZE,
    NEAREST,
    Way,
    curved,
    leaning,
    straight,
)
from softmesh.report.wiring.box import Box

_GAP = 27.0
_BOW = 9.0
_BETWEEN_PLANES = 0.6  # of a column

Place = tuple[float, float]  # row, column


def grid_stage(story: Story) -> Stage:
    count, slots, lanes = story.schedule.devices, slots_of(story), side_by_side(story)
    places = [_place(device, story.shape) for device in range(count)]
    room = _Room(story, lanes, places)
    name_width = max(text_width(story.name(device), NAME_SIZE, bold=True) for device in range(count))
    width, height = max(slots.size[0], name_width + 6), slots.size[1] + NAME_SIZE + 4
    boxes = tuple(
        Box(room.left + column * (width + room.across), room.top + row * (height + room.down), width, height)
        for row, column in places
    )
    grid = _Grid(boxes, places)
    return Stage(
        slots,
        (max(box.right for box in boxes) + room.left, max(box.bottom for box in boxes) + room.top),
        boxes,
        tuple((box.x + (width - slots.size[0]) / 2, box.y + NAME_SIZE + 3) for box in boxes),
        tuple((box.centre[0], box.y + NAME_SIZE / 2 + 2.5) for box in boxes),
        {lane: grid.way(lane, number) for lane, number in lanes.items()},
        grid.tracks(lanes),
    )


def _place(device: int, shape: tuple[int, ...]) -> Place:
    """The planes of further axes stand side by side."""
    rows, columns = shape[-2:] if len(shape) > 1 else (1, *shape)
    plane, within = divmod(device, rows * columns)
    row, column = divmod(within, columns)
    return row, column + plane * (columns + _BETWEEN_PLANES if columns > 1 else 1)


class _Room:
    """How far boxes are apart, and what the bows need outside them."""

    def __init__(self, story: Story, lanes: dict[Lane, int], places: list[Place]) -> None:
        label = story.label_length * text_width("0", LABEL_SIZE, bold=True)
        spread = NEAREST + max(lanes.values(), default=0) * APART
        self.across, self.down = max(_GAP, label + 8), _GAP
        self.left = self.top = 1.0
        for lane, number in lanes.items():
            (row, column), (other_row, other_column) = places[lane.sender], places[lane.receiver]
            bow = _BOW + number * APART + LABEL_SIZE + 4
            if row == other_row and abs(column - other_column) != 1:
                self.top = max(self.top, bow + 1)
                self.down = max(self.down, 2 * bow + 2)
            elif column == other_column and abs(row - other_row) != 1:
                self.left = max(self.left, bow + label - LABEL_SIZE + 1)
                self.across = max(self.across, 2 * (bow + label - LABEL_SIZE) + 2)
        self.across = max(self.across, 2 * spread)


class _Grid:
    def __init__(self, boxes: tuple[Box, ...], places: list[Place]) -> None:
        self.boxes, self.places = boxes, places

    def tracks(self, lanes: Iterable[Lane]) -> tuple[str, ...]:
        """The links themselves, below the boxes: straight between neighbours; a bow shows by its arrows."""
        pairs = {(min(lane.sender, lane.receiver), max(lane.sender, lane.receiver)) for lane in lanes}
        return tuple(
            "M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*self.boxes[one].centre, *self.boxes[other].centre)
            for one, other in sorted(pairs)
            if math.dist(self.places[one], self.places[other]) == 1
        )

    def way(self, lane: Lane, number: int) -> Way:
        """Traffic keeps to the right of its link."""
        one, other = self.boxes[lane.sender], self.boxes[lane.receiver]
        (row, column), (other_row, other_column) = self.places[lane.sender], self.places[lane.receiver]
        if row == other_row:
            forward = other_column > column
            return (_along if abs(other_column - column) == 1 else _bow_along)(one, other, forward, number)
        if column == other_column:
            forward = other_row > row
            return (_down if abs(other_row - row) == 1 else _bow_down)(one, other, forward, number)
        return leaning(one.centre, other.centre, 6 + number * APART, one.height / 2 + 4)


def _along(one: Box, other: Box, east: bool, number: int) -> Way:
    y = one.centre[1] + (1 if east else -1) * (NEAREST + number * APART)
    start, end = (one.right + 2, other.x - 2) if east else (one.x - 2, other.right + 2)
    return straight((start, y), (end, y))


def _down(one: Box, other: Box, south: bool, number: int) -> Way:
    x = one.centre[0] + (-1 if south else 1) * (NEAREST + number * APART)
    start, end = (one.bottom + 2, other.y - 2) if south else (one.y - 2, other.bottom + 2)
    return straight((x, start), (x, end))


def _bow_along(one: Box, other: Box, east: bool, number: int) -> Way:
    """Over the boxes between going east, under them going west."""
    edge, side = (one.y - 1, -1) if east else (one.bottom + 1, 1)
    shift = 6 if east else -6  # beside the arrows of the column
    start, end = (one.centre[0] + shift, edge), (other.centre[0] - shift, edge)
    rise = _BOW + number * APART
    return curved(start, ((start[0] + end[0]) / 2, edge + side * 2 * rise), end)


def _bow_down(one: Box, other: Box, south: bool, number: int) -> Way:
    """To the right of the boxes between going south, to their left going north."""
    edge, side = (one.right + 1, 1) if south else (one.x - 1, -1)
    shift = 6 if south else -6
    start, end = (edge, one.centre[1] + shift), (edge, other.centre[1] - shift)
    reach = _BOW + number * APART
    return curved(start, (edge + side * 2 * reach, (start[1] + end[1]) / 2), end)
