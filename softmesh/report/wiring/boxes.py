"""Chips as boxes in the terminal, with counts between them, and at the rim where a cable leads round."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property

from softmesh.report.colours import hue_wheel
from softmesh.report.wiring.canvas import Canvas, longest
from softmesh.report.wiring.picture import Cell, Path, State, Wire, Wiring

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
