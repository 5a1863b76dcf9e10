"""The default mesh graph of each product, used when no descriptor is given."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from softmesh.errors import SoftmeshWarning
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Pinning, Side
from softmesh.hardware import Arch, ClusterType, FabricType


class _Grid(NamedTuple):
    arch: Arch
    shape: tuple[int, int]
    channels: int


_WORMHOLE, _BLACKHOLE = Arch.WORMHOLE_B0, Arch.BLACKHOLE
_N150 = _Grid(_WORMHOLE, (1, 1), 1)
_P150 = _Grid(_BLACKHOLE, (1, 1), 1)
_GRIDS = {
    ClusterType.N150: _N150,
    ClusterType.N300: _Grid(_WORMHOLE, (1, 2), 2),
    ClusterType.N300_2x2: _Grid(_WORMHOLE, (2, 2), 2),
    ClusterType.T3K: _Grid(_WORMHOLE, (2, 4), 2),
    ClusterType.GALAXY: _Grid(_WORMHOLE, (8, 4), 4),
    ClusterType.P100: _P150,
    ClusterType.P150: _P150,
    ClusterType.P150_X2: _Grid(_BLACKHOLE, (1, 2), 4),
    ClusterType.P150_X4: _Grid(_BLACKHOLE, (2, 2), 4),
    ClusterType.P150_X8: _Grid(_BLACKHOLE, (2, 4), 2),
    ClusterType.P300: _Grid(_BLACKHOLE, (1, 2), 2),
    ClusterType.P300_X2: _Grid(_BLACKHOLE, (2, 2), 2),
    ClusterType.BLACKHOLE_GALAXY: _Grid(_BLACKHOLE, (8, 4), 2),
    ClusterType.SIMULATOR_WORMHOLE_B0: _N150,
    ClusterType.SIMULATOR_BLACKHOLE: _P150,
    ClusterType.SIMULATOR_QUASAR: _P150,
}
_FIRST_POSITION = (1, 1)  # tray 1, ASIC 1: where chip 0 of a Galaxy is


def default_graph(cluster_type: ClusterType, fabric_type: FabricType = FabricType.MESH) -> MeshGraph | None:
    """None where a descriptor must be given: a machine of no known type."""
    source = f"default descriptor of {cluster_type.name}"
    if fabric_type is not FabricType.MESH and not cluster_type.is_galaxy:
        warnings.warn(
            f"There is no {fabric_type.name} descriptor for {cluster_type.name}; its MESH descriptor is used. "
            "Set TT_MESH_GRAPH_DESC_PATH to a descriptor that declares RING in dim_types",
            SoftmeshWarning,
            stacklevel=2,
        )
        fabric_type = FabricType.MESH
    if cluster_type is ClusterType.TG:
        return _tg(source)
    grid = _GRIDS.get(cluster_type)
    if grid is None:
        return None
    mesh = LogicalMesh(0, "M0", grid.shape, fabric_type.wraps, channels=grid.channels)
    pinned = (Pinning((Node(0, 0),), (_FIRST_POSITION,)),) if cluster_type.is_galaxy else ()
    return MeshGraph(source, grid.arch, (mesh,), pinnings=pinned)


def _tg(source: str) -> MeshGraph:
    """Four gateway chips, each joined to the Galaxy behind them."""
    gateways = [LogicalMesh(i, "M0", (1, 1), channels=4) for i in range(4)]
    galaxy = LogicalMesh(4, "M1", (4, 8), channels=4)
    connections = tuple(Connection(Side((i,)), Side((4,)), 2, strict=True) for i in range(4))
    return MeshGraph(source, _WORMHOLE, (*gateways, galaxy), connections)
