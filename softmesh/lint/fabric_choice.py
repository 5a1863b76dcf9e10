"""Whether a fabric configuration can drive a mesh graph, before any machine is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.restriction import effective_graph
from softmesh.fabric.finding import Finding, Severity
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.fabric.routing.limits import MOST_MESHES, beyond_silicon
from softmesh.fabric.settings import ONE_DIMENSIONAL
from softmesh.hardware import ClusterType, FabricConfig, FabricType

_TORI = {
    FabricConfig.FABRIC_2D_TORUS_X: FabricType.TORUS_X,
    FabricConfig.FABRIC_2D_TORUS_Y: FabricType.TORUS_Y,
    FabricConfig.FABRIC_2D_TORUS_XY: FabricType.TORUS_XY,
}
_AXES = ("rows (N-S)", "columns (E-W)")


def check_fabric_choice(graph: MeshGraph, config: FabricConfig, cluster_type: ClusterType) -> list[Finding]:
    if config is FabricConfig.DISABLED:
        return []
    return [
        *_between_meshes(graph, config),
        *_more_than_declared(graph, config, cluster_type),
        *_rings_without_wrap(graph, config),
        *_beyond_silicon(graph, config),
    ]


def _between_meshes(graph: MeshGraph, config: FabricConfig) -> Iterator[Finding]:
    if config not in ONE_DIMENSIONAL or not graph.connections:
        return
    first, *others = graph.connections
    more = f" and {len(others)} other connections" if others else ""
    message = f"1-D fabric is single-mesh: {config.name} carries nothing over {first}{more}"
    fix = f"choose {_listed(_two_dimensional(graph))}, or give each mesh a job of its own"
    yield Finding("fabric/1d-is-single-mesh", Severity.ERROR, message, fix, line=first.line)


def _two_dimensional(graph: MeshGraph) -> list[str]:
    """The configurations that route between meshes and that these meshes have the wraps for."""

    def provided(wanted: FabricType) -> bool:
        return all(not wanted.wraps[axis] or mesh.rings[axis] for mesh in graph.meshes for axis in (0, 1))

    return ["FABRIC_2D", *(config.name for config, wanted in _TORI.items() if provided(wanted))]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _more_than_declared(
    graph: MeshGraph, config: FabricConfig, cluster_type: ClusterType
) -> Iterator[Finding]:
    """A configuration may leave wraps out; it cannot add any. Each mesh is asked alone, to name its line."""
    for mesh, _ in _templates(graph):
        try:
            effective_graph(replace(graph, meshes=(mesh,), connections=()), config, cluster_type)
        except MeshError as error:
            yield Finding("fabric/more-than-declared", Severity.ERROR, str(error), line=mesh.line)


def _rings_without_wrap(graph: MeshGraph, config: FabricConfig) -> Iterator[Finding]:
    for mesh, names in _templates(graph):
        if config is FabricConfig.FABRIC_1D_RING and mesh.size > 1 and not (mesh.wraps(0) or mesh.wraps(1)):
            short = [axis for axis in (0, 1) if mesh.rings[axis]]
            why = "its rings are of one or two chips" if short else "no axis is declared RING"
            message = f"{names} of {_shape(mesh)}: {config.name} finds no wrap ({why}) and works as FABRIC_1D"
            fix = "declare RING on an axis of more than 2 chips, or choose FABRIC_1D"
            yield Finding("fabric/ring-without-wrap", Severity.WARNING, message, fix, line=mesh.line)
        if config in _TORI:
            yield from _short_torus_axes(mesh, names, config)


def _short_torus_axes(mesh: LogicalMesh, names: str, config: FabricConfig) -> Iterator[Finding]:
    for axis, asked in enumerate(_TORI[config].wraps):
        if asked and mesh.shape[axis] <= 2:
            message = (
                f"{names} of {_shape(mesh)}: {mesh.shape[axis]} chips along its {_AXES[axis]} cannot wrap, "
                f"so {config.name} leaves a line there"
            )
            yield Finding("fabric/short-ring", Severity.WARNING, message, line=mesh.line)


def _beyond_silicon(graph: MeshGraph, config: FabricConfig) -> Iterator[Finding]:
    alone = replace(graph, connections=(), pinnings=())
    if len(graph.meshes) > MOST_MESHES:
        message = f"{len(graph.meshes)} meshes: routing tables on silicon hold {MOST_MESHES}"
        yield Finding("fabric/limits", Severity.ERROR, message)
    for mesh, _ in _templates(graph):
        for message in beyond_silicon(replace(alone, meshes=(mesh,)), config):
            yield Finding("fabric/limits", Severity.ERROR, message, line=mesh.line)


def _templates(graph: MeshGraph) -> Iterator[tuple[LogicalMesh, str]]:
    """Meshes of one template are spoken of once, at the first: `meshes 0, 1, 2 (M0)`."""
    groups: dict[tuple[object, ...], list[LogicalMesh]] = {}
    for mesh in graph.meshes:
        groups.setdefault((mesh.name, mesh.shape, mesh.rings), []).append(mesh)
    for meshes in groups.values():
        ids = ", ".join(str(mesh.id) for mesh in meshes[:8]) + (", ..." if len(meshes) > 8 else "")
        yield meshes[0], f"mesh{'es' if len(meshes) > 1 else ''} {ids} ({meshes[0].name})"


def _shape(mesh: LogicalMesh) -> str:
    return f"{mesh.shape[0]}x{mesh.shape[1]}"
