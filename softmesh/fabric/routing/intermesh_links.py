"""Inter-mesh links: which of the cables between two meshes the fabric takes, and on which ports.

Chips on the border of a mesh have ports towards it (N, E, S, W), every chip has some in the third
dimension (Z). Each port direction of a chip serves one peer. A boundary gets at most the links it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import Connection, E, LogicalMesh, MeshGraph, N, Node, S, W
from softmesh.fabric.routing.planes import links_in_plane_order
from softmesh.hardware import RoutingDirection
from softmesh.systems.machine import Link

# Boundaries: what the connections of a descriptor ask for between meshes, and the cables that could serve.


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


Z = RoutingDirection.Z
_EDGES = (N, E, S, W)


class PortAllocator:
    """The ports that are still free, and whom the taken ones serve."""

    def __init__(self, graph: MeshGraph) -> None:
        self._graph = graph
        self._each = graph.meshes[0].channels  # of the first mesh, for the whole graph
        self._taken: set[tuple[Node, RoutingDirection]] = set()
        self._peers: dict[tuple[Node, int], Node] = {}  # of a chip in each other mesh

    def place(self, cables: Cables, most: int, directions: Sequence[RoutingDirection]) -> Crossing | None:
        """Both ends take the first of the directions that has enough ports; None where one has none."""
        one, other, links = cables
        chosen = [next((way for way in directions if self._is_free(node, way)), None) for node in (one, other)]
        if chosen[0] is None or chosen[1] is None or self.rival(cables) is not None:
            return None
        self._taken |= {(one, chosen[0]), (other, chosen[1])}
        self._peers |= {(one, other.mesh): other, (other, one.mesh): one}
        return Crossing(one, chosen[0], other, chosen[1], links[: min(most, self._each)])

    def rival(self, cables: Cables) -> tuple[Node, Node] | None:
        """The chip of the pair that already has a peer in the other's mesh, and that peer."""
        for near, far in ((cables.one, cables.other), (cables.other, cables.one)):
            peer = self._peers.get((near, far.mesh), far)
            if peer != far:
                return near, peer
        return None

    def _is_free(self, node: Node, direction: RoutingDirection) -> bool:
        has_port = direction is Z or is_edge(self._graph.mesh(node.mesh), node.chip, direction)
        return has_port and (node, direction) not in self._taken


def is_edge(mesh: LogicalMesh, chip: int, direction: RoutingDirection) -> bool:
    """Whether the chip has ports that way out of its mesh. A wrapped axis has no edge."""
    return direction not in mesh.neighbours(chip)


def edge_port(mesh: LogicalMesh, chip: int, direction: RoutingDirection, index: int, each: int) -> int | None:
    """The number of a chip's `index`-th port in one direction: along the edge from north or west; None: no edge.

    Z ports are numbered by chip.
    """
    if direction is not Z and not is_edge(mesh, chip, direction):
        return None
    row, column = mesh.coordinate(chip)
    place = {N: column, S: column, E: row, W: row, Z: chip}[direction]
    return place * each + index


def assign_ports(match: Match) -> tuple[list[Crossing], list[str]]:
    """Marked boundaries on Z first, the others on edges, and what finds no edge on Z; then the warnings."""
    boundaries = boundaries_of(match)
    if not boundaries:
        return [], []
    strict = match.graph.connections[0].strict
    allocator = PortAllocator(match.graph)
    marked = [boundary for boundary in boundaries if boundary.connection.z]
    unmarked = [boundary for boundary in boundaries if not boundary.connection.z]
    for group, directions in ((marked, (Z,)), (unmarked, _EDGES), (unmarked, (Z,))):
        _fill(group, directions, allocator, in_turns=not strict)
    crossings = [crossing for boundary in boundaries for crossing in boundary.crossings]
    return crossings, [text for boundary in boundaries for text in _shortfall(match, boundary, allocator, strict)]


