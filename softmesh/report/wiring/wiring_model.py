"""Data model of a wiring picture: chips and cables, before anything is placed on a page.

Groups (hosts, or the meshes of a descriptor) hold cells (chips). Wires join cells, bundles join groups.
Terminal, SVG and page all draw from these values.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

MOST_CHIPS = 4096
_MOST_LABELS = 40  # on lines between groups


_POSITION = re.compile(r"(pin )?t\d+ l\d+")  # a note of a chip
POSITIONS = "t1 l2 on a chip: tray 1, location 2 on that tray."
_UNPRINTABLE = re.compile(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """Names come from files: what neither a terminal nor an SVG may be sent is shown as a box."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


class State(Enum):
    UP = "up"
    DOWN = "down"
    UNUSED = "unused"


@dataclass(frozen=True)
class Cell:
    """One chip. `notes` are written below its name where there is room; `colour` is the number of its mesh."""

    key: int
    place: tuple[int, int]  # row, column in its group
    name: str
    notes: tuple[str, ...] = ()
    tip: str = ""
    colour: int | None = None
    state: State = State.UP
    is_pinned: bool = False
    is_exit: bool = False  # has links that leave its group


class _Lanes:
    """Cables that run side by side: one state for each."""

    lanes: tuple[State, ...]
    note: str

    @property
    def label(self) -> str:
        return f"{self.count_text} {self.note}".rstrip()

    @property
    def down(self) -> int:
        return self.lanes.count(State.DOWN)

    @property
    def count_text(self) -> str:
        """`x4`, or `x3/4` where one of the four is down."""
        total = len(self.lanes)
        return f"x{total - self.down}/{total}" if self.down else f"x{total}"

    @property
    def is_unused(self) -> bool:
        return set(self.lanes) == {State.UNUSED}


@dataclass(frozen=True)
class Wire(_Lanes):
    """All cables between two chips, given by their keys."""

    a: int
    b: int
    lanes: tuple[State, ...]
    tip: str = ""
    is_special: bool = False  # asked for chip by chip, rather than by being neighbours
    note: str = ""  # such as "Z"


@dataclass(frozen=True)
class Bundle(_Lanes):
    """All cables between two sides; a side is one group, or several that count as one."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    lanes: tuple[State, ...]
    tip: str = ""
    note: str = ""  # such as "Z"

    @property
    def is_of_sections(self) -> bool:
        return len(self.a) > 1 or len(self.b) > 1


@dataclass(frozen=True)
class Block:
    """The chips of one host inside a mesh: its first row and column, its rows and columns."""

    place: tuple[int, int]
    shape: tuple[int, int]
    label: str
    short: str

    @property
    def end(self) -> tuple[int, int]:
        """The row and column behind its last."""
        return self.place[0] + self.shape[0], self.place[1] + self.shape[1]


@dataclass(frozen=True)
class Group:
    name: str
    caption: str
    shape: tuple[int, int]
    cells: tuple[Cell, ...]
    blocks: tuple[Block, ...] = ()
    colour: int | None = None

    @cached_property
    def cell_at(self) -> dict[tuple[int, int], Cell]:
        return {cell.place: cell for cell in self.cells}


@dataclass(frozen=True)
class Section:
    """Groups that belong together: a pod."""

    name: str
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Wiring:
    title: str
    summary: str
    groups: tuple[Group, ...]
    wires: tuple[Wire, ...] = ()
    bundles: tuple[Bundle, ...] = ()
    sections: tuple[Section, ...] = ()
    meshes: tuple[str, ...] = ()  # the name of each colour
    remarks: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> dict[int, Cell]:
        return {cell.key: cell for group in self.groups for cell in group.cells}

    @cached_property
    def group_of(self) -> dict[int, int]:
        """The number of the group that each cell is in."""
        return {cell.key: number for number, group in enumerate(self.groups) for cell in group.cells}

    def has_positions(self, *states: State) -> bool:
        """Whether a chip in one of these states has its tray and location noted, in short."""
        cells = (cell for cell in self.cells.values() if cell.state in states)
        return any(_POSITION.fullmatch(note) for cell in cells for note in cell.notes)

    def groups_named(self, numbers: tuple[int, ...]) -> str:
        return ", ".join(self.groups[number].name for number in numbers)

    def side_name(self, side: tuple[int, ...]) -> str:
        """What one end of a bundle is called: a group, a section, or several groups."""
        for section in self.sections:
            if section.groups == side:
                return section.name
        return "+".join(self.groups[number].name for number in side)

    def cell_name(self, key: int) -> str:
        """A cell by a name that says its group too, where there are several."""
        group = self.groups[self.group_of[key]]
        return self.cells[key].name if len(self.groups) == 1 else f"{group.name} {self.cells[key].name}"

    @property
    def size(self) -> int:
        return sum(len(group.cells) for group in self.groups)

    @cached_property
    def usual_lanes(self) -> int:
        """How many cables most neighbours have between them."""
        counts = Counter(len(wire.lanes) for wire in self.wires if not wire.is_special)
        return counts.most_common(1)[0][0] if counts else 0

    def is_usual(self, wire: Wire) -> bool:
        return len(wire.lanes) == self.usual_lanes and not wire.down

    @cached_property
    def usual_bundle(self) -> str:
        """The label that needs no writing, where bundles are many; else none."""
        labels = Counter(bundle.label for bundle in self.bundles)
        return labels.most_common(1)[0][0] if len(self.bundles) > _MOST_LABELS else ""

    def path_of(self, wire: Wire) -> Path:
        """How a wire runs: between neighbours, round the rim of a grid, or neither."""
        one, other = self.group_of[wire.a], self.group_of[wire.b]
        if one != other:
            return Path.ACROSS
        (row, column), (row_b, column_b) = self.cells[wire.a].place, self.cells[wire.b].place
        rows, columns = self.groups[one].shape
        apart = abs(row - row_b), abs(column - column_b)
        if apart in ((0, 1), (1, 0)):
            return Path.NEXT
        return Path.ROUND if apart in ((0, columns - 1), (rows - 1, 0)) else Path.ACROSS


class Path(Enum):
    NEXT = "between neighbours"
    ROUND = "round the rim"
    ACROSS = "across"
