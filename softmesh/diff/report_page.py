"""A comparison as a page of HTML: ops over chips, coloured by error, and the first divergence above them."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from softmesh.diff.result import OpDifference
from softmesh.mesh import MeshCoordinate

_MOST_ROWS = 2000
_STYLE = """
.sm-diff { font: 14px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; padding: 1em; }
.sm-diff pre { background: #f4f5f7; padding: .8em; overflow-x: auto; border-left: 4px solid #b4371e; }
.sm-diff pre.same { border-color: #2b7a4b; }
.sm-diff table { border-collapse: collapse; }
.sm-diff th, .sm-diff td { padding: 2px 8px; text-align: left; white-space: nowrap; }
.sm-diff td.chip { width: 14px; min-width: 14px; padding: 0; border: 1px solid #fff; }
.sm-diff tr.first { outline: 2px solid #b4371e; }
.sm-diff .scroll { overflow-x: auto; }
.sm-diff details { margin: .3em 0; }
"""


def framed(body: str, title: str) -> str:
    """With head and body."""
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body><h1>{html.escape(title)}</h1>{body}</body></html>\n'
    )


def fragment(ops: Sequence[OpDifference], first: int | None, text: str) -> str:
    """Without head and body, as a notebook shows it; `first` is the number of the op that diverges."""
    same = ' class="same"' if first is None else ""
    rows = _chosen(ops, first)
    chips = list(dict.fromkeys(coord for one in rows for coord, _ in one.errors))
    heads = "".join(f'<th title="chip {tuple(coord)}"></th>' for coord in chips)
    body = "\n".join(_row(one, chips, one.number == first) for one in rows)
    left = len(ops) - len(rows)
    more = f"<p>{left} more ops are not shown.</p>" if left else ""
    return (
        f'<style>{_STYLE}</style><div class="sm-diff"><pre{same}>{html.escape(text)}</pre>'
        f'<p>Each square is a chip: from white (exact) to red (as large as the value itself).</p><div class="scroll">'
        f"<table><thead><tr><th>op</th><th>line</th><th>module</th><th>error</th><th>may be</th><th>PCC</th>"
        f"<th>verdict</th>{heads}</tr></thead><tbody>{body}</tbody></table></div>{more}</div>"
    )


def _chosen(ops: Sequence[OpDifference], first: int | None) -> Sequence[OpDifference]:
    """Around the first divergence, where there are more than a page holds."""
    start = 0 if first is None else max(0, min(first - _MOST_ROWS // 2, len(ops) - _MOST_ROWS))
    return ops[start : start + _MOST_ROWS]


def _row(one: OpDifference, chips: list[MeshCoordinate], is_first: bool) -> str:
    figures = one.figures
    numbers = ["", "", ""] if figures is None else [f"{figures.error:.1e}", f"{one.band:.1e}", f"{figures.pcc:.5f}"]
    errors = dict(one.errors)
    cells = "".join(_cell(errors.get(chip)) for chip in chips)
    kind = ' class="first"' if is_first else ""
    texts = [one.op, f"{one.site} ({one.site.function})", one.module, *numbers, one.verdict.value]
    return f"<tr{kind}>{''.join(f'<td>{html.escape(text)}</td>' for text in texts)}{cells}</tr>"


def _cell(error: float | None) -> str:
    if error is None:
        return '<td class="chip" style="background:#e6e8eb"></td>'
    return f'<td class="chip" style="background:{_colour(error)}" title="{error:.1e}"></td>'


def _colour(error: float) -> str:
    """By order of size: 1e-7 is white, 1 is red."""
    if error <= 0:
        return "#ffffff"
    share = 1.0 if not math.isfinite(error) else min(1.0, max(0.0, (math.log10(error) + 7) / 7))
    low, high = (255, 255, 255), (180, 30, 20)
    return "#" + "".join(f"{round(a + (b - a) * share**2):02x}" for a, b in zip(low, high, strict=True))
