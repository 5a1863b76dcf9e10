"""A wiring picture as a web page: the drawing, and tables of hosts or meshes, chips and links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from softmesh.report.drawing import scrolling
from softmesh.report.wiring.wiring_model import Wiring, printable
from softmesh.report.wiring.wiring_svg import wiring_svg

_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, 'Segoe UI', sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; }
svg { height: auto; }
summary { cursor: pointer; font-weight: 600; margin: 1rem 0 .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #8a95a155; padding: .2rem .9rem .2rem 0; text-align: left;
         vertical-align: top; white-space: pre-line; }
"""
_MOST_OPEN = 64  # longer tables start folded

Row = Sequence[str]


def wiring_page(wiring: Wiring) -> str:
    tables = (
        _table("Boxes", ("name", "what", "chips"), _group_rows(wiring)),
        _table("Links between boxes", ("from", "to", "channels", "each of them"), _bundle_rows(wiring)),
        _table("Chips", ("chip", "box", "row, column", "state", "more"), _chip_rows(wiring)),
        _table("Links between chips", ("from", "to", "channels", "each of them"), _wire_rows(wiring)),
    )
    remarks = "".join(f"<p>{escape(remark)}</p>\n" for remark in wiring.remarks)
    return printable(
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(wiring.title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{scrolling(wiring_svg(wiring))}\n{remarks}{''.join(tables)}</body>\n</html>\n"
    )


def _table(caption: str, heads: Row, rows: Iterable[Row]) -> str:
    lines = [_row(row, "td") for row in rows]
    if not lines:
        return ""
    is_open = " open" if len(lines) <= _MOST_OPEN else ""
    return (
        f"<details{is_open}><summary>{escape(caption)} ({len(lines)})</summary>\n<table>\n"
        f"<thead>{_row(heads, 'th')}</thead>\n<tbody>\n{''.join(lines)}</tbody></table></details>\n"
    )


def _row(cells: Row, tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"


def _group_rows(wiring: Wiring) -> Iterable[Row]:
    return ((group.name, group.caption, str(len(group.cells))) for group in wiring.groups)


def _bundle_rows(wiring: Wiring) -> Iterable[Row]:
    return (
        (wiring.side_name(bundle.a), wiring.side_name(bundle.b), bundle.label, _after_first(bundle.tip))
        for bundle in wiring.bundles
    )


def _chip_rows(wiring: Wiring) -> Iterable[Row]:
    for group in wiring.groups:
        for cell in group.cells:
            yield (
                cell.name,
                group.name,
                "{}, {}".format(*cell.place),
                cell.state.value,
                _after_first(cell.tip),
            )


def _wire_rows(wiring: Wiring) -> Iterable[Row]:
    return ((wiring.cell_name(wire.a), wiring.cell_name(wire.b), wire.label, wire.tip) for wire in wiring.wires)


def _after_first(tip: str) -> str:
    """Without its first line, which names what the row names."""
    return tip.partition("\n")[2]
