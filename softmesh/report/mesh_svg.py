"""Meshes and the tensors on them as SVG text: pure functions, no scripts inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import Extents, mesh_coordinates
from softmesh.placement.placements import Shard
from softmesh.report.drawing import (
    EMPTY,
    FADED,
    LINE,
    PAPER,
    Panel,
    picture,
    shaded_tints,
    text_width,
    tints,
    titled_page,
)
from softmesh.report.shard_layout import (
    Piece,
    PlacedTensor,
    Plane,
    coordinate_text,
    device_count,
    grid_text,
    placed,
    planes,
)
from softmesh.report.tensor_panel import drawn_of, tensor_panel
from softmesh.tensor.tensor import Tensor

# The mesh as a grid of rounded cells, with as much text as the cells can hold.


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
    wanted = max((text_width(text, _SIZE) for lines in written for line in lines for text in line[0]), default=0)
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
        panel.text(x + size.width / 2, first + number * _LEADING, text, _SIZE, anchor="middle", bold=number == 0)


_MESH_FILL = "#dbe7f3"
_WIDEST = 1040.0
_TENSOR_ROOM = 300.0
_GAP = 24.0
_TOP = 52.0


def mesh_svg(shape: Sequence[int], ids: Sequence[int], title: str | None = None) -> str:
    """A mesh of this shape; `ids` are its devices, row-major."""
    extents = tuple(shape)
    coordinates = mesh_coordinates(extents)
    if len(ids) != len(coordinates):
        raise MeshError(f"mesh_svg: {len(ids)} ids for a mesh of {device_count(extents)} ({grid_text(extents)}).")
    cells = [
        MeshCell(
            Writing(_id_and_place(device_id, coordinate), _tip([f"Dev. ID: {device_id}"], coordinate)),
            _MESH_FILL,
        )
        for device_id, coordinate in zip(ids, coordinates, strict=True)
    ]
    heading = title or f"Mesh of {grid_text(extents)}"
    page = titled_page(heading, device_count(extents))
    page.put(mesh_panel(extents, cells), 0, 44)
    return picture(page, heading)


def _id_and_place(device_id: int | None, coordinate: MeshCoordinate) -> tuple[tuple[tuple[str, ...], ...], ...]:
    ids = () if device_id is None else (((f"Dev. ID: {device_id}",), (f"dev {device_id}",), (str(device_id),)),)
    return *ids, ((coordinate_text(tuple(coordinate)),),)


def _tip(lines: Sequence[str], coordinate: MeshCoordinate) -> str:
    return "\n".join([*lines[:1], coordinate_text(tuple(coordinate)), *lines[1:]])


def tensor_svg(tensor: Tensor) -> str:
    """The shards of a tensor on its mesh, and the whole tensor cut into them."""
    return placed_svg(placed(tensor))


def placed_svg(tensor: PlacedTensor) -> str:
    fills = _fills(tensor)
    mesh = _under("what each device holds", mesh_panel(tensor.dist.mesh, _cells(tensor, fills)))
    page = titled_page(tensor.title(), tensor.summary())
    page.put(mesh, 0, _TOP)
    beside = mesh.width + _GAP + _TENSOR_ROOM <= _WIDEST
    whole = tensor_panel(tensor, fills, _TENSOR_ROOM if beside else mesh.width - _GAP)
    caption = f"the whole tensor: {drawn_of(tensor).in_words()}" if tensor.is_whole else "the whole tensor"
    x, y = (mesh.width + _GAP, _TOP) if beside else (0, page.height + _GAP)
    page.put(_under(caption, whole, indent=40), x, y)
    page.put(_legend(tensor), 0, page.height + _GAP)
    return picture(page, tensor.title())


def _under(caption: str, panel: Panel, indent: float = 18) -> Panel:
    captioned = Panel()
    captioned.text(indent, 10, caption, 11, bold=True, mono=False)
    captioned.put(panel, 0, 18)
    return captioned


def _fills(tensor: PlacedTensor) -> dict[MeshCoordinate, str]:
    """A colour for each slice. Where two axes cut many, one gives the hue and the other the shade."""
    groups = tensor.cutting.groups()
    count = len(set(groups.values()))
    grid = tensor.dist.grid
    cutting_axes = [axis for axis, word in enumerate(tensor.dist.placements) if isinstance(word, Shard)]
    if count <= 8 or len(cutting_axes) != 2 or not tensor.is_whole:
        colours = tints(count)
        return {coordinate: colours[group] for coordinate, group in groups.items()}
    shade, hue = sorted(cutting_axes, key=lambda axis: (grid[axis], -axis))  # more hues than shades
    shades = shaded_tints(grid[hue], grid[shade])
    return {piece.coordinate: shades[piece.position[hue]][piece.position[shade]] for piece in tensor.cutting.pieces}


def _cells(tensor: PlacedTensor, fills: dict[MeshCoordinate, str]) -> list[MeshCell]:
    cells = {
        coordinate: MeshCell(Writing((), f"{coordinate_text(tuple(coordinate))}\nholds nothing"))
        for coordinate in mesh_coordinates(tensor.dist.mesh)
    }
    for piece in tensor.cutting.pieces:
        if piece.coordinate in tensor.held:
            cells[piece.coordinate] = MeshCell(_piece_writing(tensor, piece), fills[piece.coordinate])
    return list(cells.values())


def _piece_writing(tensor: PlacedTensor, piece: Piece) -> Writing:
    device_id = tensor.device_ids.get(piece.coordinate)
    full = tensor.cutting.slice_text(piece)
    spans = [(dim, f"{piece.spans[dim][0]}:{piece.spans[dim][1]}") for dim in tensor.cutting.split_dims]
    forms = [(full,), tuple(f"d{dim} {span}" for dim, span in spans)]
    if len(spans) == 1:  # without its dim a span is clear only where there is no other
        forms.append((spans[0][1],))
    unnamed = tensor.unnamed_placements()
    lines = (*_id_and_place(device_id, piece.coordinate), tuple(forms), *(((word,),) for word in unnamed))
    names = [] if device_id is None else [f"Dev. ID: {device_id}"]
    return Writing(lines, _tip([*names, full, *unnamed], piece.coordinate))


def _legend(tensor: PlacedTensor) -> Panel:
    """What each axis of the mesh does to the tensor."""
    panel = Panel()
    rows = tensor.axes_explained()
    if not rows:
        panel.text(0, 10, "one device holds the whole tensor", 11, fill=FADED, mono=False)
        return panel
    first = max(text_width(name, 11) for name, _, _ in rows) + 14
    second = first + max(text_width(repr(word), 11) for _, word, _ in rows) + 14
    for number, (name, word, meaning) in enumerate(rows):
        y = 10 + 18 * number
        panel.text(0, y, name, 11, fill=FADED)
        panel.text(first, y, repr(word), 11, bold=True)
        panel.text(second, y, meaning, 11, fill=FADED, mono=False)
    return panel
