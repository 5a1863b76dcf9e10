"""Proves a network free of routing deadlock, or finds a cycle of channels that wait for each other.

No cycle in the channel dependency graph, no routing deadlock. The channels of a wrapped axis do form cycles, one in
each direction; there the bubble rule (entering takes two free buffers, going on takes one) keeps a buffer free, so
that such a ring counts as one channel that always moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softmesh.fabric.mesh_graph import LogicalMesh, Node
from softmesh.fabric.routing.exits import NO_EXIT, Exit
from softmesh.fabric.routing.tables import HERE, NOWHERE
from softmesh.hardware import RoutingDirection
from softmesh.systems.machine import Link

if TYPE_CHECKING:
    from softmesh.fabric.routing.network import Network


# The channel dependency graph of a network.
#
# A packet that holds a buffer of one channel waits for one of the next channel on its route. A channel is a directed
# link with one of its virtual channels; planes never mix, so a link here stands for all its planes.


class Channel(NamedTuple):
    node: Node
    direction: RoutingDirection
    virtual_channel: int

    @property
    def order(self) -> tuple[Node, int, int]:
        return self.node, self.direction.value, self.virtual_channel


Waits = dict[Channel, set[Channel]]
_ALONG = ((RoutingDirection.N, RoutingDirection.S), (RoutingDirection.W, RoutingDirection.E))


@dataclass(frozen=True)
class ChannelGraph:
    """`waits` leads from each channel to those its packets may wait for; `rings` are safe by the bubble rule."""

    channels: frozenset[Channel]
    waits: Mapping[Channel, set[Channel]]
    rings: tuple[tuple[Channel, ...], ...]

    @property
    def dependencies(self) -> int:
        return sum(map(len, self.waits.values()))


def channel_dependencies(network: Network, *, virtual_channels: bool = True, bubble: bool = True) -> ChannelGraph:
    waits: Waits = {}
    for held, wanted in _all_waits(network):
        if not virtual_channels:
            held, wanted = held._replace(virtual_channel=0), wanted._replace(virtual_channel=0)
        waits.setdefault(held, set()).add(wanted)
    rings = tuple(_rings(network, waits)) if bubble else ()
    injected = {Channel(node, direction, 0) for node, direction in network.links}
    crossed = {Channel(exit.node, exit.direction, 0) for exit in network.exits.all()}
    return ChannelGraph(frozenset(injected | crossed).union(waits, *waits.values()), waits, rings)


def _all_waits(network: Network) -> Iterator[tuple[Channel, Channel]]:
    for mesh in network.graph.meshes:
        yield from _waits_inside(network, mesh)
    for goal in network.graph.meshes:
        yield from _waits_between(network, goal.id)


def _waits_inside(network: Network, mesh: LogicalMesh) -> Iterator[tuple[Channel, Channel]]:
    """Of packets injected in this mesh for this mesh. Every chip sends to every chip it reaches."""
    table, near = network.table(mesh.id), network.neighbours(mesh.id)
    seen = np.zeros((mesh.size, 4, 4), bool)
    for chip in range(mesh.size):
        goals = np.flatnonzero((table[chip] != HERE) & (table[chip] != NOWHERE))
        first = table[chip, goals]
        second = table[near[chip, first], goals]
        goes_on = second != HERE
        seen[chip, first[goes_on], second[goes_on]] = True
    for chip, held, wanted in np.argwhere(seen).tolist():
        yield (
            Channel(Node(mesh.id, chip), RoutingDirection(held), 0),
            Channel(Node(mesh.id, int(near[chip, held])), RoutingDirection(wanted), 0),
        )


def _waits_between(network: Network, goal: int) -> Iterator[tuple[Channel, Channel]]:
    """Of packets for the mesh `goal` that start in another: towards their exit, and from each entry on."""
    arriving: dict[tuple[Exit, int], None] = {}
    for mesh in network.graph.meshes:
        if mesh.id == goal:
            continue
        candidates, chosen = network.exits.choices(mesh.id, goal)
        for chip in np.flatnonzero(chosen != NO_EXIT).tolist():
            exit = candidates[chosen[chip]]
            way = _channels_of_route(network, Node(mesh.id, chip), exit.node, 0)
            if way is not None:
                arriving[exit, 0] = None
                yield from pairwise([*way[-1:], Channel(exit.node, exit.direction, 0)])
    yield from _waits_after_entry(network, goal, deque(arriving))


def _waits_after_entry(
    network: Network, goal: int, arriving: deque[tuple[Exit, int]]
) -> Iterator[tuple[Channel, Channel]]:
    seen = set(arriving)
    while arriving:
        exit, vc = arriving.popleft()
        crossing = Channel(exit.node, exit.direction, vc)
        for goal_here, onward in _goals_after(network, exit.entry, goal):
            way = _channels_of_route(network, exit.entry, goal_here, 1)
            if way is None:
                continue
            leaving = [Channel(onward.node, onward.direction, 1)] if onward else []
            yield from pairwise([crossing, *way, *leaving])
            if onward and (onward, 1) not in seen:
                seen.add((onward, 1))
                arriving.append((onward, 1))


def _goals_after(network: Network, entry: Node, goal: int) -> Iterator[tuple[Node, Exit | None]]:
    """Where a packet goes in the mesh it has entered: to any chip of its own mesh, else to the next exit."""
    if entry.mesh == goal:
        yield from ((Node(goal, chip), None) for chip in range(network.graph.mesh(goal).size))
    elif (onward := network.exits.exit_for(entry, goal)) is not None:
        yield onward.node, onward


def _channels_of_route(network: Network, src: Node, dst: Node, vc: int) -> list[Channel] | None:
    """The channels of the route between two chips of one mesh; None where it is cut."""
    column = network.table(src.mesh)[:, dst.chip]
    if column[src.chip] == NOWHERE:
        return None
    near = network.neighbours(src.mesh)
    way, chip = [], src.chip
    while (value := int(column[chip])) != HERE:
        way.append(Channel(Node(src.mesh, chip), RoutingDirection(value), vc))
        chip = int(near[chip, value])
    return way


def _rings(network: Network, waits: Waits) -> Iterator[tuple[Channel, ...]]:
    """Wrapped lines of channels of which each waits for the next, all the way round."""
    wrapped = ((mesh, axis) for mesh in network.graph.meshes for axis in (0, 1) if mesh.wraps(axis))
    for mesh, axis in wrapped:
        back, forth = _ALONG[axis]
        for line, vc in product(_lines(mesh, axis), (0, 1)):
            for direction, chips in ((back, line[::-1]), (forth, line)):
                ring = tuple(Channel(Node(mesh.id, chip), direction, vc) for chip in chips)
                if all(b in waits.get(a, ()) for a, b in pairwise([*ring, ring[0]])):
                    yield ring


def _lines(mesh: LogicalMesh, axis: int) -> list[list[int]]:
    """The chips of each column (axis 0) or row (axis 1)."""
    rows, columns = mesh.shape
    if axis == 0:
        return [[mesh.chip_at(row, column) for row in range(rows)] for column in range(columns)]
    return [[mesh.chip_at(row, column) for column in range(columns)] for row in range(rows)]


_CYCLES_TRIED = 64  # the shortest of so many is printed


@dataclass(frozen=True)
class Proof:
    """No circle of waits exists."""

    channels: int
    dependencies: int
    rings: int

    is_free = True

    def __str__(self) -> str:
        plural = "s" if self.rings > 1 else ""
        kept = f"; {self.rings} ring{plural} kept moving by the bubble rule" if self.rings else ""
        return f"free of routing deadlock: {self.dependencies} waits among {self.channels} channels, no circle{kept}"


@dataclass(frozen=True)
class Cycle:
    """Channels that wait each for the next, and the last for the first; the chips and links they lead over."""

    channels: tuple[Channel, ...]
    targets: tuple[Node, ...]
    links: tuple[Link, ...]

    is_free = False

    def __len__(self) -> int:
        return len(self.channels)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"routing deadlock: packets on {len(self)} channels can wait for each other in a circle",
                *(f"  {hop}  waits for" for hop in self._hops()),
                f"  {next(self._hops())}, where the circle closes",
            ]
        )

    def _hops(self) -> Iterator[str]:
        for (node, direction, vc), target, link in zip(self.channels, self.targets, self.links, strict=True):
            yield f"{f'{node} -{direction.name}-> {target}':<20} VC{vc}  {link}"


def prove(network: Network, *, virtual_channels: bool = True, bubble: bool = True) -> Proof | Cycle:
    """Free of routing deadlock, or a circle. Either safeguard can be left out, to see what it is good for."""
    graph = channel_dependencies(network, virtual_channels=virtual_channels, bubble=bubble)
    circle = find_cycle(graph)
    if circle is None:
        return Proof(len(graph.channels), graph.dependencies, len(graph.rings))
    return _named(network, circle)


def _named(network: Network, circle: list[Channel]) -> Cycle:
    """Starting at the smallest name, so that the same circle always reads the same."""
    start = circle.index(min(circle, key=lambda channel: channel.order))
    circle = circle[start:] + circle[:start]
    exits = {(exit.node, exit.direction): exit for exit in network.exits.all()}
    targets, links = [], []
    for node, direction, _ in circle:
        exit = exits.get((node, direction))
        targets.append(exit.entry if exit else network.neighbour(node, direction))
        links.append((exit.links if exit else network.links_from(node, direction))[0])
    return Cycle(tuple(circle), tuple(targets), tuple(links))


def find_cycle(graph: ChannelGraph) -> list[Channel] | None:
    """A short circle of channels that is more than one protected ring, or None."""
    ring_of = {channel: ring[0] for ring in graph.rings for channel in ring}
    knot = _cyclic_core(_rings_contracted(graph, ring_of))
    if not knot:
        return None
    starts = sorted(knot, key=lambda channel: channel.order)
    circles = (circle for start in starts if (circle := _shortest_chain(knot, start, start)))
    shortest = min(islice(circles, _CYCLES_TRIED), key=len)
    folded = set(shortest)
    inside = {held: wanted for held, wanted in graph.waits.items() if ring_of.get(held, held) in folded}
    held, wanted = next(
        (held, channel)
        for held, channels in inside.items()
        for channel in channels
        if channel in inside and not _same_ring(held, channel, ring_of)
    )
    return _shortest_chain(inside, wanted, held)


def _same_ring(one: Channel, other: Channel, ring_of: Mapping[Channel, Channel]) -> bool:
    return one in ring_of and ring_of[one] == ring_of.get(other)


def _rings_contracted(graph: ChannelGraph, ring_of: Mapping[Channel, Channel]) -> Waits:
    """Each protected ring drawn together into one channel."""
    folded: Waits = {}
    for held, channels in graph.waits.items():
        for wanted in channels:
            if not _same_ring(held, wanted, ring_of):
                folded.setdefault(ring_of.get(held, held), set()).add(ring_of.get(wanted, wanted))
    return folded


def _cyclic_core(waits: Waits) -> Waits:
    """What is left when channels that wait for nobody, or for whom nobody waits, are taken away again and again."""
    for graph in (waits, _transposed(waits)):
        done = _acyclic_channels(graph)
        waits = {held: kept for held, wanted in waits.items() if held not in done and (kept := wanted - done)}
    return waits


def _transposed(waits: Waits) -> Waits:
    turned: Waits = {}
    for held, channels in waits.items():
        for wanted in channels:
            turned.setdefault(wanted, set()).add(held)
    return turned


def _acyclic_channels(waits: Waits) -> set[Channel]:
    """Channels from which no circle can be reached."""
    waiting = {held: len(wanted) for held, wanted in waits.items()}
    holders = _transposed(waits)
    queue = deque(channel for channel in holders if channel not in waits)
    done = set(queue)
    while queue:
        for held in holders.get(queue.popleft(), ()):
            waiting[held] -= 1
            if not waiting[held]:
                done.add(held)
                queue.append(held)
    return done


def _shortest_chain(waits: Mapping[Channel, set[Channel]], start: Channel, goal: Channel) -> list[Channel] | None:
    """The shortest chain of waits from start to goal, both named once (a circle where they are the same)."""
    before: dict[Channel, Channel] = {}
    queue = deque([start])
    while queue:
        held = queue.popleft()
        for wanted in sorted(waits.get(held, ()), key=lambda channel: channel.order):
            if wanted == goal:
                return _traced(before, start, held) + ([] if start == goal else [goal])
            if wanted != start and wanted not in before:
                before[wanted] = held
                queue.append(wanted)
    return None


def _traced(before: Mapping[Channel, Channel], start: Channel, end: Channel) -> list[Channel]:
    way = [end]
    while way[-1] != start:
        way.append(before[way[-1]])
    return way[::-1]
