"""MeshEvent: a mark in a queue that other queues, or the host, can wait for."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from softmesh.arguments import refused
from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinateRange

if TYPE_CHECKING:
    from softmesh.runtime.device import MeshDevice


class MeshEvent:
    """Made by recording one. `id` counts up in its queue and starts again when the mesh is quiesced."""

    __slots__ = ("__weakref__", "_device_id", "_mesh", "device_range", "era", "id", "mesh_cq_id", "to_host")

    id: int
    mesh_cq_id: int
    device_range: MeshCoordinateRange
    to_host: bool  # whether the host is told too; otherwise only other queues can wait for it
    era: int  # how often the mesh was quiesced before
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
        event.to_host, event.era = to_host, era
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
