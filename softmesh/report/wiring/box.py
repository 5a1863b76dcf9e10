"""Rectangles on a page, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def centre(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    def moved(self, right: float, down: float) -> Box:
        return Box(self.x + right, self.y + down, self.width, self.height)

    def grown(self, by: float) -> Box:
        return Box(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)

    def holds(self, point: tuple[float, float]) -> bool:
        return self.x <= point[0] <= self.right and self.y <= point[1] <= self.bottom

    def contains(self, other: Box) -> bool:
        return self.holds((other.x, other.y)) and self.holds((other.right, other.bottom))

    def touches(self, other: Box) -> bool:
        return self.shared_area(other) > 0

    def shared_area(self, other: Box) -> float:
        width = min(self.right, other.right) - max(self.x, other.x)
        height = min(self.bottom, other.bottom) - max(self.y, other.y)
        return max(width, 0) * max(height, 0)


def enclosing(boxes: Iterable[Box]) -> Box:
    kept = list(boxes)
    x, y = min(box.x for box in kept), min(box.y for box in kept)
    return Box(x, y, max(box.right for box in kept) - x, max(box.bottom for box in kept) - y)
