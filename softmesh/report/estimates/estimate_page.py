"""The page of an estimate: one HTML file without anything from outside, and the same inline in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from softmesh.cost.summaries import busy_share, by_bound, idle_times, size_text, time_text, unpriced
from softmesh.cost.timeline import Estimate
from softmesh.report.drawing import scrolling
from softmesh.report.estimates.link_and_memory_use import MemoryUse, device_count, memory_uses
from softmesh.report.estimates.link_map import link_map
from softmesh.report.estimates.memory_map import left_out, memory_map, memory_sentence
from softmesh.report.estimates.output_files import PathLike, write_file
from softmesh.report.estimates.page_colours import BOUND, IDLE
from softmesh.report.estimates.page_script import SCRIPT
from softmesh.report.estimates.page_style import STYLE
from softmesh.report.estimates.page_tables import (
    commands_table,
    lines_table,
    links_table,
    ops_table,
    tensors_table,
)
from softmesh.report.estimates.quantities import count_text, share_text
from softmesh.report.estimates.timeline_lanes import timeline_data
from softmesh.report.schedules.player_page import embedded
from softmesh.report.wiring.wiring_model import printable
from softmesh.version import __version__

_SECTIONS = (
    ("time", "Time"),
    ("timeline-part", "Timeline"),
    ("mesh", "Mesh"),
    ("memory", "Memory"),
    ("all-part", "Commands"),
)
_NOTEBOOK_HEIGHT = 780


def write_page(estimate: Estimate, path: PathLike, option: str = "-o") -> Path:
    return write_file(option, path, estimate_page(estimate))


def notebook_html(estimate: Estimate) -> str:
    """The page in a frame of its own: its style sheet reaches nothing else of the notebook."""
    page = escape(estimate_page(estimate), quote=True)
    style = f"width:100%;height:{_NOTEBOOK_HEIGHT}px;border:1px solid #8884;border-radius:10px"
    title = escape(_title(estimate), quote=True)
    return f'<iframe title="{title}" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def estimate_page(estimate: Estimate) -> str:
    title = escape(_title(estimate))
    links = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in _SECTIONS if estimate.commands)
    sections = (_time_section, _timeline_section, _mesh_section, _memory_section, _commands_section)
    parts = "".join(section(estimate) for section in (sections if estimate.commands else (_nothing_ran,)))
    return printable(
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        f'<header class="top"><h1>{title}</h1><p>{escape(_subtitle(estimate))}</p></header>\n'
        f'<nav aria-label="Sections"><div>{links}<span class="tools">'
        '<span class="note" id="found" aria-live="polite"></span>'
        '<input type="search" id="search" placeholder="Search ops, lines, tensors" aria-label="Search">'
        '<button type="button" id="theme" aria-label="Light or dark">Light / dark</button></span></div></nav>\n'
        f"<main>\n{_failure(estimate)}{''.join(_cards(estimate))}\n{parts}</main>\n"
        f"<footer>{escape(_footer(estimate))}</footer>\n"
        '<div id="tip" role="tooltip"></div>\n'
        f'<script type="application/json" id="data">{embedded(timeline_data(estimate))}</script>\n'
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _title(estimate: Estimate) -> str:
    return f"{estimate.program or 'Estimate'} on {estimate.system or 'no machine'}"


def _subtitle(estimate: Estimate) -> str:
    chips = device_count(estimate)
    shapes = ", ".join(dict.fromkeys("x".join(map(str, mesh.shape)) for mesh in estimate.meshes if mesh.parent is None))
    parts = [f"{chips} chip{'s' if chips != 1 else ''}" + (f" ({shapes})" if shapes else "")]
    parts += [f"{estimate.ranks} ranks"] if estimate.ranks > 1 else []
    parts += [estimate.fabric, f"{len(estimate.commands):,} commands", f"calibration: {estimate.calibration}"]
    parts += [] if estimate.has_values else ["shapes only"]
    return " · ".join(parts)


def _footer(estimate: Estimate) -> str:
    by = f"softmesh {__version__}, with calibration {estimate.calibration}"
    return f"Predicted by {by}. Nothing here was measured on a chip."


def _failure(estimate: Estimate) -> str:
    if not estimate.error:
        return ""
    return (
        '<section class="failed" role="alert"><h2>The program did not end by itself</h2>'
        f'<p class="lead"><code>{escape(estimate.error)}</code></p>'
        '<p class="note">What follows is what it did until then.</p></section>\n'
    )


# -- figures ------------------------------------------------------------------------------------------------------


def _cards(estimate: Estimate) -> Iterator[str]:
    low, high = estimate.band()
    yield '<div class="cards">'
    yield _card("Modelled time", time_text(estimate.seconds), f"between {time_text(low)} and {time_text(high)}")
    speed = estimate.tokens_per_second()
    if speed is not None:
        yield _card(
            "Tokens per second", f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}", "over the steps that make tokens"
        )
    if estimate.seconds:
        busy = share_text(busy_share(estimate), 1)
        yield _card("Chips busy", busy, "of the time with programs, on average over the chips")
    busiest = estimate.busiest_link()
    if busiest is not None and busiest.bytes:
        in_use = share_text(busiest.busy_seconds, estimate.seconds)
        link, carried = busiest.link, f"{size_text(busiest.bytes)}, in use {in_use} of the time"
        yield _card("Busiest link", f"{link.source.chip} → {link.target.chip}", f"{link}: {carried}")
    for use in _fullest(estimate):
        share = use.peak / use.region.size if use.region.size else 0.0
        kind = "gauge full" if share > 0.9 else "gauge"
        gauge = f'<span class="{kind}"><i style="width:{min(100, 100 * share):.1f}%"></i></span>'
        more = f"{share_text(use.peak, use.region.size)} of {size_text(use.region.size)}"
        yield _card(f"{use.region.buffer_type} at its peak, each bank", size_text(use.peak), more, gauge)
    flops = sum(command.cost.flops * len(command.devices) for command in estimate.commands)
    if flops:
        yield _card(
            "Work of all chips",
            count_text(flops, "FLOP"),
            f"{count_text(flops / max(estimate.seconds, 1e-30), 'FLOP/s')}",
        )
    yield "</div>"


def _card(what: str, figure: str, more: str, gauge: str = "") -> str:
    return (
        f'<div class="card"><div class="what">{escape(what)}</div><div class="figure">{escape(figure)}</div>'
        f'{gauge}<div class="more">{escape(more)}</div></div>'
    )


def _fullest(estimate: Estimate) -> list[MemoryUse]:
    """Of each kind of memory that of the mesh which fills it most."""
    fullest: dict[str, MemoryUse] = {}
    for use in memory_uses(estimate):
        known = fullest.get(use.region.buffer_type)
        if known is None or use.peak > known.peak:
            fullest[use.region.buffer_type] = use
    return [fullest[kind] for kind in ("DRAM", "L1") if kind in fullest]


# -- sections -----------------------------------------------------------------------------------------------------


def _time_section(estimate: Estimate) -> str:
    """Parts of the whole time: of commands by what bounds them, and of chips on which nothing runs."""
    parts = [(bound.value, seconds, BOUND[bound]) for bound, seconds in by_bound(estimate)]
    parts += [(f"no command: {idle.name}", idle.seconds, IDLE[idle.name]) for idle in idle_times(estimate)]
    whole = estimate.seconds
    stack = "".join(
        f'<i style="width:{100 * seconds / whole:.2f}%;background:{colour}" '
        f'title="{escape(name)}: {escape(time_text(seconds))}, {escape(share_text(seconds, whole))}"></i>'
        for name, seconds, colour in parts
    )
    legend = "".join(
        f'<span><span class="dot" style="background:{colour}"></span>{escape(name)} '
        f"<b>{escape(share_text(seconds, whole))}</b></span>"
        for name, seconds, colour in parts
    )
    return (
        '<section id="time"><h2>Where the time goes</h2>'
        '<p class="lead">The whole time of an average chip: commands by what they wait for most, and what the chip '
        "waits for without one. Programs that overlap on a chip share the moment, so that all shares add up to "
        f"100 %.</p>{_unpriced(estimate)}"
        f'<div class="stack" role="img" aria-label="Time by bound">{stack}</div><div class="legend">{legend}</div>\n'
        f"<h3>By op</h3>{ops_table(estimate)}<h3>By line of the program</h3>{lines_table(estimate)}</section>\n"
    )


def _unpriced(estimate: Estimate) -> str:
    names = ", ".join(f"{name} ({calls})" for name, calls in unpriced(estimate).items())
    return f'<p class="note">No price, counted as nothing: {escape(names)}.</p>' if names else ""


def _timeline_section(estimate: Estimate) -> str:
    legend = "".join(
        f'<span><span class="dot" style="background:{BOUND[bound]}"></span>{escape(bound.value)}</span>'
        for bound, _ in by_bound(estimate)
    )
    return (
        '<section id="timeline-part"><h2>Timeline</h2>'
        '<p class="lead">Each lane is a queue; chips that do the same at the same time share one. Drag to move, '
        "double-click or Ctrl + wheel to zoom; a search keeps what fits in full colour.</p>"
        '<div class="zoom"><button type="button" id="closer">Zoom in</button>'
        '<button type="button" id="farther">Zoom out</button>'
        '<button type="button" id="all">Everything</button><span class="note" id="span"></span></div>'
        '<div class="frame"><canvas id="timeline" tabindex="0" role="img" '
        'aria-label="Timeline; the table of commands below has the same"></canvas></div>'
        f'<div class="legend">{legend}</div>'
        '<noscript><p class="note">The timeline needs scripts; the table of commands below has the same.</p></noscript>'
        "</section>\n"
    )


def _nothing_ran(estimate: Estimate) -> str:
    return (
        '<section><h2>Nothing ran on a device</h2><p class="lead">The program called no op and sent no values, '
        "so there is nothing to price.</p></section>\n"
    )


def _mesh_section(estimate: Estimate) -> str:
    drawing = link_map(estimate)
    if not drawing:
        return '<section id="mesh"><h2>Mesh and links</h2><p class="note">No mesh was open.</p></section>\n'
    return (
        '<section id="mesh"><h2>Mesh and links</h2>'
        '<p class="lead">Each chip with the share of time in which it is busy with programs, and between two chips a '
        "line for each way, coloured by what its busiest link carried. A stub leads around the edge.</p>"
        f"{scrolling(drawing)}<h3>Links</h3>{links_table(estimate)}</section>\n"
    )


def _memory_section(estimate: Estimate) -> str:
    uses = memory_uses(estimate)
    parts = "".join(_memory_part(estimate, use) for use in uses) or '<p class="note">Nothing was allocated.</p>'
    table = f"<h3>Largest allocations</h3>{tensors_table(estimate)}" if uses else ""
    return (
        '<section id="memory"><h2>Memory</h2>'
        '<p class="lead">One bank over time: how much of it is held, and what lies at which address. All banks of all '
        f"chips of a mesh look the same, for allocation goes in lock-step.</p>{parts}{table}</section>\n"
    )


def _memory_part(estimate: Estimate, use: MemoryUse) -> str:
    mesh = use.mesh
    owner = f", rank {mesh.rank}" if estimate.ranks > 1 else ""
    several = len(estimate.meshes) > 1
    where = f" of mesh {mesh.mesh_id} ({'x'.join(map(str, mesh.shape))}){owner}" if several else ""
    missing = left_out(use)
    note = f'<p class="note">{missing:,} of the smallest allocations are not drawn.</p>' if missing else ""
    return (
        f'<h3>{escape(use.region.buffer_type + where)}</h3><p class="note">{escape(memory_sentence(use))}.</p>'
        f'<div class="full">{scrolling(memory_map(use, estimate.seconds))}</div>{note}'
    )


def _commands_section(estimate: Estimate) -> str:
    return (
        '<section id="all-part"><h2>Commands</h2>'
        '<p class="lead">Every command that takes time, in the order of calls.</p>'
        f"{commands_table(estimate)}</section>\n"
    )
