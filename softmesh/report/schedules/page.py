"""A collective as a web page that plays: sends travel along their links, slots fill, links warm up.

One file without anything from outside. Without scripts the film strip is shown instead of the player.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any
from xml.etree import ElementTree

from softmesh.collectives.traffic import Lane
from softmesh.report.drawing import Panel, picture
from softmesh.report.schedules.player import SCRIPT, STYLE
from softmesh.report.schedules.sketch import BARE, Sketch, bars, chunk_colours, inked
from softmesh.report.schedules.stage import Stage
from softmesh.report.schedules.staging import staged
from softmesh.report.schedules.story import Story, Told
from softmesh.report.schedules.svg import film_strip, legend, subheading
from softmesh.report.schedules.words import sentence, summary
from softmesh.report.wiring.picture import printable

_MARGIN = 14.0
_MOST_SENTENCES = 64  # of one step


def schedule_page(story: Story) -> str:
    stage = staged(story)
    heading = escape(story.heading)
    return printable(
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{heading}</title><style>{STYLE}</style></head>\n<body>\n"
        f"<h1>{heading}</h1>\n<p>{escape(subheading(story))}</p>\n"
        f"{_player(story, stage)}"
        f'<div class="legend">{_picture(legend(story), "Legend")}</div>\n'
        f"<details open><summary>All steps at once</summary>\n"
        f"{_picture(film_strip(story), story.heading)}</details>\n"
        f"{_traffic_table(story)}"
        f'<script type="application/json" id="data">{embedded(_data(story, stage))}</script>\n'
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def embedded(data: Any) -> str:
    """JSON that no parser of HTML can mistake for the end of its script."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _picture(panel: Panel, description: str) -> str:
    return picture(panel, description)


def _player(story: Story, stage: Stage) -> str:
    steps = len(story.schedule.steps)
    return (
        '<section id="player" aria-label="Player" hidden>\n'
        f"{_stage_svg(story, stage)}\n"
        '<div class="controls" role="group" aria-label="Playback">'
        '<button id="back" aria-label="One step back">&#9664;&#xFE0E;</button>'
        '<button id="play" aria-label="Play">Play</button>'
        '<button id="forward" aria-label="One step forward">&#9654;&#xFE0E;</button>'
        f'<input id="slider" type="range" min="0" max="{steps}" step="1" value="0" aria-label="Step">'
        '<label>speed <select id="speed"><option value="0.5">0.5</option><option value="1" selected>1</option>'
        '<option value="2">2</option><option value="4">4</option></select></label></div>\n'
        '<p id="caption" aria-live="polite"></p>\n<ul id="sends"></ul>\n</section>\n'
    )


def _stage_svg(story: Story, stage: Stage) -> str:
    """What stands still; the script adds slots, sends and the heat of the links."""
    width, height = (size + 2 * _MARGIN for size in stage.size)
    root = ElementTree.Element(
        "svg",
        {
            "id": "stage",
            "viewBox": f"{-_MARGIN:g} {-_MARGIN:g} {width:.1f} {height:.1f}",
            "role": "img",
            "aria-labelledby": "caption",
            "style": f"max-width:{min(1100, max(420, 2.6 * width)):.0f}px",
        },
    )
    ElementTree.SubElement(root, "g", {"id": "heat", "fill": "none"})
    sketch = Sketch()
    sketch.devices(story, stage)
    root.append(sketch.element)
    for name in ("slots", "moving"):
        ElementTree.SubElement(root, "g", {"id": name})
    return ElementTree.tostring(root, encoding="unicode")


def _data(story: Story, stage: Stage) -> dict[str, Any]:
    lanes = sorted(stage.ways)
    number = {lane: index for index, lane in enumerate(lanes)}
    steps = range(len(story.schedule.steps))
    return {
        "colours": chunk_colours(story),
        "inks": [inked(colour) for colour in chunk_colours(story)],
        "bare": BARE,
        "slots": _slot_boxes(story, stage),
        "boxes": [_rounded(box) for box in stage.boxes],
        "lanes": [
            {"path": stage.ways[lane].path, "aside": _rounded(stage.ways[lane].aside)} for lane in lanes
        ],
        "most": story.most_carried,
        "bytes": story.piece_bytes is not None,
        "states": [_state(story, stage, step) for step in range(len(story.schedule.steps) + 1)],
        "steps": [_tokens(story, step, number) for step in steps],
        "captions": ["Start: nothing has been sent.", *(_caption(story, step) for step in steps)],
        "sentences": [[], *(_sentences(story, step) for step in steps)],
    }


def _caption(story: Story, step: int) -> str:
    return f"Step {step + 1} of {len(story.schedule.steps)}: {summary(story, step)}."


def _sentences(story: Story, step: int) -> list[str]:
    told = story.told(step)
    lines = [sentence(story, each) for each in told[:_MOST_SENTENCES]]
    return lines + ([f"and {len(told) - _MOST_SENTENCES} more"] if len(told) > _MOST_SENTENCES else [])


def _slot_boxes(story: Story, stage: Stage) -> list[list[float]]:
    """For each bar: x, y, width, height, number of its colour."""
    return [
        [*_rounded(stage.slots.bar_at(slot, corner)), story.colour(slot)]
        for device, corner in enumerate(stage.corners)
        for slot, _, _ in bars(story, stage, 0, device)
    ]


def _state(story: Story, stage: Stage, step: int) -> list[float]:
    """The filled share of each bar; negative where the value is spent."""
    return [
        round(-share if spent else share, 3)
        for device in range(story.schedule.devices)
        for _, share, spent in bars(story, stage, step, device)
    ]


def _tokens(story: Story, step: int, number: dict[Lane, int]) -> list[list[Any]]:
    """What travels on each lane: its number (of a device at home: -1 - device), colour, label, amount."""
    by_lane: dict[Lane, list[Told]] = {}
    for told in story.told(step):
        by_lane.setdefault(told.lane, []).append(told)
    return [
        [
            -1 - lane.sender if lane.sender == lane.receiver else number[lane],
            story.colour(told[0].send.slot),
            story.label([each.send.slot for each in told]),
            story.carried_in[step].get(lane, 0),
        ]
        for lane, told in by_lane.items()
    ]


def _rounded(numbers: Iterable[float]) -> list[float]:
    return [round(number, 1) for number in numbers]


def _traffic_table(story: Story) -> str:
    """All lanes in the order of their numbers; the script keeps the amounts up to date."""
    carried = story.carried
    if not carried:
        return ""
    rows = "".join(
        f"<tr><td>{escape(story.lane_name(lane))}</td>"
        f'<td><meter min="0" max="{story.most_carried}" value="{carried[lane]}"></meter></td>'
        f'<td class="amount">{escape(story.amount(carried[lane]))}</td></tr>\n'
        for lane in carried
    )
    is_open = " open" if len(carried) <= _MOST_SENTENCES else ""
    return (
        f"<details{is_open}><summary>What each link carries, each way ({len(carried)})</summary>\n"
        f'<table id="traffic"><thead><tr><th>link</th><th></th><th>carried</th></tr></thead>'
        f"<tbody>\n{rows}</tbody></table></details>\n"
    )
