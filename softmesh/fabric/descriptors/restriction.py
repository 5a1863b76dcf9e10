"""A fabric configuration may leave wrap-around links unused; it cannot add them."""

from __future__ import annotations

from dataclasses import replace

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.defaults import GALAXIES
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.hardware import ClusterType, FabricConfig, FabricType

_TORUSES = {
    FabricConfig.FABRIC_2D_TORUS_X: FabricType.TORUS_X,
    FabricConfig.FABRIC_2D_TORUS_Y: FabricType.TORUS_Y,
    FabricConfig.FABRIC_2D_TORUS_XY: FabricType.TORUS_XY,
}
_RINGS_ON_GALAXIES = (FabricConfig.FABRIC_1D_RING, FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE)


def requested_type(config: FabricConfig, cluster_type: ClusterType) -> FabricType | None:
    """Which wraps a configuration asks for; None: whichever the descriptor declares."""
    if config in _RINGS_ON_GALAXIES and cluster_type in GALAXIES:
        return FabricType.TORUS_XY
    # Elsewhere rings come from the descriptor alone: a T3000 is a ring of eight with a 1x8 RING descriptor.
    if config in (FabricConfig.FABRIC_1D_RING, FabricConfig.CUSTOM):
        return None
    return _TORUSES.get(config, FabricType.MESH)


def effective_graph(graph: MeshGraph, config: FabricConfig, cluster_type: ClusterType) -> MeshGraph:
    """The graph with the wraps that the configuration uses; an error where it asks for more than there are."""
    requested = requested_type(config, cluster_type)
    if requested is None:
        return graph
    for mesh in graph.meshes:
        _check_offers(mesh, requested, config, graph.source)
    return replace(graph, meshes=tuple(_restricted(mesh, requested) for mesh in graph.meshes))


def _restricted(mesh: LogicalMesh, requested: FabricType) -> LogicalMesh:
    declared, wanted = mesh.rings, requested.wraps
    return replace(mesh, rings=(declared[0] and wanted[0], declared[1] and wanted[1]))


def _check_offers(mesh: LogicalMesh, requested: FabricType, config: FabricConfig, source: str) -> None:
    missing = [
        axis for axis in (0, 1) if requested.wraps[axis] and mesh.shape[axis] > 2 and not mesh.rings[axis]
    ]
    if not missing:
        return
    place = f"{source}:{mesh.line}" if mesh.line is not None else source
    dims = " and ".join(map(str, missing))
    raise MeshError(
        f"FabricConfig {config.name} requests topology {requested.name} which requires more connectivity than "
        f"MGD provides {mesh.fabric_type.name}. FabricConfig can only restrict topology (e.g., torus→mesh), "
        f"not create new connections. Mesh {mesh.id} ({mesh.name}, {mesh.shape[0]}x{mesh.shape[1]}) of {place} "
        f"has no wrap on dim {dims}: declare RING for it in dim_types, where the cables are there, or use "
        f"{'FABRIC_1D' if config in _RINGS_ON_GALAXIES else 'FABRIC_2D'}."
    )
