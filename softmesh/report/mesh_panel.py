"""The mesh as a grid of rounded cells: a drawing of its planes, with as much text as the cells can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softmesh.placement.distribution import Extents
from softmesh.report.drawing import EMPTY, FADED, LINE, PAPER, Panel, text_width
from softmesh.report.planes import Plane, planes

_WIDEST_CELL = 176.0
_NARROWEST_CELL = 6.0
_ROOM = 640.0  # beside a tensor
_WIDE_ROOM = 940.0  # above it
_SIZE = 10.5
_LEADING = 15.0
_PADDING = 7.0
_TICK = 18.0  # room for the numbers along an edge


@dataclass(frozen=True)
class Writing:
    """The lines for one cell, each in all its forms, longest first.

    A line is left out where even its shortest form is too wide; `tip` tells all of it on hovering.
    """

    lines: tuple[tuple[tuple[str, ...], ...], ...] = ()
    tip: str | None = None


@dataclass(frozen=True)
class MeshCell:
    writing: Writing
    fill: str | None = None  # None: holds nothing


def mesh_panel(shape: Extents, cells: Sequence[MeshCell]) -> Panel:
    """The planes of the mesh, side by side and then below one another."""
    parts = planes(shape)
    columns, rows = parts[0].columns, parts[0].rows
    room = _WIDE_ROOM if columns > 6 and columns >= 3 * rows else _ROOM
    cell = _cell_size(cells, room / columns)
    panel = Panel()
    x = y = tallest = 0.0
    for plane in parts:
        part = _plane_panel(plane, cells, cell)
        if x and x + part.width > _WIDE_ROOM:
            x, y, tallest = 0.0, y + tallest + _TICK, 0.0
        panel.put(part, x, y)
        x, tallest = x + part.width + _TICK, max(tallest, part.height)
    return panel


@dataclass(frozen=True)
class _CellSize:
    width: float
    height: float
    gap: float
    forms: tuple[int | None, ...]  # which form of each line is written


def _cell_size(cells: Sequence[MeshCell], pitch: float) -> _CellSize:
    gap = 6.0 if pitch > 48 else 3.0 if pitch > 16 else 1.0
    written = [cell.writing.lines for cell in cells if cell.writing.lines]
    wanted = max(
        (text_width(text, _SIZE) for lines in written for line in lines for text in line[0]), default=0
    )
    width = max(_NARROWEST_CELL, min(_WIDEST_CELL, pitch - gap, wanted + 2 * _PADDING))
    forms = tuple(_widest_fitting(column, width) for column in zip(*written, strict=True))
    count = sum(len(written[0][line][form]) for line, form in enumerate(forms) if form is not None)
    height = 2 * _PADDING + _LEADING * count - 4 if count else width
    return _CellSize(width, max(height, min(width, 34.0)), gap, forms)


def _widest_fitting(forms_of_cells: Sequence[tuple[tuple[str, ...], ...]], width: float) -> int | None:
    """The first form of a line that fits in every cell."""
    for form in range(len(forms_of_cells[0])):
        texts = [text for forms in forms_of_cells for text in forms[form]]
        if max((text_width(text, _SIZE) for text in texts), default=0) + _PADDING <= width:
            return form
    return None


def _plane_panel(plane: Plane, cells: Sequence[MeshCell], size: _CellSize) -> Panel:
    panel = Panel()
    top = _TICK if not plane.label else 2 * _TICK
    if plane.label:
        panel.text(_TICK, 11, plane.label, 11, fill=FADED)
    _number_edges(panel, plane, size, top)
    for place in range(plane.rows * plane.columns):
        row, column = divmod(place, plane.columns)
        x = _TICK + column * (size.width + size.gap)
        y = top + row * (size.height + size.gap)
        _draw_cell(panel, cells[plane.first + place], x, y, size)
    return panel


def _number_edges(panel: Panel, plane: Plane, size: _CellSize, top: float) -> None:
    """Column numbers along the top and row numbers down the side, as many as do not touch."""
    for extent, pitch, is_row in (
        (plane.columns, size.width + size.gap, False),
        (plane.rows, size.height + size.gap, True),
    ):
        step = next(step for step in (1, 2, 4, 8, 16, 32, 64, 4096) if step * pitch >= 16)
        for number in range(0, extent, step):
            centre = (number + 0.5) * pitch - size.gap / 2
            if is_row:
                panel.text(_TICK - 5, top + centre + 3.5, str(number), 9.5, anchor="end", fill=FADED)
            else:
                panel.text(_TICK + centre, top - 5, str(number), 9.5, anchor="middle", fill=FADED)


def _draw_cell(panel: Panel, cell: MeshCell, x: float, y: float, size: _CellSize) -> None:
    panel.rectangle(
        x,
        y,
        size.width,
        size.height,
        cell.fill or EMPTY,
        stroke=LINE if size.width > 12 else PAPER,
        radius=min(7.0, size.width / 5),
        dashed=cell.fill is None,
        kind="device",
        tip=cell.writing.tip,
    )
    lines = [
        text
        for forms, chosen in zip(cell.writing.lines, size.forms, strict=False)
        if chosen is not None
        for text in forms[chosen]
    ]
    first = y + size.height / 2 - _LEADING * (len(lines) - 1) / 2 + 3.8
    for number, text in enumerate(lines):
        panel.text(
            x + size.width / 2, first + number * _LEADING, text, _SIZE, anchor="middle", bold=number == 0
        )
