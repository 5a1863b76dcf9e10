"""A schedule in the terminal: the sends of each step, what every device holds after it, bytes per link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softmesh.collectives.schedule import Action
from softmesh.report.colours import hue_wheel
from softmesh.report.schedules.story import Story, Told
from softmesh.report.schedules.svg import subheading
from softmesh.report.schedules.words import summary

if TYPE_CHECKING:  # rich is loaded by the first picture
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

_MOST_DEVICES = 16
_MOST_LINKS = 32


@dataclass(frozen=True)
class SchedulePicture:
    story: Story

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        yield Text(self.story.heading, style="bold")
        yield Text(subheading(self.story))
        in_full = self.story.schedule.devices <= _MOST_DEVICES
        if in_full:
            yield Text("\nstart", style="bold")
            yield from self._slots(0, options.max_width)
        for step in range(len(self.story.schedule.steps)):
            yield self._step_title(step, in_full)
            if in_full:
                yield from self._sends(step, options.max_width)
                yield from self._slots(step + 1, options.max_width)
        yield from self._links()

    def _step_title(self, step: int, in_full: bool) -> Text:
        from rich.text import Text

        title = Text("\n" if in_full else "")
        title.append(f"step {step + 1}", style="bold")
        return title.append(f"  {summary(self.story, step)}{self._progress(step + 1)}")

    def _progress(self, step: int) -> str:
        goal, held = self.story.schedule.goal, self.story.states[step]
        done = sum(held.get(key) == wanted for key, wanted in goal.items())
        return f" · {done} of {len(goal)} done" if goal else ""

    def _sends(self, step: int, room: int) -> Iterator[Text]:
        """As many side by side as there is room for."""
        from rich.text import Text

        items = [self._send(told) for told in self.story.told(step)]
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

    def _send(self, told: Told) -> Text:
        from rich.text import Text

        story, send = self.story, told.send
        text = Text(f"{story.name(send.sender)} → {story.name(send.receiver)} ")
        text.append("+" if send.action is Action.ADD else " ")
        text.append(story.chunk(send.slot), style=self._style(send.slot))
        if story.adds:
            text.append(f" {told.carried}/{story.whole[send.slot]}")
        return text

    def _style(self, slot: int) -> str:
        return f"black on {hue_wheel(self.story.colour_count)[self.story.colour(slot)]}"

    def _slots(self, step: int, room: int) -> Iterator[Text]:
        """A line for each device: contributions in each slot, or the name of what is there."""
        from rich.text import Text

        schedule = self.story.schedule
        names = [self.story.name(device) for device in range(schedule.devices)]
        lead = max(map(len, names)) + 4
        short = lead + schedule.slots * (self._widest(short=False) + 1) > room
        width = self._widest(short=short)
        if self.story.adds:
            heads = " ".join(self.story.chunk(slot).center(width) for slot in range(schedule.slots))
            yield Text(" " * lead + heads.rstrip(), style="bright_black", no_wrap=True, overflow="ellipsis")
        for device, name in enumerate(names):
            line = Text(f"  {name.rjust(lead - 4)}  ", no_wrap=True, overflow="ellipsis")
            for slot in range(schedule.slots):
                line.append_text(self._slot(step, device, slot, short, width)).append(" ")
            line.rstrip()
            yield line

    def _widest(self, *, short: bool) -> int:
        story = self.story
        names = [story.chunk(slot) for slot in range(story.schedule.slots)]
        contents = [self._content(whole, slot, short) for slot, whole in enumerate(story.whole)]
        return max(map(len, names + contents))

    def _content(self, count: int, slot: int, short: bool) -> str:
        if not self.story.adds:
            return self.story.chunk(slot)
        return str(count) if short else f"{count}/{self.story.whole[slot]}"

    def _slot(self, step: int, device: int, slot: int, short: bool, width: int) -> Text:
        from rich.text import Text

        count = len(self.story.states[step].get((device, slot), ()))
        if not count:
            return Text("·".center(width), style="bright_black")
        content = self._content(count, slot, short).center(width)
        if self.story.is_spent(step, device, slot):
            return Text(content, style="bright_black")
        is_complete = self.story.states[step].get((device, slot)) == self.story.schedule.goal.get(
            (device, slot)
        )
        return Text(content, style=f"{'bold ' if is_complete else ''}{self._style(slot)}")

    def _links(self) -> Iterator[Text]:
        from rich.text import Text

        busiest = self.story.busiest_first()
        if not busiest:
            return
        yield Text("\nover each link", style="bold")
        width = max(len(self.story.lane_name(lane)) for lane, _ in busiest[:_MOST_LINKS])
        for lane, carried in busiest[:_MOST_LINKS]:
            bar = "█" * max(1, round(20 * carried / self.story.most_carried))
            yield Text(
                f"  {self.story.lane_name(lane).ljust(width)}  {self.story.amount(carried).rjust(10)}  {bar}"
            )
        if len(busiest) > _MOST_LINKS:
            yield Text(f"  and {len(busiest) - _MOST_LINKS} more")
