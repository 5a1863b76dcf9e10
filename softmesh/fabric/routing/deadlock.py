"""Whether packets can end up waiting for each other in a circle.

No circle among the waits of a network's channels, no routing deadlock. The channels of a wrapped axis do
form circles, one in each direction; there the bubble rule (entering takes two free buffers, going on takes
one) keeps a buffer free, so that such a ring counts as one channel that always moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from softmesh.fabric.mesh_graph import Node
from softmesh.fabric.routing.channels import Channel, ChannelGraph, Waits, channel_dependencies
from softmesh.systems.machine import Link

if TYPE_CHECKING:
    from softmesh.fabric.routing.network import Network

_CIRCLES_TRIED = 64  # the shortest of so many is printed


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
        return (
            f"free of routing deadlock: {self.dependencies} waits among {self.channels} channels, "
            f"no circle{kept}"
        )


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
    circle = find_circle(graph)
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


def find_circle(graph: ChannelGraph) -> list[Channel] | None:
    """A short circle of channels that is more than one protected ring, or None."""
    ring_of = {channel: ring[0] for ring in graph.rings for channel in ring}
    knot = _knot(_folded(graph, ring_of))
    if not knot:
        return None
    starts = sorted(knot, key=lambda channel: channel.order)
    circles = (circle for start in starts if (circle := _way(knot, start, start)))
    shortest = min(islice(circles, _CIRCLES_TRIED), key=len)
    folded = set(shortest)
    inside = {held: wanted for held, wanted in graph.waits.items() if ring_of.get(held, held) in folded}
    held, wanted = next(
        (held, channel)
        for held, channels in inside.items()
        for channel in channels
        if channel in inside and not _same_ring(held, channel, ring_of)
    )
    return _way(inside, wanted, held)


def _same_ring(one: Channel, other: Channel, ring_of: Mapping[Channel, Channel]) -> bool:
    return one in ring_of and ring_of[one] == ring_of.get(other)


def _folded(graph: ChannelGraph, ring_of: Mapping[Channel, Channel]) -> Waits:
    """Each protected ring drawn together into one channel."""
    folded: Waits = {}
    for held, channels in graph.waits.items():
        for wanted in channels:
            if not _same_ring(held, wanted, ring_of):
                folded.setdefault(ring_of.get(held, held), set()).add(ring_of.get(wanted, wanted))
    return folded


def _knot(waits: Waits) -> Waits:
    """What is left when channels that wait for nobody, or for whom nobody waits, are taken away again and again."""
    for graph in (waits, _turned(waits)):
        done = _free_of_circles(graph)
        waits = {held: kept for held, wanted in waits.items() if held not in done and (kept := wanted - done)}
    return waits


def _turned(waits: Waits) -> Waits:
    turned: Waits = {}
    for held, channels in waits.items():
        for wanted in channels:
            turned.setdefault(wanted, set()).add(held)
    return turned


def _free_of_circles(waits: Waits) -> set[Channel]:
    """Channels from which no circle can be reached."""
    waiting = {held: len(wanted) for held, wanted in waits.items()}
    holders = _turned(waits)
    queue = deque(channel for channel in holders if channel not in waits)
    done = set(queue)
    while queue:
        for held in holders.get(queue.popleft(), ()):
            waiting[held] -= 1
            if not waiting[held]:
                done.add(held)
                queue.append(held)
    return done


def _way(waits: Mapping[Channel, set[Channel]], start: Channel, goal: Channel) -> list[Channel] | None:
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
