"""Makes a machine that fits a mesh graph: what the elastic machine becomes when a program brings a descriptor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle

from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Side
from softmesh.hardware import Arch, ClusterType
from softmesh.systems.chip import BLACKHOLE, WORMHOLE
from softmesh.systems.machine import Asic, Link, Machine, Port, numbered

Borders = dict[int, Iterator[int]]  # for each mesh, the chips that its connections leave from, in turn


def machine_from_graph(graph: MeshGraph) -> Machine:
    """Chips and links exactly as the graph asks for them; ids run through the meshes in their order."""
    ids = {node: number for number, node in enumerate(graph.nodes)}
    wires = _Wires(ids)
    for mesh in graph.meshes:
        for one, other, _ in mesh.edges():
            wires.join(Node(mesh.id, one), Node(mesh.id, other), mesh.channels)
    borders: Borders = {mesh.id: cycle(_from_the_rim(mesh)) for mesh in graph.meshes}
    for connection in graph.connections:
        _connect(connection, graph, wires, borders)
    return Machine(
        name="elastic",
        chip=BLACKHOLE if graph.arch is Arch.BLACKHOLE else WORMHOLE,
        cluster_type=ClusterType.CUSTOM,
        asics=numbered(_asics(graph, ids)),
        links=tuple(sorted(wires.links)),
        summary=f"as {graph.source} asks for",
    )


class _Wires:
    """Links between chips, each channel used once."""

    def __init__(self, ids: dict[Node, int]) -> None:
        self.ids = ids
        self.links: list[Link] = []
        self._used: Counter[int] = Counter()

    def join(self, one: Node, other: Node, count: int) -> None:
        for _ in range(count):
            self.links.append(Link.between(self._next(one), self._next(other)))

    def _next(self, node: Node) -> Port:
        chip = self.ids[node]
        self._used[chip] += 1
        return Port(chip, self._used[chip] - 1)


def _asics(graph: MeshGraph, ids: dict[Node, int]) -> Iterator[Asic]:
    pinned = {node: pinning.positions[0] for pinning in graph.pinnings for node in pinning.nodes}
    for node, number in ids.items():
        mesh = graph.mesh(node.mesh)
        host = f"host-{mesh.id}-{mesh.host_rank(node.chip)}" if mesh.host_count > 1 else "host-0"
        tray, location = pinned.get(node, (0, number))
        yield Asic(number, number + 1, host, tray, location, "imagined", number)


def _connect(connection: Connection, graph: MeshGraph, wires: _Wires, borders: Borders) -> None:
    """Over as few pairs of chips as the meshes' own channels allow, each pair used by one connection."""
    left = connection.count
    width = graph.meshes[0].channels
    while left > 0:
        ends = [_end(side, borders) for side in (connection.a, connection.b)]
        count = left if connection.is_between_chips else min(width, left)
        wires.join(ends[0], ends[1], count)
        left -= count


def _end(side: Side, borders: Borders) -> Node:
    mesh = side.meshes[0]
    return Node(mesh, next(borders[mesh]) if side.chip is None else side.chip)


def _from_the_rim(mesh: LogicalMesh) -> list[int]:
    """Chips of the last column first, as the eye reads a pipeline; then the rest of the rim, then the inside."""
    rows, columns = mesh.shape
    east = [mesh.chip_at(row, columns - 1) for row in range(rows)]
    rim = [chip for chip in range(mesh.size) if len(mesh.neighbours(chip)) < 4]
    return list(dict.fromkeys([*east, *rim, *range(mesh.size)]))
