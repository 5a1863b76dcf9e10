"""A mesh of any rank as what paper can show: rows and columns, one plane for each leading index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from softmesh.placement.distribution import Extents


@dataclass(frozen=True)
class Plane:
    """`first` is the row-major place in the mesh of the plane's first device."""

    label: str
    rows: int
    columns: int
    first: int


def planes(shape: Extents) -> list[Plane]:
    """One for a mesh of one or two axes, without a label.

    >>> [plane.label for plane in planes((2, 3, 4))]
    ['[0, :, :]', '[1, :, :]']
    """
    rows, columns = shape[-2:] if len(shape) > 1 else (1, shape[0])
    leading = product(*map(range, shape[:-2]))
    return [
        Plane(_label(index), rows, columns, number * rows * columns) for number, index in enumerate(leading)
    ]


def _label(index: Extents) -> str:
    return f"[{', '.join(map(str, index))}, :, :]" if index else ""


def grid_text(shape: Extents) -> str:
    """`2x4`."""
    return "x".join(map(str, shape))


def coordinate_text(coordinate: Extents) -> str:
    """`(0, 3)`."""
    return f"({', '.join(map(str, coordinate))})"


def device_count(shape: Extents) -> str:
    count = math.prod(shape)
    return f"{count} device" if count == 1 else f"{count} devices"
