"""The mesh of an estimate as a picture: chips in their places, and each way between two coloured by what it carried.

Neighbours are joined by two lines, one for each way. A link around the edge of the mesh is a stub at both ends; one
between chips that are not next to each other in the mesh is a bow.
"""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree

from softmesh.cost.summaries import size_text, time_text
from softmesh.cost.timeline import Estimate, MeshRecord
from softmesh.report.drawing import Panel, bare_picture
from softmesh.report.estimates.link_and_memory_use import PairUse, link_pairs
from softmesh.report.estimates.page_colours import FADED, GROUND, INK, LINE, STEPS, heat
from softmesh.report.estimates.quantities import share_text
from softmesh.report.shard_layout import planes

_WIDEST = 1080.0
_TALLEST = 640.0
_LARGEST_PITCH = 132.0
_SMALLEST_PITCH = 26.0
_LEGEND_HEIGHT = 46.0

Point = tuple[float, float]


class _Grid(NamedTuple):
    """How large chips are drawn, and how far apart."""

    pitch: float
    size: float

    @property
    def stroke(self) -> float:
        return max(1.6, min(4.5, self.pitch / 24))


def link_map(estimate: Estimate) -> str:
    """All meshes that are not part of another, one below the other; nothing where no mesh was open."""
    roots = [mesh for mesh in estimate.meshes if mesh.parent is None]
    if not roots:
        return ""
    pairs = link_pairs(estimate)
    most = max((pair.busiest_bytes for pair in pairs), default=0)
    page = Panel()
    y = 0.0
    for mesh in roots:
        if len(roots) > 1:
            page.text(0, y + 12, _title(estimate, mesh), 13, bold=True, mono=False, fill=INK)
            y += 26
        part = _mesh_panel(estimate, mesh, pairs, most)
        page.put(part, 0, y)
        y += part.height + 18
    if most:
        page.put(_legend(most), 0, y)
    return bare_picture(page, "What each link of the mesh carried", margin=4)


def _title(estimate: Estimate, mesh: MeshRecord) -> str:
    owner = f"rank {mesh.rank}: " if estimate.ranks > 1 else ""
    return f"{owner}mesh {mesh.mesh_id}, {'x'.join(map(str, mesh.shape))}"


def _mesh_panel(estimate: Estimate, mesh: MeshRecord, pairs: list[PairUse], most: int) -> Panel:
    """The planes of the mesh side by side."""
    parts = planes(mesh.shape)
    columns = sum(plane.columns for plane in parts) + len(parts) - 1
    fitting = min((_WIDEST - 60) / max(columns, 1), _TALLEST / max(parts[0].rows, 1))
    pitch = max(_SMALLEST_PITCH, min(_LARGEST_PITCH, fitting))
    grid = _Grid(pitch, pitch * 0.56)
    centres: dict[int, Point] = {}
    panel, x = Panel(), grid.pitch * 0.45
    for plane in parts:
        for place in range(plane.rows * plane.columns):
            row, column = divmod(place, plane.columns)
            device = mesh.devices[plane.first + place]
            centres[device] = x + (column + 0.5) * pitch, (row + 0.5) * pitch + grid.pitch * 0.2
        x += (plane.columns + 1) * pitch
    busy = estimate.spent.busy
    for pair in pairs:
        if pair.source in centres and pair.target in centres:
            _draw_pair(panel, pair, centres, grid, most, estimate.seconds)
    for device, centre in centres.items():
        _draw_chip(panel, mesh, device, centre, grid, busy.get((mesh.rank, device), 0.0), estimate.seconds)
    panel.width = max(panel.width, max(x for x, _ in centres.values()) + 0.95 * pitch)
    panel.height = max(y for _, y in centres.values()) + 0.7 * pitch
    return panel


