"""MeshEvent: a mark in a command queue that other queues, or the host, can wait for; and the event log of one queue.

Events are numbered from 0 in each queue. `quiesce_devices` starts the numbers again and begins a new era: an event of
an older era is stale, and waiting for it is an error.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from softmesh.arguments import refused
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinateRange

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class MeshEvent:
    """Made by recording one. `id` counts up in its queue and starts again when the mesh is quiesced."""

    __slots__ = ("__weakref__", "_device_id", "_mesh", "device_range", "era", "id", "mesh_cq_id", "passed", "to_host")

    id: int
    mesh_cq_id: int
    device_range: MeshCoordinateRange
    to_host: bool  # whether the host is told too; otherwise only other queues can wait for it
    era: int  # how often the mesh was quiesced before
    passed: torch.cuda.Event | None  # on a GPU: what its stream has recorded
    _mesh: weakref.ref[MeshDevice]
    _device_id: int

    def __init__(self) -> None:
        raise refused("MeshEvent", "it has no constructor: ttnn.record_event(mesh_device, cq_id) returns one")

    @classmethod
    def make(
        cls,
        mesh: MeshDevice,
        queue: int,
        number: int,
        device_range: MeshCoordinateRange,
        *,
        to_host: bool,
        era: int,
    ) -> MeshEvent:
        event = cls.__new__(cls)
        event._mesh = weakref.ref(mesh)
        event._device_id = mesh.id()
        event.id, event.mesh_cq_id, event.device_range = number, queue, device_range
        event.to_host, event.era, event.passed = to_host, era, None
        return event

    def device(self) -> MeshDevice:
        mesh = self._mesh()
        if mesh is None:
            raise MeshError(f"{self}: the mesh it was recorded on is gone. Keep the mesh, or drop the event.")
        return mesh

    def __repr__(self) -> str:
        return (
            f"MeshEvent(id={self.id}, device_id={self._device_id}, mesh_cq_id={self.mesh_cq_id}, "
            f"device_range={self.device_range})"
        )


class EventLog:
    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._next = 0
        self._finished = 0  # all events below this number have reached the host
        self._era = 0
        self._reported: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[MeshCoordinateRange, int]] = {}

    def record(self, mesh: MeshDevice, box: MeshCoordinateRange, *, to_host: bool) -> MeshEvent:
        event = MeshEvent.make(mesh, self._queue, self._next, box, to_host=to_host, era=self._era)
        self._next += 1
        if to_host:
            self._reported[tuple(box.start), tuple(box.end)] = (box, event.id)
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
        later = [box for box, number in self._reported.values() if number >= event.id]
        if any(box.contains(event.device_range) for box in later):
            return True
        return all(any(box.contains(coordinate) for box in later) for coordinate in event.device_range)

    def start_again(self) -> None:
        self._next = self._finished = 0
        self._era += 1
        self._reported.clear()
