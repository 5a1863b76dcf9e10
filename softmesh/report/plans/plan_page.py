"""An explained plan as HTML: the tables beside the picture, in a notebook and as a file; light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from softmesh.planner.explanation.plan_explanation import PlanExplanation
from softmesh.report.plans.plan_svg import plan_svg

_STYLE = """
.sm-plan { font: 14px/1.45 system-ui, sans-serif; color-scheme: light dark; }
.sm-plan h2 { font-size: 1.05em; margin: 1.2em 0 .3em; }
.sm-plan table { border-collapse: collapse; }
.sm-plan .wide { overflow-x: auto; }
.sm-plan th, .sm-plan td { padding: 2px 10px 2px 0; border-bottom: 1px solid #8884; }
.sm-plan th, .sm-plan td { text-align: left; white-space: nowrap; }
.sm-plan td.number { text-align: right; font-variant-numeric: tabular-nums; }
.sm-plan tr.sent td { opacity: .75; font-style: italic; }
.sm-plan details > summary { cursor: pointer; margin: .6em 0; }
"""
_PAGE = "body { margin: 24px auto; max-width: 1100px; padding: 0 16px; } :root { color-scheme: light dark; }"
_NUMBERS = ("through a link", "time", "memory", "on each device")


def plan_html(explanation: PlanExplanation) -> str:
    """Without head and body, as a notebook shows it."""
    binding = "".join(f"<li>{escape(line.strip())}</li>" for line in explanation.binding)
    parts = [f"<p><b>{escape(explanation.title)}</b><br>{escape(explanation.subtitle)}</p>", plan_svg(explanation)]
    parts.append(f"<h2>What binds</h2><ul>{binding}</ul>")
    tables = {heading: (columns, rows) for heading, columns, rows in explanation.tables() if rows}
    for heading in ("runners-up", "one more", "tensors", "ops"):
        if heading in tables:
            parts.append(_table(heading.capitalize(), *tables[heading]))
    return f'<style>{_STYLE}</style><div class="sm-plan">{"".join(parts)}</div>'


def plan_page(explanation: PlanExplanation) -> str:
    title = escape(explanation.title)
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_PAGE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{plan_html(explanation)}</body></html>\n'


def _table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(_row(columns, row) for row in rows)
    table = f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
    return f"<details open><summary><b>{escape(heading)}</b></summary>{table}</details>"


def _row(columns: Sequence[str], row: Sequence[str]) -> str:
    cells = "".join(
        f"<td{' class=number' if name in _NUMBERS else ''}>{escape(cell)}</td>"
        for name, cell in zip(columns, row, strict=True)
    )
    return f"<tr{' class=sent' if any(cell.startswith('-> ') for cell in row) else ''}>{cells}</tr>"
