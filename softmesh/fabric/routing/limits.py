"""What the tables and headers on a chip have room for. A machine made of software may be larger, and is told."""

from __future__ import annotations

from collections.abc import Iterator

from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph
from softmesh.fabric.routing.packets import MOST_HOPS_1D, MOST_HOPS_2D
from softmesh.fabric.settings import is_two_dimensional
from softmesh.hardware import Arch, FabricConfig

MOST_CHIPS = 256
MOST_MESHES = 1024
LONGEST_AXIS = 32  # in the compressed tables of 2-D paths


def longest_route(mesh: LogicalMesh, config: FabricConfig) -> int:
    """Hops between the two chips of a mesh that are furthest apart, as this fabric routes."""
    along = [mesh.shape[axis] // 2 if mesh.wraps(axis) else mesh.shape[axis] - 1 for axis in (0, 1)]
    if config is FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE:
        return min(1, max(along))
    return sum(along) if is_two_dimensional(config) else max(along)


def beyond_silicon(graph: MeshGraph, config: FabricConfig) -> list[str]:
    """Sentences about what works here and has no room on a chip."""
    found = [text for mesh in graph.meshes for text in _beyond(mesh, graph.arch, config)]
    if len(graph.meshes) > MOST_MESHES:
        found.append(_limit(f"{graph.source} has {len(graph.meshes)} meshes", f"{MOST_MESHES} meshes"))
    return found


def _beyond(mesh: LogicalMesh, arch: Arch, config: FabricConfig) -> Iterator[str]:
    name = f"M{mesh.id} ({mesh.shape[0]}x{mesh.shape[1]})"
    if mesh.size > MOST_CHIPS:
        yield _limit(f"{name} has {mesh.size} chips", f"{MOST_CHIPS} chips in a mesh")
    if arch is Arch.WORMHOLE_B0 and all(n % 2 for n in mesh.shape) and mesh.size > 1 and min(mesh.shape) > 1:
        yield f"{name} has two odd extents: on Wormhole silicon one of them must be even. It works here."
    is_2d = is_two_dimensional(config)
    if is_2d and max(mesh.shape) > LONGEST_AXIS:
        yield _limit(f"{name} has an axis of {max(mesh.shape)} chips", f"axes of {LONGEST_AXIS}")
    most = MOST_HOPS_2D if is_2d else MOST_HOPS_1D
    if (hops := longest_route(mesh, config)) > most:
        yield _limit(f"{name} has routes of {hops} hops", f"routes of {most} hops")


def _limit(what: str, most: str) -> str:
    return f"{what}: routing tables on silicon hold {most}. It works here; split the mesh to run it there."
