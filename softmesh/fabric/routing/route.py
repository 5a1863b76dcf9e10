"""A route: the links that a packet crosses from one chip to another, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from softmesh.fabric.mesh_graph import Node
from softmesh.hardware import RoutingDirection
from softmesh.systems.machine import Link


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
