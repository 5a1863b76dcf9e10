"""A core on a mesh: which device, and which core of it."""

from __future__ import annotations

from collections.abc import Sequence

from softmesh.arguments import checked
from softmesh.cores import CoreCoord
from softmesh.mesh import MeshCoordinate

_A_COORDINATE = "a MeshCoordinate such as ttnn.MeshCoordinate(0, 0)"


class MeshCoreCoord:
    """Compares by value.

    >>> MeshCoreCoord(MeshCoordinate(0, 1), CoreCoord(2, 3))
    MeshCoreCoord(device=MeshCoordinate([0, 1]), core=(2,3))
    """

    __slots__ = ("_core", "_device")

    def __init__(self, device_coord: MeshCoordinate, core_coord: CoreCoord | Sequence[int]) -> None:
        self.device_coord = device_coord
        self.core_coord = core_coord

    @property
    def device_coord(self) -> MeshCoordinate:
        return self._device

    @device_coord.setter
    def device_coord(self, coord: MeshCoordinate) -> None:
        self._device = checked("MeshCoreCoord", "device_coord", coord, MeshCoordinate, _A_COORDINATE)

    @property
    def core_coord(self) -> CoreCoord:
        return self._core

    @core_coord.setter
    def core_coord(self, core: CoreCoord | Sequence[int]) -> None:
        self._core = CoreCoord.of(core)

    def copy(self) -> MeshCoreCoord:
        return MeshCoreCoord(self._device, self._core)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MeshCoreCoord):
            return NotImplemented
        return self._device == other._device and self._core == other._core

    def __hash__(self) -> int:
        return hash((self._device, self._core))

    def __repr__(self) -> str:
        return f"MeshCoreCoord(device={self._device}, core=({self._core.x},{self._core.y}))"
