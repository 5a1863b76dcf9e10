"""A schedule as a film strip in SVG: a panel for each step, and one for the bytes that every link carried.

A panel shows the devices, the fill of their slots, and arrows for the sends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from xml.etree import ElementTree

from softmesh.collectives.schedules.language import Action
from softmesh.report.drawing import FADED, LINE, PAPER, Box, Panel, picture, text_width, tints, titled_page
from softmesh.report.schedules.device_layouts import DISC, geometry_of
from softmesh.report.schedules.geometry import HEAD, LABEL_SIZE, NAME_SIZE, ArrowPath, Geometry, slots_of
from softmesh.report.schedules.schedule_replay import (
    ScheduleReplay,
    bytes_text,
    letters,
    sentence,
)
from softmesh.report.wiring.wiring_model import printable

BARE = "#e3e8ed"  # a slot with nothing in it
CHIP = "#dbe7f3"
GROUND = "#fafbfc"  # of a panel
TRACK = "#d3dae1"  # a link at rest
SPENT = "0.3"  # opacity of a value that nobody needs any more
CALM, BUSY = (0x6F, 0x9F, 0xCF), (0xC2, 0x41, 0x0C)


_ALL_CHUNKS = "#8fa6c4"  # of a bar that stands for all of them: no chunk's own colour


def chunk_colours(replay: ScheduleReplay) -> list[str]:
    """One tint for each chunk."""
    return tints(replay.colour_count)


def bar_colours(replay: ScheduleReplay) -> list[str]:
    """The fills of bars, by chunk."""
    return [_ALL_CHUNKS] * replay.colour_count if slots_of(replay).is_summed_up else chunk_colours(replay)


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
    def devices(self, replay: ScheduleReplay, geometry: Geometry) -> None:
        for track in geometry.tracks:
            ElementTree.SubElement(self.element, "path", {"d": track, "stroke": TRACK, "fill": "none"})
        for device, (box, (x, y)) in enumerate(zip(geometry.boxes, geometry.names, strict=True)):
            self.rectangle(*box, PAPER, stroke=LINE, radius=4, kind="device", tip=replay.device(device))
            name = replay.name(device)
            if geometry.is_round:
                self._disc(x, y)
                name = replay.short_name(device)
            self.text(x, y + NAME_SIZE * 0.36, name, NAME_SIZE, anchor="middle", bold=True)

    def _disc(self, x: float, y: float) -> None:
        attributes = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{DISC:.1f}", "stroke": LINE, "fill": CHIP}
        ElementTree.SubElement(self.element, "circle", attributes)

    def contents(self, replay: ScheduleReplay, geometry: Geometry, step: int) -> None:
        """What each slot holds after `step` steps: a bar that fills as contributions arrive."""
        bare: list[Box] = []
        filled: dict[tuple[str, bool], list[Box]] = {}
        colours = bar_colours(replay)
        for device, corner in enumerate(geometry.corners):
            for slot, share, spent in bars(replay, geometry, step, device):
                bar = geometry.slots.bar_at(slot, corner)
                if share < 1 or spent:
                    bare.append(bar)
                if share > 0:
                    key = (colours[replay.colour(slot)], spent)
                    filled.setdefault(key, []).append(_part(bar, share))
        self.blocks(bare, BARE)
        for (colour, spent), parts in filled.items():
            self.blocks(parts, colour, pale=spent)

    def blocks(self, boxes: Iterable[Box], fill: str, *, pale: bool = False) -> None:
        """Rectangles of one colour as one element: pictures of many slots stay small."""
        path = "".join(f"M{box.x:.1f} {box.y:.1f}h{box.width:.1f}v{box.height:.1f}h{-box.width:.1f}z" for box in boxes)
        if path:
            attributes = {"d": path, "fill": fill, "class": "slots"} | ({"opacity": SPENT} if pale else {})
            ElementTree.SubElement(self.element, "path", attributes)

    def arrow(self, way: ArrowPath, colour: str, thick: float, tip: str, **data: str) -> None:
        group = ElementTree.SubElement(self.element, "g", {"fill": "none", **data})
        ElementTree.SubElement(group, "title").text = tip
        line = {"d": way.path, "stroke": colour, "stroke-width": f"{thick:.1f}"}
        ElementTree.SubElement(group, "path", line)
        ElementTree.SubElement(group, "path", {"d": _head(way, thick), "fill": colour})

    def label(self, way: ArrowPath, text: str, colour: str) -> None:
        box = way.label_box(text)
        x, y = box.centre
        if way.is_bow:  # others may pass below its label
            self.rectangle(*box, GROUND, stroke="none")
        self.text(x, y + LABEL_SIZE * 0.36, text, LABEL_SIZE, anchor="middle", fill=colour, bold=True)

    def at_home(self, box: Box, colour: str, tip: str, **data: str) -> None:
        """What a device does with its own memory: a dashed frame around it."""
        self.rectangle(*box.grown(-1), "none", stroke=colour, radius=3, dashed=True, tip=tip)
        self.element[-1].attrib.update(data)


def bars(replay: ScheduleReplay, geometry: Geometry, step: int, device: int) -> Iterable[tuple[int, float, bool]]:
    """Slot, filled share, whether it is spent; one bar for all where they are too many."""
    held = replay.states[step]
    shares = [
        (slot, replay.share(len(held.get((device, slot), ())), slot), replay.is_spent(step, device, slot))
        for slot in range(replay.schedule.slots)
    ]
    if not geometry.slots.is_summed_up:
        return shares
    wanted = [share for slot, share, _ in shares if (device, slot) in replay.schedule.goal]
    return [(0, sum(wanted) / max(len(wanted), 1), False)]


def _part(bar: Box, share: float) -> Box:
    """The lower part of a bar; a wide one fills from the left."""
    if bar.width > bar.height:
        return Box(bar.x, bar.y, bar.width * share, bar.height)
    return Box(bar.x, bar.bottom - bar.height * share, bar.width, bar.height * share)


def _head(way: ArrowPath, thick: float) -> str:
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


def step_sketch(replay: ScheduleReplay, geometry: Geometry, step: int) -> Sketch:
    """The sends of a step (counted from 1), and what is held after it; step 0 is the start."""
    sketch = Sketch()
    sketch.devices(replay, geometry)
    sketch.contents(replay, geometry, step)
    if step:
        _draw_sends(sketch, replay, geometry, step - 1)
    return sketch


def _draw_sends(sketch: Sketch, replay: ScheduleReplay, geometry: Geometry, step: int) -> None:
    colours = [inked(colour) for colour in chunk_colours(replay)]
    by_lane = replay.sends_by_lane(step)
    for lane, sent_there in by_lane.items():
        colour = colours[replay.colour(sent_there[0].send.slot)]
        tip = "\n".join(sentence(replay, sent) for sent in sent_there)
        data = {"class": "send", "data-sends": str(len(sent_there))}
        if lane.sender == lane.receiver:
            sketch.at_home(geometry.boxes[lane.sender], colour, tip, **data)
        else:
            sketch.arrow(geometry.arrow_paths[lane], colour, 1.6 if len(sent_there) == 1 else 2.6, tip, **data)
    outermost = {(lane.sender, lane.receiver): lane for lane in sorted(by_lane)}
    for ends, text in replay.labels(step).items():
        lane = outermost[ends]
        sketch.label(geometry.arrow_paths[lane], text, colours[replay.colour(by_lane[lane][0].send.slot)])


def traffic_sketch(replay: ScheduleReplay, geometry: Geometry) -> Sketch:
    """What is held in the end, and what each link carried in each direction."""
    sketch = Sketch()
    sketch.devices(replay, geometry)
    sketch.contents(replay, geometry, len(replay.schedule.steps))
    labelled = not (replay.is_even or replay.is_crowded)
    last = {(lane.sender, lane.receiver): lane for lane in replay.carried}
    written: list[Box] = []
    for lane, carried in replay.carried.items():
        share, way = carried / replay.most_carried, geometry.arrow_paths[lane]
        tip = f"{replay.lane_name(lane)}: {replay.amount(carried)}"
        sketch.arrow(way, heat(share), 1 + 2.4 * share, tip, **{"class": "traffic"})
        box = way.label_box(replay.short_amount(carried))
        crowded = any(box.touches(other) for other in written)  # where bows of two axes meet
        if labelled and not crowded and last[lane.sender, lane.receiver] == lane:
            sketch.label(way, replay.short_amount(carried), FADED)
            written.append(box)
    return sketch


_WIDEST = 916.0
_GAP = 8.0
_PAD = 6.0
_HEADING = 17.0
_TOP = 46.0
_HIGHEST = 3600.0  # of the strip; steps in the middle are left out of a longer one
_MOST_LEGEND = 16  # colours that an eye can tell apart, and look up by their letter
_LEGEND_LINE = 20.0
NARROWEST = 460.0  # of a legend, whose letters stay readable on a screen of 500 pixels
_CHOSEN_A_ROW = 3  # panels, where steps were chosen
_MOST_ENLARGED = 1.6


def schedule_svg(replay: ScheduleReplay, steps: Collection[int] | None = None) -> str:
    """All steps, or those that are named (0 is the start), which are drawn larger."""
    page = titled_page(replay.heading, subheading(replay))
    page.put(film_strip(replay, steps), 0, _TOP)
    page.put(legend(replay, max(page.width, NARROWEST)), 0, page.height + 14)
    enlarged = 1.0 if steps is None else min(_MOST_ENLARGED, max(1.0, _WIDEST / page.width))
    return printable(picture(page, f"{replay.heading}, {len(replay.schedule.steps)} steps", scale=enlarged))


def subheading(replay: ScheduleReplay) -> str:
    steps = len(replay.schedule.steps)
    parts = [f"{steps} {'step' if steps == 1 else 'steps'}"]
    if replay.input_bytes:
        parts.append(f"{bytes_text(replay.input_bytes)} per device")
    busiest = replay.busiest_first()
    if busiest:
        most = replay.amount(busiest[0][1])
        parts.append(f"{'every link in use' if replay.is_even else 'the busiest link'} carries {most} a way")
    return " · ".join(parts)


def film_strip(replay: ScheduleReplay, steps: Collection[int] | None = None) -> Panel:
    geometry = geometry_of(replay)
    note = text_width("in all", 10, mono=False, bold=True) + 4 + text_width(_total(replay), 9, mono=False)
    width = max(geometry.size[0] + 2 * _PAD, note + 2 * _PAD)
    height = geometry.size[1] + _HEADING + 2 * _PAD
    columns = max(1, int((_WIDEST + _GAP) // (width + _GAP)))
    most = max(5, columns * int((_HIGHEST + _GAP) // (height + _GAP)))
    if steps is None:
        left_out: Collection[int] = _left_out(len(replay.schedule.steps), most)
    else:
        left_out = set(range(len(replay.schedule.steps) + 1)) - set(steps)
        columns = min(columns, _CHOSEN_A_ROW)
    strip = Panel()
    for number, panel in enumerate(_panels(replay, geometry, width, height, left_out)):
        row, column = divmod(number, columns)
        strip.put(panel, column * (width + _GAP), row * (height + _GAP))
    return strip


def _panels(
    replay: ScheduleReplay, geometry: Geometry, width: float, height: float, left_out: Collection[int]
) -> Iterator[Panel]:
    for step in range(len(replay.schedule.steps) + 1):
        if step not in left_out:
            yield _framed(step_sketch(replay, geometry, step), geometry, *_step_heading(replay, step), width, height)
        elif isinstance(left_out, range) and step == left_out[0]:
            yield _gap_panel(left_out, width, height)
    yield _framed(traffic_sketch(replay, geometry), geometry, "in all", _total(replay), width, height)


def _left_out(steps: int, most: int) -> range:
    """Steps in the middle, so that the start, the others, a gap and the total are `most` panels."""
    if steps + 2 <= most:
        return range(0)
    shown = most - 3
    return range(shown - shown // 3 + 1, steps - shown // 3 + 1)


def _total(replay: ScheduleReplay) -> str:
    busiest = replay.busiest_first()
    if busiest and replay.is_even:
        return f"{replay.amount(busiest[0][1])} a link, each way"
    return "chunks over each link" if replay.piece_bytes is None else "bytes over each link"


def _step_heading(replay: ScheduleReplay, step: int) -> tuple[str, str]:
    if step == 0:
        return "start", ""
    actions = Counter(send.action for send in replay.schedule.steps[step - 1])
    words = {Action.ADD: "add", Action.STORE: "store"}
    return f"step {step}", " and ".join(words[action] for action in words if action in actions)


def _framed(sketch: Sketch, geometry: Geometry, title: str, note: str, width: float, height: float) -> Panel:
    panel = _frame(title, note, width, height)
    panel.put(sketch, (width - geometry.size[0]) / 2, _HEADING + _PAD)
    return panel


def _frame(title: str, note: str, width: float, height: float) -> Panel:
    panel = Panel()
    panel.rectangle(0, 0, width, height, GROUND, stroke="#d9dfe5", radius=6, kind="panel")
    panel.text(_PAD, 14, title, 10, bold=True, mono=False)
    panel.text(_PAD + text_width(title, 10, mono=False, bold=True) + 4, 14, note, 9, fill=FADED, mono=False)
    return panel


def _gap_panel(steps: range, width: float, height: float) -> Panel:
    panel = _frame("…", "", width, height)
    text = f"steps {steps[0]} to {steps[-1]}"
    panel.text(width / 2, height / 2, text, 10, anchor="middle", fill=FADED, mono=False)
    return panel


def legend(replay: ScheduleReplay, width: float = _WIDEST) -> Panel:
    """Explain the colours and the bars, in lines of at most `width`."""
    panel = Sketch()
    x, y = _chunk_legend(panel, replay, width)
    x += 18
    for share, spent, text in _samples(replay):
        length = 10 + text_width(text, 10, mono=False)
        if x + length > width:
            x, y = 0, y + _LEGEND_LINE
        panel.blocks([Box(x, y + 1, 6, 12)], BARE)
        panel.blocks([Box(x, y + 1 + 12 * (1 - share), 6, 12 * share)], bar_colours(replay)[0], pale=spent)
        panel.text(x + 10, y + 11, text, 10, fill=FADED, mono=False)
        x += length + 14
    return panel


def _chunk_legend(panel: Sketch, replay: ScheduleReplay, width: float) -> tuple[float, float]:
    """Draw a named swatch for each chunk, or all of them in order where they are many. Returns where it ends."""
    colours = chunk_colours(replay)
    lead = "chunks from" if replay.journeys else "chunks" if len(colours) > 1 else "chunk"
    if len(colours) > _MOST_LEGEND:
        lead = f"{len(colours)} {lead.replace(' from', '')}, coloured by their place: "
    panel.text(0, 11, lead, 10, fill=FADED, mono=False)
    x, y = text_width(lead, 10, mono=False) + 6, 0.0
    if len(colours) > _MOST_LEGEND:
        x = _ramp(panel, colours, x)
    else:
        for number, colour in enumerate(colours):
            name = replay.short_name(number) if replay.journeys else letters(number)
            wide = text_width(name, 9) + 7
            if x + wide > width:
                x, y = 0, y + _LEGEND_LINE
            panel.rectangle(x, y, wide, 14, colour, stroke=LINE, radius=3)
            panel.text(x + wide / 2, y + 10.5, name, 9, anchor="middle", bold=True)
            x += wide + 3
    for note in _chunk_notes(replay):
        length = 4 + text_width(note, 10, mono=False)
        if x + length > width:
            x, y = 0, y + _LEGEND_LINE
        panel.text(x + 4, y + 11, note, 10, fill=FADED, mono=False)
        x += length
    return x, y


def _ramp(panel: Sketch, colours: Sequence[str], x: float) -> float:
    """Draw the colours of many chunks side by side, from the first to the last: none of them can be told by itself."""
    for end, name in ((False, "first"), (True, "last")):
        if end:
            for colour in colours:
                panel.blocks([Box(x, 1, 3, 12)], colour)
                x += 3
            x += 4
        panel.text(x, 11, name, 10, fill=FADED, mono=False)
        x += text_width(name, 10, mono=False) + 4
    return x


def _chunk_notes(replay: ScheduleReplay) -> Iterator[str]:
    if replay.journeys and not slots_of(replay).is_summed_up:
        yield "to the device of their column"
    if replay.schedule.splits > 1:
        word = "and" if replay.schedule.splits == 2 else "to"
        yield f"in {replay.schedule.splits} parts: {replay.chunk(0)} {word} {replay.chunk(replay.schedule.splits - 1)}"


def _samples(replay: ScheduleReplay) -> Iterator[tuple[float, bool, str]]:
    if slots_of(replay).is_summed_up:
        yield 0.5, False, "half of all chunks have arrived"
        return
    whole = max(replay.complete_counts, default=1)
    if replay.adds and whole > 2:
        some = max(1, round(whole * 3 / 8))
        yield some / whole, False, f"{some} of {whole} contributions"
        yield 1, False, "complete"
    yield 1, True, "no longer needed"
