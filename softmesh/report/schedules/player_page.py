"""A schedule as an animated web page: sends travel along their links, slots fill, links warm up.

One file without anything from outside. Without scripts the film strip is shown instead of the player.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from itertools import product
from typing import Any
from xml.etree import ElementTree

from softmesh.collectives.schedules.link_traffic import Lane
from softmesh.report.dark_colours import dark_sheet, light_or_dark, used_colours
from softmesh.report.drawing import FADED, INK, PAPER, READABLE, picture, scrolling
from softmesh.report.schedules.device_layouts import geometry_of
from softmesh.report.schedules.film_strip import (
    BARE,
    NARROWEST,
    TRACK,
    Sketch,
    bar_colours,
    bars,
    chunk_colours,
    film_strip,
    inked,
    legend,
    subheading,
)
from softmesh.report.schedules.geometry import NAME_SIZE, Geometry
from softmesh.report.schedules.player_script import SCRIPT, STYLE
from softmesh.report.schedules.schedule_replay import ScheduleReplay, sentence, summary
from softmesh.report.wiring.wiring_model import printable

_MARGIN = 14.0
_MOST_SENTENCES = 64  # of one step


def schedule_page(replay: ScheduleReplay) -> str:
    geometry = geometry_of(replay)
    still = _static_svg(replay, geometry)
    heading = escape(replay.heading)
    return printable(
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{heading}</title><style>{_colours(replay, still)}{STYLE}</style></head>\n<body>\n"
        f"<h1>{heading}</h1>\n<p>{escape(subheading(replay))}</p>\n"
        f"{_player(replay, still)}"
        f"<details open><summary>All steps at once</summary>\n"
        f"{scrolling(picture(film_strip(replay), replay.heading))}</details>\n"
        f"{_traffic_table(replay)}"
        f'<script type="application/json" id="data">{embedded(_data(replay, geometry))}</script>\n'
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def embedded(data: Any) -> str:
    """JSON that no parser of HTML can mistake for the end of its script."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _colours(replay: ScheduleReplay, still: ElementTree.Element) -> str:
    """Those of the page, of what stands still and of what the script adds."""
    named = {"ink": INK, "faded": FADED, "paper": PAPER, "track": TRACK}
    light = "".join(f"--{name}: {colour}; " for name, colour in named.items())
    both = "".join(f"--{name}: {light_or_dark(colour)}; " for name, colour in named.items())
    tints = chunk_colours(replay)
    added = product(("fill", "stroke"), [*tints, *bar_colours(replay), *map(inked, tints), BARE])
    return (
        f"\n:root {{ {light}}}\n@supports (color: light-dark(#000, #fff)) {{\n"
        f"  :root {{ color-scheme: light dark; {both}}}\n}}\n"
        f"{dark_sheet({*used_colours(still), *added}, scope='#geometry')}"
    )


def _player(replay: ScheduleReplay, still: ElementTree.Element) -> str:
    steps = len(replay.schedule.steps)
    return (
        '<section id="player" aria-label="Player" hidden>\n'
        f"<div style='overflow-x:auto'>{ElementTree.tostring(still, encoding='unicode')}</div>\n"
        f'<div class="legend">{scrolling(picture(legend(replay, NARROWEST), "Legend"))}</div>\n'
        '<div class="controls" role="group" aria-label="Playback">'
        '<button id="back" aria-label="One step back">&#9664;&#xFE0E;</button>'
        '<button id="play" aria-label="Play">Play</button>'
        '<button id="forward" aria-label="One step forward">&#9654;&#xFE0E;</button>'
        f'<input id="slider" type="range" min="0" max="{steps}" step="1" value="0" aria-label="Step">'
        '<label>speed <select id="speed"><option value="0.5">0.5</option><option value="1" selected>1</option>'
        '<option value="2">2</option><option value="4">4</option></select></label></div>\n'
        '<p id="caption" aria-live="polite"></p>\n<ul id="sends"></ul>\n</section>\n'
    )


