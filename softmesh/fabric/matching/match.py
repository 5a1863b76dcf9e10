"""A match of a mesh graph onto a machine, and the check that it keeps every rule the graph asks for.

Written apart from the search: what the search finds is checked here before anybody relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from softmesh.errors import MeshError
from softmesh.fabric.matching.position_rules import PinGroup, Position, contradict, corner_pins, pin_groups
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Node, Pinning, Side, policy_name
from softmesh.systems.machine import Link, Machine


@dataclass(frozen=True)
class Match:
    """An embedding of `graph` into `machine`. Warnings say where links are fewer than asked for."""

    graph: MeshGraph
    machine: Machine
    chips: dict[Node, int]
    warnings: tuple[str, ...] = field(default=())

    @cached_property
    def nodes(self) -> dict[int, Node]:
        """The logical name of each chip in use."""
        return {chip: node for node, chip in self.chips.items()}

    def links(self, one: Node, other: Node) -> tuple[Link, ...]:
        return self.machine.links_between(self.chips[one], self.chips[other])

    def hosts_of(self, mesh: int) -> dict[int, str]:
        """The host that each host rank of a mesh runs on."""
        logical = self.graph.mesh(mesh)
        return {
            logical.host_rank(chip): self.machine.asics[self.chips[Node(mesh, chip)]].host
            for chip in range(logical.size)
        }


class MatchError(MeshError):
    """No embedding. `requirement` names what failed first, `nearest` the closest thing that would work."""

    def __init__(self, requirement: str, detail: str, nearest: str = "", line: int | None = None) -> None:
        self.requirement = requirement
        self.detail = detail
        self.nearest = nearest
        self.line = line  # of the descriptor, where one thing there is to blame
        advice = f" {nearest}" if nearest else ""
        super().__init__(
            f"Graph specified in MGD could not fit in the discovered physical topology. {detail}. "
            f"Either relax pinnings or modify the MGD.{advice}"
        )


Hosts = Mapping[tuple[int, int], str]  # (mesh id, host rank) -> host


class Violation(NamedTuple):
    requirement: str
    detail: str
    line: int | None = None


def violations(match: Match, hosts: Hosts | None = None) -> list[Violation]:
    """Everything that is wrong, in a fixed order; empty: the match holds."""
    incomplete = [*_architecture(match), *_every_node_has_its_own_chip(match)]
    if incomplete:
        return incomplete
    return [
        *_neighbours_are_linked(match),
        *_host_blocks_stay_together(match, hosts or {}),
        *_pinnings_hold(match),
        *_corners_hold(match),
        *_connections_hold(match),
    ]


def relaxed_warnings(match: Match) -> list[str]:
    """Where a relaxed mesh or connection has fewer links than it asks for, and which pinnings mean no chip."""
    return [
        *(text for mesh in match.graph.meshes for text in _thin_meshes(match, mesh)),
        *(text for connection in match.graph.connections for text in _thin_connections(match, connection)),
        *(text for pinning in match.graph.pinnings for text in _idle_pinning(match, pinning)),
    ]


def has_full_meshes(match: Match) -> bool:
    """Whether all neighbours inside meshes share the links that are asked for."""
    return not any(list(_thin_meshes(match, mesh)) for mesh in match.graph.meshes)


def sufficient_links(strict: bool, count: int) -> int:
    return count if strict else 1


def connection_links(match: Match, connection: Connection) -> int:
    """How many links there are between its two sides."""
    ones, others = (_chips_of(match, side) for side in (connection.a, connection.b))
    return sum(len(links) for chip in ones for near, links in match.machine.neighbours[chip].items() if near in others)


def _thin_pairs(match: Match, mesh: LogicalMesh, wanted: int) -> Iterator[tuple[Node, Node, int]]:
    """Neighbour pairs with fewer links than wanted, and how many they have."""
    for chip, other, _ in mesh.edges():
        pair = Node(mesh.id, chip), Node(mesh.id, other)
        have = len(match.links(*pair))
        if have < wanted:
            yield *pair, have


def _strict_links_text(match: Match, one: Node, other: Node, wanted: int, have: int) -> str:
    near, far = match.chips[one], match.chips[other]
    return (
        f"Strict mode validation failed: target graph edge from node {one} to {other} requires {wanted} channels, "
        f"but physical edge from chip {near} to chip {far} only has {have} channels{_down_text(match, near, far)}"
    )


def _down_text(match: Match, one: int, other: int) -> str:
    down = match.machine.down_between(one, other)
    return "".join(f" (link {link} is down)" for link in down)


def _architecture(match: Match) -> Iterator[Violation]:
    wanted, have = match.graph.arch, match.machine.chip.arch
    if wanted != have:
        yield Violation("architecture", f"The descriptor is for {wanted.name}, the machine has {have.name} chips")


def _every_node_has_its_own_chip(match: Match) -> Iterator[Violation]:
    taken: dict[int, Node] = {}
    for node in match.graph.nodes:
        chip = match.chips.get(node)
        if chip is None or chip not in match.machine.asics:
            yield Violation("chips", f"{node} has no chip of the machine, but {chip}")
        elif chip in taken:
            yield Violation("chips", f"{node} and {taken[chip]} are both on chip {chip}")
        else:
            taken[chip] = node


def _neighbours_are_linked(match: Match) -> Iterator[Violation]:
    for mesh in match.graph.meshes:
        for one, other, have in _thin_pairs(match, mesh, sufficient_links(mesh.strict, mesh.channels)):
            if mesh.strict:
                yield Violation("links", _strict_links_text(match, one, other, mesh.channels, have), mesh.line)
            else:
                yield Violation("links", _unlinked_text(match, one, other), mesh.line)


def _unlinked_text(match: Match, one: Node, other: Node) -> str:
    near, far = match.chips[one], match.chips[other]
    return (
        f"Failed to find mapping: {one} and {other} are neighbours, but chips {near} and {far} share no link"
        f"{_down_text(match, near, far)}"
    )


def _host_blocks_stay_together(match: Match, hosts: Hosts) -> Iterator[Violation]:
    for mesh in match.graph.meshes:
        homes: dict[int, set[str]] = {}
        for chip in range(mesh.size):
            home = match.machine.asics[match.chips[Node(mesh.id, chip)]].host
            homes.setdefault(mesh.host_rank(chip), set()).add(home)
        for rank, found in homes.items():
            bound = hosts.get((mesh.id, rank))
            if len(found) > 1:
                yield Violation(
                    "hosts",
                    f"Host consistency violated: chips of mesh {mesh.id} host rank {rank} lie on "
                    f"{', '.join(sorted(found))}",
                    mesh.line,
                )
            elif bound is not None and found != {bound}:
                yield Violation(
                    "hosts",
                    f"Host consistency violated: mesh {mesh.id} host rank {rank} is bound to {bound}, "
                    f"its chips lie on {found.pop()}",
                    mesh.line,
                )


def _pinnings_hold(match: Match) -> Iterator[Violation]:
    existing = {asic.position for asic in match.machine.asics.values()}
    for mesh in match.graph.meshes:
        at = [match.machine.asics[match.chips[Node(mesh.id, chip)]].position for chip in range(mesh.size)]
        groups = pin_groups(match.graph, mesh, existing)
        holding = [group for group in groups if group.positions.intersection(at)]
        if not contradict(groups):
            holding = groups
        elif not holding:
            yield Violation("pinning", unpinned_text(mesh.id), groups[0].line)
        for group in holding:
            yield from _pin_group_holds(mesh, group, at)


def _pin_group_holds(mesh: LogicalMesh, group: PinGroup, at: list[Position]) -> Iterator[Violation]:
    for chip in group.chips:
        if at[chip] not in group.positions:
            places, (tray, location) = listed(sorted(group.positions)), at[chip]
            yield Violation(
                "pinning",
                f"{Node(mesh.id, chip)} is pinned to {places}, but lies on tray {tray} asic {location}",
                group.line,
            )


def unpinned_text(mesh: int) -> str:
    return (
        f"Pinned ASIC positions of every pinning group for mesh {mesh} were not found among the physical ASICs "
        "participating in this mesh"
    )


def _corners_hold(match: Match) -> Iterator[Violation]:
    for mesh in match.graph.meshes:
        for chip, positions in corner_pins(match.graph, mesh, match.machine).items():
            node = Node(mesh.id, chip)
            asic = match.machine.asics[match.chips[node]]
            if asic.position not in positions:
                yield Violation(
                    "corners",
                    f"{node} is a corner of a Galaxy and belongs on {listed(positions)}, but lies on tray "
                    f"{asic.tray} asic {asic.location}",
                    mesh.line,
                )


def _connections_hold(match: Match) -> Iterator[Violation]:
    for connection in match.graph.connections:
        exact = connection.strict or connection.is_between_chips
        wanted, have = sufficient_links(exact, connection.count), connection_links(match, connection)
        if have < wanted:
            mode = policy_name(connection.strict)
            yield Violation(
                "connection",
                f"Connection {connection} needs {wanted} links, {have} exist. Inter-mesh validation mode: {mode}",
                connection.line,
            )


def _chips_of(match: Match, side: Side) -> set[int]:
    if side.chip is not None:
        return {match.chips[Node(side.meshes[0], side.chip)]}
    return {match.chips[Node(m, chip)] for m in side.meshes for chip in range(match.graph.mesh(m).size)}


def _thin_meshes(match: Match, mesh: LogicalMesh) -> Iterator[str]:
    thin = list(_thin_pairs(match, mesh, mesh.channels))
    if thin:
        one, other, have = thin[0]
        near, far = match.chips[one], match.chips[other]
        total = sum(1 for _ in mesh.edges())
        yield (
            f"Relaxed mode: {len(thin)} of {total} neighbour pairs of mesh {mesh.id} have fewer than "
            f"{mesh.channels} channels; the first is {one} to {other} (chip {near} to chip {far}) with {have}"
            f"{_down_text(match, near, far)}. Mapping will proceed but may have insufficient bandwidth."
        )


def _thin_connections(match: Match, connection: Connection) -> Iterator[str]:
    have = connection_links(match, connection)
    if have < connection.count:
        yield (
            f"Relaxed mode: connection {connection} asks for {connection.count} channels, {have} exist. "
            "Mapping will proceed but may have insufficient bandwidth."
        )


def _idle_pinning(match: Match, pinning: Pinning) -> Iterator[str]:
    if not any(asic.position in pinning.positions for asic in match.machine.asics.values()):
        place = f" at line {pinning.line}" if pinning.line is not None else ""
        yield f"The pinning{place} to {listed(pinning.positions)} is ignored: no chip has such a position."


def listed(positions: Sequence[Position]) -> str:
    texts = [f"tray {tray} asic {location}" for tray, location in positions[:4]]
    return " or ".join([*texts, f"{len(positions) - 4} more"] if len(positions) > 4 else texts)
