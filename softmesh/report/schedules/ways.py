"""The lines that sends are drawn along."""

from __future__ import annotations

import math
from typing import NamedTuple

from softmesh.report.drawing import text_width
from softmesh.report.wiring.box import Box

NEAREST = 3.5  # of a lane from the middle of its link
APART = 4.5  # lanes side by side
HEAD = 5.0  # length of an arrow's head
LABEL_SIZE = 7.5

Point = tuple[float, float]


class Way(NamedTuple):
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


def straight(start: Point, end: Point) -> Way:
    base = moved(end, start, HEAD)
    path = f"M{start[0]:.1f} {start[1]:.1f}L{base[0]:.1f} {base[1]:.1f}"
    heading = math.atan2(end[1] - start[1], end[0] - start[0])
    return Way(path, end, heading, halfway(start, end), to_the_right(start, end))


def curved(start: Point, control: Point, end: Point) -> Way:
    base = moved(end, control, HEAD)
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{control[0]:.1f} {control[1]:.1f} {base[0]:.1f} {base[1]:.1f}"
    heading = math.atan2(end[1] - control[1], end[0] - control[0])
    chord = halfway(start, end)
    return Way(path, end, heading, halfway(chord, control), moved((0, 0), _minus(control, chord), 1), True)


def leaning(one: Point, other: Point, by: float, clear: float) -> Way:
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
