"""Cables of a wiring picture as SVG: parallel lines, stubs that wrap around a grid, curves across it.

`Pen` adds cables, labels and headings, with their colours, to the shapes of all pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from softmesh.report.drawing import FADED, INK, PAPER, Box, Panel, text_width
from softmesh.report.wiring.layout import LABEL_SIZE, LARGE, SMALL, Curve, Layout
from softmesh.report.wiring.wiring_model import Path, State, Wire, Wiring

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


Segment = tuple[float, float, float, float]


class Cables:
    def __init__(self, wiring: Wiring, layout: Layout, pen: Pen) -> None:
        self.wiring = wiring
        self.layout = layout
        self.density = layout.density
        self.pen = pen

    def draw(self, number: int, wire: Wire) -> None:
        path = self.wiring.path_of(wire)
        ends = self.layout.cells[wire.a], self.layout.cells[wire.b]
        if path is Path.ACROSS:
            colour = SPECIAL if wire.is_special else JOINED
            thick = min(MOST_THICK, self.density.thick + 0.2 * len(wire.lanes))
            self.pen.strand("wire", wire.tip, [(wire.lanes, curve_path([self.layout.chords[number]]))], colour, thick)
            return
        segments = self._next(*ends) if path is Path.NEXT else self._round(*ends)
        self.pen.strand("wire", wire.tip, list(self._parallel(wire, segments)), CABLE, self._thickness(wire))
        if path is Path.NEXT:
            self._count(wire, segments[0])
        else:
            self._stub_names(wire, segments)

    def _thickness(self, wire: Wire) -> float:
        return self.density.thick if self.density.lane else min(3.0, 0.8 + 0.4 * len(wire.lanes))

    def _next(self, one: Box, other: Box) -> list[Segment]:
        first, last = sorted((one, other))
        if first.y == last.y:
            y = first.centre[1]
            return [(first.right, y, last.x, y)]
        upper, lower = sorted((one, other), key=lambda box: box.y)
        x = upper.centre[0]
        return [(x, upper.bottom, x, lower.y)]

    def _round(self, one: Box, other: Box) -> list[Segment]:
        """A stub at either end of a row or column."""
        length = self.density.rim * 0.45
        if one.y == other.y:
            first, last = sorted((one, other))
            y = first.centre[1]
            return [(first.x, y, first.x - length, y), (last.right, y, last.right + length, y)]
        upper, lower = sorted((one, other), key=lambda box: box.y)
        x = upper.centre[0]
        return [(x, upper.y, x, upper.y - length), (x, lower.bottom, x, lower.bottom + length)]

    def _parallel(self, wire: Wire, segments: Sequence[Segment]) -> Iterable[tuple[tuple[State, ...], str]]:
        """One line for each cable, or one for all where there is no room."""
        if not self.density.lane:
            yield wire.lanes, _line_path(segments)
            return
        apart = self._lane_distance(wire)
        for number, state in enumerate(wire.lanes):
            shift = (number - (len(wire.lanes) - 1) / 2) * apart
            yield (state,), _line_path([_shifted(segment, shift) for segment in segments])

    def _lane_distance(self, wire: Wire) -> float:
        return min(self.density.lane, 0.8 * self.density.cell[1] / max(len(wire.lanes), 1))

    def _count(self, wire: Wire, segment: Segment) -> None:
        if self.density is SMALL or (self.density is not LARGE and self.wiring.is_usual(wire)):
            return
        x, y, right, bottom = segment
        half = self._lane_distance(wire) * (len(wire.lanes) - 1) / 2
        size = self.density.note
        fill = BROKEN if wire.down else FADED
        text = wire.count_text if self.density is LARGE else wire.count_text.removeprefix("x")
        if y == bottom:
            self.pen.text((x + right) / 2, y - half - 3, text, size, anchor="middle", fill=fill)
        else:
            self.pen.text(x + half + 4, (y + bottom) / 2 + size * 0.35, text, size, fill=fill)

    def _stub_names(self, wire: Wire, segments: Sequence[Segment]) -> None:
        """At each stub, the chip it leads to."""
        if self.density is SMALL:
            return
        one, other = self.wiring.cells[wire.a], self.wiring.cells[wire.b]
        first, last = sorted((one, other), key=lambda cell: cell.place)
        size = self.density.note
        fill = BROKEN if wire.down else FADED
        for (_, _, x, y), target, is_first in ((segments[0], last, True), (segments[1], first, False)):
            if one.place[0] == other.place[0]:
                at, anchor = (x - 2, "end") if is_first else (x + 2, "start")
                self.pen.text(at, y + size * 0.35, target.name, size, anchor=anchor, fill=fill)
            else:
                at = y - 3 if is_first else y + size
                self.pen.text(x, at, target.name, size, anchor="middle", fill=fill)


def _shifted(segment: Segment, by: float) -> Segment:
    x, y, right, bottom = segment
    return (x, y + by, right, bottom + by) if y == bottom else (x + by, y, right + by, bottom)


def _line_path(segments: Iterable[Segment]) -> str:
    return "".join(f"M{x:.1f} {y:.1f}L{right:.1f} {bottom:.1f}" for x, y, right, bottom in segments)


def curve_path(curves: Iterable[Curve]) -> str:
    return "".join(
        "M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}".format(*curve.start, *curve.control, *curve.end)
        for curve in curves
    )
