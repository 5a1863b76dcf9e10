"""Matches made by hand: generated grids as one mesh, or cut into blocks that are meshes of their own."""

from __future__ import annotations

from collections.abc import Iterable

from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Side
from softmesh.systems import named_systems
from softmesh.systems.machine import Machine

D = [Node(0, chip) for chip in range(64)]


def whole(grid: str | Machine, *, rings: tuple[bool, bool] | None = None, channels: int = 4) -> Match:
    """The whole grid as mesh 0, each logical chip on the chip of its number."""
    machine = named_systems.load(grid) if isinstance(grid, str) else grid
    assert machine.grid is not None
    mesh = LogicalMesh(0, "M0", machine.grid, machine.wraps if rings is None else rings, channels=channels)
    graph = MeshGraph(machine.name, machine.chip.arch, (mesh,))
    return Match(graph, machine, {node: node.chip for node in graph.nodes})


def split(
    grid: str | Machine,
    blocks: Iterable[tuple[int, int, int, int]],
    connections: Iterable[Connection],
    *,
    channels: int = 4,
    rings: tuple[bool, bool] = (False, False),
) -> Match:
    """Blocks (first row, first column, rows, columns) of a grid as meshes 0, 1, ..."""
    machine = named_systems.load(grid) if isinstance(grid, str) else grid
    assert machine.grid is not None
    meshes, chips = [], {}
    for id, (top, left, rows, columns) in enumerate(blocks):
        mesh = LogicalMesh(id, f"M{id}", (rows, columns), rings, channels=channels)
        meshes.append(mesh)
        for chip in range(mesh.size):
            row, column = mesh.coordinate(chip)
            chips[Node(id, chip)] = (top + row) * machine.grid[1] + left + column
    graph = MeshGraph("split.textproto", machine.chip.arch, tuple(meshes), tuple(connections))
    return Match(graph, machine, chips)


def meshes(a: int, b: int, count: int, *, strict: bool = True, z: bool = False) -> Connection:
    return Connection(Side((a,)), Side((b,)), count, strict, z, line=7)


def chips(a: Node, b: Node, count: int) -> Connection:
    return Connection(Side((a.mesh,), a.chip), Side((b.mesh,), b.chip), count, strict=True, line=7)
