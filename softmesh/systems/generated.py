"""Machines that nobody sells: `mesh:16x16`, `torus:32x32`, `line:64`, of Wormhole chips with 4 links per edge.

Ids run row by row, all chips are on one host and on its bus. Each row is a tray, and its chips are the
locations 1, 2, ... of that tray, so that pinnings can name them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from softmesh.errors import MeshError
from softmesh.hardware import ClusterType
from softmesh.systems.chip import WORMHOLE
from softmesh.systems.machine import Asic, Link, Machine, Port

MOST_CHIPS = 4096
LINKS_PER_EDGE = 4
# The channels towards each neighbour, as on the trays of a Galaxy.
_WEST, _NORTH, _SOUTH, _EAST = range(4), range(4, 8), range(8, 12), range(12, 16)

_GRID = re.compile(r"(?P<kind>mesh|torus):(?P<rows>\d{1,9})x(?P<columns>\d{1,9})", re.ASCII | re.IGNORECASE)
_LINE = re.compile(r"line:(?P<columns>\d{1,9})", re.ASCII | re.IGNORECASE)
FORMS = "mesh:RxC, torus:RxC or line:N"


def is_generated(spec: str) -> bool:
    return spec.partition(":")[0].lower() in ("mesh", "torus", "line")


def generated(spec: str) -> Machine:
    """
    >>> generated("torus:4x8").links_between(0, 7)[0]   # the first row's ends
    Link(a=Port(chip=0, channel=0), b=Port(chip=7, channel=12))
    """
    found = _GRID.fullmatch(spec) or _LINE.fullmatch(spec)
    if found is None:
        raise MeshError(f"{spec[:60]!r} is no system: write {FORMS}, for instance mesh:16x16")
    sizes = found.groupdict()
    shape = int(sizes.get("rows", 1)), int(sizes["columns"])
    if not 1 <= math.prod(shape) <= MOST_CHIPS:
        raise MeshError(f"{spec} would have {math.prod(shape)} chips; 1 to {MOST_CHIPS} are possible")
    return _grid(spec.lower(), shape, is_torus=sizes.get("kind", "").lower() == "torus")


def _grid(name: str, shape: tuple[int, int], is_torus: bool) -> Machine:
    rows, columns = shape
    # With two chips the neighbour on either side is the same one: nothing to close.
    wraps = (is_torus and rows > 2, is_torus and columns > 2)
    plural = "s" if rows * columns > 1 else ""
    size = f"{rows * columns} Wormhole chip{plural} in a grid of {rows}x{columns}"
    return Machine(
        name=name,
        chip=WORMHOLE,
        cluster_type=ClusterType.CUSTOM,
        asics={chip: _asic(chip, columns) for chip in range(rows * columns)},
        links=tuple(sorted(_links(shape, wraps))),
        summary=f"{size}, {LINKS_PER_EDGE} links per edge",
        grid=shape,
        wraps=wraps,
    )


def _asic(chip: int, columns: int) -> Asic:
    row, column = divmod(chip, columns)
    return Asic(
        id=chip,
        unique_id=chip + 1,
        host="host-0",
        tray=row + 1,
        location=column + 1,
        board="generated",
        pcie=chip,
    )


def _links(shape: tuple[int, int], wraps: tuple[bool, bool]) -> Iterator[Link]:
    rows, columns = shape
    for chip in range(rows * columns):
        row, column = divmod(chip, columns)
        if column + 1 < columns or wraps[1]:
            yield from _edge(chip, _EAST, row * columns + (column + 1) % columns, _WEST)
        if row + 1 < rows or wraps[0]:
            yield from _edge(chip, _SOUTH, (row + 1) % rows * columns + column, _NORTH)


def _edge(one: int, channels: range, other: int, far_channels: range) -> Iterator[Link]:
    for channel, far_channel in zip(channels, far_channels, strict=True):
        yield Link.between(Port(one, channel), Port(other, far_channel))
