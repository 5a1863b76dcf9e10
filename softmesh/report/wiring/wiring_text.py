"""A wiring picture in the terminal, in box characters, with as much detail as chips and columns allow.

Few chips are boxes, more of them names joined by lines, many of them single marks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from softmesh.report.drawing import hue_wheel
from softmesh.report.wiring.wiring_model import POSITIONS, Cell, Group, Path, State, Wire, Wiring, printable

# The canvas: characters on a grid, each with a style.


class Canvas:
    """Grows to the right and downwards as things are put on it."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, int], tuple[str, str]] = {}
        self.width = 0
        self.height = 0

    def put(self, row: int, column: int, text: str, style: str = "") -> None:
        for i, character in enumerate(printable(text)):
            self._marks[row, column + i] = character, style
        self.width = max(self.width, column + len(text))
        self.height = max(self.height, row + 1)

    def paste(self, other: Canvas, row: int, column: int) -> None:
        for (down, right), (character, style) in other._marks.items():
            self.put(row + down, column + right, character, style)

    def lines(self) -> list[Text]:
        lines = []
        for row in range(self.height):
            line = Text(no_wrap=True, overflow="crop")
            for column in range(self.width):
                line.append(*self._marks.get((row, column), (" ", "")))
            line.rstrip()
            lines.append(line)
        return lines


def framed(content: Canvas, title: str, style: str = "") -> Canvas:
    """In a box with its name in the upper edge."""
    frame = Canvas()
    inner = max(content.width + 2, len(title) + 3)
    frame.put(0, 0, f"┌ {title} ".ljust(inner + 1, "─") + "┐", style)
    for row in range(content.height):
        frame.put(row + 1, 0, "│", style)
        frame.put(row + 1, inner + 1, "│", style)
    frame.put(content.height + 1, 0, "└" + "─" * inner + "┘", style)
    frame.paste(content, 1, 2)
    return frame


def flowed(parts: Sequence[Canvas], room: int) -> Canvas:
    """Side by side while there is room, then below."""
    whole = Canvas()
    top = column = 0
    for part in parts:
        if column and column + part.width > room:
            top, column = whole.height, 0
        whole.paste(part, top, column)
        column += part.width + 1
    return whole


def longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


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
        if draw is boxed and wiring.has_positions(State.UP):
            yield Text(POSITIONS)
        yield from (Text(printable(line)) for line in self._words())

    def _words(self) -> Iterator[str]:
        yield from _said_of_cables(self.wiring)
        yield from _sections(self.wiring)
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


def _sections(wiring: Wiring) -> Iterator[str]:
    yield from (f"{section.name}: {wiring.groups_named(section.groups)}" for section in wiring.sections)


def _said_of_cables(wiring: Wiring) -> Iterator[str]:
    if wiring.usual_lanes:
        odd = [wire for wire in wiring.wires if not wiring.is_usual(wire) and not wire.is_special]
        yield f"x{wiring.usual_lanes} between neighbours{' unless listed' if odd else ''}"
        yield from _listed(
            [f"{wiring.cell_name(wire.a)} ── {wiring.cell_name(wire.b)} {wire.count_text}" for wire in odd]
        )
    yield from _said_of_rounds(wiring)
    if any(group.colour is None for group in wiring.groups):
        yield from _listed(list(wiring.meshes))


def _said_of_rounds(wiring: Wiring) -> Iterator[str]:
    rounds = [wire for wire in wiring.wires if wiring.path_of(wire) is Path.ROUND]
    if not all(wire.is_unused for wire in rounds):
        boxed_ = "; a number at the edge is the chip at the other end" if wiring.size <= _MOST_BOXED else ""
        yield f"rows or columns wrap around{boxed_}"
    if any(wire.is_unused for wire in wiring.wires):
        unused = sum(len(wire.lanes) for wire in wiring.wires if wire.is_unused)
        going = sum(len(wire.lanes) for wire in rounds if wire.is_unused)
        yield f"{unused} links are not used{f', {going} of them wrap around' if going else ''}"


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
        blocks = [(group, block) for group in wiring.groups for block in group.blocks if len(group.blocks) > 1]
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
    yield from _listed([f"{wiring.cell_name(wire.a)} ── {wiring.cell_name(wire.b)} {wire.label}" for wire in wires])


def _listed(lines: list[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:_MOST_LISTED])
    if len(lines) > _MOST_LISTED:
        yield f"  and {len(lines) - _MOST_LISTED} more"


# Chips as boxes, with link counts between them, and at the rim where a cable wraps around.


_DOWN = "red"
_IDLE = "bright_black"

Strand = tuple[Wire, Cell, Cell, Path]  # its upper or left end first


def boxed(wiring: Wiring, number: int, room: int) -> Iterator[Canvas]:
    """The group of this number; it is as wide as it is, whatever room there is."""
    yield _Boxes(wiring, number).canvas()


