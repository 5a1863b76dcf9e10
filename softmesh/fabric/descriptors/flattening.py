"""From the tree of instances to the flat graph of meshes that matching and routing work on."""

from __future__ import annotations

from dataclasses import replace

from softmesh.fabric.descriptors.instances import Instance, Kind, Population, Request, rings_of
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Side
from softmesh.hardware import Arch

_ARCHITECTURES = {1: Arch.WORMHOLE_B0, 2: Arch.BLACKHOLE}
_STRICT = 1  # Policy


def flattened(population: Population, source: str) -> MeshGraph:
    """The graph without its pinnings, which speak of meshes by the ids given here."""
    grids = population.root.grids()
    ids = mesh_ids(grids)
    meshes = sorted((_mesh(grid, ids[grid]) for grid in grids), key=lambda mesh: mesh.id)
    arch = _ARCHITECTURES[grids[0].template.arch]
    return MeshGraph(source, arch, tuple(meshes), _connections(population, ids))


def mesh_ids(grids: list[Instance]) -> dict[Instance, int]:
    """The ids written in the file where they are 0..N-1; else a count, depth first.

    Nested graphs repeat their local ids: the 16 meshes of four PODs are all called 0 to 3.
    """
    written = [grid.local_id for grid in grids]
    if sorted(written) == list(range(len(grids))):
        return dict(zip(grids, written, strict=True))
    return {grid: i for i, grid in enumerate(grids)}


def _mesh(grid: Instance, id: int) -> LogicalMesh:
    template = grid.template
    rows, columns = template.device_topology.dims
    wraps_y, wraps_x = rings_of(template)
    is_switch = grid.kind is Kind.SWITCH
    hosts = (1, 1) if is_switch else tuple(template.host_topology.dims)
    return LogicalMesh(
        id=id,
        name=grid.name,
        shape=(rows, columns),
        rings=(wraps_y, wraps_x),
        hosts=(hosts[0], hosts[1]),
        channels=template.channels.count,
        strict=template.channels.policy == _STRICT,
        is_switch=is_switch,
        line=grid.place.line,
    )


def _connections(population: Population, ids: dict[Instance, int]) -> tuple[Connection, ...]:
    """Between meshes the last request of a pair counts; between chips all of them do."""
    found: dict[object, Connection] = {}
    for request in population.requests:
        for i, one in enumerate(request.nodes):
            for other in request.nodes[i + 1 :]:
                connection = _connection(request, _side(one, ids), _side(other, ids))
                pair = frozenset((connection.a, connection.b))
                found[len(found) if connection.is_between_chips else pair] = connection
    return _of_one_policy(population, tuple(found.values()))


def _of_one_policy(population: Population, connections: tuple[Connection, ...]) -> tuple[Connection, ...]:
    """In a fabric the first request decides for all; levels above keep what each of them says."""
    if population.root.type != "FABRIC" or not connections:
        return connections
    strict = population.requests[0].strict
    return tuple(replace(connection, strict=strict) for connection in connections)


def _connection(request: Request, a: Side, b: Side) -> Connection:
    return Connection(a, b, request.count, request.strict, request.z, request.place.line)


def _side(node: Instance, ids: dict[Instance, int]) -> Side:
    if node.is_chip and node.parent is not None:
        return Side((ids[node.parent],), node.local_id)
    return Side(tuple(sorted(ids[grid] for grid in node.grids())))
