"""Simulation of a pipeline schedule without tensors: when each action happens, and who waits for whom in a deadlock.

A message is on its way as soon as its send is reached. The send is over once what was sent and not received fits
into the FIFO, so with room for no message at all it waits for its receiver. Messages themselves take no time.
Whether a schedule gets stuck does not depend on who is looked at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from softmesh.train.pipeline.stage_schedules import (
    Action,
    Connection,
    Forward,
    Message,
    Pass,
    Schedule,
    Send,
)

Time = int | Fraction
Room = dict[Connection, int]  # messages that a FIFO has room for


class Step(NamedTuple):
    stage: int
    action: Action
    start: Time
    end: Time


@dataclass
class _Stream:
    """When each message was sent, and when it was taken."""

    sent: list[Time] = field(default_factory=list)
    taken: list[Time] = field(default_factory=list)

    @property
    def most_held(self) -> int:
        """Messages that lay in the FIFO at once.

        One that is taken in the very moment of a send counts: its receiver may have to send something first.
        """
        most = taken = 0
        for number, moment in enumerate(self.sent, 1):
            while taken < len(self.taken) and self.taken[taken] < moment:
                taken += 1
            most = max(most, number - taken)
        return most


class Simulation:
    """`room` is how many messages each FIFO holds; one that is not named there is never full."""

    def __init__(
        self,
        schedule: Schedule,
        room: Mapping[Connection, int] | None = None,
        forward: Time = 1,
        backward: Time = 2,
    ) -> None:
        self._schedule, self._forward, self._backward = schedule, forward, backward
        self.room: Room = dict(room or {})
        self.streams = {connection: _Stream() for connection in schedule.connections()}
        self._next = [0] * len(schedule.stages)  # the number of the action that a stage is at
        self._clock: list[Time] = [0] * len(schedule.stages)
        self._sending: list[int | None] = [None] * len(schedule.stages)  # the step of a send that is not over
        self.steps: list[Step] = []  # a receive always comes after its send

    def run(self) -> bool:
        """Go on until all is done, or nobody can; whether all is done."""
        todo = list(range(len(self._schedule.stages)))
        while todo:
            stage = todo.pop()
            while (action := self.current(stage)) is not None:
                before = len(self.steps)
                is_over = self._took(stage, action)
                if isinstance(action, Message) and len(self.steps) > before:  # which the peer may wait for
                    todo.append(action.peer)
                if not is_over:
                    break
                self._next[stage] += 1
        return not self.waiting()

    def current(self, stage: int) -> Action | None:
        actions, number = self._schedule.stages[stage], self._next[stage]
        return actions[number] if number < len(actions) else None

    def waiting(self) -> dict[int, Message]:
        """The messages that stages wait for, or for which they wait for room."""
        found = {stage: self.current(stage) for stage in range(len(self._schedule.stages))}
        return {stage: action for stage, action in found.items() if isinstance(action, Message)}

    @property
    def makespan(self) -> Time:
        return max(self._clock)

    def _took(self, stage: int, action: Action) -> bool:
        if isinstance(action, Pass):
            duration = self._forward if isinstance(action, Forward) else self._backward
            return self._done(stage, action, self._clock[stage] + duration)
        connection = self._schedule.routes[stage][self._next[stage]]
        assert connection is not None
        stream = self.streams[connection]
        if isinstance(action, Send):
            return self._sent(stage, action, stream, self.room.get(connection))
        if len(stream.taken) == len(stream.sent):
            return False
        moment = max(self._clock[stage], stream.sent[len(stream.taken)])
        stream.taken.append(moment)
        return self._done(stage, action, moment)

    def _sent(self, stage: int, action: Send, stream: _Stream, room: int | None) -> bool:
        begun = self._sending[stage]
        if begun is None:
            stream.sent.append(self._clock[stage])
            begun = self._sending[stage] = len(self.steps)
            self._done(stage, action, self._clock[stage])
        excess = 0 if room is None else len(stream.sent) - room
        if len(stream.taken) < excess:
            return False
        if excess > 0:
            self._clock[stage] = max(self._clock[stage], stream.taken[excess - 1])
            self.steps[begun] = self.steps[begun]._replace(end=self._clock[stage])
        self._sending[stage] = None
        return True

    def _done(self, stage: int, action: Action, end: Time) -> bool:
        self.steps.append(Step(stage, action, self._clock[stage], end))
        self._clock[stage] = end
        return True


def cycle_of(waiting: Mapping[int, Message]) -> tuple[int, ...]:
    """Stages each of which waits for the next, and the last for the first; empty where somebody waits for no one."""
    for start in waiting:
        seen: list[int] = []
        at = start
        while at in waiting and at not in seen:
            seen.append(at)
            at = waiting[at].peer
        if at in seen:
            return tuple(seen[seen.index(at) :])
    return ()
