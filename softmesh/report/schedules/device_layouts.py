"""Layouts of the devices in a schedule picture: a ring as discs on a circle, a line or mesh as a grid of boxes.

On a circle the slots of each device stand outside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

from softmesh.collectives.schedules.link_traffic import Lane
from softmesh.report.drawing import Box, enclosing, text_width
from softmesh.report.schedules.geometry import (
    APART,
    HEAD,
    LABEL_SIZE,
    NAME_SIZE,
    NEAREST,
    ArrowPath,
    Geometry,
    Point,
    curved,
    leaning,
    outermost,
    side_by_side,
    slots_of,
    straight,
)
from softmesh.report.schedules.schedule_replay import ScheduleReplay

DISC = 7.5
_ARC, _SHORT_ARC = 35.0, 24.0  # from disc to disc, with and without labels
_MOST_GROWTH = 120  # attempts; then labels may touch
_LABEL_ROOM = LABEL_SIZE + 4.5
_BOX_GAP = 2.0  # around each box


def ring_geometry(replay: ScheduleReplay) -> Geometry:
    slots, lanes = slots_of(replay), side_by_side(replay)
    circle, boxes = _smallest(replay, slots.size, lanes)
    around = enclosing(boxes)
    boxes = [box.moved(-around.x, -around.y) for box in boxes]
    circle = _Circle(circle.radius, replay.schedule.devices, (-around.x, -around.y))
    return Geometry(
        slots,
        (around.width, around.height),
        tuple(boxes),
        tuple((box.x, box.y) for box in boxes),
        tuple(circle.at(angle, circle.radius) for angle in circle.angles),
        circle.arrow_paths(lanes),
        (circle.track(),),
        is_round=True,
    )


def _smallest(replay: ScheduleReplay, size: Point, lanes: dict[Lane, int]) -> tuple[_Circle, list[Box]]:
    """A circle wide enough for labels between the boxes, or within them, whichever is smaller."""
    spread = NEAREST + max(lanes.values(), default=0) * APART
    beside = max(DISC, spread) + 3
    within = max(beside, spread + _LABEL_ROOM)
    fits = [_fitting(replay, size, lanes, distance) for distance in (beside, within)]
    return min(fits, key=lambda fit: enclosing(fit[1]).width)


def _fitting(replay: ScheduleReplay, size: Point, lanes: dict[Lane, int], distance: float) -> tuple[_Circle, list[Box]]:
    count, label = replay.schedule.devices, "0" * replay.label_length
    arc = _SHORT_ARC if replay.is_crowded else _ARC
    radius = max(24.0 + distance, count * arc / (2 * math.pi))
    for _ in range(_MOST_GROWTH):
        circle = _Circle(radius, count)
        boxes = circle.boxes_around(distance, size)
        if _is_clear(boxes, circle.arrow_paths(outermost(lanes)), label):
            break
        radius += 3
    return circle, boxes


def _is_clear(boxes: list[Box], arrow_paths: dict[Lane, ArrowPath], label: str) -> bool:
    """Boxes keep apart from one another, and labels from both."""
    if any(one.touches(other) for one, other in combinations([box.grown(_BOX_GAP) for box in boxes], 2)):
        return False
    labels = [way.label_box(label) for way in arrow_paths.values() if not way.is_bow and label]
    if any(one.touches(other) for one, other in combinations(labels, 2)):
        return False
    return not any(label.touches(box) for label in labels for box in boxes)


class _Circle:
    def __init__(self, radius: float, count: int, centre: Point = (0.0, 0.0)) -> None:
        self.centre, self.radius = centre, radius
        self.angles = [2 * math.pi * (number / count - 0.25) for number in range(count)]

    def at(self, angle: float, radius: float) -> Point:
        return self.centre[0] + radius * math.cos(angle), self.centre[1] + radius * math.sin(angle)

    def boxes_around(self, distance: float, size: Point) -> list[Box]:
        middles = [_beyond(angle, self.radius + distance, size) for angle in self.angles]
        return [Box(x - size[0] / 2, y - size[1] / 2, *size) for x, y in middles]

    def arrow_paths(self, lanes: dict[Lane, int]) -> dict[Lane, ArrowPath]:
        return {lane: self._way(lane, number) for lane, number in lanes.items()}

    def track(self) -> str:
        """The circle as a path."""
        (x, y), radius = self.centre, self.radius
        half = f"a{radius:.1f} {radius:.1f} 0 0 1"
        return f"M{x - radius:.1f} {y:.1f}{half} {2 * radius:.1f} 0{half} {-2 * radius:.1f} 0"

    def _way(self, lane: Lane, number: int) -> ArrowPath:
        count = len(self.angles)
        forward = (lane.receiver - lane.sender) % count
        if forward in (1, count - 1):
            return self._arc(lane.sender, 1 if forward == 1 else -1, number)
        ends = [self.at(self.angles[device], self.radius) for device in (lane.sender, lane.receiver)]
        return leaning(ends[0], ends[1], 4 + number * APART, DISC + 2)

    def _arc(self, sender: int, turn: int, number: int) -> ArrowPath:
        """Clockwise outside the circle, the other way inside."""
        radius = self.radius + turn * (NEAREST + number * APART)
        clear = (DISC + 2.5) / radius
        start = self.angles[sender] + turn * clear
        end = self.angles[sender] + turn * (2 * math.pi / len(self.angles) - clear)
        base, middle = end - turn * HEAD / radius, (start + end) / 2
        path = "M{:.1f} {:.1f}A{:.1f} {:.1f} 0 0 {} {:.1f} {:.1f}".format(
            *self.at(start, radius), radius, radius, int(turn > 0), *self.at(base, radius)
        )
        heading = end + turn * (math.pi / 2 - HEAD / 2 / radius)
        outwards = (turn * math.cos(middle), turn * math.sin(middle))
        return ArrowPath(path, self.at(end, radius), heading, self.at(middle, radius), outwards)


def _beyond(angle: float, distance: float, size: Point) -> Point:
    """The middle of a box whose edge meets the ray so far out."""
    across, down = abs(math.cos(angle)), abs(math.sin(angle))
    reach = min(size[0] / 2 / max(across, 1e-9), size[1] / 2 / max(down, 1e-9))
    return (distance + reach) * math.cos(angle), (distance + reach) * math.sin(angle)


# A line or a grid: a box for each device, links in the gaps, wrap-around links as bows.


_GAP = 27.0
_BOW = 9.0
_BETWEEN_PLANES = 0.6  # of a column

Place = tuple[float, float]  # row, column


def grid_geometry(replay: ScheduleReplay) -> Geometry:
    count, slots, lanes = replay.schedule.devices, slots_of(replay), side_by_side(replay)
    places = [_place(device, replay.shape) for device in range(count)]
    room = _Room(replay, lanes, places)
    name_width = max(text_width(replay.name(device), NAME_SIZE, bold=True) for device in range(count))
    width, height = max(slots.size[0], name_width + 6), slots.size[1] + NAME_SIZE + 4
    boxes = tuple(
        Box(room.left + column * (width + room.across), room.top + row * (height + room.down), width, height)
        for row, column in places
    )
    grid = _Grid(boxes, places)
    return Geometry(
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

    def __init__(self, replay: ScheduleReplay, lanes: dict[Lane, int], places: list[Place]) -> None:
        label = replay.label_length * text_width("0", LABEL_SIZE, bold=True)
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

    def way(self, lane: Lane, number: int) -> ArrowPath:
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


def _along(one: Box, other: Box, east: bool, number: int) -> ArrowPath:
    y = one.centre[1] + (1 if east else -1) * (NEAREST + number * APART)
    start, end = (one.right + 2, other.x - 2) if east else (one.x - 2, other.right + 2)
    return straight((start, y), (end, y))


def _down(one: Box, other: Box, south: bool, number: int) -> ArrowPath:
    x = one.centre[0] + (-1 if south else 1) * (NEAREST + number * APART)
    start, end = (one.bottom + 2, other.y - 2) if south else (one.y - 2, other.bottom + 2)
    return straight((x, start), (x, end))


def _bow_along(one: Box, other: Box, east: bool, number: int) -> ArrowPath:
    """Over the boxes between going east, under them going west."""
    edge, side = (one.y - 1, -1) if east else (one.bottom + 1, 1)
    shift = 6 if east else -6  # beside the arrows of the column
    start, end = (one.centre[0] + shift, edge), (other.centre[0] - shift, edge)
    rise = _BOW + number * APART
    return curved(start, ((start[0] + end[0]) / 2, edge + side * 2 * rise), end)


def _bow_down(one: Box, other: Box, south: bool, number: int) -> ArrowPath:
    """To the right of the boxes between going south, to their left going north."""
    edge, side = (one.right + 1, 1) if south else (one.x - 1, -1)
    shift = 6 if south else -6
    start, end = (edge, one.centre[1] + shift), (edge, other.centre[1] - shift)
    reach = _BOW + number * APART
    return curved(start, (edge + side * 2 * reach, (start[1] + end[1]) / 2), end)


def geometry_of(replay: ScheduleReplay) -> Geometry:
    is_round = replay.is_ring and replay.schedule.devices > 2
    return ring_geometry(replay) if is_round else grid_geometry(replay)
