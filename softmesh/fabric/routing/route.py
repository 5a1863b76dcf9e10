"""A route: the links that a packet crosses from one chip to another, in order; or why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from softmesh.fabric.mesh_binding import PASS_THROUGH
from softmesh.fabric.mesh_graph import Node
from softmesh.fabric.routing.tables import NOWHERE, direction_table
from softmesh.hardware import RoutingDirection
from softmesh.mesh import MeshCoordinate
from softmesh.systems.machine import Link

if TYPE_CHECKING:
    from softmesh.fabric.routing.network import Network


class Hop(NamedTuple):
    """One link crossed. `chip` and `next_chip` are the machine's numbers of the two ends."""

    source: Node
    target: Node
    direction: RoutingDirection
    link: Link
    chip: int
    next_chip: int
    plane: int
    virtual_channel: int

    def __str__(self) -> str:
        return f"{self.direction.name} over {self.link}"


@dataclass(frozen=True, repr=False)
class Route:
    """Iterates over its hops; `len` counts them."""

    src: Node
    dst: Node
    hops: tuple[Hop, ...]

    def __len__(self) -> int:
        return len(self.hops)

    def __iter__(self) -> Iterator[Hop]:
        return iter(self.hops)

    def __bool__(self) -> bool:
        return True

    @property
    def directions(self) -> tuple[RoutingDirection, ...]:
        return tuple(hop.direction for hop in self.hops)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every chip on the way, both ends included."""
        return (self.src, *(hop.target for hop in self.hops))

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(hop.link for hop in self.hops)

    def __str__(self) -> str:
        way = ", ".join(map(str, self.hops)) or "already there"
        return f"{self.src} -> {self.dst}: {way}"

    __repr__ = __str__


# Why no route leads from one chip to another, in words: the fabric's reach, or a link that is gone.


def why_unreachable(network: Network, src: Node, dst: Node) -> str:
    """For two chips of one mesh: a bend in 1-D, too far for neighbour exchange, or a link that is gone."""
    mesh = network.graph.mesh(src.mesh)
    if direction_table(mesh, network.config)[src.chip, dst.chip] != NOWHERE:
        return f"{_no_direction(src, dst)}: {_first_gap(network, src, dst)}."
    here, there = mesh.coordinate(src.chip), mesh.coordinate(dst.chip)
    places = f"{MeshCoordinate(*here)} and {MeshCoordinate(*there)}"
    if here[0] != there[0] and here[1] != there[1]:
        return (
            f"{_no_direction(src, dst)}. Routing coordinates {places} invalid for 1D fabric: a packet stays in "
            "one row or one column. Use FABRIC_2D, or send along one axis and then along the other."
        )
    return (
        f"{_no_direction(src, dst)}: {network.config.name} joins neighbours only, {places} are further apart. "
        "Use FABRIC_1D."
    )


def _first_gap(network: Network, src: Node, dst: Node) -> str:
    column = direction_table(network.graph.mesh(src.mesh), network.config)[:, dst.chip]
    at = src
    while (at, direction := RoutingDirection(int(column[at.chip]))) in network.links:
        at = network.neighbour(at, direction)
    far = network.neighbour(at, direction)
    down = network.match.machine.down_between(network.match.chips[at], network.match.chips[far])
    names = f" (down: {', '.join(map(str, down))})" if down else ""
    return f"the route goes {direction.name} from {at} to {far}, and no link joins them{names}"


def why_no_exit(network: Network, src: Node, dst: Node, mesh: int) -> str:
    """For two meshes: `mesh` is where the packet is stuck."""
    source = network.graph.source
    if not network.is_two_dimensional:
        cause = f"{network.config.name} stays inside a mesh; set FABRIC_2D to reach others"
    elif not network.exits:
        cause = f"{source} connects no meshes"
    elif network.exits.pass_through:
        cause = f"no chain of connections in {source} leads from M{mesh} to M{dst.mesh}"
    else:
        cause = (
            f"M{mesh} and M{dst.mesh} are not connected, and only neighbouring meshes talk. Connect them in "
            f"{source}, or set {PASS_THROUGH}=1 to let packets cross meshes in between (experimental)"
        )
    return f"{_no_direction(src, dst)}: {cause}."


def _no_direction(src: Node, dst: Node) -> str:
    return (
        f"Could not find any forwarding direction from src (M{src.mesh}, D{src.chip}) to dst (M{dst.mesh}, D{dst.chip})"
    )
