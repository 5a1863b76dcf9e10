"""The stage of a ring: numbered discs on a circle, the slots of each outside it."""

from __future__ import annotations

import math
from itertools import combinations

from softmesh.collectives.traffic import Lane
from softmesh.report.schedules.stage import Stage, outermost, side_by_side, slots_of
from softmesh.report.schedules.story import Story
from softmesh.report.schedules.ways import APART, HEAD, LABEL_SIZE, NEAREST, Point, Way, leaning
from softmesh.report.wiring.box import Box, enclosing

DISC = 7.5
_ARC, _SHORT_ARC = 35.0, 24.0  # from disc to disc, with and without labels
_MOST_GROWTH = 120  # attempts; then labels may touch
_LABEL_ROOM = LABEL_SIZE + 4.5
_GAP = 2.0  # around each box


def circle_stage(story: Story) -> Stage:
    slots, lanes = slots_of(story), side_by_side(story)
    circle, boxes = _smallest(story, slots.size, lanes)
    around = enclosing(boxes)
    boxes = [box.moved(-around.x, -around.y) for box in boxes]
    circle = _Circle(circle.radius, story.schedule.devices, (-around.x, -around.y))
    return Stage(
        slots,
        (around.width, around.height),
        tuple(boxes),
        tuple((box.x, box.y) for box in boxes),
        tuple(circle.at(angle, circle.radius) for angle in circle.angles),
        circle.ways(lanes),
        (circle.track(),),
        is_round=True,
    )


def _smallest(story: Story, size: Point, lanes: dict[Lane, int]) -> tuple[_Circle, list[Box]]:
    """A circle wide enough for labels between the boxes, or within them, whichever is smaller."""
    spread = NEAREST + max(lanes.values(), default=0) * APART
    beside = max(DISC, spread) + 3
    within = max(beside, spread + _LABEL_ROOM)
    fits = [_fitting(story, size, lanes, distance) for distance in (beside, within)]
    return min(fits, key=lambda fit: enclosing(fit[1]).width)


def _fitting(story: Story, size: Point, lanes: dict[Lane, int], distance: float) -> tuple[_Circle, list[Box]]:
    count, label = story.schedule.devices, "0" * story.label_length
    arc = _SHORT_ARC if story.is_crowded else _ARC
    radius = max(24.0 + distance, count * arc / (2 * math.pi))
    for _ in range(_MOST_GROWTH):
        circle = _Circle(radius, count)
        boxes = circle.boxes_around(distance, size)
        if _is_clear(boxes, circle.ways(outermost(lanes)), label):
            break
        radius += 3
    return circle, boxes


def _is_clear(boxes: list[Box], ways: dict[Lane, Way], label: str) -> bool:
    """Boxes keep apart from one another, and labels from both."""
    if any(one.touches(other) for one, other in combinations([box.grown(_GAP) for box in boxes], 2)):
        return False
    labels = [way.label_box(label) for way in ways.values() if not way.is_bow and label]
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

    def ways(self, lanes: dict[Lane, int]) -> dict[Lane, Way]:
        return {lane: self._way(lane, number) for lane, number in lanes.items()}

    def track(self) -> str:
        """The circle as a path."""
        (x, y), radius = self.centre, self.radius
        half = f"a{radius:.1f} {radius:.1f} 0 0 1"
        return f"M{x - radius:.1f} {y:.1f}{half} {2 * radius:.1f} 0{half} {-2 * radius:.1f} 0"

    def _way(self, lane: Lane, number: int) -> Way:
        count = len(self.angles)
        forward = (lane.receiver - lane.sender) % count
        if forward in (1, count - 1):
            return self._arc(lane.sender, 1 if forward == 1 else -1, number)
        ends = [self.at(self.angles[device], self.radius) for device in (lane.sender, lane.receiver)]
        return leaning(ends[0], ends[1], 4 + number * APART, DISC + 2)

    def _arc(self, sender: int, turn: int, number: int) -> Way:
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
        return Way(path, self.at(end, radius), heading, self.at(middle, radius), outwards)


def _beyond(angle: float, distance: float, size: Point) -> Point:
    """The middle of a box whose edge meets the ray so far out."""
    across, down = abs(math.cos(angle)), abs(math.sin(angle))
    reach = min(size[0] / 2 / max(across, 1e-9), size[1] / 2 / max(down, 1e-9))
    return (distance + reach) * math.cos(angle), (distance + reach) * math.sin(angle)
