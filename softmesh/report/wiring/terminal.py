"""A wiring picture in box characters, with as much detail as chips and columns allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softmesh.report.wiring.boxes import boxed, cell_style, wire_style, wires_in
from softmesh.report.wiring.canvas import Canvas, flowed, framed, longest
from softmesh.report.wiring.picture import Cell, Group, Path, State, Wiring, printable

if TYPE_CHECKING:  # rich is loaded by the first picture
    from rich.console import Console, ConsoleOptions, RenderableType

_MOST_BOXED = 64
_MOST_NAMED = 640
_FRAME = "bright_black"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CABLES = {1: ("─", "│"), 2: ("═", "║")}  # by count; more are drawn as three or more
_MANY = ("≡", "║")
_MOST_LISTED = 200


@dataclass(frozen=True)
class WiringPicture:
    wiring: Wiring

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        wiring = self.wiring
        yield Text(printable(wiring.title), style="bold")
        yield Text(printable(wiring.summary))
        draw = _way_to_draw(wiring, options.max_width)
        parts = [
            framed(part, _framed_title(wiring, group, options.max_width - 6), _FRAME)
            for number, group in enumerate(wiring.groups)
            for part in draw(wiring, number, options.max_width - 4)
        ]
        yield from flowed(parts, options.max_width).lines()
        yield from (Text(printable(line)) for line in self._words())

    def _words(self) -> Iterator[str]:
        yield from _said_of_cables(self.wiring)
        yield from _between_groups(self.wiring)
        yield from _hosts_said(self.wiring)
        yield from _odd_wires(self.wiring)
        yield from self.wiring.remarks


Drawer = Callable[[Wiring, int, int], Iterator[Canvas]]  # wiring, number of the group, columns there are


def _way_to_draw(wiring: Wiring, room: int) -> Drawer:
    for most, drawer in ((_MOST_BOXED, boxed), (_MOST_NAMED, named)):
        if wiring.size <= most:
            widest = max(part.width for i in range(len(wiring.groups)) for part in drawer(wiring, i, room))
            if widest + 4 <= room:
                return drawer
    return dotted


def _framed_title(wiring: Wiring, group: Group, room: int) -> str:
    rank = f" ({group.blocks[0].label})" if len(group.blocks) == 1 else ""
    title = f"{group.name}{rank}" + (f": {group.caption}" if len(wiring.groups) <= 2 else "")
    return title if len(title) <= room else f"{title[: room - 1]}…"


def named(wiring: Wiring, number: int, room: int) -> Iterator[Canvas]:
    """The name of each chip, and lines whose weight tells how many cables there are."""
    group = wiring.groups[number]
    wires = list(wires_in(wiring, number))
    texts = {cell.key: _named_text(group, cell) for cell in wiring.cells.values()}
    width = longest(texts.values())
    canvas = Canvas()
    for cell in group.cells:
        row, column = cell.place
        canvas.put(2 * row, column * (width + 1), texts[cell.key].rjust(width), cell_style(wiring, cell))
    for wire, one, other, path in wires:
        if path is not Path.NEXT:
            continue
        (row, column), style = one.place, wire_style(wire)
        across, down = _CABLES.get(len(wire.lanes) - wire.down, _MANY)
        if wire.down == len(wire.lanes):
            across = down = "✗"
        if one.place[0] == other.place[0]:
            canvas.put(2 * row, column * (width + 1) + width, across, style)
        else:
            canvas.put(2 * row + 1, column * (width + 1) + width - 1, down, style)
    yield canvas


def _named_text(group: Group, cell: Cell) -> str:
    if cell.state is State.DOWN:
        return f"✗{cell.name}"
    return cell.name if group.colour is not None or cell.colour is None else f"{cell.name}:M{cell.colour}"


def dotted(wiring: Wiring, number: int, room: int) -> Iterator[Canvas]:
    """A mark for each chip, in bands where a row is longer than the terminal."""
    group = wiring.groups[number]
    columns = group.shape[1]
    pitch = 2 if 2 * columns <= room else 1
    band = max(1, room // pitch)
    for start in range(0, columns, band):
        canvas = Canvas()
        for cell in group.cells:
            row, column = cell.place
            if start <= column < start + band:
                canvas.put(row, (column - start) * pitch, _dot(group, cell), cell_style(wiring, cell))
        yield canvas


def _dot(group: Group, cell: Cell) -> str:
    if cell.state is not State.UP:
        return "✗" if cell.state is State.DOWN else "·"
    is_matched = cell.colour is not None and group.colour is None
    return _DIGITS[(cell.colour or 0) % len(_DIGITS)] if is_matched else "■"


def _said_of_cables(wiring: Wiring) -> Iterator[str]:
    if wiring.usual_lanes:
        odd = [wire for wire in wiring.wires if not wiring.is_usual(wire) and not wire.is_special]
        yield f"x{wiring.usual_lanes} between neighbours{' unless listed' if odd else ''}"
        yield from _listed(
            [f"{wiring.cell_name(wire.a)} ── {wiring.cell_name(wire.b)} {wire.count_text}" for wire in odd]
        )
    rounds = [wire for wire in wiring.wires if wiring.path_of(wire) is Path.ROUND]
    if not all(wire.is_unused for wire in rounds):
        boxed_ = "; numbers at the rim are the chips they lead to" if wiring.size <= _MOST_BOXED else ""
        yield f"rows or columns have links that go round{boxed_}"
    if any(wire.is_unused for wire in wiring.wires):
        unused = sum(len(wire.lanes) for wire in wiring.wires if wire.is_unused)
        going = sum(len(wire.lanes) for wire in rounds if wire.is_unused)
        yield f"{unused} links are not used{f', {going} of them go round' if going else ''}"
    if any(group.colour is None for group in wiring.groups):
        yield from _listed(list(wiring.meshes))


def _between_groups(wiring: Wiring) -> Iterator[str]:
    by_first: dict[str, list[str]] = {}
    for bundle in wiring.bundles:
        second = f"{wiring.side_name(bundle.b)} {bundle.label}"
        by_first.setdefault(wiring.side_name(bundle.a), []).append(second)
    if by_first:
        yield "links between boxes:"
    width = longest(by_first)
    yield from (f"  {first.ljust(width)} ── {', '.join(others)}" for first, others in by_first.items())


def _hosts_said(wiring: Wiring) -> Iterator[str]:
    """Whose chips are whose, where the boxes are too small to say it."""
    if wiring.size > _MOST_BOXED:
        blocks = [
            (group, block) for group in wiring.groups for block in group.blocks if len(group.blocks) > 1
        ]
        yield from _listed(
            [
                f"{group.name} {block.label}: rows {block.place[0]} to {block.end[0] - 1}, "
                f"columns {block.place[1]} to {block.end[1] - 1}"
                for group, block in blocks
            ]
        )


def _odd_wires(wiring: Wiring) -> Iterator[str]:
    """What the drawing has no line for: cables from chip to chip across it."""
    wires = [wire for wire in wiring.wires if wiring.path_of(wire) is Path.ACROSS]
    if wires:
        yield "links from chip to chip:"
    yield from _listed(
        [f"{wiring.cell_name(wire.a)} ── {wiring.cell_name(wire.b)} {wire.label}" for wire in wires]
    )


def _listed(lines: list[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:_MOST_LISTED])
    if len(lines) > _MOST_LISTED:
        yield f"  and {len(lines) - _MOST_LISTED} more"
