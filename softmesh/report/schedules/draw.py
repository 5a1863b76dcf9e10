"""Schedules as pictures, for programs: as text, as a film strip, or as a page that plays."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from softmesh.arguments import checked, refused
from softmesh.collectives.schedule import Schedule, checked_mesh, checked_schedule
from softmesh.collectives.seats import Seats
from softmesh.collectives.traffic import PieceBytes
from softmesh.report.schedules.page import schedule_page
from softmesh.report.schedules.story import Story
from softmesh.report.schedules.svg import schedule_svg
from softmesh.report.schedules.text import SchedulePicture

PAINTERS: dict[str, Callable[[Story], str]] = {".svg": schedule_svg, ".html": schedule_page}
_WIDTH = 100


def draw(
    schedule: Schedule,
    shape: Sequence[int] | None = None,
    wraps: bool | Sequence[bool] | None = None,
    *,
    piece_bytes: PieceBytes | None = None,
    seats: Seats | None = None,
    path: str | os.PathLike[str] | None = None,
) -> str:
    """A schedule as text; with `path`, as a film strip (.svg) or a page that plays (.html), which is written there.

    Its devices stand in a line, unless `shape` and `wraps` (whether the ends of an axis are joined) tell otherwise,
    or `seats`: the chips of a machine, from `on_system`. Links are told by bytes if pieces have `piece_bytes`.
    Returns what was drawn.
    """
    checked_schedule("draw", schedule)
    if seats is not None:
        checked("draw", "seats", seats, Seats, "chips of a machine: softmesh.collectives.on_system(...)")
        shape, wraps = shape or seats.shape, seats.wraps if wraps is None else wraps
    extents, closed = checked_mesh("draw", shape or (schedule.devices,), wraps or False)
    painter = None if path is None else _painter(Path(path))
    story = story_of(schedule, extents, closed, piece_bytes, seats)
    if path is None or painter is None:
        return _as_text(story)
    picture = painter(story)
    Path(path).write_text(picture, encoding="utf-8")
    return picture


def story_of(
    schedule: Schedule,
    shape: tuple[int, ...],
    wraps: tuple[bool, ...],
    piece_bytes: PieceBytes | None,
    seats: Seats | None = None,
) -> Story:
    """On `seats` devices are called as chips, and links as their channels."""
    story = Story(schedule, shape, wraps, piece_bytes)
    if seats is None:
        return story
    title = f"{story.heading}, chips of {seats.machine.name}"
    return Story(schedule, shape, wraps, piece_bytes, title, seats.names, seats.lane_names(story.carried))


def _painter(path: Path) -> Callable[[Story], str]:
    if path.suffix.lower() not in PAINTERS:
        raise refused("draw", f"path must end in .svg or .html, got {str(path)!r}")
    return PAINTERS[path.suffix.lower()]


def _as_text(story: Story) -> str:
    from rich.console import Console  # loaded by the first picture

    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(SchedulePicture(story))
    return captured.get()
