"""The instance tree of a descriptor: graphs, meshes, switches and chips, and the connections among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from softmesh.fabric.descriptors.source_positions import Place
from softmesh.hardware import FabricType, RoutingDirection

_RING = 2  # TorusTopology.Type
_STEPS = {
    RoutingDirection.N: (0, -1),
    RoutingDirection.E: (1, 1),
    RoutingDirection.S: (0, 1),
    RoutingDirection.W: (1, -1),
}


class Kind(Enum):
    DEVICE = "DEVICE"
    MESH = "MESH"
    SWITCH = "SWITCH"
    GRAPH = "GRAPH"


@dataclass(frozen=True, eq=False, repr=False)
class Instance:
    """`id` counts all instances depth first; `local_id` is the one written in the file.

    `type` is the kind's name, or for a graph the type its template declares. `template` is the message that
    describes it (a chip has its mesh's).
    """

    id: int
    local_id: int
    name: str
    type: str
    kind: Kind
    parent: Instance | None
    template: Any
    place: Place
    children: dict[int, Instance] = field(default_factory=dict)

    @property
    def path(self) -> tuple[Instance, ...]:
        """Its ancestors, the root first."""
        return () if self.parent is None else (*self.parent.path, self.parent)

    @property
    def is_grid(self) -> bool:
        """Whether it is made of chips: a mesh or a switch."""
        return self.kind in (Kind.MESH, Kind.SWITCH)

    @property
    def chip_count(self) -> int:
        return len(self.children) if self.is_grid else sum(i.is_chip for i in self.descendants())

    @property
    def is_chip(self) -> bool:
        return self.kind is Kind.DEVICE

    def descendants(self) -> Iterator[Instance]:
        """Depth first, in the order written."""
        for child in self.children.values():
            yield child
            yield from child.descendants()

    def grids(self) -> list[Instance]:
        """The meshes and switches in it, or itself."""
        if self.is_grid:
            return [self]
        return [grid for child in self.children.values() for grid in child.grids()]

    def __repr__(self) -> str:
        return f"{self.name}#{self.local_id}"


@dataclass(frozen=True)
class Request:
    """Links wanted among two or more instances, in all directions."""

    nodes: tuple[Instance, ...]
    count: int
    strict: bool
    z: bool
    parent: Instance
    place: Place
    is_generated: bool = False  # by a graph's layout, instead of written out


@dataclass(frozen=True)
class ConnectionRecord:
    """A request seen from its first node."""

    nodes: tuple[Instance, ...]
    count: int
    strict: bool
    parent: Instance
    direction: RoutingDirection = RoutingDirection.NONE
    z: bool = False


@dataclass(frozen=True)
class Population:
    root: Instance
    requests: tuple[Request, ...]

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        return (self.root, *self.root.descendants())

    @cached_property
    def records(self) -> tuple[ConnectionRecord, ...]:
        """Connections between meshes, switches and graphs: a request of k nodes gives k records."""
        return tuple(
            ConnectionRecord((node, *others), request.count, request.strict, request.parent, z=request.z)
            for request in self.requests
            for node, others in _each_first(request.nodes)
        )

    @cached_property
    def mesh_records(self) -> tuple[ConnectionRecord, ...]:
        """Connections between the chips of each mesh and switch."""
        return tuple(record for grid in self.root.grids() for record in _inner_records(grid))

    def named(self, name: str) -> list[Instance]:
        return [instance for instance in self.instances if instance.name == name]

    def of_type(self, type_: str) -> list[Instance]:
        return [instance for instance in self.instances if instance.type == type_]

    def of_kind(self, kind: Kind) -> list[Instance]:
        return [instance for instance in self.instances if instance.kind is kind]

    def counts(self) -> dict[str, int]:
        return dict(Counter(instance.type for instance in self.instances))

    def mesh_names(self) -> list[str]:
        return sorted({instance.name for instance in self.of_kind(Kind.MESH)})

    def records_under(self, parent: Instance) -> list[ConnectionRecord]:
        return [record for record in (*self.records, *self.mesh_records) if record.parent is parent]

    def records_under_type(self, type_: str) -> list[ConnectionRecord]:
        return [record for record in (*self.records, *self.mesh_records) if record.parent.type == type_]

    def records_from(self, source: Instance) -> list[ConnectionRecord]:
        return [record for record in (*self.records, *self.mesh_records) if record.nodes[0] is source]


def _each_first(nodes: tuple[Instance, ...]) -> Iterator[tuple[Instance, tuple[Instance, ...]]]:
    for i, node in enumerate(nodes):
        yield node, nodes[:i] + nodes[i + 1 :]


def rings_of(template: Any) -> tuple[bool, ...]:
    return tuple(type_ == _RING for type_ in template.device_topology.dim_types)


def fabric_type_of(template: Any) -> FabricType:
    """As a template declares it, also where an axis is too short to wrap."""
    return FabricType.of(*rings_of(template))


def _inner_records(grid: Instance) -> Iterator[ConnectionRecord]:
    """At this level a ring of two chips names the same neighbour twice, once for each way round."""
    shape = tuple(grid.template.device_topology.dims)
    rings = rings_of(grid.template)
    channels = grid.template.channels
    strict = channels.policy == 1

    def record(chip: int, other: int, direction: RoutingDirection) -> ConnectionRecord:
        nodes = (grid.children[chip], grid.children[other])
        return ConnectionRecord(nodes, channels.count, strict, grid, direction)

    for chip in grid.children:
        for direction, (axis, step) in _STEPS.items():
            place = list(divmod(chip, shape[1]))
            place[axis] += step
            if rings[axis] and shape[axis] > 1:
                place[axis] %= shape[axis]
            if 0 <= place[axis] < shape[axis]:
                yield record(chip, place[0] * shape[1] + place[1], direction)
    for express in grid.template.express_connections:
        yield record(express.src, express.dst, RoutingDirection.C)
        yield record(express.dst, express.src, RoutingDirection.C)
