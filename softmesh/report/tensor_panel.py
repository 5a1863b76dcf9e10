"""SVG panel of a whole tensor with its cut lines: each piece in the colour of the devices that hold it.

Two dims are drawn: the last two, or the dims that are split where those are others. Pieces apart along a
third split dim are drawn as sheets of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from softmesh.errors import ranges_text
from softmesh.mesh import MeshCoordinate
from softmesh.placement.placements import Partial
from softmesh.report.drawing import EMPTY, FADED, INK, Panel, text_width
from softmesh.report.shard_layout import Piece, PlacedTensor, Span, coordinate_text

_TALLEST = 230.0
_TALLEST_OF_MANY = 120.0
_SHORTEST = 76.0
_STRIP = 16.0  # holds a line of text
_LEFT = 40.0
_TICK = 18.0
_MOST_SHEETS = 12
_SIZE = 10.0
_EDGE_SIZE = 9.5


@dataclass(frozen=True)
class Drawn:
    """Which dims go down and across; None stands for a dim the tensor has not."""

    down: int | None
    across: int | None
    shape: tuple[int, ...]

    def extent(self, dim: int | None) -> int:
        return 1 if dim is None else max(self.shape[dim], 1)

    def size(self, room: float, tallest: float, strips: int) -> tuple[float, float]:
        """Width and height on paper: true to the extents, unless that made threads of its strips."""
        if self.across is None:
            return _SHORTEST, _SHORTEST
        width, height = self.extent(self.across), self.extent(self.down)
        scale = min(room / width, tallest / height)
        return max(width * scale, _SHORTEST), max(height * scale, _SHORTEST, min(strips * _STRIP, tallest))

    def in_words(self) -> str:
        """`dim 2 down, dim 3 across`."""
        edges = ((self.down, "down"), (self.across, "across"))
        return ", ".join(f"dim {dim} {way}" for dim, way in edges if dim is not None) or "a single value"


def drawn_dims(shape: tuple[int, ...], split_dims: tuple[int, ...]) -> Drawn:
    """
    >>> drawn_dims((8, 1, 64, 32), split_dims=(0,))
    Drawn(down=0, across=3, shape=(8, 1, 64, 32))
    """
    last_two: list[int | None] = [None, None, *range(len(shape))][-2:]
    if set(split_dims) <= set(last_two):
        return Drawn(last_two[0], last_two[1], shape)
    if len(split_dims) == 1:
        return Drawn(split_dims[0], last_two[1], shape)
    return Drawn(split_dims[-2], split_dims[-1], shape)


def drawn_of(tensor: PlacedTensor) -> Drawn:
    return drawn_dims(tensor.cutting.shape, tensor.cutting.split_dims)


def tensor_panel(tensor: PlacedTensor, fills: Mapping[MeshCoordinate, str], room: float) -> Panel:
    """Not wider than `room` and the numbers at its edges."""
    drawn = drawn_of(tensor)
    if not tensor.is_whole:
        return _no_whole()
    others = [dim for dim in tensor.cutting.split_dims if dim not in (drawn.down, drawn.across)]
    sheets: dict[tuple[Span, ...], list[Piece]] = {}
    for piece in tensor.cutting.pieces:
        sheets.setdefault(tuple(piece.spans[dim] for dim in others), []).append(piece)
    strips = len({_span(piece, drawn.down) for piece in tensor.cutting.pieces})
    size = drawn.size(room, _TALLEST if len(sheets) == 1 else _TALLEST_OF_MANY, strips)
    panel = Panel()
    for spans, pieces in list(sheets.items())[:_MOST_SHEETS]:
        title = ", ".join(f"dim {dim} = {start}:{stop}" for dim, (start, stop) in zip(others, spans, strict=True))
        sheet = _sheet(tensor, drawn, pieces, fills, title, size)
        panel.put(sheet, 0, panel.height + 12 if panel.height else 0)
    if len(sheets) > _MOST_SHEETS:
        more = f"and {len(sheets) - _MOST_SHEETS} more like these"
        panel.text(_LEFT, panel.height + 16, more, _SIZE, fill=FADED, mono=False)
    return panel


def _no_whole() -> Panel:
    panel = Panel()
    width = 250.0
    panel.rectangle(_LEFT, _TICK, width, _SHORTEST, EMPTY, dashed=True, radius=4)
    for number, line in enumerate(("no one tensor: the devices hold", "values of their own (Local)")):
        panel.text(_LEFT + width / 2, _TICK + 34 + 16 * number, line, 11, anchor="middle", fill=FADED, mono=False)
    return panel


def _sheet(
    tensor: PlacedTensor,
    drawn: Drawn,
    pieces: list[Piece],
    fills: Mapping[MeshCoordinate, str],
    title: str,
    size: tuple[float, float],
) -> Panel:
    panel = Panel()
    width, height = size
    top = _TICK
    if title:
        panel.text(_LEFT, 10, title, _SIZE, bold=True)
        top += 16
    panel.rectangle(_LEFT, top, width, height, EMPTY, stroke=INK)
    boxes = []
    for (down, across), holders in _holders(drawn, pieces).items():
        x, right = (_LEFT + width * edge / drawn.extent(drawn.across) for edge in across)
        y, bottom = (top + height * edge / drawn.extent(drawn.down) for edge in down)
        held = [coordinate for coordinate in holders if coordinate in tensor.held]
        names = _names(tensor, held) if held else None
        boxes.append(_Box(x, y, right - x, bottom - y, fills[held[0]] if held else EMPTY, names))
    _draw_boxes(panel, boxes)
    _mark_edges(panel, drawn, pieces, top, size)
    return panel


def _span(piece: Piece, dim: int | None) -> Span:
    return (0, 1) if dim is None else piece.spans[dim]


def _holders(drawn: Drawn, pieces: Iterable[Piece]) -> dict[tuple[Span, Span], list[MeshCoordinate]]:
    """Who holds each rectangle that has an area."""
    holders: dict[tuple[Span, Span], list[MeshCoordinate]] = {}
    for piece in pieces:
        down, across = _span(piece, drawn.down), _span(piece, drawn.across)
        if down[0] < down[1] and across[0] < across[1]:
            holders.setdefault((down, across), []).append(piece.coordinate)
    return holders


@dataclass(frozen=True)
class _Box:
    """A piece on paper; `names` say who holds it, in many words and in few."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    names: tuple[str, str] | None

    def fits(self, wording: int) -> bool:
        if self.names is None:
            return True
        return text_width(self.names[wording], _SIZE) + 6 <= self.width and self.height > _SIZE + 3


