"""A plan as a picture: its ops from the top down, each with the tensors it keeps, its result and its time; the
collectives between them; above all that what the time goes into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from softmesh.distributed.plan_table import size, time
from softmesh.placement.placements import REPLICATE, Partial, Replicate, Shard
from softmesh.planner.explanation.plan_explanation import PlanExplanation, percent
from softmesh.planner.explanation.plan_rows import Laid, OpRow, Sent, placed
from softmesh.report.drawing import EMPTY, FADED, LINE, Panel, picture, text_width, titled_page
from softmesh.report.plans.cut_glyph import WIDTH, cut_glyph


class Columns(NamedTuple):
    """The columns of a picture. Without room for layers, each of them is a picture of its own."""

    name: float
    kept: float
    result: float
    bar: float
    bar_width: float

    @property
    def right(self) -> float:
        return self.bar + self.bar_width + 70


_WIDE = Columns(74.0, 330.0, 442.0, 508.0, 240.0)
_NARROW = Columns(0.0, 182.0, 282.0, 332.0, 36.0)  # no wider than a phone is, with no text made smaller
_ROW, _SENT_ROW, _MARGIN = 31.0, 19.0, 5.0
_MOST_ROWS = 120
_WORK, _LINKS, _MEMORY = "#c6cdd4", ("#f6b873", "#8fc1ee", "#86d3b0", "#eeaacb"), "#f1e27e"


def plan_svg(explanation: PlanExplanation) -> str:
    page = titled_page(explanation.title, explanation.subtitle)
    top = 50 + _draw_parts(page, explanation, 50, _WIDE)
    _draw_headings(page, top, _WIDE)
    y = top + 12
    shown = explanation.ops[:_MOST_ROWS]
    for number, (layer, group) in enumerate(groupby(shown, key=lambda row: row.layer)):
        y = _draw_layer(page, explanation, layer, list(group), (y, number), _WIDE)
    if len(explanation.ops) > len(shown):
        more = len(explanation.ops) - len(shown)
        page.text(_WIDE.name, y + 16, f"and {more} more ops", 12, fill=FADED, mono=False)
    return picture(page, explanation.title)


def legend_svg(explanation: PlanExplanation) -> str:
    """Draw what the time goes into and what the marks mean, for the head of a page."""
    panel = Panel()
    _draw_parts(panel, explanation, 0, _NARROW)
    return picture(panel, "legend", margin=_MARGIN)


def layer_svgs(explanation: PlanExplanation) -> Iterator[tuple[str, str]]:
    """Return, for a page, each layer's name (or that of several alike) and its ops as a narrow picture."""
    for layer, group in groupby(explanation.ops, key=lambda row: row.layer):
        rows, panel = list(group), Panel()
        _draw_headings(panel, 12, _NARROW)
        _draw_layer(panel, explanation, "", rows, (24, 0), _NARROW)
        name = f"layer {layer}" if layer and rows[0].layers < 2 else f"layers {layer}" if layer else ""
        count = f", {rows[0].layers} times" if rows[0].layers > 1 else ""
        yield f"{name}{count}", picture(panel, name or "ops outside of layers", margin=_MARGIN)


def _longest(explanation: PlanExplanation) -> float:
    return max((seconds for row in explanation.ops for seconds in _times(row)), default=1.0) or 1.0


def _times(row: OpRow) -> Iterator[float]:
    yield row.seconds * row.layers
    yield from (one.seconds * row.layers for one in row.sent)


# -- what the time goes into, and what the marks mean ----------------------------------------------


def _draw_parts(page: Panel, explanation: PlanExplanation, top: float, columns: Columns) -> float:
    """One bar of all the time and one of the memory, with a line for each part; the height of it all."""
    parts, whole = explanation.bottlenecks.parts, sum(part.seconds for part in explanation.bottlenecks.parts)
    shades = iter(("#aeb8c2", "#c6cdd4", "#dbe0e5", "#e8ebee", "#f3f5f7"))
    colours = [_LINKS[part.axis % 4] if part.axis is not None else next(shades, EMPTY) for part in parts]
    x, y = 0.0, top + 22
    for part, colour in zip(parts, colours, strict=True):
        width = columns.right * part.seconds / whole
        page.rectangle(x, top, width, 14, colour, stroke="#ffffff", tip=part.what)
        x += width
    shares = [f"{percent(part.seconds / whole)} {part.what}, {time(part.seconds)}" for part in parts]
    for text, colour in zip(shares, colours, strict=True):
        y = _draw_line(page, y, text, colour)
    used, room = explanation.bottlenecks.memory_bytes, explanation.bottlenecks.room_bytes
    page.rectangle(0, y + 4, columns.right, 14, EMPTY, stroke=LINE)
    page.rectangle(0, y + 4, max(columns.right * min(used / room, 1.0), 1.0), 14, _MEMORY, stroke="none")
    held = f"{percent(used / room)} of the memory, {size(used)} of {size(room)}"
    y = _draw_line(page, y + 26, held, _MEMORY)
    return _draw_marks(page, explanation, y + 4) - top + 16


def _draw_line(page: Panel, y: float, text: str, colour: str) -> float:
    page.rectangle(0, y, 10, 10, colour)
    page.text(16, y + 9, text, 12, mono=False)
    return y + 18


