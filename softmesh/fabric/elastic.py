"""The machine that is there when none was chosen."""

from __future__ import annotations

from collections.abc import Collection

from softmesh.errors import MeshError
from softmesh.fabric import settings
from softmesh.fabric.mesh_graph import LogicalMesh
from softmesh.fabric.system import check_same_size
from softmesh.hardware import ClusterType, FabricConfig
from softmesh.mesh import MeshCoordinate, MeshShape
from softmesh.systems.chip import WORMHOLE

_WRAPPING = {
    FabricConfig.FABRIC_1D_RING: (0, 1),
    FabricConfig.FABRIC_2D_TORUS_X: (1,),
    FabricConfig.FABRIC_2D_TORUS_Y: (0,),
    FabricConfig.FABRIC_2D_TORUS_XY: (0, 1),
}


class ElasticSystem:
    """Wormhole chips without end, every one next to every other: takes any shape, of any rank.

    Asked for "the" system mesh it answers 2x4, and calls itself a T3K. Ids count up from the lowest free
    one. Every mesh is wired as a Galaxy is: four links from chip to chip, and around each axis.
    """

    name = "elastic"
    chip = WORMHOLE
    shape = MeshShape(2, 4)
    cluster_type = ClusterType.T3K
    host_grid = (1, 1)
    host_rank = None
    links_per_edge = 4
    meshes = own_meshes = (LogicalMesh(0, "M0", (2, 4), channels=links_per_edge),)

    def device_ids(self) -> list[int]:
        return list(range(self.shape.mesh_size()))

    def pcie_ids(self) -> list[int]:
        return self.device_ids()

    def pcie_chip_of(self, device_id: int) -> int:
        return device_id

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

    def check_devices(self, ids: list[int]) -> None:
        pass

    def reshape_devices(self, ids: list[int], old: MeshShape, new: MeshShape) -> list[int]:
        check_same_size(old, new)
        return ids

    def node_of(self, device_id: int) -> tuple[int, int]:
        return 0, device_id

    def are_joined(self, line: list[int], axis: int) -> bool:
        return axis in _WRAPPING.get(settings.active().config, ())

    def links_along(self, lines: list[list[int]], axis: int | None) -> int:
        return min(self.links_per_edge, settings.active().num_planes or self.links_per_edge)

    def bring_up(self) -> None:
        pass
