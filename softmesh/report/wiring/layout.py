"""Page layout of a wiring picture: coordinates of each box, cell and curve, in SVG units.

Pure geometry: no colours, no elements. Tests ask it what overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from softmesh.report.drawing import Box, enclosing, text_width
from softmesh.report.wiring.group_arrangement import arranged
from softmesh.report.wiring.wiring_model import Bundle, Group, Path, Wire, Wiring


class Density(NamedTuple):
    """How big things are drawn; many chips get little room each."""

    cell: tuple[float, float]
    gap: tuple[float, float]
    text: float  # size of a cell's name; 0: no text
    note: float
    lane: float  # distance of parallel cables
    thick: float
    padding: float
    rim: float  # room for stubs of links that go round
    title: float  # size of a group's name


LARGE = Density((64, 38), (36, 30), 12, 9, 4.0, 1.6, 18, 26, 12.5)
MEDIUM = Density((34, 25), (16, 14), 9, 7, 2.6, 1.1, 11, 17, 10.5)
SMALL = Density((11, 11), (4, 4), 0, 0, 0, 1.3, 8, 5, 11)
_MOST_LARGE = 64
_MOST_MEDIUM = 640
_TICK = 16.0  # numbers along the edges, where cells carry none
_SIDE_ROOM = 170.0  # a short grid's box may grow this wide for its name

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A quadratic Bezier curve."""

    start: Point
    control: Point
    end: Point

    def at(self, t: float) -> Point:
        x, y = (
            (1 - t) ** 2 * s + 2 * (1 - t) * t * c + t**2 * e
            for s, c, e in zip(self.start, self.control, self.end, strict=True)
        )
        return x, y

    def points(self, count: int = 24) -> list[Point]:
        return [self.at(i / count) for i in range(1, count)]


@dataclass(frozen=True)
class Layout:
    density: Density
    cells: dict[int, Box]
    groups: tuple[Box, ...]
    sections: tuple[Box, ...]
    bundles: tuple[Curve, ...]
    labels: tuple[Box | None, ...]  # of the bundles; None where it is what most say
    chords: dict[int, Curve]  # by number of the wire
    chord_labels: dict[int, Box]  # of those asked for chip by chip
    extent: Box
    caption: str  # the one caption of all groups; "" where each has its own


LABEL_SIZE = 10.0


def density_of(wiring: Wiring) -> Density:
    size = wiring.size
    return LARGE if size <= _MOST_LARGE else MEDIUM if size <= _MOST_MEDIUM else SMALL


def laid_out(wiring: Wiring) -> Layout:
    density = density_of(wiring)
    captions = {group.caption for group in wiring.groups}
    shared = captions.pop() if len(wiring.groups) > 2 and len(captions) == 1 else ""
    rims = _rims(wiring)
    insets = [_inset(group, density, rims[i], not shared) for i, group in enumerate(wiring.groups)]
    sizes = [_size(group, density, inset, not shared) for group, inset in zip(wiring.groups, insets, strict=True)]
    groups, sections = arranged(wiring, sizes, _gutter(wiring))
    cells = {
        cell.key: _cell_box(cell.place, group_box, inset, group, density)
        for group, group_box, inset in zip(wiring.groups, groups, insets, strict=True)
        for cell in group.cells
    }
    bundles = tuple(_bundle_curve(bundle, groups) for bundle in wiring.bundles)
    labels = _label_boxes(wiring, bundles, groups, sections)
    chords = {
        number: _chord(wire, cells) for number, wire in enumerate(wiring.wires) if wiring.path_of(wire) is Path.ACROSS
    }
    chord_labels = _chord_labels(wiring, chords, cells) if density.text else {}
    bends = [Box(x, y, 0, 0) for curve in (*bundles, *chords.values()) for x, y in curve.points()]
    extent = enclosing([*groups, *sections, *filter(None, labels), *bends])
    return Layout(density, cells, groups, sections, bundles, labels, chords, chord_labels, extent, shared)


