"""Selects the mesh graph of a process: the descriptor's, the product's default, or a discovered one.

Also which mesh of it the process is bound to, and which wrap-around links the fabric configuration keeps. TT-Metal
does this in its control plane.
"""

from __future__ import annotations

from dataclasses import replace

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.default_graphs import default_graph
from softmesh.fabric.descriptors.loader import load_job_graph
from softmesh.fabric.matching.find_match import discover
from softmesh.fabric.mesh_binding import Binding
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.hardware import ClusterType, FabricConfig, FabricType
from softmesh.systems.machine import Machine

# A fabric configuration may leave wrap-around links unused; it cannot add them.


TORUSES = {
    FabricConfig.FABRIC_2D_TORUS_X: FabricType.TORUS_X,
    FabricConfig.FABRIC_2D_TORUS_Y: FabricType.TORUS_Y,
    FabricConfig.FABRIC_2D_TORUS_XY: FabricType.TORUS_XY,
}
_RINGS_ON_GALAXIES = (FabricConfig.FABRIC_1D_RING, FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE)


def requested_type(config: FabricConfig, cluster_type: ClusterType) -> FabricType | None:
    """Which wraps a configuration asks for; None: whichever the descriptor declares."""
    if config in _RINGS_ON_GALAXIES and cluster_type.is_galaxy:
        return FabricType.TORUS_XY
    # Elsewhere rings come from the descriptor alone: a T3000 is a ring of eight with a 1x8 RING descriptor.
    if config in (FabricConfig.FABRIC_1D_RING, FabricConfig.CUSTOM):
        return None
    return TORUSES.get(config, FabricType.MESH)


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
    missing = [axis for axis in (0, 1) if requested.wraps[axis] and mesh.shape[axis] > 2 and not mesh.rings[axis]]
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


def declared_graph(machine: Machine, binding: Binding, config: FabricConfig) -> MeshGraph:
    """The descriptor's graph, or the one the machine has of its own for this fabric."""
    if binding.descriptor is None:
        graph = _own_graph(machine, config)
    else:
        graph = load_job_graph(binding.descriptor, warns=binding.mesh_id in (None, 0))
    _check_bound(graph, machine, binding)
    return graph


def graph_in_use(declared: MeshGraph, machine: Machine, binding: Binding, config: FabricConfig) -> MeshGraph:
    """With the wraps that the fabric uses.

    Where a product has no torus descriptor, TT-Metal falls back to its mesh (with a warning, given when the
    descriptor was chosen); a descriptor of the user's own is held to what it declares.
    """
    falls_back = binding.descriptor is None and machine.grid is None
    if falls_back and config in TORUSES and not _provides(declared, TORUSES[config]):
        config = FabricConfig.FABRIC_2D
    return effective_graph(declared, config, machine.cluster_type)


def _own_graph(machine: Machine, config: FabricConfig) -> MeshGraph:
    if machine.grid is not None:
        mesh = LogicalMesh(0, "M0", machine.grid, rings=machine.wraps, channels=_links_per_edge(machine))
        return MeshGraph(machine.name, machine.chip.arch, (mesh,))
    if machine.cluster_type is ClusterType.N300 and len(machine.asics) == 2:
        mesh = LogicalMesh(0, "M0", (2, 1), channels=2)  # as its system mesh reports itself
        return MeshGraph(machine.name, machine.chip.arch, (mesh,))
    graph = default_graph(machine.cluster_type, _wanted_type(machine, config))
    if graph is None or graph.size != len(machine.asics):
        return discover(machine)
    return graph


def _wanted_type(machine: Machine, config: FabricConfig) -> FabricType:
    if machine.cluster_type.is_galaxy and config in _RINGS_ON_GALAXIES:
        return FabricType.TORUS_XY
    return TORUSES.get(config, FabricType.MESH)


def _links_per_edge(machine: Machine) -> int:
    counts = {len(links) for near in machine.neighbours.values() for links in near.values()}
    return max(counts, default=1)


def _provides(graph: MeshGraph, wanted: FabricType) -> bool:
    """Whether each axis that should wrap is declared to, or is too short to."""
    return all(
        declared or not needed or extent <= 2
        for mesh in graph.meshes
        for declared, needed, extent in zip(mesh.rings, wanted.wraps, mesh.shape, strict=True)
    )


def _check_bound(graph: MeshGraph, machine: Machine, binding: Binding) -> None:
    if binding.mesh_id is None and binding.host_rank is None:
        _check_single_process(graph, machine)
        return
    known = [mesh.id for mesh in graph.meshes]
    if binding.mesh_id is not None and binding.mesh_id not in known:
        raise MeshError(
            f"Invalid TT_MESH_ID: Local mesh binding mesh_id {binding.mesh_id} not found in mesh graph descriptor "
            f"{graph.source}, which has meshes {known}."
        )
    mesh = bound_mesh(graph, binding)
    if binding.host_rank is not None and binding.host_rank >= mesh.host_count:
        raise MeshError(
            f"Invalid TT_MESH_HOST_RANK: Local mesh binding host_rank {binding.host_rank} not found in mesh graph "
            f"descriptor {graph.source}: mesh {mesh.id} has {mesh.host_count} host ranks."
        )


def _check_single_process(graph: MeshGraph, machine: Machine) -> None:
    spread = [mesh for mesh in graph.meshes if mesh.host_count > 1]
    if len(machine.hosts) > 1:
        raise MeshError(
            "Not specifying both TT_MESH_ID and TT_MESH_HOST_RANK is only supported for single host systems: "
            f"{machine.name} has {len(machine.hosts)} hosts. Set TT_MESH_ID to the mesh of this process, or start "
            "the processes with tt-run and a rank binding."
        )
    if spread:
        raise MeshError(
            f"Mesh {spread[0].id} has {spread[0].host_count} host ranks, expected 1: set TT_MESH_ID and "
            "TT_MESH_HOST_RANK, or start the processes with tt-run and a rank binding."
        )


def bound_mesh(graph: MeshGraph, binding: Binding) -> LogicalMesh:
    return graph.mesh(binding.mesh_id or 0)
