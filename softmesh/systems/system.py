"""What opening a mesh needs from a machine, and the elastic machine that has as many chips as asked for."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Protocol

from softmesh.errors import MeshError
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.systems.chip import WORMHOLE, Chip


class System(Protocol):
    """A machine: the seam where real systems with their links and limits come in."""

    name: str
    chip: Chip
    shape: MeshShape

    def choose_devices(
        self, shape: MeshShape, offset: MeshCoordinate | None, in_use: Collection[int]
    ) -> list[int]:
        """Physical ids for a mesh of this shape, row-major; an error where there are none."""
        ...

    def reshape_devices(self, ids: list[int], old: MeshShape, new: MeshShape) -> list[int]:
        """The order of the same devices under another shape."""
        ...


class ElasticSystem:
    """Wormhole chips without end, every one next to every other: takes any shape, of any rank.

    Asked for "the" system mesh it answers 2x4. Ids count up from the lowest free one.
    """

    name = "elastic"
    chip = WORMHOLE
    shape = MeshShape(2, 4)

    def choose_devices(
        self, shape: MeshShape, offset: MeshCoordinate | None, in_use: Collection[int]
    ) -> list[int]:
        if offset is not None and offset.dims() != shape.dims():
            raise MeshError(
                f"Requested mesh shape dimensions mismatch: offset {offset} has {offset.dims()} dims, "
                f"{shape} has {shape.dims()}."
            )
        ids: list[int] = []
        candidate = 0
        while len(ids) < shape.mesh_size():
            if candidate not in in_use:
                ids.append(candidate)
            candidate += 1
        return ids

    def reshape_devices(self, ids: list[int], old: MeshShape, new: MeshShape) -> list[int]:
        if math.prod(old) != math.prod(new):
            raise MeshError(
                f"New shape must have the same number of devices as current shape: {new} has "
                f"{new.mesh_size()}, {old} has {old.mesh_size()}."
            )
        return ids


_CURRENT: System = ElasticSystem()


def current_system() -> System:
    return _CURRENT
