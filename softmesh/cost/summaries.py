"""Sums over an estimate: time by op, by line of the program and by step, and the table that people read first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from softmesh.callsite import CallSite
from softmesh.cost.command_cost import UNPRICED, Bound
from softmesh.cost.timeline import Estimate, TimedCommand

if TYPE_CHECKING:
    from rich.table import Table

_Key = TypeVar("_Key", bound=Hashable)


class OpCost(NamedTuple):
    """All calls of one op. `seconds` is what they take one by one; `low` to `high` is the band of that.

    `share` is a part of the whole time, on average over the chips: shares of ops and of `IdleTime` add up to one.
    """

    name: str
    calls: int
    seconds: float
    low: float
    high: float
    share: float
    bound: Bound  # of most of its time
    flops: int
    dram_bytes: int
    link_bytes: int
    is_measured: bool


class LineCost(NamedTuple):
    """All that a line of the program led to."""

    site: CallSite
    ops: tuple[str, ...]
    calls: int
    seconds: float
    low: float
    high: float
    share: float
    bound: Bound


class IdleTime(NamedTuple):
    """Time in which nothing runs on a chip, by its reason: host, launch or waiting (see softmesh.cost.time_shares)."""

    name: str
    seconds: float  # on average over the chips
    share: float  # of the whole time


class StepCost(NamedTuple):
    """All steps of one name."""

    name: str
    marks: int
    seconds: float  # of all of them
    tokens: float | None

    @property
    def tokens_per_second(self) -> float | None:
        return None if not self.tokens or not self.seconds else self.tokens / self.seconds


def ran(estimate: Estimate) -> list[TimedCommand]:
    """The commands that take time."""
    return [command for command in estimate.commands if command.end > command.start]


def by_op(estimate: Estimate) -> list[OpCost]:
    """The costliest first."""
    found = _grouped(estimate, lambda command: command.name)
    return [
        OpCost(
            name,
            len(group),
            seconds,
            *band_of(group),
            share,
            _bound_of(group),
            sum(command.cost.flops for command in group),
            sum(command.cost.dram_bytes for command in group),
            sum(command.cost.link_bytes for command in group),
            all(command.cost.is_measured for command in group),
        )
        for name, group, seconds, share in found
    ]


def by_line(estimate: Estimate) -> list[LineCost]:
    """The costliest first."""
    found = _grouped(estimate, lambda command: command.site)
    return [
        LineCost(
            site,
            tuple(dict.fromkeys(command.name for command in group)),
            len(group),
            seconds,
            *band_of(group),
            share,
            _bound_of(group),
        )
        for site, group, seconds, share in found
    ]


def by_step(estimate: Estimate) -> list[StepCost]:
    """In the order of their first marks."""
    groups: dict[str, list[int]] = {}
    for step in estimate.steps:
        groups.setdefault(step.name, []).append(step.index)
    made = []
    for name, indices in groups.items():
        steps = [estimate.steps[index] for index in indices]
        tokens = [step.tokens for step in steps if step.tokens is not None]
        seconds = sum(step.end - step.start for step in steps)
        made.append(StepCost(name, len(steps), seconds, sum(tokens) if tokens else None))
    return made


def band_of(commands: Iterable[TimedCommand]) -> tuple[float, float]:
    """Of the sum of their seconds: a law is wrong in one direction for all its commands, other laws by themselves."""
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    total = 0.0
    for command in commands:
        cost, seconds = command.cost, command.seconds
        scale = seconds / cost.seconds if cost.seconds else 0.0
        total += seconds
        below[cost.law] = below.get(cost.law, 0.0) + scale * (cost.seconds - cost.low)
        above[cost.law] = above.get(cost.law, 0.0) + scale * (cost.high - cost.seconds)
    return max(total - math.hypot(*below.values()), 0.0), total + math.hypot(*above.values())


def idle_times(estimate: Estimate) -> list[IdleTime]:
    """The longest first."""
    found = [IdleTime(name, time, time / estimate.seconds) for name, time in estimate.spent.idle.items() if time > 0]
    return sorted(found, key=lambda one: -one.seconds)


def by_bound(estimate: Estimate) -> list[tuple[Bound, float]]:
    """Seconds on average over the chips, the most first."""
    spent: dict[Bound, float] = {}
    for command, time in zip(estimate.commands, estimate.spent.of_command, strict=True):
        spent[command.cost.bound] = spent.get(command.cost.bound, 0.0) + time
    return sorted(((bound, time) for bound, time in spent.items() if time > 0), key=lambda pair: -pair[1])


def busy_share(estimate: Estimate) -> float:
    """The part of the whole time in which programs run, on average over the chips."""
    return estimate.spent.mean_busy / estimate.seconds if estimate.seconds else 0.0


def unpriced(estimate: Estimate) -> dict[str, int]:
    """Names of ops that the estimate counts as nothing, for want of a price, and how often they ran."""
    return dict(Counter(command.name for command in estimate.commands if command.cost.law == UNPRICED.law))


def _grouped(
    estimate: Estimate, key: Callable[[TimedCommand], _Key]
) -> list[tuple[_Key, list[TimedCommand], float, float]]:
    """By key: the commands, their seconds one by one, and their share of the whole time."""
    groups: dict[_Key, list[TimedCommand]] = {}
    for command in ran(estimate):
        groups.setdefault(key(command), []).append(command)
    spent, whole = estimate.spent.of_command, estimate.seconds
    sums = [
        (name, group, sum(one.seconds for one in group), sum(spent[one.index] for one in group) / whole)
        for name, group in groups.items()
    ]
    return sorted(sums, key=lambda one: -one[2])


def _bound_of(commands: Iterable[TimedCommand]) -> Bound:
    seconds: dict[Bound, float] = {}
    for command in commands:
        seconds[command.cost.bound] = seconds.get(command.cost.bound, 0.0) + command.seconds
    return max(seconds, key=lambda bound: seconds[bound])


# -- for a terminal ----------------------------------------------------------------------------------


def text_table(estimate: Estimate, most: int = 20) -> Table:
    """Time by op, the costliest first, and time in which nothing runs."""
    from rich import box
    from rich.table import Table

    table = Table(title=headline(estimate), box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("op", no_wrap=True)
    for name in ("calls", "time", "band", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    rows = by_op(estimate)
    for op in rows[:most]:
        band = f"{time_text(op.low)} .. {time_text(op.high)}{'' if op.is_measured else ' ?'}"
        table.add_row(op.name, str(op.calls), time_text(op.seconds), band, f"{op.share:.1%}", op.bound.value)
    if len(rows) > most:
        rest = sum(op.seconds for op in rows[most:])
        calls = sum(op.calls for op in rows[most:])
        share = sum(op.share for op in rows[most:])
        table.add_row(f"{len(rows) - most} more", str(calls), time_text(rest), "", f"{share:.1%}", "")
    for idle in idle_times(estimate):
        table.add_row(f"({idle.name})", "", time_text(idle.seconds), "", f"{idle.share:.1%}", "")
    return table


def headline(estimate: Estimate) -> str:
    low, high = estimate.band()
    chips = len({device for mesh in estimate.meshes for device in mesh.devices})
    on = f"{estimate.system}, {chips} chip{'s' * (chips != 1)}, {estimate.fabric}"
    return f"{time_text(estimate.seconds)} ({time_text(low)} .. {time_text(high)}) on {on}"


def time_text(seconds: float) -> str:
    """
    >>> time_text(1.5e-6), time_text(0.0123), time_text(2.0)
    ('1.50 us', '12.3 ms', '2.00 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns" if seconds else "0 s"


def size_text(size: float) -> str:
    """
    >>> size_text(1536), size_text(3 << 30)
    ('1.54 kB', '3.22 GB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= scale:
            return f"{_three_digits(size / scale)} {unit}"
    return f"{size:.0f} B"


def _three_digits(number: float) -> str:
    digits = max(0, 2 - int(math.log10(max(abs(number), 1.0))))
    return f"{number:.{digits}f}"
