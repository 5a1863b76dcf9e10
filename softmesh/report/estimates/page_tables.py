"""The tables of the page of an estimate: HTML that can be read without scripts, and sorted and searched with them."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from softmesh.cost.summaries import LineCost, OpCost, by_line, by_op, idle_times, size_text, time_text
from softmesh.cost.timeline import Estimate, TimedCommand
from softmesh.report.estimates.link_and_memory_use import memory_uses
from softmesh.report.estimates.page_colours import BOUND, IDLE
from softmesh.report.estimates.quantities import count_text, share_text
from softmesh.report.estimates.timeline_lanes import chips_text

_MOST_ROWS = 3000


class Cell(NamedTuple):
    """`value` sorts; `markup` is HTML already."""

    markup: str
    value: float | str
    is_number: bool = False
    is_plain: bool = False  # never broken into lines


def text(shown: object) -> Cell:
    return Cell(escape(str(shown)), str(shown).lower())


def code(shown: object) -> Cell:
    return Cell(f"<code>{escape(str(shown))}</code>", str(shown).lower())


def number(value: float, shown: str) -> Cell:
    return Cell(escape(shown), value, True)


def bar(value: float, most: float, shown: str, colour: str) -> Cell:
    """A number with its length behind it."""
    width = 100 * value / most if most > 0 else 0
    inside = f'<span class="bar"><i style="width:{width:.1f}%;background:{colour}"></i></span>{escape(shown)}'
    return Cell(inside, value, True)


def table(name: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], most: int = _MOST_ROWS) -> str:
    """Heads that end in `#` stand over numbers, and sort the largest first."""
    kept = list(rows)
    head = "".join(
        f'<th scope="col"{_numeric(title)}><button type="button">{escape(title.rstrip("#"))}</button></th>'
        for title in heads
    )
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>\n" for row in kept[:most])
    left = f'<p class="note">{len(kept) - most} more rows are left out here.</p>' if len(kept) > most else ""
    return (
        f'<div class="scroll"><table data-name="{escape(name)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>{left}\n"
    )


def _numeric(title: str) -> str:
    return ' class="number"' if title.endswith("#") else ""


def _cell(cell: Cell) -> str:
    kind = ' class="number"' if cell.is_number else ' class="plain"' if cell.is_plain else ""
    value = f"{cell.value:.9g}" if isinstance(cell.value, float | int) else escape(cell.value)
    return f'<td{kind} data-v="{value}">{cell.markup}</td>'


def bound_cell(bound_name: str, colour: str) -> Cell:
    return Cell(f'<span class="dot" style="background:{colour}"></span>{escape(bound_name)}', bound_name, is_plain=True)


# -- the tables -----------------------------------------------------------------------------------------------


def ops_table(estimate: Estimate) -> str:
    found = by_op(estimate)
    heads = ("op", "time#", "share#", "calls#", "band#", "bound", "work#", "DRAM#", "over links#")
    most = max([op.seconds for op in found] + [idle.seconds for idle in idle_times(estimate)], default=0.0)
    return table("ops", heads, [*(_op_row(total, most) for total in found), *_idle_rows(estimate, most, 0, 6)])


def _idle_rows(estimate: Estimate, most: float, before: int, after: int) -> Iterable[list[Cell]]:
    """Time in which no command runs, between empty cells."""
    empty = Cell("", 0)
    for idle in idle_times(estimate):
        yield [
            text(f"({idle.name})"),
            *[empty] * before,
            bar(idle.seconds, most, time_text(idle.seconds), IDLE[idle.name]),
            number(idle.share, share_text(idle.share, 1)),
            *[empty] * after,
        ]


def _op_row(total: OpCost, most: float) -> list[Cell]:
    colour = BOUND[total.bound]
    return [
        code(total.name),
        bar(total.seconds, most, time_text(total.seconds), colour),
        number(total.share, share_text(total.share, 1)),
        number(total.calls, f"{total.calls:,}"),
        _band(total.low, total.high, total.is_measured),
        bound_cell(total.bound.value, colour),
        number(total.flops, count_text(total.flops, "FLOP") if total.flops else "–"),
        number(total.dram_bytes, size_text(total.dram_bytes) if total.dram_bytes else "–"),
        number(total.link_bytes, size_text(total.link_bytes) if total.link_bytes else "–"),
    ]


def _band(low: float, high: float, is_measured: bool) -> Cell:
    """A band that no measurement stands behind says so."""
    shown = f"{time_text(low)} – {time_text(high)}"
    if is_measured:
        return Cell(escape(shown), low, True)
    return Cell(
        f'<span class="unsure" title="no measurement stands behind this band">{escape(shown)} ?</span>', low, True
    )


def lines_table(estimate: Estimate) -> str:
    found = by_line(estimate)
    heads = ("line", "source", "time#", "share#", "calls#", "bound", "ops")
    most = max([line.seconds for line in found] + [idle.seconds for idle in idle_times(estimate)], default=0.0)
    return table("lines", heads, [*(_line_row(total, most) for total in found), *_idle_rows(estimate, most, 1, 3)])


def _line_row(total: LineCost, most: float) -> list[Cell]:
    site, colour = total.site, BOUND[total.bound]
    source = linecache.getline(site.file, site.line).strip()
    where = Cell(f'<code title="{escape(site.file)}">{escape(str(site))}</code>', str(site).lower())
    return [
        where,
        Cell(f'<code class="source">{escape(source[:160])}</code>', source.lower()),
        bar(total.seconds, most, time_text(total.seconds), colour),
        number(total.share, share_text(total.share, 1)),
        number(total.calls, f"{total.calls:,}"),
        bound_cell(total.bound.value, colour),
        text(", ".join(total.ops[:4]) + (", …" if len(total.ops) > 4 else "")),
    ]


def links_table(estimate: Estimate) -> str:
    uses = sorted((use for use in estimate.links if use.bytes), key=lambda use: -use.bytes)
    if not uses:
        return '<p class="note">Nothing went over a link.</p>\n'
    rows = (
        [
            code(use.link.source),
            code(use.link.target),
            bar(use.bytes, uses[0].bytes, size_text(use.bytes), "var(--link)"),
            number(use.busy_seconds, time_text(use.busy_seconds)),
            number(use.busy_seconds / max(estimate.seconds, 1e-30), share_text(use.busy_seconds, estimate.seconds)),
            number(_rate(use.bytes, use.busy_seconds), f"{_rate(use.bytes, use.busy_seconds):.3g} GB/s"),
        ]
        for use in uses
    )
    return table("links", ("from", "to", "carried#", "in use#", "of the whole time#", "rate while in use#"), rows)


def _rate(size: int, seconds: float) -> float:
    return size / seconds / 1e9 if seconds > 0 else 0.0


def tensors_table(estimate: Estimate) -> str:
    """What took most of a bank, with the line that allocated it."""
    taken = [(use, each) for use in memory_uses(estimate) for each in use.allocations]
    taken.sort(key=lambda pair: -pair[1].bytes * pair[0].region.banks)
    rows = (
        [
            text(each.taken.label),
            text(use.region.buffer_type),
            number(each.bytes, size_text(each.bytes)),
            number(each.bytes * use.region.banks, size_text(each.bytes * use.region.banks)),
            number(each.bytes / use.region.size, share_text(each.bytes, use.region.size)),
            code(each.taken.site if each.taken.site is not None else ""),
            number(each.start, time_text(each.start)),
            number(each.end - each.start, time_text(each.end - each.start)),
        ]
        for use, each in taken
    )
    heads = ("what", "memory", "of each bank#", "of each chip#", "share of a bank#", "allocated at", "from#", "for#")
    return table("tensors", heads, rows, most=500)


def commands_table(estimate: Estimate) -> str:
    most = max((command.seconds for command in estimate.commands), default=0.0)
    rows = (_command_row(command, most) for command in estimate.commands if command.seconds > 0)
    heads = ("no.#", "op", "time#", "starts#", "band#", "bound", "where", "line", "tensors")
    return table("commands", heads, rows)


def _command_row(command: TimedCommand, most: float) -> list[Cell]:
    colour = BOUND[command.cost.bound]
    where = chips_text(command.devices) if command.devices else "host"
    shapes = " · ".join("x".join(map(str, tensor.shape)) for tensor in command.inputs)
    made = " · ".join("x".join(map(str, tensor.shape)) for tensor in command.outputs)
    replay = f" (replay of trace {command.trace})" if command.session is not None else ""
    return [
        number(command.index, str(command.index)),
        code(command.name),
        bar(command.seconds, most, time_text(command.seconds), colour),
        number(command.start, time_text(command.start)),
        _band(command.cost.low, command.cost.high, command.cost.is_measured),
        bound_cell(command.cost.bound.value, colour),
        text(f"{where}, queue {command.queue}{replay}"),
        code(command.site),
        text(f"{shapes} → {made}" if made else shapes),
    ]
