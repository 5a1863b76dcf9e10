"""A wiring picture as SVG text, with its legend: boxes, then cables, then chips on top, then labels."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from xml.etree import ElementTree

from softmesh.report.drawing import (
    EMPTY,
    FADED,
    INK,
    LINE,
    Box,
    Panel,
    picture,
    text_width,
    tints,
    titled_page,
)
from softmesh.report.wiring.cable_shapes import (
    BROKEN,
    JOINED,
    MOST_THICK,
    SPECIAL,
    Cables,
    Pen,
    curve_path,
    shortened,
)
from softmesh.report.wiring.layout import LARGE, SMALL, Curve, Layout, laid_out
from softmesh.report.wiring.wiring_model import POSITIONS, Block, Bundle, Cell, Group, Path, State, Wiring, printable

CHIP = "#dbe7f3"
SMALL_CHIP = "#b4cce6"  # small cells carry no text, so they may be darker
SMALL_BLANK = "#e0e5ea"
_GROUP_FILL = "#fafbfc"
_SECTION_FILL = "#f1f4f8"
_TOP = 48.0


def wiring_svg(wiring: Wiring) -> str:
    return printable(picture(wiring_panel(wiring), wiring.title))


def wiring_panel(wiring: Wiring) -> Panel:
    layout = laid_out(wiring)
    summary = " · ".join(filter(None, (wiring.summary, layout.caption and f"each {layout.caption}")))
    page = titled_page(wiring.title, summary)
    drawing = _Drawing(wiring, layout).panel()
    page.put(drawing, -layout.extent.x, _TOP - layout.extent.y)
    page.width = max(page.width, layout.extent.width)  # the origin of the drawing is not its corner
    page.height = _TOP + layout.extent.height
    page.put(legend_panel(wiring, layout.density is SMALL), 0, page.height + 18)
    return page


class _Drawing:
    def __init__(self, wiring: Wiring, layout: Layout) -> None:
        self.wiring = wiring
        self.layout = layout
        self.density = layout.density
        self.fills = tints(len(wiring.meshes))
        self.pen = Pen()

    def panel(self) -> Panel:
        pairs = list(zip(self.wiring.bundles, self.layout.bundles, strict=True))
        sections = list(zip(self.wiring.sections, self.layout.sections, strict=True))
        self._bundles((bundle, curve) for bundle, curve in pairs if bundle.is_of_sections)
        for section, box in sections:
            self._box(box, _SECTION_FILL, "section", section.name, radius=12)
        self._bundles((bundle, curve) for bundle, curve in pairs if not bundle.is_of_sections)
        for section, box in sections:
            self.pen.heading(box.x + 14, box.y + 18, section.name, 12, _SECTION_FILL, FADED)
        groups = list(zip(self.wiring.groups, self.layout.groups, strict=True))
        for group, box in groups:
            self._group(group, box)
        cables = Cables(self.wiring, self.layout, self.pen)
        for number, wire in enumerate(self.wiring.wires):
            cables.draw(number, wire)
        for group, box in groups:
            self._group_text(group, box)
        for cell in self.wiring.cells.values():
            self._cell(cell, self.layout.cells[cell.key])
        for bundle, spot in zip(self.wiring.bundles, self.layout.labels, strict=True):
            if spot is not None:
                self.pen.label(spot, bundle.label, BROKEN if bundle.down else JOINED)
        for number, spot in self.layout.chord_labels.items():
            self.pen.label(spot, self.wiring.wires[number].label, SPECIAL)
        return self.pen

    def _bundles(self, bundles: Iterable[tuple[Bundle, Curve]]) -> None:
        share = 0.5 if self.wiring.usual_bundle else 1  # many lines are thin lines
        for bundle, curve in bundles:
            thick = min(MOST_THICK, 1.2 + 0.5 * len(bundle.lanes)) * share
            self.pen.strand("bundle", bundle.tip, [(bundle.lanes, curve_path([curve]))], JOINED, thick)

    def _box(self, box: Box, fill: str, kind: str, tip: str, radius: float = 8) -> None:
        self.pen.rectangle(*box, fill, stroke=LINE, radius=radius, kind=kind, tip=tip)

    def _group(self, group: Group, box: Box) -> None:
        self._box(box, _GROUP_FILL, "group", f"{group.name}\n{group.caption}")
        self._blocks(group)
        if not self.density.text:
            self._numbers(group)

    def _group_text(self, group: Group, box: Box) -> None:
        size, room = self.density.title, box.width - 14
        left, y = box.x + 9, box.y + size + 5
        if group.colour is not None and self.fills:
            self.pen.rectangle(left, y - size + 2, size - 2, size - 2, self.fills[group.colour], radius=2)
            left, room = left + size + 3, room - size - 3
        self.pen.heading(left, y, shortened(group.name, size, room, bold=True), size, _GROUP_FILL)
        if not self.layout.caption:
            caption = shortened(group.caption, size - 2.5, box.width - 14)
            self.pen.heading(box.x + 9, y + size + 1, caption, size - 2.5, _GROUP_FILL, FADED, bold=False)

    def _blocks(self, group: Group) -> None:
        reach = 7.0 if self.density is LARGE else 3.5 if self.density.text else 1.5
        for block in group.blocks:
            (row, column), (rows, columns) = block.place, block.shape
            first = self.layout.cells[group.cell_at[row, column].key]
            last = self.layout.cells[group.cell_at[row + rows - 1, column + columns - 1].key]
            box = Box(first.x, first.y, last.right - first.x, last.bottom - first.y).grown(reach)
            self.pen.rectangle(*box, "none", stroke=FADED, radius=reach, dashed=True, kind="block", tip=block.label)
            self._block_label(block, first, box)

    def _block_label(self, block: Block, first: Box, box: Box) -> None:
        """On the upper edge of its box, beside the cables that cross it."""
        size = self.density.note
        if not size:
            return
        left = first.centre[0] + self.density.lane * 2 + 3
        label = block.label if text_width(block.label, size) + left < box.right else block.short
        self.pen.label(Box(left, box.y - size * 0.6, text_width(label, size) + 4, size * 1.2), label, INK, size)

    def _numbers(self, group: Group) -> None:
        """Rows and columns along two edges, for cells that carry no text."""
        step = 4 if max(group.shape) > 8 else 1
        for axis, extent in enumerate(group.shape):
            for number in range(0, extent, step):
                place = (number, 0) if axis == 0 else (0, number)
                if place not in group.cell_at:
                    continue
                box = self.layout.cells[group.cell_at[place].key]
                x, y = box.centre
                if axis == 0:
                    self.pen.text(box.x - 10, y + 3, str(number), 8.5, anchor="end", fill=FADED)
                else:
                    self.pen.text(x, box.y - 10, str(number), 8.5, anchor="middle", fill=FADED)

    def _cell(self, cell: Cell, box: Box) -> None:
        is_down = cell.state is State.DOWN
        blank, chip = (EMPTY, CHIP) if self.density.text else (SMALL_BLANK, SMALL_CHIP)
        fill = chip if cell.state is State.UP else blank
        if cell.state is State.UP and cell.colour is not None:
            fill = self.fills[cell.colour]
        self.pen.rectangle(
            *box,
            fill,
            stroke=BROKEN if is_down else LINE if self.density.text else "none",
            radius=min(7.0, box.width / 5),
            dashed=is_down,
            kind="chip down" if is_down else "chip",
            tip=cell.tip,
        )
        if is_down:
            self.pen.stroke(f"M{box.x:.1f} {box.y:.1f}L{box.right:.1f} {box.bottom:.1f}", BROKEN)
        self._marks(cell, box)
        if self.density.text:
            self._cell_text(cell, box)

    def _cell_text(self, cell: Cell, box: Box) -> None:
        lines = [(cell.name, self.density.text)]
        note = cell.notes[0] if cell.notes and (self.density is LARGE or cell.colour is not None) else ""
        if note and text_width(note, self.density.note) <= box.width - 3:
            lines.append((note, self.density.note))
        fill = {State.UP: INK, State.DOWN: BROKEN, State.UNUSED: FADED}[cell.state]
        leading = self.density.note + 3
        y = box.centre[1] + self.density.text * 0.36 - leading * (len(lines) - 1) / 2
        for number, (text, size) in enumerate(lines):
            ink = fill if number == 0 else FADED if cell.colour is None else INK
            self.pen.text(box.centre[0], y + number * leading, text, size, anchor="middle", fill=ink, bold=number == 0)

    def _marks(self, cell: Cell, box: Box) -> None:
        size = 8.0 if self.density is LARGE else 5.0 if self.density.text else 3.5
        if cell.is_pinned:
            corner = f"M{box.x + 1:.1f} {box.y + 1:.1f}h{size}l{-size} {size}z"
            ElementTree.SubElement(self.pen.element, "path", {"d": corner, "fill": INK, "class": "pin"})
        if cell.is_exit and self.density.text:
            dot = {"cx": f"{box.right - 0.85 * size:.1f}", "cy": f"{box.y + 0.85 * size:.1f}"}
            dot["r"] = f"{0.3 * size:.1f}"
            ElementTree.SubElement(self.pen.element, "circle", {**dot, "fill": JOINED, "class": "exit"})


# The legend: only the marks that are in the picture.


_SIZE = 11.0
_WIDEST = 760.0
_MOST_COLOURS = 24
_LONGEST_NAME = 60


def legend_panel(wiring: Wiring, is_small: bool) -> Panel:
    panel = Panel()
    y = 10.0
    if wiring.meshes and any(group.colour is None for group in wiring.groups):
        y = _colours(panel, wiring, y)
    for text in (*legend_lines(wiring, is_small), *wiring.remarks):
        for line in textwrap.wrap(text, 130) or [""]:
            panel.text(0, y, line, _SIZE, fill=FADED, mono=False)
            y += 16
    return panel


def _colours(panel: Panel, wiring: Wiring, y: float) -> float:
    """A swatch for each mesh that is drawn onto chips."""
    x = 0.0
    for name, fill in list(zip(wiring.meshes, tints(len(wiring.meshes)), strict=True))[:_MOST_COLOURS]:
        name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        width = text_width(name, _SIZE, mono=False) + 34
        if x and x + width > _WIDEST:
            x, y = 0.0, y + 18
        panel.rectangle(x, y - 9.5, 12, 12, fill, radius=3)
        panel.text(x + 17, y, name, _SIZE, mono=False)
        x += width
    return y + 20


def legend_lines(wiring: Wiring, is_small: bool = False) -> list[str]:
    wires, cells = wiring.wires, wiring.cells.values()
    names = "" if is_small else "; the number is the chip it leads to"
    wraps = f"A stub at the edge wraps around to the other end of its row or column{names}."
    states = {state for wire in (*wires, *wiring.bundles) for state in wire.lanes} | {cell.state for cell in cells}
    paths = {(wiring.path_of(wire), wire.is_special) for wire in wires}
    lines = {
        _cables(wiring, is_small) if wires else "": bool(wires),
        f"{wiring.usual_bundle} between boxes unless marked.": bool(wiring.usual_bundle),
        wraps: Path.ROUND in {at for at, _ in paths},
        "Curves join chips that are not neighbours.": (Path.ACROSS, False) in paths,
        POSITIONS: wiring.has_positions(*State) and not is_small,
        "A dot marks a chip with links to other boxes.": not is_small and any(cell.is_exit for cell in cells),
        "A dark corner marks a pinned chip.": any(cell.is_pinned for cell in cells),
        "Red and dashed: down.": State.DOWN in states,
        "Grey: not used.": State.UNUSED in states,
    }
    return [line for line, applies in lines.items() if applies]


def _cables(wiring: Wiring, is_small: bool) -> str:
    usual = f"x{wiring.usual_lanes} between neighbours"
    if any(not wiring.is_usual(wire) and not wire.is_special for wire in wiring.wires):
        usual += " unless marked"
    return f"{usual}." if is_small else f"Each thin line is one Ethernet channel: {usual}."
