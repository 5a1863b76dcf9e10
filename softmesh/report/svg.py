"""Pictures of meshes and of the tensors on them, as SVG text: pure functions, no scripts inside."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate
from softmesh.placement.distribution import mesh_coordinates
from softmesh.placement.words import Shard
from softmesh.report.colours import shaded_tints, tints
from softmesh.report.drawing import FADED, Panel, picture, text_width
from softmesh.report.mesh_panel import MeshCell, Writing, mesh_panel
from softmesh.report.placed import PlacedTensor, placed
from softmesh.report.planes import coordinate_text, device_count, grid_text
from softmesh.report.slices import Piece
from softmesh.report.tensor_panel import drawn_of, tensor_panel
from softmesh.tensor.tensor import Tensor

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
        raise MeshError(
            f"mesh_svg: {len(ids)} ids for a mesh of {device_count(extents)} ({grid_text(extents)})."
        )
    cells = [
        MeshCell(
            Writing(_id_and_place(device_id, coordinate), _tip([f"Dev. ID: {device_id}"], coordinate)),
            _MESH_FILL,
        )
        for device_id, coordinate in zip(ids, coordinates, strict=True)
    ]
    heading = title or f"Mesh of {grid_text(extents)}"
    page = _page(heading, device_count(extents))
    page.put(mesh_panel(extents, cells), 0, 44)
    return picture(page, heading)


def _id_and_place(
    device_id: int | None, coordinate: MeshCoordinate
) -> tuple[tuple[tuple[str, ...], ...], ...]:
    ids = (
        () if device_id is None else (((f"Dev. ID: {device_id}",), (f"dev {device_id}",), (str(device_id),)),)
    )
    return *ids, ((coordinate_text(tuple(coordinate)),),)


def _tip(lines: Sequence[str], coordinate: MeshCoordinate) -> str:
    return "\n".join([*lines[:1], coordinate_text(tuple(coordinate)), *lines[1:]])


def tensor_svg(tensor: Tensor) -> str:
    """The shards of a tensor on its mesh, and the whole tensor cut into them."""
    return placed_svg(placed(tensor))


def placed_svg(tensor: PlacedTensor) -> str:
    fills = _fills(tensor)
    mesh = _under("what each device holds", mesh_panel(tensor.dist.mesh, _cells(tensor, fills)))
    page = _page(tensor.title(), tensor.summary())
    page.put(mesh, 0, _TOP)
    beside = mesh.width + _GAP + _TENSOR_ROOM <= _WIDEST
    whole = tensor_panel(tensor, fills, _TENSOR_ROOM if beside else mesh.width - _GAP)
    caption = f"the whole tensor: {drawn_of(tensor).in_words()}" if tensor.is_whole else "the whole tensor"
    x, y = (mesh.width + _GAP, _TOP) if beside else (0, page.height + _GAP)
    page.put(_under(caption, whole, indent=40), x, y)
    page.put(_legend(tensor), 0, page.height + _GAP)
    return picture(page, tensor.title())


def _page(heading: str, subheading: str) -> Panel:
    page = Panel()
    page.text(0, 13, heading, 15, bold=True, mono=False)
    page.text(0, 32, subheading, 12, fill=FADED, mono=False)
    return page


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
    return {
        piece.coordinate: shades[piece.position[hue]][piece.position[shade]]
        for piece in tensor.cutting.pieces
    }


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
    untold = tensor.untold_words()
    lines = (*_id_and_place(device_id, piece.coordinate), tuple(forms), *(((word,),) for word in untold))
    names = [] if device_id is None else [f"Dev. ID: {device_id}"]
    return Writing(lines, _tip([*names, full, *untold], piece.coordinate))


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
