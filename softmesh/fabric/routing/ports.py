"""Links between meshes: which of the cables that join two meshes the fabric takes, and on which ports.

Chips on the border of a mesh have ports towards it (N, E, S, W), every chip has some in the third
dimension (Z). Each port direction of a chip serves one peer. A boundary gets at most the links it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from softmesh.errors import MeshError
from softmesh.fabric.match import Match
from softmesh.fabric.mesh_graph import E, LogicalMesh, MeshGraph, N, Node, S, W
from softmesh.fabric.routing.boundaries import Boundary, Cables, Crossing, boundaries_of, origin_of
from softmesh.hardware import RoutingDirection
from softmesh.systems.machine import Link

Z = RoutingDirection.Z
_EDGES = (N, E, S, W)


class PortBook:
    """The ports that are still free, and whom the taken ones serve."""

    def __init__(self, graph: MeshGraph) -> None:
        self._graph = graph
        self._each = graph.meshes[0].channels  # of the first mesh, for the whole graph
        self._taken: set[tuple[Node, RoutingDirection]] = set()
        self._peers: dict[tuple[Node, int], Node] = {}  # of a chip in each other mesh

    def place(self, cables: Cables, most: int, directions: Sequence[RoutingDirection]) -> Crossing | None:
        """Both ends take the first of the directions that has enough ports; None where one has none."""
        one, other, links = cables
        chosen = [
            next((way for way in directions if self._is_free(node, way)), None) for node in (one, other)
        ]
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
    book = PortBook(match.graph)
    marked = [boundary for boundary in boundaries if boundary.connection.z]
    unmarked = [boundary for boundary in boundaries if not boundary.connection.z]
    for group, directions in ((marked, (Z,)), (unmarked, _EDGES), (unmarked, (Z,))):
        _fill(group, directions, book, in_turns=not strict)
    crossings = [crossing for boundary in boundaries for crossing in boundary.crossings]
    return crossings, [text for boundary in boundaries for text in _shortfall(match, boundary, book, strict)]


def _fill(
    boundaries: list[Boundary], directions: Sequence[RoutingDirection], book: PortBook, *, in_turns: bool
) -> None:
    """One boundary after the other, or a chip pair of each in turn."""
    placings = [_placings(boundary, directions, book) for boundary in boundaries]
    if not in_turns:
        for placing in placings:
            list(placing)
        return
    while placings:
        placings = [placing for placing in placings if next(placing, None) is not None]


def _placings(
    boundary: Boundary, directions: Sequence[RoutingDirection], book: PortBook
) -> Iterator[Crossing]:
    for cables in boundary.waiting:
        room = boundary.wanted - boundary.resolved
        if room > 0 and (crossing := book.place(cables, room, directions)) is not None:
            boundary.crossings.append(crossing)
            yield crossing


def _shortfall(match: Match, boundary: Boundary, book: PortBook, strict: bool) -> list[str]:
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
    remedy = f"{_cause(match, boundary, book)}; lower the count{relaxing}"
    text = f"{said}. {origin_of(match, boundary.connection)}: {remedy}."
    if strict or not resolved or boundary.connection.is_between_chips:
        raise MeshError(text)
    return [text]


def _cause(match: Match, boundary: Boundary, book: PortBook) -> str:
    cabled = sum(len(cables.links) for cables in boundary.cables)
    if cabled < boundary.wanted or not boundary.waiting:
        down = _broken_between(match, *boundary.meshes)
        broken = f" (down: {', '.join(map(str, down))})" if down else ""
        return f"{cabled} links of {match.machine.name} join the two meshes{broken}"
    left = boundary.waiting[0]
    if rival := book.rival(left):
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