class _Boxes:
    def __init__(self, wiring: Wiring, number: int) -> None:
        self.wiring = wiring
        self.group = wiring.groups[number]
        self.wires = [wire for wire in wires_in(wiring, number) if wire[3] is not Path.ACROSS]
        self.notes = _notes(wiring)
        self.inner = longest([*self.notes.values(), *(cell.name for cell in wiring.cells.values())]) + 2
        self.gap = longest(wire.count_text for wire in wiring.wires) + 2
        self.height = 4 if any(self.notes.values()) else 3
        self.middle = 1 + self.inner // 2

    @cached_property
    def rim(self) -> int:
        """Columns for the names of chips that links lead round to; 0: there are none."""
        targets = [other for wire, _, other, path in self.wires if path is Path.ROUND and not wire.is_unused]
        return longest(cell.name for cell in targets) + 1 if targets else 0

    def canvas(self) -> Canvas:
        canvas = Canvas()
        for cell in self.group.cells:
            self._box(canvas, cell)
        for wire, one, other, path in self.wires:
            is_row = one.place[0] == other.place[0]
            if path is Path.NEXT:
                (self._beside if is_row else self._below)(canvas, wire, one, other)
            elif not wire.is_unused:
                (self._round_row if is_row else self._round_column)(canvas, wire, one, other)
        return canvas

    def _corner(self, cell: Cell) -> tuple[int, int]:
        row, column = cell.place
        return bool(self.rim) + row * (self.height + 1), self.rim + column * (self.inner + 2 + self.gap)

    def _box(self, canvas: Canvas, cell: Cell) -> None:
        top, left = self._corner(cell)
        style = cell_style(self.wiring, cell)
        border = style if cell.state is not State.UP else ""
        canvas.put(top, left, f"╭{'─' * self.inner}╮", border)
        for line, text in enumerate((cell.name, self.notes[cell.key])[: self.height - 2], 1):
            canvas.put(top + line, left, "│", border)
            canvas.put(top + line, left + 1, text.center(self.inner), style)
            canvas.put(top + line, left + 1 + self.inner, "│", border)
        canvas.put(top + self.height - 1, left, f"╰{'─' * self.inner}╯", border)

    def _beside(self, canvas: Canvas, wire: Wire, one: Cell, other: Cell) -> None:
        top, left = self._corner(one)
        between = "┄" * self.gap if wire.is_unused else wire.count_text.center(self.gap, "─")
        canvas.put(top + 1, left + self.inner + 1, f"├{between}┤", wire_style(wire))

    def _below(self, canvas: Canvas, wire: Wire, one: Cell, other: Cell) -> None:
        top, left = self._corner(one)
        count = "┊" if wire.is_unused else wire.count_text
        style = wire_style(wire)
        canvas.put(top + self.height - 1, left + self.middle, "┬", style)
        canvas.put(top + self.height, left + self.middle - len(count) // 2, count, style)
        canvas.put(top + self.height + 1, left + self.middle, "┴", style)

    def _round_row(self, canvas: Canvas, wire: Wire, one: Cell, other: Cell) -> None:
        (top, left), (_, right) = self._corner(one), self._corner(other)
        style = wire_style(wire)
        canvas.put(top + 1, left - len(other.name) - 1, f"{other.name}─┤", style)
        canvas.put(top + 1, right + self.inner + 1, f"├─{one.name}", style)

    def _round_column(self, canvas: Canvas, wire: Wire, one: Cell, other: Cell) -> None:
        (top, left), (low, _) = self._corner(one), self._corner(other)
        style = wire_style(wire)
        canvas.put(top, left + self.middle, "┴", style)
        canvas.put(top - 1, left + self.middle - len(other.name) // 2, other.name, style)
        canvas.put(low + self.height - 1, left + self.middle, "┬", style)
        canvas.put(low + self.height, left + self.middle - len(one.name) // 2, one.name, style)


def _notes(wiring: Wiring) -> dict[int, str]:
    """What is written below a chip's name; in meshes of several hosts, whose chip it is."""
    notes = {key: cell.notes[0] if cell.notes else "" for key, cell in wiring.cells.items()}
    notes |= {key: cell.state.value for key, cell in wiring.cells.items() if cell.state is not State.UP}
    for group in wiring.groups:
        for block in group.blocks if len(group.blocks) > 1 else ():
            (top, left), (bottom, right) = block.place, block.end
            for row, column in itertools.product(range(top, bottom), range(left, right)):
                key = group.cell_at[row, column].key
                notes[key] = notes[key] or block.label
    return notes


def cell_style(wiring: Wiring, cell: Cell) -> str:
    if cell.state is State.DOWN:
        return _DOWN
    if cell.state is State.UNUSED:
        return _IDLE
    return f"black on {hue_wheel(len(wiring.meshes))[cell.colour]}" if cell.colour is not None else ""


def wire_style(wire: Wire) -> str:
    return _DOWN if wire.down else _IDLE if wire.is_unused else ""


def wires_in(wiring: Wiring, number: int) -> Iterator[Strand]:
    """The wires inside one group."""
    for wire in wiring.wires:
        if wiring.group_of[wire.a] == wiring.group_of[wire.b] == number:
            one, other = sorted((wiring.cells[wire.a], wiring.cells[wire.b]), key=lambda cell: cell.place)
            yield wire, one, other, wiring.path_of(wire)
