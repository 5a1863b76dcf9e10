"""A comparison as a page of HTML: layers and ops over chips, coloured by error; a click shows the values behind it."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Sequence
from importlib.resources import files

from softmesh.diff.result import OpDifference
from softmesh.diff.value_details import Detail, Spread
from softmesh.mesh import MeshCoordinate

_MOST_ROWS = 2000
_MOST_DETAILS = 400  # ops around the first divergence whose values the page holds
_MOST_CHIP_DETAILS = 40  # ... and those of every chip
_DIGITS = 6
_STYLE = files(__package__).joinpath("report_page.css").read_text(encoding="utf-8")
_SCRIPT = files(__package__).joinpath("report_page.js").read_text(encoding="utf-8")

Details = Callable[[int], Detail | None]


def framed(body: str, title: str) -> str:
    """With head and body."""
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body><h1>{html.escape(title)}</h1>{body}</body></html>\n'
    )


def fragment(ops: Sequence[OpDifference], first: int | None, text: str, details: Details | None = None) -> str:
    """Without head and body, as a notebook shows it; `first` is the number of the op that diverges."""
    same = ' class="same"' if first is None else ""
    rows = _chosen(ops, first, _MOST_ROWS)
    chips = list(dict.fromkeys(coord for one in rows for coord, _ in one.errors))
    heads = "".join(f'<th title="chip {tuple(coord)}"></th>' for coord in chips)
    body = "\n".join(_row(one, chips, one.number == first) for one in rows)
    left = len(ops) - len(rows)
    more = f"<p>{left} more ops are not shown.</p>" if left else ""
    shown = "" if details is None else _panel(ops, first, details)
    return (
        f'<style>{_STYLE}</style><div class="sm-diff"><pre{same}>{html.escape(text)}</pre>'
        "<p>Each square is a chip: from white (exact) to red (as large as the value itself). "
        f"Click an op or a square to see values.</p>{_layers(rows, chips, heads)}"
        f'<div class="columns"><div class="scroll"><table class="ops"><thead><tr><th>op</th><th>line</th>'
        f"<th>module</th><th>error</th><th>may be</th><th>PCC</th><th>verdict</th>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>{shown}</div>{more}</div>"
    )


def _chosen(ops: Sequence[OpDifference], first: int | None, most: int) -> Sequence[OpDifference]:
    """Around the first divergence, where there are more than a page holds."""
    at = next((place for place, one in enumerate(ops) if one.number == first), 0)
    start = max(0, min(at - most // 2, len(ops) - most))
    return ops[start : start + most]


def _layers(rows: Sequence[OpDifference], chips: list[MeshCoordinate], heads: str) -> str:
    """The largest error of each module on each chip; none where the program names no modules."""
    worst: dict[str, dict[MeshCoordinate, float]] = {}
    for one in rows:
        if one.module:
            own = worst.setdefault(one.module, {})
            for chip, error in one.errors:
                own[chip] = max(own.get(chip, 0.0), error)
    if len(worst) < 2:
        return ""
    body = "".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(_cell(own.get(chip), chip) for chip in chips)}</tr>"
        for name, own in worst.items()
    )
    return f'<table class="layers"><thead><tr><th>layer</th>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _row(one: OpDifference, chips: list[MeshCoordinate], is_first: bool) -> str:
    figures = one.figures
    numbers = ["", "", ""] if figures is None else [f"{figures.error:.1e}", f"{one.band:.1e}", f"{figures.pcc:.5f}"]
    errors = dict(one.errors)
    cells = "".join(_cell(errors.get(chip), chip) for chip in chips)
    kind = ' class="first"' if is_first else ""
    texts = [one.op, f"{one.site} ({one.site.function})", one.module, *numbers, one.verdict.value]
    texts = [f"<td>{html.escape(text)}</td>" for text in texts]
    return f'<tr{kind} data-op="{one.number}">{"".join(texts)}{cells}</tr>'


def _cell(error: float | None, chip: MeshCoordinate) -> str:
    if error is None:
        return '<td class="chip" style="background:#e6e8eb"></td>'
    name = tuple(chip)
    return f'<td class="chip" data-chip="{name}" style="background:{_colour(error)}" title="{name}: {error:.1e}"></td>'


def _colour(error: float) -> str:
    """By order of size: 1e-7 is white, 1 is red."""
    if error <= 0:
        return "#ffffff"
    share = 1.0 if not math.isfinite(error) else min(1.0, max(0.0, (math.log10(error) + 7) / 7))
    low, high = (255, 255, 255), (180, 30, 20)
    return "#" + "".join(f"{round(a + (b - a) * share**2):02x}" for a, b in zip(low, high, strict=True))


def _panel(ops: Sequence[OpDifference], first: int | None, details: Details) -> str:
    measured = [one for one in ops if one.figures is not None]
    near = {one.number for one in _chosen(measured, first, _MOST_CHIP_DETAILS)}
    kept: dict[str, object] = {}
    for one in _chosen(measured, first, _MOST_DETAILS):
        found = details(one.number)
        if found is None:
            continue
        chips = found.chips if one.number in near else {}
        kept[str(one.number)] = {
            "name": f"{one.op} at {one.site}",
            "whole": _plain(found.whole),
            "chips": {str(tuple(chip)): _plain(spread) for chip, spread in chips.items()},
        }
    data = json.dumps({"first": first, "ops": kept}, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div class="panel" aria-live="polite"></div></div><script type="application/json" class="sm-values">{data}'
        f"</script><script>{_SCRIPT}</script><div>"
    )


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
