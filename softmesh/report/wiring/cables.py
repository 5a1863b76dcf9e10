"""The cables between chips: lines side by side, stubs where they go round a grid, curves across it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softmesh.report.drawing import FADED
from softmesh.report.wiring.box import Box
from softmesh.report.wiring.layout import LARGE, SMALL, Curve, Layout
from softmesh.report.wiring.pen import BROKEN, CABLE, JOINED, MOST_THICK, SPECIAL, Pen
from softmesh.report.wiring.picture import Path, State, Wire, Wiring

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
            self.pen.strand(
                "wire", wire.tip, [(wire.lanes, curve_path([self.layout.chords[number]]))], colour, thick
            )
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