def _fill(
    boundaries: list[Boundary],
    directions: Sequence[RoutingDirection],
    allocator: PortAllocator,
    *,
    in_turns: bool,
) -> None:
    """One boundary after the other, or a chip pair of each in turn."""
    placings = [_placings(boundary, directions, allocator) for boundary in boundaries]
    if not in_turns:
        for placing in placings:
            list(placing)
        return
    while placings:
        placings = [placing for placing in placings if next(placing, None) is not None]


def _placings(
    boundary: Boundary, directions: Sequence[RoutingDirection], allocator: PortAllocator
) -> Iterator[Crossing]:
    for cables in boundary.waiting:
        room = boundary.wanted - boundary.resolved
        if room > 0 and (crossing := allocator.place(cables, room, directions)) is not None:
            boundary.crossings.append(crossing)
            yield crossing


def _shortfall(match: Match, boundary: Boundary, allocator: PortAllocator, strict: bool) -> list[str]:
    """Nothing where all links were found; a warning where a relaxed boundary has some of them; else an error."""
    wanted, resolved = boundary.wanted, boundary.resolved
    if resolved >= wanted:
        return []
    a, b = boundary.meshes
    if boundary.connection.is_between_chips:
        said = (
            f"Inter-mesh routing validation failed (strict): the mesh graph requests {wanted} connection(s) between "
            f"mesh {a} and mesh {b}, but {resolved} were resolved. Unable to bind the intermesh connections "
            f"requested: Found {resolved} intermesh connections, but {wanted} were requested"
        )
    else:
        said = f"Requested {wanted} channels between M{a} and M{b}, but only {resolved} were resolved"
    relaxing = " or relax the policy" if strict and resolved else ""
    remedy = f"{_cause(match, boundary, allocator)}; lower the count{relaxing}"
    text = f"{said}. {origin_of(match, boundary.connection)}: {remedy}."
    if strict or not resolved or boundary.connection.is_between_chips:
        raise MeshError(text)
    return [text]


def _cause(match: Match, boundary: Boundary, allocator: PortAllocator) -> str:
    cabled = sum(len(cables.links) for cables in boundary.cables)
    if cabled < boundary.wanted or not boundary.waiting:
        down = _broken_between(match, *boundary.meshes)
        broken = f" (down: {', '.join(map(str, down))})" if down else ""
        return f"{cabled} links of {match.machine.name} join the two meshes{broken}"
    left = boundary.waiting[0]
    if rival := allocator.rival(left):
        near, peer = rival
        return (
            "Inter-mesh: one src to multiple dst chips on the same neighbor mesh is not supported yet, and "
            f"{near} is cabled to {peer} and to {left.other if near == left.one else left.one}"
        )
    ports = "Z" if boundary.connection.z else "edge or Z"
    each = match.graph.meshes[0].channels
    return (
        f"{cabled} links are cabled, but e.g. {left.one} and {left.other} have no free {ports} port for theirs: "
        f"a chip has {each} ports in a direction (the channels of the first mesh), and a direction serves one peer"
    )


def _broken_between(match: Match, a: int, b: int) -> list[Link]:
    def ends(link: Link) -> set[int | None]:
        nodes = (match.nodes.get(link.a.chip), match.nodes.get(link.b.chip))
        return {node.mesh if node else None for node in nodes}

    return [link for link in match.machine.down_links if ends(link) == {a, b}]


def intermesh_text(match: Match, crossings: Iterable[Crossing]) -> dict[str, list[str]]:
    """The port file: `{"M0->M1": ["D0ch1(E)>M1D3ch2"], ...}`, each link from both sides."""
    text: dict[str, list[str]] = {}
    for crossing in crossings:
        ends = ((crossing.one, crossing.one_direction), (crossing.other, crossing.other_direction))
        for (near, direction), (far, _) in (ends, ends[::-1]):
            for link in crossing.links:
                out, in_ = link.near_end(match.chips[near]), link.far_end(match.chips[near])
                line = f"D{near.chip}ch{out.channel}({direction.name})>{far}ch{in_.channel}"
                text.setdefault(f"M{near.mesh}->M{far.mesh}", []).append(line)
    return dict(sorted(text.items()))
