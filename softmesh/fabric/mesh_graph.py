"""The logical mesh graph: meshes of chips and the connections between them, whichever file they came from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from softmesh.hardware import Arch, FabricType, RoutingDirection

N, E, S, W = RoutingDirection.N, RoutingDirection.E, RoutingDirection.S, RoutingDirection.W
_STEPS = {N: (-1, 0), E: (0, 1), S: (1, 0), W: (0, -1)}


class Node(NamedTuple):
    """A chip by its logical name: mesh id, and row-major number in that mesh."""

    mesh: int
    chip: int

    def __str__(self) -> str:
        return f"M{self.mesh}D{self.chip}"


@dataclass(frozen=True)
class LogicalMesh:
    """A grid of chips. `rings` says which axes (N-S, E-W) are declared to wrap; `line` is its place in the file."""

    id: int
    name: str
    shape: tuple[int, int]
    rings: tuple[bool, bool] = (False, False)
    hosts: tuple[int, int] = (1, 1)
    channels: int = 1
    strict: bool = False
    is_switch: bool = False
    line: int | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def fabric_type(self) -> FabricType:
        """As declared, also where an axis is too short to wrap."""
        return FabricType.of(*self.rings)

    def wraps(self, axis: int) -> bool:
        """Whether the axis has real wrap links: with one or two chips a ring is a line."""
        return self.rings[axis] and self.shape[axis] > 2

    def coordinate(self, chip: int) -> tuple[int, int]:
        return divmod(chip, self.shape[1])

    def chip_at(self, row: int, column: int) -> int:
        return row * self.shape[1] + column

    def neighbours(self, chip: int) -> dict[RoutingDirection, int]:
        """In the order N, E, S, W."""
        row, column = self.coordinate(chip)
        found = {}
        for direction, (down, right) in _STEPS.items():
            place = [row + down, column + right]
            axis = 0 if down else 1
            if self.wraps(axis):
                place[axis] %= self.shape[axis]
            if 0 <= place[0] < self.shape[0] and 0 <= place[1] < self.shape[1]:
                found[direction] = self.chip_at(*place)
        return found

    def edges(self) -> Iterator[tuple[int, int, RoutingDirection]]:
        """Each neighbour pair once, as (chip, other, direction from chip): eastward and southward links."""
        for chip in range(self.size):
            near = self.neighbours(chip)
            for direction in (E, S):
                if direction in near:
                    yield chip, near[direction], direction

    def host_rank(self, chip: int) -> int:
        row, column = self.coordinate(chip)
        rows, columns = self.host_block
        return (row // rows) * self.hosts[1] + column // columns

    @property
    def host_block(self) -> tuple[int, int]:
        """Rows and columns of chips that one host owns."""
        return self.shape[0] // self.hosts[0], self.shape[1] // self.hosts[1]

    @property
    def host_count(self) -> int:
        return math.prod(self.hosts)


def policy_name(strict: bool) -> str:
    return "STRICT" if strict else "RELAXED"


@dataclass(frozen=True)
class Side:
    """One end of a connection: any chip of any of these meshes, or one chip of one mesh."""

    meshes: tuple[int, ...]
    chip: int | None = None

    def __str__(self) -> str:
        names = "+".join(f"M{mesh}" for mesh in self.meshes)
        return names if self.chip is None else f"{names}D{self.chip}"


@dataclass(frozen=True)
class Connection:
    """`count` links wanted between two sides, in both directions. `z` reserves the third dimension's ports."""

    a: Side
    b: Side
    count: int
    strict: bool
    z: bool = False
    line: int | None = None

    @property
    def is_between_chips(self) -> bool:
        return self.a.chip is not None and self.b.chip is not None

    def __str__(self) -> str:
        return f"{self.a} <-> {self.b}"


@dataclass(frozen=True)
class Pinning:
    """Each of these nodes must land on one of these (tray, location) positions."""

    nodes: tuple[Node, ...]
    positions: tuple[tuple[int, int], ...]
    line: int | None = None


@dataclass(frozen=True)
class GraphLevel:
    """A graph of a descriptor, such as a POD or the CLUSTER of PODs, and the meshes in it."""

    name: str
    type: str
    id: int  # as written in the file
    meshes: tuple[int, ...]


@dataclass(frozen=True)
class MeshGraph:
    """Meshes in the order of their ids, 0..N-1. `source` is the file it was read from, or a description.

    `levels` are the graphs that the descriptor nests, the outermost first: two graphs of the same meshes and
    connections are equal, whatever their levels.
    """

    source: str
    arch: Arch
    meshes: tuple[LogicalMesh, ...]
    connections: tuple[Connection, ...] = ()
    pinnings: tuple[Pinning, ...] = ()
    levels: tuple[GraphLevel, ...] = field(default=(), compare=False)

    def mesh(self, mesh_id: int) -> LogicalMesh:
        return self.meshes[mesh_id]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(mesh.id, chip) for mesh in self.meshes for chip in range(mesh.size))

    @property
    def size(self) -> int:
        return sum(mesh.size for mesh in self.meshes)

    def reachable_from(self, mesh_id: int) -> frozenset[int]:
        """The meshes that packets of this one can come to, over its connections and those of others; with itself."""
        found, new = {mesh_id}, {mesh_id}
        while new:
            near = {
                mesh
                for connection in self.connections
                for here, there in ((connection.a, connection.b), (connection.b, connection.a))
                if new.intersection(here.meshes)
                for mesh in there.meshes
            }
            new = near - found
            found |= new
        return frozenset(found)

    def without_levels(self) -> MeshGraph:
        """Let one mesh speak for each side of a connection between levels, its members taking turns.

        A descriptor asks for links between two pods and leaves open which meshes have them. Taking turns spreads them
        over the pod, as cables are: a mesh has ports for a few neighbours only.
        """
        turns: Counter[Side] = Counter()

        def speaker(side: Side) -> Side:
            turns[side] += 1
            return replace(side, meshes=(side.meshes[(turns[side] - 1) % len(side.meshes)],))

        joined = (replace(one, a=speaker(one.a), b=speaker(one.b)) for one in self.connections)
        return replace(self, connections=tuple(joined))

    def connection_to_write(self, one: int, other: int) -> str:
        """The block that joins two meshes, for the descriptor."""
        ends = "\n".join(
            f'  nodes {{ mesh {{ mesh_descriptor: "{self.mesh(id).name}" mesh_id: {id} }} }}' for id in (one, other)
        )
        return f"connections {{\n{ends}\n  channels {{ count: 2 }}\n}}"
