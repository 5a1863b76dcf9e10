"""`collectives.draw`: a schedule as terminal text, as a film strip (.svg) or as an animated page (.html).

The text shows the sends of each step, what every device holds after it, and bytes per link.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from softmesh.arguments import checked, refused
from softmesh.collectives.schedules.chip_assignment import ChipAssignment
from softmesh.collectives.schedules.language import Action, Schedule, checked_mesh, checked_schedule
from softmesh.collectives.schedules.link_traffic import PieceBytes
from softmesh.report.drawing import hue_wheel
from softmesh.report.schedules.film_strip import schedule_svg, subheading
from softmesh.report.schedules.player_page import schedule_page
from softmesh.report.schedules.schedule_replay import ScheduleReplay, SendEffect, summary

_MOST_DEVICES = 16
_MOST_LINKS = 32


@dataclass(frozen=True)
class SchedulePicture:
    replay: ScheduleReplay

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text(self.replay.heading, style="bold")
        yield Text(subheading(self.replay))
        in_full = self.replay.schedule.devices <= _MOST_DEVICES
        if in_full:
            yield Text("\nstart", style="bold")
            yield from self._slots(0, options.max_width)
        for step in range(len(self.replay.schedule.steps)):
            yield self._step_title(step, in_full)
            if in_full:
                yield from self._sends(step, options.max_width)
                yield from self._slots(step + 1, options.max_width)
        yield from self._links()

    def _step_title(self, step: int, in_full: bool) -> Text:
        title = Text("\n" if in_full else "")
        title.append(f"step {step + 1}", style="bold")
        return title.append(f"  {summary(self.replay, step)}{self._progress(step + 1)}")

    def _progress(self, step: int) -> str:
        goal, held = self.replay.schedule.goal, self.replay.states[step]
        done = sum(held.get(key) == wanted for key, wanted in goal.items())
        return f" · {done} of {len(goal)} done" if goal else ""

    def _sends(self, step: int, room: int) -> Iterator[Text]:
        """As many side by side as there is room for."""
        items = [self._send(sent) for sent in self.replay.send_effects(step)]
        if not items:
            return
        width = max(item.cell_len for item in items) + 3
        columns = max(1, (room - 2) // width)
        for first in range(0, len(items), columns):
            line = Text("  ")
            for item in items[first : first + columns]:
                line.append_text(item).append(" " * (width - item.cell_len))
            line.rstrip()
            yield line

    def _send(self, sent: SendEffect) -> Text:
        replay, send = self.replay, sent.send
        text = Text(f"{replay.name(send.sender)} → {replay.name(send.receiver)} ")
        text.append("+" if send.action is Action.ADD else " ")
        text.append(replay.chunk(send.slot), style=self._style(send.slot))
        if replay.adds:
            text.append(f" {sent.carried}/{replay.complete_counts[send.slot]}")
        return text

    def _style(self, slot: int) -> str:
        return f"black on {hue_wheel(self.replay.colour_count)[self.replay.colour(slot)]}"

    def _slots(self, step: int, room: int) -> Iterator[Text]:
        """A line for each device: contributions in each slot, or the name of what is there."""
        schedule = self.replay.schedule
        names = [self.replay.name(device) for device in range(schedule.devices)]
        lead = max(map(len, names)) + 4
        short = lead + schedule.slots * (self._widest(short=False) + 1) > room
        width = self._widest(short=short)
        if self.replay.adds:
            heads = " ".join(self.replay.chunk(slot).center(width) for slot in range(schedule.slots))
            yield Text(" " * lead + heads.rstrip(), style="bright_black", no_wrap=True, overflow="ellipsis")
        for device, name in enumerate(names):
            line = Text(f"  {name.rjust(lead - 4)}  ", no_wrap=True, overflow="ellipsis")
            for slot in range(schedule.slots):
                line.append_text(self._slot(step, device, slot, short, width)).append(" ")
            line.rstrip()
            yield line

    def _widest(self, *, short: bool) -> int:
        replay = self.replay
        names = [replay.chunk(slot) for slot in range(replay.schedule.slots)]
        contents = [self._content(whole, slot, short) for slot, whole in enumerate(replay.complete_counts)]
        return max(map(len, names + contents))

    def _content(self, count: int, slot: int, short: bool) -> str:
        if not self.replay.adds:
            return self.replay.chunk(slot)
        return str(count) if short else f"{count}/{self.replay.complete_counts[slot]}"

    def _slot(self, step: int, device: int, slot: int, short: bool, width: int) -> Text:
        count = len(self.replay.states[step].get((device, slot), ()))
        if not count:
            return Text("·".center(width), style="bright_black")
        content = self._content(count, slot, short).center(width)
        if self.replay.is_spent(step, device, slot):
            return Text(content, style="bright_black")
        is_complete = self.replay.states[step].get((device, slot)) == self.replay.schedule.goal.get((device, slot))
        return Text(content, style=f"{'bold ' if is_complete else ''}{self._style(slot)}")

    def _links(self) -> Iterator[Text]:
        busiest = self.replay.busiest_first()
        if not busiest:
            return
        yield Text("\nover each link", style="bold")
        width = max(len(self.replay.lane_name(lane)) for lane, _ in busiest[:_MOST_LINKS])
        for lane, carried in busiest[:_MOST_LINKS]:
            bar = "█" * max(1, round(20 * carried / self.replay.most_carried))
            yield Text(f"  {self.replay.lane_name(lane).ljust(width)}  {self.replay.amount(carried).rjust(10)}  {bar}")
        if len(busiest) > _MOST_LINKS:
            yield Text(f"  and {len(busiest) - _MOST_LINKS} more")


PAINTERS: dict[str, Callable[[ScheduleReplay], str]] = {".svg": schedule_svg, ".html": schedule_page}
_WIDTH = 100


def draw(
    schedule: Schedule,
    shape: Sequence[int] | None = None,
    wraps: bool | Sequence[bool] | None = None,
    *,
    piece_bytes: PieceBytes | None = None,
    seats: ChipAssignment | None = None,
    path: str | os.PathLike[str] | None = None,
) -> str:
    """A schedule as text; with `path`, as a film strip (.svg) or a page that plays (.html), which is written there.

    Its devices stand in a line, unless `shape` and `wraps` (whether the ends of an axis are joined) tell otherwise,
    or `seats`: the chips of a machine, from `on_system`. Links are told by bytes if pieces have `piece_bytes`.
    Returns what was drawn.
    """
    checked_schedule("draw", schedule)
    if seats is not None:
        checked("draw", "seats", seats, ChipAssignment, "chips of a machine: softmesh.collectives.on_system(...)")
        shape, wraps = shape or seats.shape, seats.wraps if wraps is None else wraps
    extents, closed = checked_mesh("draw", shape or (schedule.devices,), wraps or False)
    painter = None if path is None else _painter(Path(path))
    replay = replay_of(schedule, extents, closed, piece_bytes, seats)
    if path is None or painter is None:
        return _as_text(replay)
    picture = painter(replay)
    Path(path).write_text(picture, encoding="utf-8")
    return picture


def replay_of(
    schedule: Schedule,
    shape: tuple[int, ...],
    wraps: tuple[bool, ...],
    piece_bytes: PieceBytes | None,
    seats: ChipAssignment | None = None,
) -> ScheduleReplay:
    """On `seats` devices are called as chips, and links as their channels."""
    replay = ScheduleReplay(schedule, shape, wraps, piece_bytes)
    if seats is None:
        return replay
    title = f"{replay.heading}, chips of {seats.machine.name}"
    return ScheduleReplay(schedule, shape, wraps, piece_bytes, title, seats.names, seats.lane_names(replay.carried))


def _painter(path: Path) -> Callable[[ScheduleReplay], str]:
    if path.suffix.lower() not in PAINTERS:
        raise refused("draw", f"path must end in .svg or .html, got {str(path)!r}")
    return PAINTERS[path.suffix.lower()]


def _as_text(replay: ScheduleReplay) -> str:
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(SchedulePicture(replay))
    return captured.get()
