"""Shares of the time of an estimate: every moment of every chip counts once, so that they add up to the total.

A chip is *busy* while a program runs on its cores; programs that run on it at the same time share the moment. Else it
belongs to a transfer between the chip and the host, where one runs, and to one of three reasons why nothing does:

- host: what runs next on the chip was not given to its queue yet, or nothing comes any more,
- launch: it was, and the gap lasts that lies between two programs on the same cores,
- waiting: for another chip, queue or rank, an event or a message.

Reports give the mean over the chips of all open meshes. Chips on which the same commands ran are looked at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from softmesh.cost.command_cost import Bound
from softmesh.cost.laws.dispatches import GAP_US

if TYPE_CHECKING:
    from softmesh.cost.timeline import MeshRecord, TimedCommand

Chip = tuple[int, int]  # rank and id


class TimeShares(NamedTuple):
    """Seconds, the mean over all chips: those of commands, and the three others, add up to the whole time."""

    of_command: tuple[float, ...]  # by the index of the command
    host: float
    launch: float
    waiting: float
    busy: Mapping[Chip, float]  # how long programs ran on each chip

    @property
    def idle(self) -> dict[str, float]:
        return {"host": self.host, "launch": self.launch, "waiting": self.waiting}

    @property
    def mean_busy(self) -> float:
        return sum(self.busy.values()) / len(self.busy) if self.busy else 0.0


def time_shares(commands: Sequence[TimedCommand], meshes: Sequence[MeshRecord], seconds: float) -> TimeShares:
    arches = {(mesh.rank, device): mesh.chip.arch_name for mesh in meshes for device in mesh.devices}
    if not arches:
        return TimeShares((0.0,) * len(commands), seconds, 0.0, 0.0, {})
    last = max((command.end for command in commands), default=0.0)
    spent, idle = [0.0] * len(commands), [0.0, 0.0, 0.0]
    busy: dict[Chip, float] = {}
    for chips, own in _alike(commands, arches):
        line = _ChipLine(own, seconds, last, GAP_US[arches[chips[0]]] * 1e-6)
        weight = len(chips) / len(arches)
        for index, time in line.spent.items():
            spent[index] += weight * time
        for at, time in enumerate((line.host, line.launch, line.waiting)):
            idle[at] += weight * time
        busy.update(dict.fromkeys(chips, line.busy))
    host, launch, waiting = idle
    return TimeShares(tuple(spent), host, launch, waiting, busy)


def is_transfer(command: TimedCommand) -> bool:
    """True if the host moves bytes while no core of a chip runs a program."""
    return command.cost.bound is Bound.HOST


def _alike(
    commands: Sequence[TimedCommand], chips: Mapping[Chip, object]
) -> list[tuple[list[Chip], list[TimedCommand]]]:
    """Chips on which the same commands take time, and these in the order of their starts."""
    groups: dict[tuple[int, tuple[int, ...]], list[TimedCommand]] = defaultdict(list)
    for command in commands:
        if command.mesh >= 0 and command.end > command.start:
            groups[command.rank, command.devices].append(command)
    members: dict[Chip, list[tuple[int, tuple[int, ...]]]] = {chip: [] for chip in chips}
    for key in groups:
        for device in key[1]:
            if (key[0], device) in members:
                members[key[0], device].append(key)
    alike: dict[tuple[tuple[int, tuple[int, ...]], ...], list[Chip]] = defaultdict(list)
    for chip, keys in members.items():
        alike[tuple(keys)].append(chip)
    return [
        (found, sorted((one for key in keys for one in groups[key]), key=lambda one: one.start))
        for keys, found in alike.items()
    ]


class _ChipLine:
    """One chip from the first moment to the last."""

    def __init__(self, commands: Sequence[TimedCommand], seconds: float, last: float, gap: float) -> None:
        self.spent: dict[int, float] = defaultdict(float)
        self.busy = self.host = self.launch = self.waiting = 0.0
        self._gap, self._last = gap, last
        self._now = 0.0
        self._running: list[TimedCommand] = []
        for command in commands:
            self._go_on(command.start, command)
            self._running.append(command)
        self._go_on(seconds, None)

    def _go_on(self, until: float, following: TimedCommand | None) -> None:
        """Up to `until`, when the next command of the chip starts or all is over."""
        while self._now < until:
            self._running = [command for command in self._running if command.end > self._now]
            if not self._running:
                self._idle(until, following)
                self._now = until
                return
            end = min(until, *(command.end for command in self._running))
            programs = [command for command in self._running if not is_transfer(command)]
            if programs:
                self.busy += end - self._now
            for command in programs or self._running:
                self.spent[command.index] += (end - self._now) / len(programs or self._running)
            self._now = end

    def _idle(self, until: float, following: TimedCommand | None) -> None:
        if following is None:  # others may go on; then only the host does
            there = min(max(self._last, self._now), until)
            self.waiting += there - self._now
            self.host += until - there
            return
        issued = min(max(following.issued, self._now), until)
        launched = min(max(self._now + self._gap, issued), until) if self._now > 0 else issued
        self.host += issued - self._now
        self.launch += launched - issued
        self.waiting += until - launched