def _static_svg(replay: ScheduleReplay, geometry: Geometry) -> ElementTree.Element:
    """What stands still; the script adds slots, sends and the heat of the links."""
    width, height = (size + 2 * _MARGIN for size in geometry.size)
    widest, least = min(1100, max(420, 2.6 * width)), READABLE / NAME_SIZE
    root = ElementTree.Element(
        "svg",
        {
            "id": "geometry",
            "viewBox": f"{-_MARGIN:g} {-_MARGIN:g} {width:.1f} {height:.1f}",
            "role": "img",
            "aria-labelledby": "caption",
            "style": f"max-width:{widest:.0f}px;min-width:{width * least:.0f}px;min-height:{height * least:.0f}px",
        },
    )
    ElementTree.SubElement(root, "g", {"id": "heat", "fill": "none"})
    sketch = Sketch()
    sketch.devices(replay, geometry)
    root.append(sketch.element)
    for name in ("slots", "moving"):
        ElementTree.SubElement(root, "g", {"id": name})
    return root


def _data(replay: ScheduleReplay, geometry: Geometry) -> dict[str, Any]:
    lanes = sorted(geometry.arrow_paths)
    number = {lane: index for index, lane in enumerate(lanes)}
    steps = range(len(replay.schedule.steps))
    return {
        "colours": chunk_colours(replay),
        "fills": bar_colours(replay),
        "inks": [inked(colour) for colour in chunk_colours(replay)],
        "bare": BARE,
        "slots": _slot_boxes(replay, geometry),
        "boxes": [_rounded(box) for box in geometry.boxes],
        "lanes": [
            {"path": geometry.arrow_paths[lane].path, "aside": _rounded(geometry.arrow_paths[lane].aside)}
            for lane in lanes
        ],
        "most": replay.most_carried,
        "bytes": replay.piece_bytes is not None,
        "states": [_state(replay, geometry, step) for step in range(len(replay.schedule.steps) + 1)],
        "steps": [_tokens(replay, step, number) for step in steps],
        "captions": [
            "Start: nothing has been sent.",
            *(f"Step {step + 1} of {len(steps)}: {summary(replay, step)}." for step in steps),
        ],
        "sentences": [[], *(_sentences(replay, step) for step in steps)],
    }


def _sentences(replay: ScheduleReplay, step: int) -> list[str]:
    sent = replay.send_effects(step)
    lines = [sentence(replay, each) for each in sent[:_MOST_SENTENCES]]
    return lines + ([f"and {len(sent) - _MOST_SENTENCES} more"] if len(sent) > _MOST_SENTENCES else [])


def _slot_boxes(replay: ScheduleReplay, geometry: Geometry) -> list[list[float]]:
    """For each bar: x, y, width, height, number of its colour."""
    return [
        [*_rounded(geometry.slots.bar_at(slot, corner)), replay.colour(slot)]
        for device, corner in enumerate(geometry.corners)
        for slot, _, _ in bars(replay, geometry, 0, device)
    ]


def _state(replay: ScheduleReplay, geometry: Geometry, step: int) -> list[float]:
    """The filled share of each bar; negative where the value is spent."""
    return [
        round(-share if spent else share, 3)
        for device in range(replay.schedule.devices)
        for _, share, spent in bars(replay, geometry, step, device)
    ]


def _tokens(replay: ScheduleReplay, step: int, number: dict[Lane, int]) -> list[list[Any]]:
    """What travels on each lane: its number (of a device at home: -1 - device), colour, label, amount."""
    return [
        [
            -1 - lane.sender if lane.sender == lane.receiver else number[lane],
            replay.colour(sent[0].send.slot),
            replay.label([each.send.slot for each in sent]),
            replay.carried_in[step].get(lane, 0),
        ]
        for lane, sent in replay.sends_by_lane(step).items()
    ]


def _rounded(numbers: Iterable[float]) -> list[float]:
    return [round(number, 1) for number in numbers]


def _traffic_table(replay: ScheduleReplay) -> str:
    """All lanes in the order of their numbers; the script keeps the amounts up to date."""
    carried = replay.carried
    if not carried:
        return ""
    rows = "".join(
        f"<tr><td>{escape(replay.lane_name(lane))}</td>"
        f'<td><meter min="0" max="{replay.most_carried}" value="{carried[lane]}"></meter></td>'
        f'<td class="amount">{escape(replay.amount(carried[lane]))}</td></tr>\n'
        for lane in carried
    )
    is_open = " open" if len(carried) <= _MOST_SENTENCES else ""
    return (
        f"<details{is_open}><summary>What each link carries, each way ({len(carried)})</summary>\n"
        f'<table id="traffic"><thead><tr><th>link</th><th></th><th>carried</th></tr></thead>'
        f"<tbody>\n{rows}</tbody></table></details>\n"
    )
