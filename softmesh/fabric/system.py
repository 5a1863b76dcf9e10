"""What opening a mesh needs from a machine."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Protocol

from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import LogicalMesh
from softmesh.hardware import ClusterType
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.systems.chip import Chip


class System(Protocol):
    """A machine as this process sees it: the chips it may open, and the mesh they form."""

    @property
    def name(self) -> str: ...

    @property
    def chip(self) -> Chip: ...

    @property
    def shape(self) -> MeshShape: ...

    @property
    def cluster_type(self) -> ClusterType: ...

    @property
    def meshes(self) -> tuple[LogicalMesh, ...]:
        """All meshes of the descriptor as it was written, whatever the active fabric makes of them."""
        ...

    @property
    def own_meshes(self) -> tuple[LogicalMesh, ...]:
        """Those that this process works on: the one it is bound to, or all of them."""
        ...

    @property
    def host_grid(self) -> tuple[int, ...]:
        """How many hosts hold the mesh of this process, along each axis."""
        ...

    @property
    def host_rank(self) -> int | None:
        """Which of them this process runs on, where its binding says so."""
        ...

    def device_ids(self) -> list[int]: ...

    def pcie_ids(self) -> list[int]:
        """The chips that hang on a host directly."""
        ...

    def pcie_chip_of(self, device_id: int) -> int:
        """The chip through which the host reaches this one."""
        ...

    def choose_devices(
        self, shape: MeshShape, offset: MeshCoordinate | None, in_use: Collection[int]
    ) -> list[int]:
        """Physical ids for a mesh of this shape, row-major; an error where there are none."""
        ...

    def check_devices(self, ids: list[int]) -> None:
        """Refuse ids that the machine does not have."""
        ...

    def reshape_devices(self, ids: list[int], old: MeshShape, new: MeshShape) -> list[int]:
        """The order of the same devices under another shape."""
        ...

    def node_of(self, device_id: int) -> tuple[int, int]:
        """Mesh id and chip id of a device in the fabric."""
        ...

    def are_joined(self, line: list[int], axis: int) -> bool:
        """Whether the fabric as configured links the last of these devices, along a mesh axis, to the first."""
        ...

    def links_along(self, lines: list[list[int]], axis: int | None) -> int:
        """How many links in parallel the fabric has along all of these lines of devices."""
        ...

    def bring_up(self) -> None:
        """Start the fabric as configured; refuse where the machine's links do not allow it."""
        ...


def check_same_size(old: MeshShape, new: MeshShape) -> None:
    if math.prod(old) != math.prod(new):
        raise MeshError(
            f"New shape must have the same number of devices as current shape: {new} has "
            f"{new.mesh_size()}, {old} has {old.mesh_size()}."
        )