def _draw_boxes(panel: Panel, boxes: list[_Box]) -> None:
    """All in the same wording: the longest that fits everywhere, or none."""
    wording = next((wording for wording in (0, 1) if all(box.fits(wording) for box in boxes)), None)
    for box in boxes:
        stroke = INK if min(box.width, box.height) > 8 else box.fill
        tip = None if box.names is None else box.names[0]
        panel.rectangle(box.x, box.y, box.width, box.height, box.fill, stroke=stroke, kind="piece", tip=tip)
        if box.names is not None and wording is not None:
            middle, baseline = box.x + box.width / 2, box.y + box.height / 2 + 3.5
            panel.text(middle, baseline, box.names[wording], _SIZE, anchor="middle")


def _names(tensor: PlacedTensor, held: list[MeshCoordinate]) -> tuple[str, str]:
    ops = [word.op for word in tensor.dist.placements if isinstance(word, Partial)]
    before = f"{ops[0]} of " if ops else ""
    if tensor.device_ids:
        numbers = ranges_text([tensor.device_ids[coordinate] for coordinate in held])
        return f"{before}dev {numbers}", numbers
    if len(held) == 1:
        coordinate = coordinate_text(tuple(held[0]))
        return coordinate, coordinate
    return f"{before}{len(held)} devices", str(len(held))


def _mark_edges(panel: Panel, drawn: Drawn, pieces: list[Piece], top: float, size: tuple[float, float]) -> None:
    """The positions of the cuts, as many as do not touch."""
    width, height = size
    across = sorted({edge for piece in pieces for edge in _span(piece, drawn.across)})
    down = sorted({edge for piece in pieces for edge in _span(piece, drawn.down)})
    if drawn.across is not None:
        room = max(text_width(str(edge), _EDGE_SIZE) for edge in across) + 8
        for edge, at in _apart(across, width / drawn.extent(drawn.across), room):
            panel.text(_LEFT + at, top - 6, str(edge), _EDGE_SIZE, anchor="middle", fill=FADED)
    if drawn.down is not None:
        for edge, at in _apart(down, height / drawn.extent(drawn.down), 14):
            panel.text(_LEFT - 6, top + at + 3.5, str(edge), _EDGE_SIZE, anchor="end", fill=FADED)


def _apart(edges: list[int], scale: float, room: float) -> list[tuple[int, float]]:
    """Every edge with its position, or every second, every fourth ... so that they lie `room` apart."""
    if len(edges) == 1:  # a dim without elements
        return [(edges[0], 0.0)]
    step = 1
    while (edges[1] - edges[0]) * scale * step < room and step < len(edges):
        step *= 2
    end = edges[-1] * scale
    kept = [(edge, edge * scale) for edge in edges[:-1:step] if end - edge * scale >= room or edge == 0]
    return [*kept, (edges[-1], end)]
