"""`softmesh schedule`: draw how a collective moves its chunks, step by step, over which links."""

from __future__ import annotations

import math
from pathlib import Path

import click

from softmesh.collectives.schedules.chip_assignment import ChipAssignment, on_system
from softmesh.collectives.schedules.generators import ENDPOINTS, GENERATORS, schedule_for
from softmesh.collectives.schedules.link_traffic import piece_sizes
from softmesh.errors import SoftmeshError, did_you_mean
from softmesh.option_types import WholeNumber
from softmesh.report.command_options import is_page, output_option, when_given, write_picture
from softmesh.report.schedules.draw import SchedulePicture, replay_of
from softmesh.report.schedules.film_strip import schedule_svg
from softmesh.report.schedules.player_page import schedule_page
from softmesh.report.schedules.predicted_time import predicted_line
from softmesh.report.schedules.schedule_replay import ScheduleReplay
from softmesh.report.terminal import print_pictures
from softmesh.systems.chip import WORMHOLE
from softmesh.terminal_text import echo

_MOST_DEVICES = 64
_MOST_DEALT = 16  # all_to_all has as many chunks as pairs of devices
_MOST_LINKS = 8
_MOST_BYTES = 2**50
_MOST_AXES = 4
_TOPOLOGIES = {"line": False, "mesh": False, "ring": True, "torus": True}


def _parse_shape(text: str) -> tuple[int, ...]:
    extents = text.lower().split("x")
    if not all(extent.isascii() and extent.isdigit() and 0 < len(extent) < 6 for extent in extents):
        raise click.BadParameter(f"{text[:60]!r} is not a shape; write its extents as in 2x4.")
    shape = tuple(map(int, extents))
    if 0 in shape or len(shape) > _MOST_AXES:
        raise click.BadParameter(f"{text} cannot be drawn: 1 to {_MOST_AXES} extents of at least 1 can.")
    return shape


