"""A collective as a film strip: one panel for each step, and one for what every link carried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from softmesh.collectives.schedule import Action
from softmesh.report.drawing import FADED, LINE, Panel, picture, text_width
from softmesh.report.schedules.sketch import BARE, GROUND, Sketch, chunk_colours, step_sketch, traffic_sketch
from softmesh.report.schedules.stage import Stage
from softmesh.report.schedules.staging import staged
from softmesh.report.schedules.story import Story, bytes_text, letters
from softmesh.report.wiring.box import Box
from softmesh.report.wiring.picture import printable

_WIDEST = 916.0
_GAP = 8.0
_PAD = 6.0
_HEADING = 17.0
_TOP = 46.0
_HIGHEST = 3600.0  # of the strip; steps in the middle are left out of a longer one
_MOST_LEGEND = 26


def schedule_svg(story: Story) -> str:
    return printable(picture(_page(story), _description(story)))


def _description(story: Story) -> str:
    return f"{story.heading}, {len(story.schedule.steps)} steps"


def _page(story: Story) -> Panel:
    page = Panel()
    page.text(0, 13, story.heading, 15, bold=True, mono=False)
    page.text(0, 32, subheading(story), 12, fill=FADED, mono=False)
    strip = film_strip(story)
    page.put(strip, 0, _TOP)
    page.put(legend(story), 0, page.height + 14)
    return page


def subheading(story: Story) -> str:
    steps = len(story.schedule.steps)
    parts = [f"{steps} {'step' if steps == 1 else 'steps'}"]
    if story.input_bytes:
        parts.append(f"{bytes_text(story.input_bytes)} per device")
    busiest = story.busiest_first()
    if busiest:
        most = story.amount(busiest[0][1])
        parts.append(f"{'every link in use' if story.is_even else 'the busiest link'} carries {most} a way")
    return " · ".join(parts)


def film_strip(story: Story) -> Panel:
    stage = staged(story)
    width = max(stage.size[0] + 2 * _PAD, 110)
    height = stage.size[1] + _HEADING + 2 * _PAD
    columns = max(1, int((_WIDEST + _GAP) // (width + _GAP)))
    most = max(5, columns * int((_HIGHEST + _GAP) // (height + _GAP)))
    strip = Panel()
    for number, panel in enumerate(_panels(story, stage, width, height, most)):
        row, column = divmod(number, columns)
        strip.put(panel, column * (width + _GAP), row * (height + _GAP))
    return strip


def _panels(story: Story, stage: Stage, width: float, height: float, most: int) -> Iterator[Panel]:
    left_out = _left_out(len(story.schedule.steps), most)
    for step in range(len(story.schedule.steps) + 1):
        if step not in left_out:
            yield _framed(step_sketch(story, stage, step), stage, *_step_heading(story, step), width, height)
        elif step == left_out[0]:
            yield _gap_panel(left_out, width, height)
    yield _framed(traffic_sketch(story, stage), stage, "in all", _total(story), width, height)


def _left_out(steps: int, most: int) -> range:
    """Steps in the middle, so that the start, the others, a gap and the total are `most` panels."""
    if steps + 2 <= most:
        return range(0)
    shown = most - 3
    return range(shown - shown // 3 + 1, steps - shown // 3 + 1)


def _total(story: Story) -> str:
    busiest = story.busiest_first()
    if busiest and story.is_even:
        return f"{story.amount(busiest[0][1])} a link, each way"
    return "chunks over each link" if story.piece_bytes is None else "bytes over each link"


def _step_heading(story: Story, step: int) -> tuple[str, str]:
    if step == 0:
        return "start", ""
    actions = Counter(send.action for send in story.schedule.steps[step - 1])
    words = {Action.ADD: "add", Action.STORE: "store"}
    return f"step {step}", " and ".join(words[action] for action in words if action in actions)


def _framed(sketch: Sketch, stage: Stage, title: str, note: str, width: float, height: float) -> Panel:
    panel = _frame(title, note, width, height)
    panel.put(sketch, (width - stage.size[0]) / 2, _HEADING + _PAD)
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


def legend(story: Story) -> Panel:
    panel = Sketch()
    x = _chunk_legend(panel, story) + 18
    y = 0.0
    for share, spent, text in _samples(story):
        length = 10 + text_width(text, 10, mono=False)
        if x + length > _WIDEST:
            x, y = 0, y + 20
        panel.blocks([Box(x, y + 1, 6, 12)], BARE)
        panel.blocks([Box(x, y + 1 + 12 * (1 - share), 6, 12 * share)], chunk_colours(story)[0], pale=spent)
        panel.text(x + 10, y + 11, text, 10, fill=FADED, mono=False)
        x += length + 14
    return panel


def _chunk_legend(panel: Sketch, story: Story) -> float:
    colours = chunk_colours(story)
    lead = "chunks from" if story.journeys else "chunks" if len(colours) > 1 else "chunk"
    panel.text(0, 11, lead, 10, fill=FADED, mono=False)
    x = text_width(lead, 10, mono=False) + 6
    for number, colour in enumerate(colours[:_MOST_LEGEND]):
        name = story.short_name(number) if story.journeys else letters(number)
        width = text_width(name, 9) + 7
        panel.rectangle(x, 0, width, 14, colour, stroke=LINE, radius=3)
        panel.text(x + width / 2, 10.5, name, 9, anchor="middle", bold=True)
        x += width + 3
    for note in _chunk_notes(story):
        panel.text(x + 4, 11, note, 10, fill=FADED, mono=False)
        x += 4 + text_width(note, 10, mono=False)
    return x


def _chunk_notes(story: Story) -> Iterator[str]:
    if story.colour_count > _MOST_LEGEND:
        yield f"and {story.colour_count - _MOST_LEGEND} more"
    if story.journeys:
        yield "to the device of their column"
    if story.schedule.splits > 1:
        between = "and" if story.schedule.splits == 2 else "to"
        yield f"in {story.schedule.splits} parts: {story.chunk(0)} {between} {story.chunk(story.schedule.splits - 1)}"


def _samples(story: Story) -> Iterator[tuple[float, bool, str]]:
    whole = max(story.whole, default=1)
    if story.adds and whole > 2:
        some = max(1, round(whole * 3 / 8))
        yield some / whole, False, f"{some} of {whole} contributions"
        yield 1, False, "complete"
    yield 1, True, "no longer needed"
