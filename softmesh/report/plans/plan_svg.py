"""A plan as a picture: its ops from the top down, each with the tensors it keeps, its result and its time; the
collectives between them; above all that what the time goes into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from softmesh.distributed.plan_table import size, time
from softmesh.planner.explanation.plan_explanation import PlanExplanation, percent
from softmesh.planner.explanation.plan_rows import Laid, OpRow, Sent, placed
from softmesh.report.drawing import EMPTY, FADED, LINE, Panel, picture, text_width, titled_page
from softmesh.report.plans.cut_glyph import WIDTH, cut_glyph

_LAYER, _NAME, _KEPT, _RESULT, _BAR = 0.0, 74.0, 330.0, 442.0, 508.0  # where columns begin
_BAR_WIDTH = 240.0
_ROW, _SENT_ROW = 31.0, 19.0
_RIGHT = _BAR + _BAR_WIDTH + 70
_MOST_ROWS = 120
_WORK, _LINKS = "#c6cdd4", ("#f6b873", "#8fc1ee", "#86d3b0", "#eeaacb")


def plan_svg(explanation: PlanExplanation) -> str:
    page = titled_page(explanation.title, explanation.subtitle)
    top = 50 + _draw_parts(page, explanation, 50)
    _draw_headings(page, top)
    y, longest = top + 12, max((s for row in explanation.ops for s in _times(row)), default=1.0) or 1.0
    shown = explanation.ops[:_MOST_ROWS]
    for number, (layer, group) in enumerate(groupby(shown, key=lambda row: row.layer)):
        y = _draw_layer(page, explanation, layer, list(group), (y, number), longest)
    if len(explanation.ops) > len(shown):
        page.text(_NAME, y + 16, f"and {len(explanation.ops) - len(shown)} more ops", 12, fill=FADED, mono=False)
    return picture(page, explanation.title)


def _times(row: OpRow) -> Iterator[float]:
    yield row.seconds * row.layers
    yield from (one.seconds * row.layers for one in row.sent)


# -- what the time goes into -----------------------------------------------------------------------


def _draw_parts(page: Panel, explanation: PlanExplanation, top: float) -> float:
    """One bar of all the time and one of the memory, with a line for each part; the height of it all."""
    parts, whole = explanation.bottlenecks.parts, sum(part.seconds for part in explanation.bottlenecks.parts)
    shades = iter(("#aeb8c2", "#c6cdd4", "#dbe0e5", "#e8ebee", "#f3f5f7"))
    colours = [_LINKS[part.axis % 4] if part.axis is not None else next(shades, EMPTY) for part in parts]
    x, y = 0.0, top + 22
    for part, colour in zip(parts, colours, strict=True):
        width = _RIGHT * part.seconds / whole
        page.rectangle(x, top, width, 14, colour, stroke="#ffffff", tip=part.what)
        x += width
    shares = [f"{percent(part.seconds / whole)} {part.what}, {time(part.seconds)}" for part in parts]
    lines = list(zip(shares, colours, strict=True))
    used, room = explanation.bottlenecks.memory_bytes, explanation.bottlenecks.room_bytes
    lines.append((f"{percent(used / room)} of the memory, {size(used)} of {size(room)}", "#f1e27e"))
    for text, colour in lines:
        page.rectangle(0, y, 10, 10, colour)
        page.text(16, y + 9, text, 12, mono=False)
        y += 18
    return y - top + 16


def _draw_headings(page: Panel, y: float) -> None:
    for x, text in ((_LAYER, "layer"), (_NAME, "op"), (_KEPT, "weights"), (_RESULT, "result"), (_BAR, "time")):
        page.text(x, y, text, 12, fill=FADED, bold=True, mono=False)
    page.rectangle(0, y + 6, _RIGHT, 0.6, LINE, stroke=LINE)


# -- ops -------------------------------------------------------------------------------------------


def _draw_layer(
    page: Panel, explanation: PlanExplanation, layer: str, rows: Sequence[OpRow], at: tuple[float, int], longest: float
) -> float:
    """The rows of one layer, or of several that are alike, on ground of one shade; where the next begin."""
    y, number = at
    height = sum(_ROW + _SENT_ROW * len(row.sent) for row in rows)
    if number % 2:
        page.rectangle(-6, y, _RIGHT + 12, height, "#f7f8fa", stroke="none", radius=4)
    if layer:
        count = rows[0].layers
        page.text(_LAYER, y + 20, f"{layer}", 12, bold=True, mono=False)
        if count > 1:
            page.text(_LAYER, y + 35, f"{count} times", 11, fill=FADED, mono=False)
    for row in rows:
        for one in row.sent:
            _draw_sent(page, one, row.layers, y, longest)
            y += _SENT_ROW
        _draw_op(page, explanation.plan.mesh_shape, row, y, longest)
        y += _ROW
    return y


def _draw_op(page: Panel, mesh: Sequence[int], row: OpRow, y: float, longest: float) -> None:
    name = f"{row.op} {row.reads}".strip()
    page.text(_NAME, y + 15, _cut_to(name, 13, _KEPT - _NAME - 8), 13)
    page.text(_NAME, y + 27, _cut_to(row.placement, 10, _KEPT - _NAME - 8), 10, fill=FADED)
    for number, one in enumerate(row.kept[:2]):
        _put_glyph(page, one, mesh, _KEPT + number * (WIDTH + 6), y + 3)
    _put_glyph(page, row.result, mesh, _RESULT, y + 3)
    _draw_time(page, row.seconds * row.layers, y + 9, _WORK, longest)


def _put_glyph(page: Panel, one: Laid, mesh: Sequence[int], x: float, y: float) -> None:
    tip = f"{one.name} {'x'.join(map(str, one.shape))}: {placed(one.layout, mesh)}".strip()
    page.put(cut_glyph(one.shape, one.layout, mesh, tip), x, y)


def _draw_sent(page: Panel, one: Sent, count: int, y: float, longest: float) -> None:
    through = f", {size(one.bytes_per_link)} a link" if one.bytes_per_link else ""
    colour = _LINKS[one.axis % len(_LINKS)] if one.bytes_per_link else EMPTY
    page.rectangle(_NAME, y + 3, _BAR - _NAME - 14, _SENT_ROW - 5, colour, stroke="none", radius=7)
    page.text(_NAME + 9, y + 14, _cut_to(f"{one.what}{through}", 11, _BAR - _NAME - 30), 11)
    _draw_time(page, one.seconds * count, y + 4, colour, longest)


def _draw_time(page: Panel, seconds: float, y: float, colour: str, longest: float) -> None:
    width = max(_BAR_WIDTH * seconds / longest, 1.0)
    page.rectangle(_BAR, y, width, 11, colour, stroke="none")
    page.text(_BAR + width + 6, y + 10, time(seconds), 11, fill=FADED, mono=False)


def _cut_to(text: str, font: float, room: float) -> str:
    if text_width(text, font) <= room:
        return text
    return text[: int(room / text_width("m", font)) - 3] + "..."
