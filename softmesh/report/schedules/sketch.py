"""One panel: the devices with what their slots hold, and arrows between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from xml.etree import ElementTree

from softmesh.collectives.traffic import Lane
from softmesh.report.colours import tints
from softmesh.report.drawing import FADED, LINE, PAPER, Panel
from softmesh.report.schedules.circle import DISC
from softmesh.report.schedules.stage import NAME_SIZE, Stage
from softmesh.report.schedules.story import Story, Told
from softmesh.report.schedules.ways import HEAD, LABEL_SIZE, Way
from softmesh.report.schedules.words import sentence
from softmesh.report.wiring.box import Box

BARE = "#e3e8ed"  # a slot with nothing in it
CHIP = "#dbe7f3"
GROUND = "#fafbfc"  # of a panel
TRACK = "#d3dae1"  # a link at rest
SPENT = "0.3"  # opacity of a value that nobody needs any more
CALM, BUSY = (0x6F, 0x9F, 0xCF), (0xC2, 0x41, 0x0C)


def chunk_colours(story: Story) -> list[str]:
    """What bars are filled with."""
    return tints(story.colour_count)


def inked(tint: str) -> str:
    """The same hue, dark enough for lines and letters on white."""
    parts = [int(tint[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    grey = sum(parts) / 3
    deep = [max(0.0, grey + (part - grey) * 1.9) * 0.66 for part in parts]
    return "#" + "".join(f"{round(255 * min(part, 1)):02x}" for part in deep)


def heat(share: float) -> str:
    mixed = (round(calm + (busy - calm) * share) for calm, busy in zip(CALM, BUSY, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


class Sketch(Panel):
    def devices(self, story: Story, stage: Stage) -> None:
        for track in stage.tracks:
            ElementTree.SubElement(self.element, "path", {"d": track, "stroke": TRACK, "fill": "none"})
        for device, (box, (x, y)) in enumerate(zip(stage.boxes, stage.names, strict=True)):
            self.rectangle(*box, PAPER, stroke=LINE, radius=4, kind="device", tip=story.device(device))
            name = story.name(device)
            if stage.is_round:
                self._disc(x, y)
                name = story.short_name(device)
            self.text(x, y + NAME_SIZE * 0.36, name, NAME_SIZE, anchor="middle", bold=True)

    def _disc(self, x: float, y: float) -> None:
        attributes = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{DISC:.1f}", "stroke": LINE, "fill": CHIP}
        ElementTree.SubElement(self.element, "circle", attributes)

    def contents(self, story: Story, stage: Stage, step: int) -> None:
        """What each slot holds after `step` steps: a bar that fills as contributions arrive."""
        bare: list[Box] = []
        filled: dict[tuple[str, bool], list[Box]] = {}
        colours = chunk_colours(story)
        for device, corner in enumerate(stage.corners):
            for slot, share, spent in bars(story, stage, step, device):
                bar = stage.slots.bar_at(slot, corner)
                if share < 1 or spent:
                    bare.append(bar)
                if share > 0:
                    key = (colours[story.colour(slot)], spent)
                    filled.setdefault(key, []).append(_part(bar, share))
        self.blocks(bare, BARE)
        for (colour, spent), parts in filled.items():
            self.blocks(parts, colour, pale=spent)

    def blocks(self, boxes: Iterable[Box], fill: str, *, pale: bool = False) -> None:
        """Rectangles of one colour as one element: pictures of many slots stay small."""
        path = "".join(
            f"M{box.x:.1f} {box.y:.1f}h{box.width:.1f}v{box.height:.1f}h{-box.width:.1f}z" for box in boxes
        )
        if path:
            attributes = {"d": path, "fill": fill, "class": "slots"} | ({"opacity": SPENT} if pale else {})
            ElementTree.SubElement(self.element, "path", attributes)

    def arrow(self, way: Way, colour: str, thick: float, tip: str, **data: str) -> None:
        group = ElementTree.SubElement(self.element, "g", {"fill": "none", **data})
        ElementTree.SubElement(group, "title").text = tip
        line = {"d": way.path, "stroke": colour, "stroke-width": f"{thick:.1f}"}
        ElementTree.SubElement(group, "path", line)
        ElementTree.SubElement(group, "path", {"d": _head(way, thick), "fill": colour})

    def label(self, way: Way, text: str, colour: str) -> None:
        box = way.label_box(text)
        x, y = box.centre
        if way.is_bow:  # others may pass below its label
            self.rectangle(*box, GROUND, stroke="none")
        self.text(x, y + LABEL_SIZE * 0.36, text, LABEL_SIZE, anchor="middle", fill=colour, bold=True)

    def at_home(self, box: Box, colour: str, tip: str, **data: str) -> None:
        """What a device does with its own memory: a dashed frame around it."""
        self.rectangle(*box.grown(-1), "none", stroke=colour, radius=3, dashed=True, tip=tip)
        self.element[-1].attrib.update(data)


def bars(story: Story, stage: Stage, step: int, device: int) -> Iterable[tuple[int, float, bool]]:
    """Slot, filled share, whether it is spent; one bar for all where they are too many."""
    held = story.states[step]
    shares = [
        (slot, story.share(len(held.get((device, slot), ())), slot), story.is_spent(step, device, slot))
        for slot in range(story.schedule.slots)
    ]
    if not stage.slots.is_summed_up:
        return shares
    wanted = [share for slot, share, _ in shares if (device, slot) in story.schedule.goal]
    return [(0, sum(wanted) / max(len(wanted), 1), False)]


def _part(bar: Box, share: float) -> Box:
    """The lower part of a bar; a wide one fills from the left."""
    if bar.width > bar.height:
        return Box(bar.x, bar.y, bar.width * share, bar.height)
    return Box(bar.x, bar.bottom - bar.height * share, bar.width, bar.height * share)


def _head(way: Way, thick: float) -> str:
    """A triangle at the end of the way."""
    half = 2.2 + thick / 3
    x, y = way.tip
    along, across = (
        (math.cos(way.heading), math.sin(way.heading)),
        (-math.sin(way.heading), math.cos(way.heading)),
    )
    left, right = (
        (x - HEAD * along[0] + side * half * across[0], y - HEAD * along[1] + side * half * across[1])
        for side in (1, -1)
    )
    return f"M{x:.1f} {y:.1f}L{left[0]:.1f} {left[1]:.1f}L{right[0]:.1f} {right[1]:.1f}z"


def step_sketch(story: Story, stage: Stage, step: int) -> Sketch:
    """The sends of a step (counted from 1), and what is held after it; step 0 is the start."""
    sketch = Sketch()
    sketch.devices(story, stage)
    sketch.contents(story, stage, step)
    if step:
        _draw_sends(sketch, story, stage, step - 1)
    return sketch


def _draw_sends(sketch: Sketch, story: Story, stage: Stage, step: int) -> None:
    colours = [inked(colour) for colour in chunk_colours(story)]
    by_lane: dict[Lane, list[Told]] = {}
    for told in story.told(step):
        by_lane.setdefault(told.lane, []).append(told)
    for lane, told_there in by_lane.items():
        colour = colours[story.colour(told_there[0].send.slot)]
        tip = "\n".join(sentence(story, told) for told in told_there)
        data = {"class": "send", "data-sends": str(len(told_there))}
        if lane.sender == lane.receiver:
            sketch.at_home(stage.boxes[lane.sender], colour, tip, **data)
        else:
            sketch.arrow(stage.ways[lane], colour, 1.6 if len(told_there) == 1 else 2.6, tip, **data)
    outermost = {(lane.sender, lane.receiver): lane for lane in sorted(by_lane)}
    for ends, text in story.labels(step).items():
        lane = outermost[ends]
        sketch.label(stage.ways[lane], text, colours[story.colour(by_lane[lane][0].send.slot)])


def traffic_sketch(story: Story, stage: Stage) -> Sketch:
    """What is held in the end, and what each link carried in each direction."""
    sketch = Sketch()
    sketch.devices(story, stage)
    sketch.contents(story, stage, len(story.schedule.steps))
    labelled = not (story.is_even or story.is_crowded)
    last = {(lane.sender, lane.receiver): lane for lane in story.carried}
    written: list[Box] = []
    for lane, carried in story.carried.items():
        share, way = carried / story.most_carried, stage.ways[lane]
        tip = f"{story.lane_name(lane)}: {story.amount(carried)}"
        sketch.arrow(way, heat(share), 1 + 2.4 * share, tip, **{"class": "traffic"})
        box = way.label_box(story.short_amount(carried))
        crowded = any(box.touches(other) for other in written)  # where bows of two axes meet
        if labelled and not crowded and last[lane.sender, lane.receiver] == lane:
            sketch.label(way, story.short_amount(carried), FADED)
            written.append(box)
    return sketch
