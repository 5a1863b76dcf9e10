"""A comparison as a page of HTML: layers and ops over chips, coloured by error; a click shows the values behind it."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from softmesh.diff.result import OpDifference
from softmesh.diff.value_details import Detail, Spread
from softmesh.mesh import MeshCoordinate
from softmesh.progress import tracked
from softmesh.report.estimates.page_colours import PAPER, STEPS, heat
from softmesh.report.estimates.page_style import STYLE
from softmesh.report.schedules.player_page import embedded
from softmesh.report.wiring.wiring_model import printable

_MOST_ROWS = 2000
_MOST_DETAILS = 400  # ops around the first divergence whose values the page holds
_MOST_CHIP_DETAILS = 40  # ... and those of every chip
_DIGITS = 6
_STYLE = files(__package__).joinpath("report_page.css").read_text(encoding="utf-8")
_SCRIPT = files(__package__).joinpath("report_page.js").read_text(encoding="utf-8")

_PANEL = '<section class="panel" aria-live="polite"><h2>Values</h2>'
_PANEL += '<p class="note">Click an op, or the square of a chip, to see the values behind it.</p></section>'
Details = Callable[[int], Detail | None]


class Page(NamedTuple):
    """All that a page shows: ops with their figures, the report as text, and its summary as cards."""

    title: str
    ops: Sequence[OpDifference]
    first: int | None  # the number of the op that diverges
    text: str
    cards: Sequence[tuple[str, str, str]]  # name, figure, and a line below
    mesh: tuple[int, ...]


def page_html(page: Page, details: Details | None = None) -> str:
    """One file without anything from outside."""
    title = html.escape(page.title)
    cards = "".join(
        f'<div class="card"><div class="what">{html.escape(what)}</div><div class="figure">{html.escape(figure)}</div>'
        f'<div class="more">{html.escape(more)}</div></div>'
        for what, figure, more in page.cards
    )
    rows = _chosen(page.ops, page.first, _MOST_ROWS)
    is_same = page.first is None and not any(one.reason for one in page.ops)
    kind = "failed" if page.first is not None else "same" if is_same else "open"
    return printable(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}{_STYLE}</style></head>\n<body>"
        f'<header class="top"><h1>{title}</h1></header><main><div class="cards">{cards}</div>'
        f'<section class="{kind}"><pre>{html.escape(page.text)}</pre></section>{_layers(rows, page.mesh)}'
        f'<div class="columns">{_ops(page, rows)}{"" if details is None else _PANEL}</div></main>'
        f"{'' if details is None else _values(page.ops, page.first, details)}</body></html>\n"
    )


def in_notebook(page: str) -> str:
    """The page in a frame of its own: its style sheet reaches nothing else of the notebook."""
    style = "width:100%;height:780px;border:1px solid #8884;border-radius:10px"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(page, quote=True)}"></iframe>'


def _ops(page: Page, rows: Sequence[OpDifference]) -> str:
    body = "\n".join(_row(one, page.mesh, one.number == page.first) for one in rows)
    left = len(page.ops) - len(rows)
    more = f'<p class="note">{left} more ops are not shown.</p>' if left else ""
    steps = "".join(
        f"<span>{_squares([step], 1)}{words}</span>"
        for step, words in (
            (0.0, "exact"),
            *((10.0 ** (at - STEPS + 0.5), f"to 1e{at - STEPS + 1}") for at in range(STEPS)),
        )
    )
    heads = "".join(
        f"<th>{name}</th>" for name in ("op", "chips", "verdict", "error", "may be", "PCC", "line", "module")
    )
    return (
        '<section><h2>Ops</h2><p class="lead">Each square is a chip, at its place in the mesh, coloured by its '
        "relative error.</p>"
        f'<p class="legend">{steps}</p><div class="scroll"><table class="ops"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}</section>"
    )


def _chosen(ops: Sequence[OpDifference], first: int | None, most: int) -> Sequence[OpDifference]:
    """Around the first divergence, where there are more than a page holds."""
    at = next((place for place, one in enumerate(ops) if one.number == first), 0)
    start = max(0, min(at - most // 2, len(ops) - most))
    return ops[start : start + most]


def _layers(rows: Sequence[OpDifference], mesh: tuple[int, ...]) -> str:
    """The largest error of each module on each chip; none where the program names no modules."""
    worst: dict[str, dict[MeshCoordinate, float]] = {}
    for one in rows:
        if one.module:
            own = worst.setdefault(one.module, {})
            for chip, error in one.errors:
                own[chip] = max(own.get(chip, 0.0), error)
    if len(worst) < 2:
        return ""
    body = "".join(f"<tr><td>{html.escape(name)}</td><td>{_chips(own, mesh)}</td></tr>" for name, own in worst.items())
    return (
        '<section><h2>Layers</h2><div class="scroll"><table class="layers"><thead><tr><th>layer</th>'
        f"<th>chips</th></tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _row(one: OpDifference, mesh: tuple[int, ...], is_first: bool) -> str:
    figures = one.figures
    numbers = ["", "", ""] if figures is None else [f"{figures.error:.1e}", f"{one.band:.1e}", f"{figures.pcc:.5f}"]
    kind = ' class="first"' if is_first else ""
    verdict = one.verdict.value if one.reason is None else f"{one.verdict.value}: {one.reason.value}"
    cells = [f"<td><code>{html.escape(one.op)}</code></td><td>{_chips(dict(one.errors), mesh)}</td>"]
    cells += [f'<td class="verdict">{html.escape(verdict)}</td>']
    cells += [f'<td class="number">{text}</td>' for text in numbers]
    cells += [
        f'<td class="plain">{html.escape(text)}</td>' for text in (f"{one.site} ({one.site.function})", one.module)
    ]
    return f'<tr{kind} data-op="{one.number}">{"".join(cells)}</tr>'


def _chips(errors: Mapping[MeshCoordinate, float], mesh: tuple[int, ...]) -> str:
    """A square for each chip, in rows and columns as the mesh has them."""
    if not errors:
        return ""
    across = mesh[-1] if mesh and len(errors) >= mesh[-1] else len(errors)
    named = {str(tuple(chip)): error for chip, error in sorted(errors.items(), key=lambda one: tuple(one[0]))}
    return _squares(list(named.values()), across, list(named))


def _squares(errors: Sequence[float], across: int, names: Sequence[str] = ()) -> str:
    squares = "".join(
        f'<i style="background:{_colour(error)}"'
        + (f' data-chip="{names[at]}" title="{names[at]}: {error:.1e}"' if names else "")
        + "></i>"
        for at, error in enumerate(errors)
    )
    return f'<span class="chips" style="grid-template-columns:repeat({across},11px)">{squares}</span>'


def _colour(error: float) -> str:
    """By order of size, from 1e-7 on; the colour of the paper where the value is exact."""
    if error <= 0:
        return PAPER
    return heat(1.0 if not math.isfinite(error) else min(1.0, max(0.01, (math.log10(error) + STEPS) / STEPS)), 1.0)


def _values(ops: Sequence[OpDifference], first: int | None, details: Details) -> str:
    measured = [one for one in ops if one.figures is not None]
    near = {one.number for one in _chosen(measured, first, _MOST_CHIP_DETAILS)}
    kept: dict[str, object] = {}
    for one in tracked(_chosen(measured, first, _MOST_DETAILS), "collecting values"):
        found = details(one.number)
        if found is None:
            continue
        chips = found.chips if one.number in near else {}
        kept[str(one.number)] = {
            "name": f"{one.op} at {one.site}",
            "whole": _plain(found.whole),
            "chips": {str(tuple(chip)): _plain(spread) for chip, spread in chips.items()},
        }
    data = embedded({"first": first, "ops": kept})
    return f'<script type="application/json" class="sm-values">{data}</script><script>{_SCRIPT}</script>'


def _plain(spread: Spread) -> dict[str, object]:
    def short(value: float) -> object:
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)

    return {
        "low": short(spread.low),
        "high": short(spread.high),
        "ours": spread.ours,
        "theirs": spread.theirs,
        "furthest": [[where, short(ours), short(theirs)] for where, ours, theirs in spread.furthest],
    }
