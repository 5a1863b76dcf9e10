"""Routing planes: how many complete copies of a mesh its parallel links make, and which link is in which.

Plane i is made of the i-th link of every neighbour pair. A packet stays on the plane it entered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.fabric.matching.match import Match
from softmesh.fabric.mesh_graph import LogicalMesh, Node
from softmesh.hardware import RoutingDirection
from softmesh.systems.machine import Link

NeighbourLinks = Mapping[tuple[Node, RoutingDirection], tuple[Link, ...]]


class PlaneCount(NamedTuple):
    """By mesh axis: planes along columns (N-S) and along rows (E-W). In 2-D both are the same number."""

    north_south: int
    east_west: int


class Pair(NamedTuple):
    """Two neighbours of one mesh, `direction` leading from the first to the second."""

    one: Node
    other: Node
    direction: RoutingDirection


def pairs_of(mesh: LogicalMesh) -> list[Pair]:
    return [Pair(Node(mesh.id, a), Node(mesh.id, b), direction) for a, b, direction in mesh.edges()]


def links_in_plane_order(match: Match, one: Node, other: Node) -> tuple[Link, ...]:
    """The links of a pair, by their channel on the chip with the larger unique id: both ends count alike."""
    first = max(match.chips[one], match.chips[other], key=lambda chip: match.machine.asics[chip].unique_id)
    return tuple(sorted(match.links(one, other), key=lambda link: link.near_end(first).channel))


def neighbour_links(match: Match) -> dict[tuple[Node, RoutingDirection], tuple[Link, ...]]:
    """Every link inside the meshes, from either end; no entry where a pair has none."""
    found = {}
    for mesh in match.graph.meshes:
        for one, other, direction in pairs_of(mesh):
            if links := links_in_plane_order(match, one, other):
                found[one, direction] = links
                found[other, direction.opposite] = links
    return found


def check_every_link(match: Match, links: NeighbourLinks) -> None:
    """STRICT_INIT: each pair has as many links as its mesh asks for, or the fabric does not come up."""
    short = [
        (mesh, pair)
        for mesh in match.graph.meshes
        for pair in pairs_of(mesh)
        if len(links.get((pair.one, pair.direction), ())) < mesh.channels
    ]
    if short:
        mesh, pair = short[0]
        more = f" {len(short) - 1} more pairs are short of links." if len(short) > 1 else ""
        raise MeshError(_missing(match, mesh, pair, len(links.get((pair.one, pair.direction), ()))) + more)


def _missing(match: Match, mesh: LogicalMesh, pair: Pair, there: int) -> str:
    one, other, _ = pair
    a, b = match.chips[one], match.chips[other]
    if there:
        said = f"Expected {mesh.channels} eth links from physical chip {a} to physical chip {b}"
    else:
        said = f"Expected connections to exist for M{mesh.id}D{one.chip} to D{other.chip}"
    fewer = f", or ask for channels {{ count: {there} }} in {match.graph.source}" if there else ""
    return (
        f"{said}: {one} and {other} are chips {a} and {b} of {match.machine.name}, joined by {there} of "
        f"{mesh.channels} links{_known_broken(match, pair)}. Repair the link, or bring the fabric up with fewer: "
        f"set_fabric_config(..., FabricReliabilityMode.RELAXED_INIT){fewer}."
    )


def _known_broken(match: Match, pair: Pair) -> str:
    down = match.machine.down_between(match.chips[pair.one], match.chips[pair.other])
    if not down:
        return ""
    return f"; down: {', '.join(map(str, down))}"


def plane_counts(
    match: Match, links: NeighbourLinks, *, per_axis: bool, num_planes: int | None
) -> dict[int, PlaneCount]:
    """For each mesh the smallest number of links of any pair; `per_axis` keeps rows and columns apart (1-D).

    A pair without any link does not count: its routes are gone, the others keep their planes.
    """
    limit = match.machine.chip.routing_planes
    wanted = limit if num_planes is None else min(limit, num_planes)
    counts = {}
    for mesh in match.graph.meshes:
        most = min(mesh.channels, wanted)
        widths: tuple[list[int], list[int]] = ([], [])
        for pair in pairs_of(mesh):
            if found := links.get((pair.one, pair.direction)):
                widths[pair.direction.axis == 1].append(len(found))
        if per_axis:
            counts[mesh.id] = PlaneCount(*(min([most, *along]) if along else 0 for along in widths))
        else:
            counts[mesh.id] = PlaneCount(*[min([most, *widths[0], *widths[1]])] * 2)
    return counts


def plane_warnings(
    match: Match, links: NeighbourLinks, counts: Mapping[int, PlaneCount], num_planes: int | None
) -> list[str]:
    """What RELAXED_INIT did without: pairs that no link joins, and links that no plane can use."""
    found = []
    for mesh in match.graph.meshes:
        wanted = min(mesh.channels, match.machine.chip.routing_planes, num_planes or mesh.channels)
        gone = [pair for pair in pairs_of(mesh) if (pair.one, pair.direction) not in links]
        found += [_gone(match, pair) for pair in gone]
        for axes in ((0, 1),) if len(set(counts[mesh.id])) == 1 else ((0,), (1,)):
            planes = counts[mesh.id][axes[0]]
            joined = [p for p in pairs_of(mesh) if p not in gone and p.direction.axis in axes]
            if joined and planes < wanted:
                found.append(_fewer_planes(match, mesh, planes, wanted, joined, links))
    return found


def _gone(match: Match, pair: Pair) -> str:
    return (
        f"{pair.one} and {pair.other} (chips {match.chips[pair.one]} and {match.chips[pair.other]} of "
        f"{match.machine.name}) have no link left{_known_broken(match, pair)}: routes that would cross there "
        "are unreachable."
    )


def _fewer_planes(
    match: Match, mesh: LogicalMesh, planes: int, wanted: int, joined: list[Pair], links: NeighbourLinks
) -> str:
    narrow = [pair for pair in joined if len(links[pair.one, pair.direction]) == planes]
    unused = sum(min(len(links[p.one, p.direction]), mesh.channels) - planes for p in joined)
    pair = narrow[0]
    others = f" and {len(narrow) - 1} more pairs" if len(narrow) > 1 else ""
    return (
        f"M{mesh.id} runs on {planes} of {wanted} routing planes: {pair.one} and {pair.other} (chips "
        f"{match.chips[pair.one]} and {match.chips[pair.other]}){others} have {planes} of {mesh.channels} links"
        f"{_known_broken(match, pair)}. {unused} links of other pairs stay unused."
    )
