"""Vector clocks: which work of the host and of each queue is known to be over; and the messages that pass them on.

The host and each queue are agents; each does one thing after the other. A clock says, for every agent, how much of
its work is known to be over. Agents learn of each other where the program makes them wait: a queue starts nothing
before the host hands it over, and everything else takes an event, a blocking call, a synchronisation or a message. What
the sender of a message knew when it sent it, the receiver knows when it has it.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from typing import NamedTuple

from softmesh.callsite import RawSite
from softmesh.mesh import MeshCoordinate

Places = frozenset[MeshCoordinate]
_NUMBERS = itertools.count()


class Clock:
    """By the number of an agent, how many of its steps are over: on all devices, and further ones on some."""

    __slots__ = ("counts", "parts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.parts: dict[Places, dict[int, int]] = {}

    def copy(self) -> Clock:
        made = Clock()
        made.learn(self)
        return made

    def only_on(self, places: Places) -> Clock:
        """What somebody knows who heard of these devices only."""
        made = Clock()
        for part, counts in ((places, self.counts), *self.parts.items()):
            if part & places:
                _raise_to(made.parts.setdefault(part & places, {}), counts)
        return made

    def learn(self, other: Clock) -> None:
        _raise_to(self.counts, other.counts)
        for places, counts in other.parts.items():
            _raise_to(self.parts.setdefault(places, {}), counts)

    def knows(self, step: Step, places: Places | None) -> bool:
        """Whether that step is over, on these devices (None: on all that its agent works on)."""
        number, count = step.agent.number, step.number
        if self.counts.get(number, 0) >= count:
            return True
        if not self.parts:
            return False
        known = [part for part, counts in self.parts.items() if counts.get(number, 0) >= count]
        return (places or step.agent.devices) <= frozenset().union(*known)


def _raise_to(counts: dict[int, int], others: dict[int, int]) -> None:
    for agent, count in others.items():
        if counts.get(agent, 0) < count:
            counts[agent] = count


class Agent:
    """Does one thing after the other, on all `devices` of a mesh: the host, a queue, a queue's part of the cores."""

    __slots__ = ("clock", "count", "devices", "host_updates_seen", "name", "news_count", "number", "queue")

    def __init__(self, name: str, queue: int | None = None, devices: Places = frozenset()) -> None:
        self.name = name
        self.queue = queue  # None: the host
        self.devices = devices
        self.number = next(_NUMBERS)
        self.clock = Clock()
        self.count = 0
        self.news_count = 0  # how often it learnt something
        self.host_updates_seen = 0  # how much of the host's news it had when it was last told

    def step(self, name: str, site: RawSite) -> Step:
        """The next piece of its work."""
        self.count = count = self.count + 1
        self.clock.counts[self.number] = count
        return tuple.__new__(Step, (self, count, name, site))

    def learn(self, clock: Clock) -> None:
        """From here on, what is over by this clock is over for the agent."""
        self.clock.learn(clock)
        self.news_count += 1

    def follow(self, host: Agent) -> None:
        """The host hands something over: what it knows to be over by now is."""
        self.host_updates_seen = host.news_count
        self.clock.learn(host.clock)


class Step(NamedTuple):
    """One command, as the one of this number of its agent."""

    agent: Agent
    number: int
    name: str
    site: RawSite


class _Channel:
    def __init__(self) -> None:
        self.sent: deque[Clock] = deque()
        self.waiting: deque[Agent] = deque()  # those whose message is still to come


class Messages:
    """By the channel they go through, in their order."""

    def __init__(self) -> None:
        self._channels: weakref.WeakKeyDictionary[object, _Channel] = weakref.WeakKeyDictionary()

    def send(self, channel: object, clock: Clock) -> None:
        known = self._channel(channel)
        if known.waiting:
            known.waiting.popleft().learn(clock)
        else:
            known.sent.append(clock)

    def receive(self, channel: object, agent: Agent) -> None:
        known = self._channel(channel)
        if known.sent:
            agent.learn(known.sent.popleft())
        else:
            known.waiting.append(agent)

    def receive_all(self, channel: object, agent: Agent) -> None:
        """Of a stream of bytes nobody says where a message ends."""
        known = self._channel(channel)
        while known.sent:
            agent.learn(known.sent.popleft())

    def _channel(self, channel: object) -> _Channel:
        known = self._channels.get(channel)
        if known is None:
            known = self._channels[channel] = _Channel()
        return known
