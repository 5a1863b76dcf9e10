"""Messages between queues: what the sender knew when it sent one, the receiver knows when it has it."""

from __future__ import annotations

import weakref
from collections import deque

from softmesh.runtime.sanitizer.clock import Agent, Clock


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
