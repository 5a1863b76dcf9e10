"""Shape2D: a height and a width."""

from __future__ import annotations

from typing import NamedTuple

from softmesh.arguments import checked_int, refused


class Shape2D(NamedTuple):
    height: int
    width: int

    def __repr__(self) -> str:
        return f"({self.height}, {self.width})"


def shape_2d(where: str, name: str, value: object) -> Shape2D:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise refused(where, f"{name} must be Shape2D(height, width), got {value!r}")
    height, width = (checked_int(where, name, extent) for extent in value)
    if height < 0 or width < 0:
        raise refused(where, f"{name} cannot be negative, got {value!r}")
    return Shape2D(height, width)
