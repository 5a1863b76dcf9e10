"""What wiring pictures add to the shapes of all our pictures: cables, labels, headings, their colours."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from softmesh.report.drawing import INK, PAPER, Panel, text_width
from softmesh.report.wiring.box import Box
from softmesh.report.wiring.layout import LABEL_SIZE
from softmesh.report.wiring.picture import State

CABLE = "#4c5a68"
JOINED = "#3b6ea8"  # cables between groups
SPECIAL = "#b4540a"  # cables asked for chip by chip
BROKEN = "#c62f2f"
IDLE = "#cfd5db"
MOST_THICK = 7.0


class Pen(Panel):
    def strand(
        self, kind: str, tip: str, parts: Sequence[tuple[tuple[State, ...], str]], colour: str, thick: float
    ) -> None:
        """One element for all cables of a wire; the broken ones red and dashed, the idle ones pale."""
        strand = ElementTree.SubElement(self.element, "g", {"class": kind, "fill": "none"})
        if tip:
            ElementTree.SubElement(strand, "title").text = tip
        for lanes, path in parts:
            state = _shown_state(lanes)
            attributes = {
                "d": path,
                "stroke": {State.DOWN: BROKEN, State.UNUSED: IDLE}.get(state, colour),
                "stroke-width": f"{thick:.1f}",
            }
            if state is State.DOWN:
                attributes |= {"stroke-dasharray": "3 3", "class": "down"}
            ElementTree.SubElement(strand, "path", attributes)

    def heading(
        self, x: float, y: float, text: str, size: float, back: str, fill: str = INK, bold: bool = True
    ) -> None:
        """On a ground of its own, for cables may run below it."""
        width = text_width(text, size, mono=False, bold=bold)
        self.rectangle(x - 1, y - size * 0.85, width, size * 1.1, back, stroke="none")
        self.text(x, y, text, size, fill=fill, bold=bold, mono=False)

    def stroke(self, path: str, stroke: str) -> None:
        ElementTree.SubElement(self.element, "path", {"d": path, "stroke": stroke})

    def label(self, spot: Box, text: str, fill: str, size: float = LABEL_SIZE) -> None:
        self.rectangle(*spot, PAPER, stroke="none", radius=3, kind="label")
        x, y = spot.centre
        self.text(x, y + size * 0.35, text, size, anchor="middle", fill=fill)


def _shown_state(lanes: tuple[State, ...]) -> State:
    """Of several cables drawn as one line: one that is down must be seen."""
    for state in (State.DOWN, State.UP):
        if state in lanes:
            return state
    return State.UNUSED


def shortened(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """As much of a name as fits."""
    while text and text_width(text, size, mono=False, bold=bold) > room:
        text = text.removesuffix("…")[:-1] + "…" if len(text.removesuffix("…")) > 1 else ""
    return text