def _draw_chip(
    panel: Panel, mesh: MeshRecord, device: int, centre: Point, grid: _Grid, busy: float, seconds: float
) -> None:
    x, y, half = *centre, grid.size / 2
    place = ", ".join(map(str, mesh.coordinate(device)))
    tip = f"chip {device} at ({place})\nbusy {time_text(busy)}, {share_text(busy, seconds)} of the time"
    panel.rectangle(x - half, y - half, 2 * half, 2 * half, GROUND, stroke=LINE, radius=min(6, half / 3), tip=tip)
    if grid.size >= 20:
        panel.text(x, y + 4, str(device), min(14, grid.size / 2.6), anchor="middle", fill=INK, bold=True)
    if grid.size >= 52:
        panel.text(x, y + 20, share_text(busy, seconds), 10, anchor="middle", fill=FADED, mono=False)


def _draw_pair(panel: Panel, pair: PairUse, centres: dict[int, Point], grid: _Grid, most: int, seconds: float) -> None:
    (x1, y1), (x2, y2) = centres[pair.source], centres[pair.target]
    across, down = round((x2 - x1) / grid.pitch), round((y2 - y1) / grid.pitch)
    half, aside = grid.size / 2, grid.stroke * 0.9
    if abs(across) + abs(down) == 1:
        path = _line(
            x1 + across * half, y1 + down * half, x2 - across * half, y2 - down * half, -down * aside, across * aside
        )
    elif not across or not down:
        path = _stub((x1, y1), (_sign(across), _sign(down)), grid, aside)
    else:
        path = _bow((x1, y1), (x2, y2), half)
    tip = (
        f"chip {pair.source} → chip {pair.target}\n{size_text(pair.bytes)} over {_links(pair.links)}\n"
        f"busiest: {size_text(pair.busiest_bytes)}, in use {share_text(pair.busy_seconds, seconds)} of the time"
    )
    _stroke(panel, path, heat(pair.busiest_bytes, most), grid.stroke if pair.bytes else 1.0, tip)


def _links(count: int) -> str:
    return "1 link" if count == 1 else f"{count} links"


def _line(x1: float, y1: float, x2: float, y2: float, right: float, down: float) -> str:
    return f"M{x1 + right:.1f} {y1 + down:.1f}L{x2 + right:.1f} {y2 + down:.1f}"


def _stub(start: Point, to: tuple[int, int], grid: _Grid, aside: float) -> str:
    """Out of the far side of the chip: the way to the other end of the row or column."""
    (x, y), (across, down), half = start, to, grid.size / 2
    x, y = x - across * half, y - down * half
    reach = grid.pitch * 0.2
    return _line(x, y, x - across * reach, y - down * reach, down * aside, -across * aside)


def _bow(start: Point, end: Point, half: float) -> str:
    (x1, y1), (x2, y2) = start, end
    middle = (x1 + x2) / 2 - (y2 - y1) * 0.18, (y1 + y2) / 2 + (x2 - x1) * 0.18
    ends = [_towards(start, middle, half), _towards(end, middle, half)]
    return f"M{ends[0][0]:.1f} {ends[0][1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {ends[1][0]:.1f} {ends[1][1]:.1f}"


def _towards(start: Point, end: Point, by: float) -> Point:
    across, down = end[0] - start[0], end[1] - start[1]
    length = max((across * across + down * down) ** 0.5, 1e-9)
    return start[0] + across / length * by, start[1] + down / length * by


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _stroke(panel: Panel, path: str, colour: str, width: float, tip: str) -> None:
    attributes = {"d": path, "stroke": colour, "stroke-width": f"{width:.1f}", "fill": "none", "class": "cable"}
    element = ElementTree.SubElement(panel.element, "path", attributes | {"stroke-linecap": "round"})
    ElementTree.SubElement(element, "title").text = tip


def _legend(most: int) -> Panel:
    panel = Panel()
    panel.text(0, 12, "bytes through the busiest link of a pair, one way", 11.5, mono=False, fill=FADED)
    width = 34.0
    for step in range(STEPS):
        panel.rectangle(step * width, 20, width, 9, f"var(--heat-{step})", stroke="none")
    panel.text(0, 43, "0", 10.5, fill=FADED)
    panel.text(STEPS * width, 43, size_text(most), 10.5, fill=FADED, anchor="end")
    panel.rectangle(STEPS * width + 26, 23, 26, 2, LINE, stroke="none")
    panel.text(STEPS * width + 60, 29, "not used", 11.5, mono=False, fill=FADED)
    panel.height = _LEGEND_HEIGHT
    return panel