class Inset(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


def _rims(wiring: Wiring) -> list[tuple[bool, bool]]:
    """For each group, whether links go round its columns and its rows."""
    found = [[False, False] for _ in wiring.groups]
    for wire in wiring.wires:
        if wiring.path_of(wire) is Path.ROUND:
            a, b = wiring.cells[wire.a].place, wiring.cells[wire.b].place
            found[wiring.group_of[wire.a]][0 if a[1] == b[1] else 1] = True
    return [(vertical, horizontal) for vertical, horizontal in found]


def _inset(group: Group, density: Density, rim: tuple[bool, bool], has_caption: bool) -> Inset:
    header = density.title + 8 + (density.title if has_caption else 0)
    tick = 0 if density.text else _TICK
    block = (5 if density is LARGE else 3) if group.blocks else 0
    across = density.padding + density.rim * rim[1] + block
    down = density.padding + density.rim * rim[0] + block
    return Inset(across + tick, header + down * 0.8 + tick, across, down)


def _size(group: Group, density: Density, inset: Inset, has_caption: bool) -> Point:
    rows, columns = group.shape
    width = columns * (density.cell[0] + density.gap[0]) - density.gap[0] + inset.left + inset.right
    height = rows * (density.cell[1] + density.gap[1]) - density.gap[1] + inset.top + inset.bottom
    header = text_width(group.name, density.title, mono=False, bold=True)
    if has_caption:
        header = max(header, text_width(group.caption, density.title - 2.5, mono=False))
    return max(width, min(header + 20, _SIDE_ROOM if columns > 1 else width * 2.5)), height


def _cell_box(place: tuple[int, int], box: Box, inset: Inset, group: Group, density: Density) -> Box:
    width, height = density.cell
    used = group.shape[1] * (width + density.gap[0]) - density.gap[0] + inset.left + inset.right
    return Box(
        box.x + inset.left + (box.width - used) / 2 + place[1] * (width + density.gap[0]),
        box.y + inset.top + place[0] * (height + density.gap[1]),
        width,
        height,
    )


def _gutter(wiring: Wiring) -> Point:
    labels = [bundle.label for bundle in wiring.bundles] + [w.label for w in wiring.wires if w.is_special]
    widest = max((text_width(label, LABEL_SIZE) for label in labels), default=0)
    return (44 + widest, 60.0) if labels else (28.0, 24.0)


def _bundle_curve(bundle: Bundle, groups: Sequence[Box]) -> Curve:
    """From centre to centre, bent so that it passes behind as few other boxes as can be."""
    ends = [enclosing([groups[number] for number in side]) for side in (bundle.a, bundle.b)]
    others = [box.grown(4) for number, box in enumerate(groups) if number not in (*bundle.a, *bundle.b)]
    return _least_hidden(ends[0].centre, ends[1].centre, others)


def _chord(wire: Wire, cells: Mapping[int, Box]) -> Curve:
    start, end = cells[wire.a], cells[wire.b]
    others = [box for key, box in cells.items() if key not in (wire.a, wire.b)]
    span = enclosing([start, end]).grown(120)
    bend = 0.0 if wire.is_special else 0.12
    return _least_hidden(start.centre, end.centre, [box for box in others if box.touches(span)], bend)


def _least_hidden(start: Point, end: Point, others: Sequence[Box], least: float = 0.0) -> Curve:
    best, lowest = _bent(start, end, least), math.inf
    for bend in (least, *(sign * size for size in (0.15, 0.28, 0.42, 0.58) for sign in (1, -1))):
        curve = _bent(start, end, bend)
        hidden = sum(box.holds(point) for point in curve.points() for box in others)
        if hidden + 4 * abs(bend) < lowest:
            best, lowest = curve, hidden + 4 * abs(bend)
        if not hidden:
            break
    return best


def _bent(start: Point, end: Point, bend: float) -> Curve:
    (x, y), (right, bottom) = start, end
    middle = (x + right) / 2, (y + bottom) / 2
    return Curve(start, (middle[0] - bend * (bottom - y), middle[1] + bend * (right - x)), end)


def _label_boxes(
    wiring: Wiring, curves: Sequence[Curve], groups: Sequence[Box], sections: Sequence[Box]
) -> tuple[Box | None, ...]:
    """A place for each label on its curve, clear of boxes, other labels and other curves where there is one."""
    placed: list[Box | None] = []
    points = [curve.points(60) for curve in curves]
    for number, (bundle, curve) in enumerate(zip(wiring.bundles, curves, strict=True)):
        if bundle.label == wiring.usual_bundle:
            placed.append(None)
            continue
        busy = [*groups, *(sections if bundle.is_of_sections else ()), *filter(None, placed)]
        others = [point for i, line in enumerate(points) if i != number for point in line]
        placed.append(min(_spots(bundle.label, curve), key=lambda spot: _crowding(spot, busy, others)))
    return tuple(placed)


def _chord_labels(wiring: Wiring, chords: Mapping[int, Curve], cells: Mapping[int, Box]) -> dict[int, Box]:
    placed: dict[int, Box] = {}
    for number, curve in chords.items():
        wire = wiring.wires[number]
        if wire.is_special:
            busy = [*cells.values(), *placed.values()]
            others = [point for i, other in chords.items() if i != number for point in other.points()]
            placed[number] = min(_spots(wire.label, curve), key=lambda spot: _crowding(spot, busy, others))
    return placed


def _spots(label: str, curve: Curve) -> list[Box]:
    width, height = text_width(label, LABEL_SIZE) + 6, LABEL_SIZE * 1.5
    centres = [curve.at(0.5 + step / 50) for step in _outwards(20)]
    return [Box(x - width / 2, y - height / 2, width, height) for x, y in centres]


def _crowding(spot: Box, busy: Sequence[Box], others: Sequence[Point]) -> float:
    shared = sum(spot.shared_area(box) for box in busy)
    if shared:
        return 100 + shared
    roomy = spot.grown(5)
    return sum(roomy.holds(point) for point in others)


def _outwards(steps: int) -> Iterable[int]:
    yield 0
    for step in range(1, steps):
        yield from (step, -step)
