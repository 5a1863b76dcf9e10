"""Analysis of a pipeline schedule before it runs: deadlocks, FIFO sizes, bubbles, live activations, and a drawing.

>>> from softmesh.train.pipeline.stage_schedules import one_forward_one_backward
>>> schedule = one_forward_one_backward(stages=4, micro_batches=8)
>>> bubble_share(schedule), live_activations(schedule)
(Fraction(3, 11), (4, 3, 2, 1))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from softmesh.arguments import checked, checked_int, described, refused
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.train.pipeline.schedule_rules import violations
from softmesh.train.pipeline.simulation import Room, Simulation, Step, Time, cycle_of
from softmesh.train.pipeline.stage_schedules import (
    Connection,
    Forward,
    Message,
    Pass,
    Schedule,
    Send,
    checked_count,
    connection_of,
)

PAGE_BYTES = 4096  # a tile of float32: the least that a FIFO takes at a time
# Messages that there is room for: on every connection, on those that are named, or without bounds.
Fifo = int | Mapping[Connection, int] | None


@dataclass(frozen=True)
class Deadlock:
    """Stages that wait for each other for ever; `waits` says for what, also of those that wait for one of them."""

    cycle: tuple[int, ...]
    waits: Mapping[int, str]
    remedy: str

    def __str__(self) -> str:
        ring = " -> ".join(f"stage {stage}" for stage in (*self.cycle, self.cycle[0]))
        lines = [f"  stage {stage} waits {what}" for stage, what in self.waits.items()]
        return "\n".join([f"deadlock: {ring}", *lines, f"  remedy: {self.remedy}"])


class FifoNeed(NamedTuple):
    """Messages. With `safe` nothing gets stuck, though senders may wait; with `unhindered` none ever does."""

    safe: int
    unhindered: int


def deadlock(schedule: Schedule, fifo: Fifo = None) -> Deadlock | None:
    """Who waits for whom in the end, where the FIFOs have this room; None if the schedule gets through."""
    _check_rules(schedule)
    simulation = Simulation(schedule, room_of(schedule, fifo))
    if simulation.run():
        return None
    waiting = simulation.waiting()
    cycle = cycle_of(waiting)
    waits = {stage: _said(stage, action, simulation.room) for stage, action in waiting.items()}
    full = [connection_of(stage, waiting[stage]) for stage in cycle if isinstance(waiting[stage], Send)]
    return Deadlock(cycle, waits, _remedy(schedule, {each: simulation.room[each] for each in full}))


def _check_rules(schedule: Schedule) -> None:
    checked("check", "schedule", schedule, Schedule, "a Schedule, such as gpipe(stages=4, micro_batches=8)")
    if wrong := violations(schedule):
        more = f" (and {len(wrong) - 1} more: see violations(schedule))" if wrong[1:] else ""
        raise MeshError(f"The schedule {schedule.name!r} cannot be simulated. {wrong[0]}{more}.")


def room_of(schedule: Schedule, fifo: Fifo) -> Room:
    if fifo is None:
        return {}
    if not isinstance(fifo, Mapping):
        count = checked_int("check", "fifo", fifo)
        return room_of(schedule, dict.fromkeys(schedule.connections(), count))
    known = schedule.connections()
    for connection, count in fifo.items():
        if connection not in known:
            raise ArgumentValueError(
                f"fifo: {described(connection)} is no connection of the schedule. It has "
                f"{'; '.join(map(str, known)) or 'none'}."
            )
        if checked_int("check", "fifo", count) < 0:
            raise ArgumentValueError(f"fifo: the {connection} have room for {count} messages.")
    return dict(fifo)


def _said(stage: int, action: Message, room: Room) -> str:
    connection = connection_of(stage, action)
    what = f"{connection.carries} of micro-batch {action.micro_batch} (chunk {action.chunk})"
    if not isinstance(action, Send):
        return f"for the {what} from stage {action.peer}"
    holds = counted(room[connection], "message")
    return f"to send the {what} to stage {action.peer}, whose FIFO holds {holds} and is full"


def counted(count: int, noun: str, ending: str = "s") -> str:
    return f"{count} {noun}{ending * (count != 1)}"


def headline(schedule: Schedule) -> str:
    stages = counted(len(schedule.stages), "stage")
    batches = counted(schedule.micro_batches, "micro-batch", "es")
    chunks = f", {schedule.chunks} chunks to a stage" if schedule.chunks > 1 else ""
    return f"{schedule.name}: {stages}, {batches}{chunks}"


def fifo_size(messages: int, message_bytes: int) -> int:
    return max(messages * message_bytes, min(message_bytes, PAGE_BYTES))


def _remedy(schedule: Schedule, full: Room) -> str:
    if not full:
        return "no FIFO is large enough: each waits for what the next sends only later. Change the order of the passes."
    need = smallest_fifo(schedule)
    larger = [f"{counted(need[each], 'message')} for {each}" for each, room in full.items() if need[each] > room]
    return f"give the FIFOs more room: {'; '.join(larger)}."


def smallest_fifo(schedule: Schedule) -> Room:
    """Room for so many messages on each connection is safe, and with one less on any of them it is not.

    0 means that the sender may well wait for its receiver: any FIFO does. Where room is needed on one of two
    connections, it is the one for activations: sends of these wait longer.
    """
    found = unhindered_fifo(schedule)
    for connection in sorted(found, key=lambda each: each.carries == "activations"):
        while found[connection] > 0:
            smaller = {**found, connection: found[connection] - 1}
            if not Simulation(schedule, smaller).run():
                break
            found = smaller
    return found


def unhindered_fifo(schedule: Schedule, forward: Time = 1, backward: Time = 2) -> Room:
    """Room with which no send ever waits, where passes take these times."""
    simulation = simulated(schedule, None, forward, backward)
    return {connection: stream.most_held for connection, stream in simulation.streams.items()}


def simulated(schedule: Schedule, fifo: Fifo = None, forward: Time = 1, backward: Time = 2) -> Simulation:
    """The schedule, simulated to its end; an error that names the stages where it gets stuck."""
    _check_rules(schedule)
    for name, time in (("forward", forward), ("backward", backward)):
        if isinstance(time, bool) or not isinstance(time, int | Fraction) or time <= 0:
            raise ArgumentValueError(f"{name}: a pass takes a positive int or Fraction of time, got {described(time)}.")
    simulation = Simulation(schedule, room_of(schedule, fifo), forward, backward)
    if not simulation.run():
        raise MeshError(f"{schedule.name}: {deadlock(schedule, fifo)}")
    return simulation


def bubble_share(schedule: Schedule, forward: Time = 1, backward: Time = 2, fifo: Fifo = None) -> Fraction:
    """The part of the stages' time in which they only wait, from the first action to the last of all.

    For p stages, m micro-batches and v chunks it is (p - 1) / (v m + p - 1), with v = 1 for GPipe and 1F1B.
    """
    simulation = simulated(schedule, fifo, forward, backward)
    lengths = (step.end - step.start for step in simulation.steps if isinstance(step.action, Pass))
    return 1 - Fraction(sum(lengths), simulation.makespan * len(schedule.stages))


def live_activations(schedule: Schedule) -> tuple[int, ...]:
    """For each stage, how many forwards at most have been done and still await their backward."""
    return tuple(max(_alive(schedule, stage), default=0) for stage in range(len(schedule.stages)))


def _alive(schedule: Schedule, stage: int) -> Iterator[int]:
    alive = 0
    for action in schedule.stages[stage]:
        if isinstance(action, Pass):
            alive += 1 if isinstance(action, Forward) else -1
            yield alive


@dataclass(frozen=True)
class Report:
    """What is wrong with a schedule, or else what it costs. `message_bytes`: of one activation on one device."""

    schedule: Schedule
    violations: tuple[str, ...]
    deadlock: Deadlock | None
    fifos: Mapping[Connection, FifoNeed]
    bubble: Fraction | None
    live: tuple[int, ...]
    message_bytes: int | None = None

    @property
    def is_safe(self) -> bool:
        return not self.violations and self.deadlock is None

    def fifo_bytes(self) -> dict[Connection, int]:
        """The smallest safe FIFOs in bytes for each device: one without room for a message lets it through in pages."""
        if self.message_bytes is None:
            raise MeshError("fifo_bytes: give check() message_bytes, what one activation takes on one device.")
        return {each: fifo_size(need.safe, self.message_bytes) for each, need in self.fifos.items()}

    def raise_if_unsafe(self) -> None:
        if not self.is_safe:
            raise MeshError(f"The schedule cannot run. {self}")

    def __str__(self) -> str:
        head = headline(self.schedule)
        return "\n".join([head, *(f"  {line}" for line in self._lines())])

    def _lines(self) -> Iterator[str]:
        yield from self.violations
        if self.deadlock is not None:
            yield from str(self.deadlock).splitlines()
        if self.bubble is not None:
            yield f"bubbles: {self.bubble} of the time, {float(self.bubble):.1%}"
            yield f"live activations, by stage: {', '.join(map(str, self.live))}"
        for connection, need in self.fifos.items():
            size = f" ({self.fifo_bytes()[connection]} bytes)" if self.message_bytes else ""
            yield f"FIFO for {connection}: {counted(need.safe, 'message')}{size}; {need.unhindered} so that none waits"


def check(schedule: Schedule, fifo: Fifo = None, message_bytes: int | None = None) -> Report:
    """All that can be told of a schedule before it runs, on stages whose FIFOs hold so many messages.

    A FIFO that is left out is as large as it needs to be.
    """
    checked("check", "schedule", schedule, Schedule, "a Schedule, such as schedules.gpipe(4, 8)")
    if message_bytes is not None and checked_int("check", "message_bytes", message_bytes) < 1:
        raise refused("check", f"message_bytes must be at least 1, got {message_bytes}")
    wrong = tuple(violations(schedule))
    if wrong:
        return Report(schedule, wrong, None, {}, None, (), message_bytes)
    stuck = deadlock(schedule, fifo)
    if deadlock(schedule) is not None:
        return Report(schedule, (), stuck, {}, None, (), message_bytes)
    unhindered = unhindered_fifo(schedule)
    fifos = {each: FifoNeed(safe, unhindered[each]) for each, safe in smallest_fifo(schedule).items()}
    share = None if stuck else bubble_share(schedule, fifo=fifo)
    return Report(schedule, (), stuck, fifos, share, live_activations(schedule), message_bytes)


# The schedule drawn in text, stages down, time across. F2 is the forward of micro-batch 2, B2 its backward, a letter
# the chunk where there are several; -- goes on with the same, and . waits.


_LONGEST = 1000  # units of time that are drawn


def picture(schedule: Schedule, forward: int = 1, backward: int = 2, fifo: Fifo = None) -> str:
    """Rows of stages with what each loses: while the pipeline fills, in between, and while it drains.

    >>> from softmesh.train.pipeline.stage_schedules import gpipe
    >>> print(picture(gpipe(stages=2, micro_batches=2), backward=1))
    gpipe: 2 stages, 2 micro-batches
    stage 0  F0 F1  .  . B0 B1   waits 0 to fill, 2 between, 0 to drain; keeps 2 activations
    stage 1   . F0 F1 B0 B1  .   waits 1 to fill, 0 between, 1 to drain; keeps 2 activations
    4 of 12 units are bubbles: 1/3, 33.3%
    """
    times = (checked_count("picture", "forward", forward), checked_count("picture", "backward", backward))
    simulation = simulated(schedule, fifo, *times)
    length, live = int(simulation.makespan), live_activations(schedule)
    rows = [_Row(schedule, stage, simulation.steps, length) for stage in range(len(schedule.stages))]
    shown = min(length, _LONGEST)
    width = 1 + max((len(cell) for row in rows for cell in row.cells[:shown]), default=0)
    lines = [
        f"stage {stage:<{len(str(len(rows) - 1))}} {row.drawn(width, shown)}   {row.account()}; "
        f"keeps {counted(live[stage], 'activation')}"
        for stage, row in enumerate(rows)
    ]
    share = bubble_share(schedule, *times, fifo)
    waits = sum(row.waits for row in rows)
    tail = f"{waits} of {length * len(rows)} units are bubbles: {share}, {float(share):.1%}"
    return "\n".join([headline(schedule), *lines, tail])


class _Row:
    def __init__(self, schedule: Schedule, stage: int, steps: Sequence[Step], length: int) -> None:
        self.cells = [""] * length
        for step in steps:
            if step.stage == stage and isinstance(step.action, Pass):
                name = _name(step.action, schedule.chunks)
                cells = [name, *["-" * len(name)] * (int(step.end - step.start) - 1)]
                self.cells[int(step.start) : int(step.end)] = cells

    @property
    def waits(self) -> int:
        return self.cells.count("")

    def drawn(self, width: int, shown: int) -> str:
        return "".join(f"{cell or '.':>{width}}" for cell in self.cells[:shown])

    def account(self) -> str:
        fill, drain = self._leading(self.cells), self._leading(self.cells[::-1])
        return f"waits {fill} to fill, {self.waits - fill - drain} between, {drain} to drain"

    @staticmethod
    def _leading(cells: Sequence[str]) -> int:
        return next((number for number, cell in enumerate(cells) if cell), len(cells))


def _name(action: Pass, chunks: int) -> str:
    letter = "F" if isinstance(action, Forward) else "B"
    return f"{letter}{action.micro_batch}{_chunk_letters(action.chunk) if chunks > 1 else ''}"


def _chunk_letters(chunk: int) -> str:
    return chr(ord("a") + chunk) if chunk < 26 else f".{chunk}"
