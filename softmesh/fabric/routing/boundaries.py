"""Boundaries: what the connections of a descriptor ask for between meshes, and the cables that could serve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.fabric.match import Match
from softmesh.fabric.mesh_graph import Connection, Node
from softmesh.fabric.routing.planes import links_in_plane_order
from softmesh.hardware import RoutingDirection
from softmesh.systems.machine import Link


class Crossing(NamedTuple):
    """Links between two chips of different meshes, and the port direction each end gives them."""

    one: Node
    one_direction: RoutingDirection
    other: Node
    other_direction: RoutingDirection
    links: tuple[Link, ...]


class Cables(NamedTuple):
    """All links of the machine between two chips of different meshes."""

    one: Node
    other: Node
    links: tuple[Link, ...]


@dataclass
class Boundary:
    """What a connection of the descriptor asks for, and what it has got so far."""

    connection: Connection
    meshes: tuple[int, int]
    wanted: int
    cables: list[Cables]
    crossings: list[Crossing] = field(default_factory=list)

    @property
    def resolved(self) -> int:
        return sum(len(crossing.links) for crossing in self.crossings)

    @property
    def waiting(self) -> list[Cables]:
        """Chip pairs without a port yet; none once the budget is spent."""
        placed = {(crossing.one, crossing.other) for crossing in self.crossings}
        if self.resolved >= self.wanted:
            return []
        return [cables for cables in self.cables if (cables.one, cables.other) not in placed]


def boundaries_of(match: Match) -> list[Boundary]:
    connections = match.graph.connections
    if len({connection.is_between_chips for connection in connections}) > 1:
        raise MeshError(
            "Mesh Graph Descriptor must specify either RelaxedGraph or Graph connections, not both. "
            f"{origin_of(match, connections[-1])}: name a device_id on every node of every connection, or on none."
        )
    if connections and connections[0].is_between_chips:
        return _between_chips(match, connections)
    cables = _cables_between_meshes(match)
    found = {}
    for connection in connections:
        pair = _mesh_pair(connection)
        found[pair] = Boundary(connection, pair, connection.count, cables.get(pair, []))
    return list(found.values())


def _mesh_pair(connection: Connection) -> tuple[int, int]:
    (one, *more), (other, *others) = connection.a.meshes, connection.b.meshes
    if more or others:
        raise MeshError(
            f"The connection {connection} joins groups of meshes; the fabric connects one mesh with one other. "
            "Name meshes in its nodes."
        )
    return min(one, other), max(one, other)


def _between_chips(match: Match, connections: Iterable[Connection]) -> list[Boundary]:
    """One boundary for each chip pair; several connections of the same pair add up."""
    found: dict[tuple[Node, Node], Boundary] = {}
    for connection in connections:
        pair = _mesh_pair(connection)
        ends = [Node(side.meshes[0], side.chip or 0) for side in (connection.a, connection.b)]
        one, other = min(ends), max(ends)
        if (one, other) in found:
            found[one, other].wanted += connection.count
            continue
        cables = Cables(one, other, links_in_plane_order(match, one, other))
        found[one, other] = Boundary(connection, pair, connection.count, [cables] if cables.links else [])
    for (one, _), boundary in found.items():
        _check_cabled(match, one, boundary)
    return list(found.values())


def _check_cabled(match: Match, source: Node, boundary: Boundary) -> None:
    there = len(boundary.cables[0].links) if boundary.cables else 0
    if there < boundary.wanted:
        a, b = boundary.meshes
        raise MeshError(
            f"Requested {boundary.wanted} channels between M{a} and M{b} on src FabricNodeId "
            f"(M{source.mesh}, D{source.chip}), but only have {there} physical channels. "
            f"{origin_of(match, boundary.connection)} names two chips that {there} links of {match.machine.name} "
            f"join: lower its count to {there}, or name chips that are cabled."
        )


def _cables_between_meshes(match: Match) -> dict[tuple[int, int], list[Cables]]:
    """By mesh pair, each chip pair that is cabled, in the order of its chips."""
    found: dict[tuple[int, int], list[Cables]] = {}
    nodes = match.nodes
    for one in sorted(match.chips):
        for chip in match.machine.neighbours[match.chips[one]]:
            other = nodes.get(chip)
            if other is not None and other.mesh > one.mesh:
                links = links_in_plane_order(match, one, other)
                found.setdefault((one.mesh, other.mesh), []).append(Cables(one, other, links))
    return {pair: sorted(cables) for pair, cables in found.items()}


def origin_of(match: Match, connection: Connection) -> str:
    place = f"{match.graph.source}:{connection.line}" if connection.line else match.graph.source
    return f"{place}, connection {connection}"
