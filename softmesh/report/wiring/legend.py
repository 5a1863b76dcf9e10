"""What the marks of a wiring picture mean: only those that are in it."""

from __future__ import annotations

import textwrap

from softmesh.report.colours import tints
from softmesh.report.drawing import FADED, Panel, text_width
from softmesh.report.wiring.picture import Path, State, Wiring

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
        for line in _wrapped(text):
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
    wires = wiring.wires
    lines = []
    if wires:
        lines.append(_cables(wiring, is_small))
    if wiring.usual_bundle:
        lines.append(f"{wiring.usual_bundle} between boxes unless marked.")
    if any(wiring.path_of(wire) is Path.ROUND for wire in wires):
        names = "" if is_small else "; the number is the chip they lead to"
        lines.append(f"Stubs at a rim go round to the other end of the row or column{names}.")
    if any(wiring.path_of(wire) is Path.ACROSS and not wire.is_special for wire in wires):
        lines.append("Curves join chips that are not neighbours.")
    if any(cell.is_exit for cell in wiring.cells.values()) and not is_small:
        lines.append("A dot marks a chip with links to other boxes.")
    if any(cell.is_pinned for cell in wiring.cells.values()):
        lines.append("A dark corner marks a pinned chip.")
    states = {state for wire in (*wires, *wiring.bundles) for state in wire.lanes}
    states |= {cell.state for cell in wiring.cells.values()}
    if State.DOWN in states:
        lines.append("Red and dashed: down.")
    if State.UNUSED in states:
        lines.append("Grey: not used.")
    return lines


def _cables(wiring: Wiring, is_small: bool) -> str:
    usual = f"x{wiring.usual_lanes} between neighbours"
    if any(not wiring.is_usual(wire) and not wire.is_special for wire in wiring.wires):
        usual += " unless marked"
    return f"{usual}." if is_small else f"Each thin line is one Ethernet channel: {usual}."


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 130) or [""]
