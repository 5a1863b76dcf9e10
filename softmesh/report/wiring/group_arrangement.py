"""Arrangement of the groups of a wiring picture: in a row, as a snake, in a square or on a circle."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from softmesh.report.drawing import Box, enclosing
from softmesh.report.wiring.wiring_model import Wiring

Size = tuple[float, float]
Pairs = Sequence[tuple[int, int]]

_MOST_ON_CIRCLE = 24
_MOST_TURNED = 5
_SECTION_PADDING = 16.0
_SECTION_TITLE = 24.0
_ASPECT = 1.5  # width to height of a page that reads well
_STRETCHES = (0.7, 0.85, 1.0, 1.2, 1.4, 1.7)


def arranged(wiring: Wiring, sizes: Sequence[Size], gutter: Size) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """A box for every group and for every section."""
    pairs = _joined_groups(wiring)
    if _faces_downwards(wiring):
        return tuple(_on_sites(sizes, {0: (0, 0), 1: (1, 0)}, gutter)), ()
    units = _units(wiring)
    insides = [_placed([sizes[i] for i in unit], _within(unit, pairs), gutter) for unit in units]
    framed = [_framed(boxes, bool(wiring.sections) and len(boxes) > 1) for boxes in insides]
    unit_of = {group: number for number, unit in enumerate(units) for group in unit}
    outer = {(unit_of[a], unit_of[b]) for a, b in pairs if unit_of[a] != unit_of[b]}
    frames = _placed([frame[2:] for frame in framed], sorted(outer), gutter)
    found: dict[int, Box] = {}
    for unit, boxes, frame, place in zip(units, insides, framed, frames, strict=True):
        for group, box in zip(unit, boxes, strict=True):
            found[group] = box.moved(place.x - frame.x, place.y - frame.y)
    for unit in units if len(units) > 1 else ():
        _turn_to_partners(unit, found, [pair for pair in pairs if unit_of[pair[0]] != unit_of[pair[1]]])
    sections = tuple(frames[unit_of[section.groups[0]]] for section in wiring.sections)
    return tuple(found[number] for number in range(len(sizes))), sections


def _joined_groups(wiring: Wiring) -> list[tuple[int, int]]:
    pairs = [(a, b) for bundle in wiring.bundles for a in bundle.a for b in bundle.b]
    return pairs + [(wiring.group_of[wire.a], wiring.group_of[wire.b]) for wire in wiring.wires if wire.is_special]


def _faces_downwards(wiring: Wiring) -> bool:
    """Whether two groups are joined from the last row of one to the first of the other."""
    if len(wiring.groups) != 2 or not any(wire.is_special for wire in wiring.wires):
        return False
    ends = [(wiring.cells[wire.a].place, wiring.cells[wire.b].place) for wire in wiring.wires if wire.is_special]
    (rows, columns), _ = (group.shape for group in wiring.groups)
    down = sum(a[0] == rows - 1 and b[0] == 0 for a, b in ends)
    across = sum(a[1] == columns - 1 and b[1] == 0 for a, b in ends)
    return down > across


def _turn_to_partners(unit: tuple[int, ...], boxes: dict[int, Box], pairs: Pairs) -> None:
    """Let the groups of a section change places, so that their lines to other sections are short."""
    if len(unit) > _MOST_TURNED or len({boxes[group][2:] for group in unit}) > 1:
        return
    sites = [boxes[group] for group in unit]
    leaving = [(a, b) if a in unit else (b, a) for a, b in pairs if a in unit or b in unit]

    def length(order: Iterable[Box]) -> float:
        at = dict(zip(unit, order, strict=True))
        return sum(math.dist(at[a].centre, boxes[b].centre) for a, b in leaving)

    boxes.update(zip(unit, min(itertools.permutations(sites), key=length), strict=True))


def _units(wiring: Wiring) -> list[tuple[int, ...]]:
    """What stands together: all groups where there are no sections."""
    if not wiring.sections:
        return [tuple(range(len(wiring.groups)))]
    grouped = {group for section in wiring.sections for group in section.groups}
    alone = [(number,) for number in range(len(wiring.groups)) if number not in grouped]
    return [*(section.groups for section in wiring.sections), *alone]


def _within(unit: tuple[int, ...], pairs: Pairs) -> Pairs:
    number = {group: i for i, group in enumerate(unit)}
    return [(number[a], number[b]) for a, b in pairs if a in number and b in number and a != b]


def _framed(boxes: Sequence[Box], has_frame: bool) -> Box:
    frame = enclosing(boxes)
    if not has_frame:
        return frame
    frame = frame.grown(_SECTION_PADDING)
    return Box(frame.x, frame.y - _SECTION_TITLE + 4, frame.width, frame.height + _SECTION_TITLE - 4)


def _placed(sizes: Sequence[Size], pairs: Pairs, gutter: Size) -> list[Box]:
    joined = {(min(pair), max(pair)) for pair in pairs}
    is_branching = any(sum(i in pair for pair in joined) > 2 for i in range(len(sizes)))
    if is_branching and 4 < len(sizes) <= _MOST_ON_CIRCLE:
        return _on_circle(sizes, gutter)
    if is_branching:
        return _in_rows(sizes, range(len(sizes)), gutter, _reading_sites)
    order = _walk(len(sizes), pairs)
    return _in_rows(sizes, order, gutter, _ring_sites if _is_ring(order, pairs) else _snake_sites)


def _walk(count: int, pairs: Pairs) -> list[int]:
    """Along the chains, each from an end where it has one."""
    near: list[set[int]] = [set() for _ in range(count)]
    for a, b in pairs:
        near[a].add(b)
        near[b].add(a)
    order: dict[int, None] = {}
    for start in sorted(range(count), key=lambda i: (len(near[i]) > 1, i)):
        at: int | None = start
        while at is not None and at not in order:
            order[at] = None
            at = min((other for other in near[at] if other not in order), default=None)
    return list(order)


def _is_ring(order: Sequence[int], pairs: Pairs) -> bool:
    ends = {order[0], order[-1]}
    return len(order) > 2 and any(set(pair) == ends for pair in pairs)


Sites = Callable[[int, int, int], list[tuple[int, int]]]  # count, rows, columns -> (row, column) of each


def _in_rows(sizes: Sequence[Size], order: Sequence[int], gutter: Size, sites: Sites) -> list[Box]:
    """Boxes of `order` on the sites of a grid that makes a page of good proportions."""
    width = max(size[0] for size in sizes) + gutter[0]
    height = max(size[1] for size in sizes) + gutter[1]
    count = len(order)
    columns = min(count, max(1, round(math.sqrt(count * _ASPECT * height / width))))
    rows = -(-count // columns)
    if sites is _ring_sites:
        rows = max(2, rows - rows % 2)
    return _on_sites(sizes, dict(zip(order, sites(count, rows, -(-count // rows)), strict=True)), gutter)


def _on_sites(sizes: Sequence[Size], sites: Mapping[int, tuple[int, int]], gutter: Size) -> list[Box]:
    """Each column as wide and each row as high as its largest box."""
    widths: dict[int, float] = defaultdict(float)
    heights: dict[int, float] = defaultdict(float)
    for number, (row, column) in sites.items():
        widths[column] = max(widths[column], sizes[number][0])
        heights[row] = max(heights[row], sizes[number][1])
    boxes = []
    for number, (width, height) in enumerate(sizes):
        row, column = sites[number]
        left = sum(widths[before] + gutter[0] for before in range(column))
        top = sum(heights[before] + gutter[1] for before in range(row))
        boxes.append(Box(left + (widths[column] - width) / 2, top, width, height))
    return boxes


def _reading_sites(count: int, rows: int, columns: int) -> list[tuple[int, int]]:
    return [divmod(number, columns) for number in range(count)]


def _snake_sites(count: int, rows: int, columns: int) -> list[tuple[int, int]]:
    """To and fro, so that who follows stands beside or below."""
    return [(row, columns - 1 - column if row % 2 else column) for row, column in _reading_sites(count, rows, columns)]


def _ring_sites(count: int, rows: int, columns: int) -> list[tuple[int, int]]:
    """A round trip through all sites, which needs an even number of full rows."""
    if rows == 2 or columns == 1 or rows * columns != count:
        return _snake_sites(count, rows, columns)
    top = [(0, column) for column in range(columns)]
    inner = [
        (row, column if row % 2 == 0 else columns - column) for row in range(1, rows) for column in range(1, columns)
    ]
    return top + inner + [(row, 0) for row in range(rows - 1, 0, -1)]


def _on_circle(sizes: Sequence[Size], gutter: Size) -> list[Box]:
    """On the ellipse, clockwise from the top, that makes the smallest page of good proportions."""
    return min((_tightest(sizes, gutter, stretch) for stretch in _STRETCHES), key=_page_cost)


def _tightest(sizes: Sequence[Size], gutter: Size, stretch: float) -> list[Box]:
    radius = max(max(size) for size in sizes) / 2
    while True:
        boxes = _circle_of(sizes, radius * stretch, radius / stretch)
        if not _are_close(boxes, gutter):
            return boxes
        radius *= 1.05


def _page_cost(boxes: Sequence[Box]) -> float:
    page = enclosing(boxes)
    proportion = page.width / page.height / _ASPECT
    return page.width * page.height * max(proportion, 1 / proportion)


def _circle_of(sizes: Sequence[Size], across: float, down: float) -> list[Box]:
    boxes = []
    for number, (width, height) in enumerate(sizes):
        angle = 2 * math.pi * number / len(sizes) - math.pi / 2
        boxes.append(Box(across * math.cos(angle) - width / 2, down * math.sin(angle) - height / 2, width, height))
    return boxes


def _are_close(boxes: Sequence[Box], gutter: Size) -> bool:
    grown = [
        Box(box.x - gutter[0] / 2, box.y - gutter[1] / 2, box.width + gutter[0], box.height + gutter[1])
        for box in boxes
    ]
    return any(one.touches(other) for i, one in enumerate(grown) for other in grown[:i])
