"""The events of one queue: their numbers, and which of them the host has heard of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softmesh.mesh import MeshCoordinateRange
from softmesh.runtime.queues.event import MeshEvent

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class EventLog:
    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._next = 0
        self._finished = 0  # all events below this number have reached the host
        self._era = 0
        self._told: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[MeshCoordinateRange, int]] = {}

    def record(self, mesh: MeshDevice, box: MeshCoordinateRange, *, to_host: bool) -> MeshEvent:
        event = MeshEvent.make(mesh, self._queue, self._next, box, to_host=to_host, era=self._era)
        self._next += 1
        if to_host:
            self._told[tuple(box.start), tuple(box.end)] = (box, event.id)
        return event

    def record_finish(self) -> None:
        """An event of the whole mesh that the host has waited for; nobody else gets to see it."""
        self._next += 1
        self._finished = self._next

    def is_stale(self, event: MeshEvent) -> bool:
        """Whether numbers have begun anew since."""
        return event.era != self._era

    def has_reached_host(self, event: MeshEvent) -> bool:
        """Whether the host heard of this event, or of a later one, from every device it is about."""
        if event.id < self._finished:
            return True
        later = [box for box, number in self._told.values() if number >= event.id]
        if any(box.contains(event.device_range) for box in later):
            return True
        return all(any(box.contains(coordinate) for box in later) for coordinate in event.device_range)

    def start_again(self) -> None:
        self._next = self._finished = 0
        self._era += 1
        self._told.clear()
