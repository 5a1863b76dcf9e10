"""Who waits for whom: the channel dependency graph of a network.

A packet that holds a buffer of one channel waits for one of the next channel on its route. A channel is a
directed link with one of its virtual channels; planes never mix, so a link here stands for all its planes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softmesh.fabric.mesh_graph import LogicalMesh, Node
from softmesh.fabric.routing.exits import NO_EXIT, Exit
from softmesh.fabric.routing.tables import HERE, NOWHERE
from softmesh.hardware import RoutingDirection

if TYPE_CHECKING:
    from softmesh.fabric.routing.network import Network


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


def channel_dependencies(
    network: Network, *, virtual_channels: bool = True, bubble: bool = True
) -> ChannelGraph:
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
            way = _way(network, Node(mesh.id, chip), exit.node, 0)
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
            way = _way(network, exit.entry, goal_here, 1)
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


def _way(network: Network, src: Node, dst: Node, vc: int) -> list[Channel] | None:
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