def _parse_steps(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
        raise click.BadParameter(f"{text[:60]!r} is not a list of steps; write numbers as in 0,1,4.")
    return tuple(map(int, words))


def _check_steps(steps: tuple[int, ...], last: int, output: Path | None) -> None:
    if output is None or is_page(output):
        raise click.UsageError("--steps chooses panels of a film strip: give -o FILE.svg or FILE.png.")
    beyond = [step for step in steps if step > last]
    if beyond:
        raise click.UsageError(f"--steps {beyond[0]}: the schedule has {last} steps; 0 is the start.")


def _parse_name(name: str) -> str:
    if name not in GENERATORS:
        raise click.BadParameter(
            f"there is no schedule for {name[:60]!r}.{did_you_mean(name, GENERATORS)} "
            f"There are {', '.join(GENERATORS)}."
        )
    return name


_EXAMPLES = """\b
Examples:
  softmesh schedule all_reduce --devices 8 --topology ring
  softmesh schedule all_gather --devices 4 --topology line -o gather.svg
  softmesh schedule all_reduce --shape 2x4 --system T3000 -o reduce.html
  softmesh schedule broadcast --devices 8 --root 3
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.argument("collective", callback=when_given(_parse_name))
@click.option(
    "--devices",
    type=WholeNumber(1, _MOST_DEVICES),
    metavar="N",
    help="Devices, in a line or a ring. Default: 8.",
)
@click.option(
    "--shape",
    callback=when_given(_parse_shape),
    metavar="2x4",
    help="Rows and columns of devices, instead of --devices.",
)
@click.option(
    "--topology",
    type=click.Choice(list(_TOPOLOGIES)),
    help="How the devices are connected. Default: ring, or mesh with --shape; with --system, what its links allow.",
)
@click.option(
    "--links",
    type=WholeNumber(1, _MOST_LINKS),
    metavar="N",
    default=1,
    show_default=True,
    help="Links used in parallel between neighbours.",
)
@click.option(
    "--bytes",
    "input_bytes",
    type=WholeNumber(1, _MOST_BYTES),
    metavar="N",
    default=65536,
    show_default=True,
    help="Size of the input tensor on each device.",
)
@click.option(
    "--root",
    type=int,
    metavar="D",
    help="Where a broadcast starts, or reduce_to ends. Default: 0.",
)
@click.option("--src", type=int, metavar="D", help="The device that point_to_point sends from. Default: 0.")
@click.option("--dst", type=int, metavar="D", help="The device that point_to_point sends to. Default: the last one.")
@click.option("--system", metavar="NAME", help="Run it on the chips and links of this machine: T3000, torus:4x4 ...")
@click.option(
    "--down", multiple=True, metavar="SPEC", help="Chips or links of the machine that are down: chip:5, link:3-7."
)
@click.option(
    "--steps",
    callback=when_given(_parse_steps),
    metavar="0,1,4",
    help="Draw only these steps, larger (0 is the start); with -o FILE.svg or FILE.png.",
)
@output_option("Write a film strip (.svg, .png) or a page that plays (.html) instead of printing.")
def schedule(
    collective: str,
    devices: int | None,
    shape: tuple[int, ...] | None,
    topology: str | None,
    links: int,
    input_bytes: int,
    root: int | None,
    src: int | None,
    dst: int | None,
    system: str | None,
    down: tuple[str, ...],
    steps: tuple[int, ...] | None,
    output: Path | None,
) -> None:
    """Draw how COLLECTIVE moves its chunks, step by step, and what each link carries.

    COLLECTIVE is one of @NAMES@.
    """
    if down and system is None:
        raise click.UsageError("--down needs the machine that it breaks: give --system.")
    group = _group(collective, devices, shape)
    endpoints = _endpoints(collective, math.prod(group), {"root": root, "src": src, "dst": dst})
    try:
        seats = None if system is None else on_system(system, group, down)
        replay = _replay(collective, group, topology, links, input_bytes, endpoints, seats)
    except (SoftmeshError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if steps is not None:
        _check_steps(steps, len(replay.schedule.steps), output)
    if output is None:
        print_pictures(SchedulePicture(replay))
        chip = WORMHOLE if seats is None else seats.machine.chip
        told = predicted_line(collective, group, _wraps(group, topology, seats), links, input_bytes, chip)
        if told is not None:
            echo(told)
    elif not is_page(output):
        write_picture(output, schedule_svg(replay, steps))
    else:
        write_picture(output, schedule_page(replay))


schedule.help = (schedule.help or "").replace("@NAMES@", ", ".join(GENERATORS))


def _group(collective: str, devices: int | None, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if devices is not None and shape is not None:
        raise click.UsageError("--devices is a line or a ring, --shape a grid; give one of them.")
    group = (devices or 8,) if shape is None else shape
    count = math.prod(group)
    most = _MOST_DEALT if collective == "all_to_all" else _MOST_DEVICES
    if count > most:
        raise click.UsageError(f"{count} devices are too many to draw: {collective} is shown for up to {most}.")
    return group


def _endpoints(collective: str, count: int, given: dict[str, int | None]) -> dict[str, int]:
    wanted = ENDPOINTS.get(collective, ())
    for name, device in given.items():
        if device is not None and name not in wanted:
            raise click.UsageError(f"{collective} has no --{name}.")
        if device is not None and not 0 <= device < count:
            raise click.UsageError(f"--{name}: there are devices 0 to {count - 1}, got {device}.")
    defaults = {"root": 0, "src": 0, "dst": count - 1}
    return {name: defaults[name] if (device := given[name]) is None else device for name in wanted}


def _replay(
    collective: str,
    group: tuple[int, ...],
    topology: str | None,
    links: int,
    input_bytes: int,
    endpoints: dict[str, int],
    seats: ChipAssignment | None,
) -> ScheduleReplay:
    wraps = _wraps(group, topology, seats)
    made = schedule_for(collective, group, wraps, links, **endpoints)
    sizes = None if collective == "barrier" else piece_sizes(made, input_bytes)
    return replay_of(made, group, wraps, sizes, seats)


def _wraps(group: tuple[int, ...], topology: str | None, seats: ChipAssignment | None) -> tuple[bool, ...]:
    if topology is not None:
        return tuple(_TOPOLOGIES[topology] and extent > 1 for extent in group)
    if seats is not None:
        return seats.wraps
    return (group[0] > 1,) if len(group) == 1 else (False,) * len(group)
