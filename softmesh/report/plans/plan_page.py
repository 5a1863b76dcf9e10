"""An explained plan as HTML: the tables beside the picture, in a notebook and as a file; light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from softmesh.planner.explanation.plan_explanation import PlanExplanation
from softmesh.report.plans.plan_svg import layer_svgs, legend_svg

_STYLE = """
.sm-plan { font: 14px/1.45 system-ui, sans-serif; color-scheme: light dark; }
.sm-plan h1 { font-size: 1.3em; line-height: 1.25; margin: 0; }
.sm-plan h2 { font-size: 1.05em; margin: 1.4em 0 .3em; }
.sm-plan h3 { font-size: 1em; margin: 0 0 .2em; }
.sm-plan nav { display: flex; flex-wrap: wrap; gap: .1em 1em; padding: .5em 0; border-bottom: 1px solid #8886; }
.sm-plan .layers { columns: 440px; column-gap: 14px; margin-top: 1em; }
.sm-plan .layers section { break-inside: avoid; padding-bottom: 1.2em; }
.sm-plan section { scroll-margin-top: 6em; }
.sm-plan table { border-collapse: collapse; }
.sm-plan .wide { overflow-x: auto; }
.sm-plan th, .sm-plan td { padding: 2px 10px 2px 0; border-bottom: 1px solid #8884; }
.sm-plan th, .sm-plan td { text-align: left; white-space: nowrap; }
.sm-plan td.number { text-align: right; font-variant-numeric: tabular-nums; }
.sm-plan tr.sent td { opacity: .75; font-style: italic; }
.sm-plan details > summary { cursor: pointer; margin: .6em 0; }
"""
_PAGE = """
:root { color-scheme: light dark; }
body { margin: 24px auto; max-width: 1400px; padding: 0 14px; box-sizing: border-box; }
.sm-plan nav { position: sticky; top: 0; background: Canvas; z-index: 1; }
"""
_NUMBERS = ("through a link", "time", "memory", "on each device")
_TABLES = ("runners-up", "one more", "tensors", "ops")


def plan_html(explanation: PlanExplanation) -> str:
    """Without head and body, as a notebook shows it."""
    layers = list(layer_svgs(explanation))
    names = [name or ("before the layers" if not at else "after the layers") for at, (name, _) in enumerate(layers)]
    names = names if len(layers) > 1 else ["ops"]
    tables = {heading: (columns, rows) for heading, columns, rows in explanation.tables() if rows}
    shown = [heading for heading in _TABLES if heading in tables]
    links = [(f"layer-{at}", name) for at, name in enumerate(names)] + [
        (_anchor(one), f"{one} (table)") for one in shown
    ]
    nav = "".join(f'<a href="#sm-{anchor}">{escape(name)}</a>' for anchor, name in links)
    pictures = "".join(
        f'<section id="sm-layer-{at}"><h3>{escape(name.capitalize())}</h3>{svg}</section>'
        for at, (name, (_, svg)) in enumerate(zip(names, layers, strict=True))
    )
    title, subtitle = escape(explanation.title), escape(explanation.subtitle)
    parts = [f"<h1>{title}</h1><p>{subtitle}</p><nav>{nav}</nav>"]
    parts.append(f'<div class="layers"><section><h3>What binds</h3>{legend_svg(explanation)}</section>{pictures}</div>')
    parts += [_table(heading, *tables[heading]) for heading in shown]
    return f'<style>{_STYLE}</style><div class="sm-plan">{"".join(parts)}</div>'


def plan_page(explanation: PlanExplanation) -> str:
    title = escape(explanation.title)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{title}</title><style>{_PAGE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{plan_html(explanation)}</body></html>\n'


def _anchor(heading: str) -> str:
    return heading.replace(" ", "-")


def _table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(_row(columns, row) for row in rows)
    table = f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
    title = f"<summary><b>{escape(heading.capitalize())}</b></summary>"
    return f'<section id="sm-{_anchor(heading)}"><details open>{title}{table}</details></section>'


def _row(columns: Sequence[str], row: Sequence[str]) -> str:
    cells = "".join(
        f"<td{' class=number' if name in _NUMBERS else ''}>{escape(cell)}</td>"
        for name, cell in zip(columns, row, strict=True)
    )
    return f"<tr{' class=sent' if any(cell.startswith('-> ') for cell in row) else ''}>{cells}</tr>"
