"""Builds the instance tree of a descriptor: templates become instances, references become connections.

The first thing that is wrong ends it, as a `PopulationError` with its finding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from softmesh.errors import did_you_mean
from softmesh.fabric.descriptors.instances import Instance, Kind, Population, Request
from softmesh.fabric.descriptors.source_positions import Place, error

# References: how one part of a descriptor names another.


WORDS = {"mesh": "Mesh", "graph": "Graph", "switch": "Switch"}


class PopulationError(Exception):
    def __init__(self, rule: str, message: str, fix: str, place: Place) -> None:
        super().__init__(message)
        self.finding = error(rule, message, fix, place)


class Reference:
    """A NodeRef, whichever of its three kinds it is of."""

    def __init__(self, message: Any, place: Place) -> None:
        word = message.WhichOneof("type")
        if word is None:
            raise PopulationError(
                "empty-reference",
                "Invalid NodeRef: neither mesh, switch, nor graph set",
                'name what is meant, e.g. mesh { mesh_descriptor: "M0" mesh_id: 0 }',
                place,
            )
        self.word: str = word
        self.kind = WORDS[word]
        self.place = place.of(self.word)
        inner = getattr(message, self.word)
        self.template: str = getattr(inner, f"{self.word}_descriptor")
        self.id: int = getattr(inner, f"{self.word}_id")
        has_device = self.word != "graph" and inner.HasField("device_id")
        self.device: int | None = inner.device_id if has_device else None
        has_inner = self.word == "graph" and inner.HasField("sub_ref")
        self.inner = Reference(inner.sub_ref, self.place.of("sub_ref")) if has_inner else None


MOST_CHIPS = 16_384
MOST_GRIDS = 1_024  # meshes and switches
MOST_PAIRS = 65_536  # of nodes joined by connections
DEEPEST_TREE = 32  # graphs within graphs
_ALL_TO_ALL, _RING = 1, 2  # GraphTopology.LayoutType
_STRICT = 1  # Policy


class Populator:
    """One use: `Populator(message, places).population()`."""

    def __init__(self, message: Any, places: Place) -> None:
        self.message = message
        self.places = places
        self.templates = {
            word: {
                template.name: (template, places.of(f"{word}_descriptors", i))
                for i, template in enumerate(getattr(message, f"{word}_descriptors"))
            }
            for word in WORDS
        }
        self.requests: list[Request] = []
        self.created = self.chips = self.grids = self.pairs = 0

    def population(self) -> Population:
        top = Reference(self.message.top_level_instance, self.places.of("top_level_instance"))
        return Population(self._instance(top, None), tuple(self.requests))

    def _instance(self, reference: Reference, parent: Instance | None) -> Instance:
        template = self._template(reference)
        if reference.word == "graph":
            return self._graph(reference, template, parent)
        return self._grid(reference, template, parent)

    def _template(self, reference: Reference) -> Any:
        known = self.templates[reference.word]
        if reference.template not in known:
            raise PopulationError(
                "unknown-descriptor",
                f"{reference.kind} descriptor {reference.template} not found in instance",
                f'define {reference.word}_descriptors {{ name: "{reference.template}" ... }}, or use one of '
                f"{_listed(known)}.{did_you_mean(reference.template, known, cutoff=0.5)}",
                reference.place,
            )
        return known[reference.template][0]

    def _new(self, reference: Reference, type_: str, kind: Kind, parent: Instance | None, template: Any) -> Instance:
        self.created += 1
        return Instance(self.created - 1, reference.id, template.name, type_, kind, parent, template, reference.place)

    def _grid(self, reference: Reference, template: Any, parent: Instance | None) -> Instance:
        shape = tuple(template.device_topology.dims)
        self._check_grid(reference, shape)
        kind = Kind.MESH if reference.word == "mesh" else Kind.SWITCH
        grid = self._new(reference, kind.value, kind, parent, template)
        for chip in range(math.prod(shape)):
            device = Instance(self.created, chip, f"D{chip}", "DEVICE", Kind.DEVICE, grid, template, reference.place)
            grid.children[chip] = device
            self.created += 1
        return grid

    def _check_grid(self, reference: Reference, shape: tuple[int, ...]) -> None:
        if len(shape) != 2:
            raise PopulationError(
                "not-two-dimensional",
                "MGD currently only supports 2D meshes/switches",
                f"give {reference.template} two dims, e.g. device_topology {{ dims: [ 2, 4 ] }}; it has {list(shape)}",
                self.templates[reference.word][reference.template][1].of("device_topology"),
            )
        self.grids += 1
        self.chips += math.prod(shape)
        if self.chips > MOST_CHIPS or self.grids > MOST_GRIDS:
            raise PopulationError(
                "too-large",
                f"The descriptor describes more than {MOST_GRIDS} meshes or {MOST_CHIPS} chips",
                "use smaller dims or fewer instances; nested graphs multiply their contents",
                reference.place,
            )

    def _graph(self, reference: Reference, template: Any, parent: Instance | None) -> Instance:
        graph = self._new(reference, template.type, Kind.GRAPH, parent, template)
        self._check_hierarchy(graph)
        places = self.templates["graph"][template.name][1]
        for i, child in enumerate(template.instances):
            self._add_child(graph, Reference(child, places.of("instances", i)))
        for i, connection in enumerate(template.connections):
            self._connect(graph, connection, places.of("connections", i))
        if template.HasField("graph_topology"):
            self._lay_out(graph, template.graph_topology, places.of("graph_topology"))
        return graph

    def _check_hierarchy(self, graph: Instance) -> None:
        above = graph.path
        if any(ancestor.type == graph.type for ancestor in above):
            raise PopulationError(
                "repeated-type",
                f"Graph descriptor type {graph.type} already exists in hierarchy",
                f"a graph may not contain itself or another of type {graph.type}; give each level its own "
                "type, e.g. POD inside CLUSTER",
                graph.place,
            )
        if len(above) >= DEEPEST_TREE:
            raise PopulationError(
                "too-deep",
                f"Graphs are nested more than {DEEPEST_TREE} deep",
                "use fewer levels",
                graph.place,
            )

    def _add_child(self, graph: Instance, reference: Reference) -> None:
        if reference.id in graph.children:
            taken = set(graph.children)
            free = next(i for i in range(len(taken) + 1) if i not in taken)
            raise PopulationError(
                "duplicate-id",
                f"Graph instance id {reference.id} already exists in this graph",
                f"meshes, switches and graphs of one graph share their ids; {free} is free",
                reference.place,
            )
        child = self._instance(reference, graph)
        self._check_sibling_type(graph, child)
        graph.children[reference.id] = child

    def _check_sibling_type(self, graph: Instance, child: Instance) -> None:
        types = [other.type for other in graph.children.values() if other.kind is Kind.GRAPH]
        if child.kind is Kind.GRAPH and types and child.type != types[0]:
            raise PopulationError(
                "mixed-child-types",
                f"Graph instance type {child.type} does not match graph descriptor child type {types[0]}",
                f"make all child graphs of {graph.name} of one type",
                child.place,
            )

    def _connect(self, graph: Instance, connection: Any, place: Place) -> None:
        nodes = tuple(
            self._resolve(graph, Reference(node, place.of("nodes", i))) for i, node in enumerate(connection.nodes)
        )
        if len({_level(node) for node in nodes}) > 1:
            raise PopulationError(
                "mixed-levels",
                f"Graph descriptor {graph.name} connections must reference instances within same type or "
                "compatible types (MESH/SWITCH)",
                "give device_id on all nodes of the connection or on none; it joins "
                + " with ".join(f"{node} ({node.type})" for node in nodes),
                place,
            )
        if connection.directional:
            raise PopulationError(
                "directional",
                f"Graph descriptor '{graph.name}' declares a directional inter-mesh connection "
                f"({nodes[0]} -> {nodes[1]}). Directional inter-mesh connections are not fully supported",
                "remove `directional: true`; connections serve both directions",
                place.of("directional"),
            )
        self._request(graph, nodes, connection, place, is_generated=False)

    def _request(
        self, graph: Instance, nodes: tuple[Instance, ...], source: Any, place: Place, is_generated: bool
    ) -> None:
        self.pairs += len(nodes) * (len(nodes) - 1)
        if self.pairs > MOST_PAIRS:
            raise PopulationError(
                "too-many-connections",
                f"The descriptor asks for more than {MOST_PAIRS} connections",
                "connect fewer nodes; an ALL_TO_ALL of n children has n * (n - 1)",
                place,
            )
        channels = source.channels
        self.requests.append(
            Request(
                nodes,
                channels.count,
                channels.policy == _STRICT,
                source.assign_z_direction,
                graph,
                place,
                is_generated,
            )
        )

    def _lay_out(self, graph: Instance, topology: Any, place: Place) -> None:
        children = list(graph.children.values())
        pairs: Iterator[tuple[Instance, Instance]]
        if topology.layout_type == _ALL_TO_ALL:
            pairs = ((a, b) for i, a in enumerate(children) for b in children[i + 1 :])
        elif topology.layout_type == _RING:
            pairs = _ring(children)
        else:
            raise PopulationError(
                "no-layout",
                f"Invalid graph topology type: {topology.layout_type}",
                "write layout_type: ALL_TO_ALL or layout_type: RING",
                place,
            )
        for pair in pairs:
            self._request(graph, pair, topology, place, is_generated=True)

    def _resolve(self, graph: Instance, reference: Reference) -> Instance:
        found = graph.children.get(reference.id)
        if found is None or found.kind.name != reference.word.upper():
            ids = [str(id) for id, child in graph.children.items() if child.kind.name.lower() == reference.word]
            raise PopulationError(
                "unknown-id",
                f"{reference.kind} instance id {reference.id} not found in parent instance",
                f"{graph.name} has the {reference.word} ids {_listed(ids)}",
                reference.place.of(f"{reference.word}_id"),
            )
        if found.name != reference.template:
            raise PopulationError(
                "wrong-descriptor",
                f"{reference.kind} descriptor {reference.template} does not match referenced instance {found.name}",
                f'write {reference.word}_descriptor: "{found.name}", or another {reference.word}_id',
                reference.place.of(f"{reference.word}_descriptor"),
            )
        if reference.inner is not None:
            return self._resolve(found, reference.inner)
        return found if reference.device is None else self._device(found, reference)

    def _device(self, grid: Instance, reference: Reference) -> Instance:
        if reference.device not in grid.children:
            raise PopulationError(
                "unknown-device",
                f"Device id {reference.device} not found in {reference.word} instance",
                f"{grid.name} has the chips 0..{len(grid.children) - 1}",
                reference.place.of("device_id"),
            )
        return grid.children[reference.device]


def _ring(children: list[Instance]) -> Iterator[tuple[Instance, Instance]]:
    """Two children are joined twice, as the ring goes round; one child has nobody to be joined with."""
    if len(children) > 1:
        yield from zip(children, children[1:] + children[:1], strict=True)


def _level(node: Instance) -> str:
    return "MESH" if node.is_grid else node.type


def _listed(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:12]) or "none"


def populate(message: Any, places: Place) -> Population:
    return Populator(message, places).population()