def _draw_marks(page: Panel, explanation: PlanExplanation, y: float) -> float:
    """Return the marks for tensors and moves that this plan has."""
    mesh = explanation.plan.mesh_shape
    laid = [one for row in explanation.ops for one in (*row.kept[:2], row.result)]
    words = [[word for n, word in zip(mesh, one.layout, strict=True) if n > 1] for one in laid]
    cuts = [w.dim - len(one.shape) for one, own in zip(laid, words, strict=True) for w in own if isinstance(w, Shard)]
    rest = (REPLICATE,) * (len(mesh) - 1)
    longest = max(range(len(mesh)), key=lambda axis: mesh[axis])
    marks = [
        (REPLICATE, "all of it on every device", any(all(isinstance(w, Replicate) for w in own) for own in words)),
        (Shard(2), "cut: parts of one colour lie together", any(dim >= -2 for dim in cuts)),
        (Shard(0), "cut along another dim than the last two", any(dim < -2 for dim in cuts)),
        (Partial("sum"), "contributions, not yet added up", any(isinstance(w, Partial) for own in words for w in own)),
    ]
    for word, text, is_shown in marks:
        if is_shown:
            page.put(cut_glyph((32, 32, 32), (*rest[:longest], word, *rest[longest:]), mesh, text), 0, y)
            page.text(WIDTH + 8, y + 16, text, 12, mono=False)
            y += 29
    if any(not one.bytes_per_link for row in explanation.ops for one in row.sent):
        page.rectangle(0, y + 2, WIDTH, _SENT_ROW - 5, EMPTY, stroke="none", radius=7)
        page.text(WIDTH + 8, y + 13, "moved on each chip, nothing is sent", 12, mono=False)
        y += 22
    return y


def _draw_headings(page: Panel, y: float, columns: Columns) -> None:
    for x, text in (
        *(((0.0, "layer"),) if columns.name else ()),
        *((columns.name, "op"), (columns.kept, "weights"), (columns.result, "result"), (columns.bar, "time")),
    ):
        page.text(x, y, text, 12, fill=FADED, bold=True, mono=False)
    page.rectangle(0, y + 6, columns.right, 0.6, LINE, stroke=LINE)


# -- ops -------------------------------------------------------------------------------------------


def _draw_layer(
    page: Panel,
    explanation: PlanExplanation,
    layer: str,
    rows: Sequence[OpRow],
    at: tuple[float, int],
    columns: Columns,
) -> float:
    """The rows of one layer, or of several that are alike, on ground of one shade; where the next begin."""
    y, number = at
    longest = _longest(explanation)
    height = sum(_ROW + _SENT_ROW * len(row.sent) for row in rows)
    if number % 2:
        page.rectangle(-6, y, columns.right + 12, height, "#f7f8fa", stroke="none", radius=4)
    if layer:
        count = rows[0].layers
        page.text(0, y + 20, f"{layer}", 12, bold=True, mono=False)
        if count > 1:
            page.text(0, y + 35, f"{count} times", 11, fill=FADED, mono=False)
    for row in rows:
        for one in row.sent:
            _draw_sent(page, one, row.layers, y, (columns, longest))
            y += _SENT_ROW
        _draw_op(page, explanation.plan.mesh_shape, row, y, (columns, longest))
        y += _ROW
    return y


def _draw_op(page: Panel, mesh: Sequence[int], row: OpRow, y: float, scale: tuple[Columns, float]) -> None:
    columns, _ = scale
    name, room = f"{row.op} {row.reads}".strip(), columns.kept - columns.name - 8
    page.text(columns.name, y + 15, _cut_to(name, 13, room), 13)
    page.text(columns.name, y + 27, _cut_to(row.placement, 10, room), 10, fill=FADED)
    for number, one in enumerate(row.kept[:2]):
        _put_glyph(page, one, mesh, columns.kept + number * (WIDTH + 6), y + 3)
    _put_glyph(page, row.result, mesh, columns.result, y + 3)
    _draw_time(page, row.seconds * row.layers, y + 9, _WORK, scale)


def _put_glyph(page: Panel, one: Laid, mesh: Sequence[int], x: float, y: float) -> None:
    tip = f"{one.name} {'x'.join(map(str, one.shape))}: {placed(one.layout, mesh)}".strip()
    page.put(cut_glyph(one.shape, one.layout, mesh, tip), x, y)


def _draw_sent(page: Panel, one: Sent, count: int, y: float, scale: tuple[Columns, float]) -> None:
    columns, _ = scale
    through = f", {size(one.bytes_per_link)} a link" if one.bytes_per_link else ""
    colour, room = _LINKS[one.axis % len(_LINKS)] if one.bytes_per_link else EMPTY, columns.bar - columns.name
    said = f"{one.what}{through}"
    page.rectangle(columns.name, y + 3, room - 14, _SENT_ROW - 5, colour, stroke="none", radius=7, tip=said)
    page.text(columns.name + 9, y + 14, _cut_to(said, 11, room - 30), 11)
    _draw_time(page, one.seconds * count, y + 4, colour, scale)


def _draw_time(page: Panel, seconds: float, y: float, colour: str, scale: tuple[Columns, float]) -> None:
    columns, longest = scale
    width = max(columns.bar_width * seconds / longest, 1.0)
    page.rectangle(columns.bar, y, width, 11, colour, stroke="none")
    page.text(columns.bar + width + 6, y + 10, time(seconds), 11, fill=FADED, mono=False)


def _cut_to(text: str, font: float, room: float) -> str:
    if text_width(text, font) <= room:
        return text
    return text[: int(room / text_width("m", font)) - 3] + "..."
