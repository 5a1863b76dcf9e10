"""Cables between the software cards of one rack: bytes cross when one end has posted a send and the other a receive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from softmesh.drivers.worker import Task
from softmesh.errors import MeshError


class End(NamedTuple):
    """One end of a cable: a port of the card with this serial."""

    serial: str
    port: int


class _Send(NamedTuple):
    data: bytes
    done: Task


class _Receive(NamedTuple):
    size: int
    store: Callable[[bytes], None]
    done: Task


class Lane:
    """One direction of a cable. A posted receive is the credit that a send needs."""

    def __init__(self) -> None:
        self._sends: deque[_Send] = deque()
        self._receives: deque[_Receive] = deque()
        self._lock = threading.Lock()

    def post_send(self, data: bytes, done: Task) -> None:
        self._sends.append(_Send(data, done))
        self._match()

    def post_receive(self, size: int, store: Callable[[bytes], None], done: Task) -> None:
        self._receives.append(_Receive(size, store, done))
        self._match()

    def clear(self) -> None:
        """Forget what was posted and has found no partner."""
        with self._lock:
            self._sends.clear()
            self._receives.clear()

    def _match(self) -> None:
        with self._lock:
            while self._sends and self._receives:
                _transfer(self._sends.popleft(), self._receives.popleft())


def _transfer(send: _Send, receive: _Receive) -> None:
    error = None
    if len(send.data) != receive.size:
        error = MeshError(f"{send.done.what} met {receive.done.what}: both ends must post the same size")
    else:
        receive.store(send.data)
    send.done.finish(error=error)
    receive.done.finish(error=error)


class Cables:
    """All cables of a rack, by their ends."""

    def __init__(self, pairs: list[tuple[End, End]]) -> None:
        ends = [end for pair in pairs for end in pair]
        twice = next((end for end in ends if ends.count(end) > 1), None)
        if twice:
            raise MeshError(f"port {twice.port} of {twice.serial} cannot have two cables")
        self._far = {near: far for a, b in pairs for near, far in ((a, b), (b, a))}
        self._lanes = {near: Lane() for near in self._far}  # by the end that sends

    def peers(self, serial: str) -> dict[int, tuple[str, int]]:
        return {near.port: (far.serial, far.port) for near, far in self._far.items() if near.serial == serial}

    def outgoing(self, end: End) -> Lane:
        return self._lanes[self._known(end)]

    def incoming(self, end: End) -> Lane:
        return self._lanes[self._far[self._known(end)]]

    def clear(self, serial: str) -> None:
        for near, far in self._far.items():
            if serial in (near.serial, far.serial):
                self._lanes[near].clear()

    def _known(self, end: End) -> End:
        if end not in self._far:
            ports = sorted(self.peers(end.serial))
            raise MeshError(
                f"no cable is plugged into port {end.port} of {end.serial}; there is one in {ports}"
            )
        return end
