"""Advisory checks of a mesh graph descriptor: what the runtime's own validation does not ask.

Errors are shapes and ids that the runtime trips over later; warnings are likely slips.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from softmesh.errors import did_you_mean
from softmesh.fabric.descriptors.instances import Instance, Kind, Population, Request
from softmesh.fabric.descriptors.source_positions import Place, error, note, warning
from softmesh.input_files.text_files import Finding

_WORMHOLE = 1  # Architecture
_RING = 2  # TorusTopology.Type


def advice(message: Any, places: Place, population: Population, runtime: bool) -> Iterator[Finding]:
    """Errors are what no machine can do; the rest is allowed, and probably not meant."""
    if runtime:
        yield from _odd_shapes(message, places, population)
        yield from _mixed_connections(population)
    if _is_flat(population):
        yield from _ids_not_dense(population, runtime)
    yield from _self_connections(population)
    yield from _repeated_pairs(population)
    yield from _lonely_layouts(population)
    yield from unknown_fields(message, places)
    yield from _unused(message, places, population)
    yield from _short_rings(message, places)


def _is_flat(population: Population) -> bool:
    return all(child.kind is not Kind.GRAPH for child in population.root.children.values())


def _odd_shapes(message: Any, places: Place, population: Population) -> Iterator[Finding]:
    used = {grid.name for grid in population.of_kind(Kind.MESH)}
    for i, mesh in enumerate(message.mesh_descriptors):
        if mesh.name in used and mesh.arch == _WORMHOLE:
            yield from _odd_shape(mesh, places.of("mesh_descriptors", i).of("device_topology").of("dims"))


def _ids_not_dense(population: Population, runtime: bool) -> Iterator[Finding]:
    grids = population.root.grids()
    written = sorted(grid.local_id for grid in grids)
    if written != list(range(len(grids))):
        odd = next((grid for grid in grids if not 0 <= grid.local_id < len(grids)), grids[-1])
        complaint = error if runtime else warning
        yield complaint(
            "mesh-ids-not-dense",
            f"Mesh ids must be exactly 0..{len(grids) - 1}, got {_shortened(written)}",
            f"renumber {odd.name} with id {odd.local_id}: the runtime uses the ids of meshes and switches as indices",
            odd.place,
        )


def _shortened(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:16]))
    return f"{shown}, ..." if len(numbers) > 16 else shown


def _odd_shape(mesh: Any, place: Place) -> Iterator[Finding]:
    rows, columns = mesh.device_topology.dims
    if rows % 2 and columns % 2 and (rows, columns) != (1, 1):
        yield error(
            "odd-shape",
            "MeshGraph: For WORMHOLE_B0 architecture, if both mesh dimensions are odd, they must both be 1, "
            f"got {rows}x{columns}",
            f"make one of them even, e.g. {rows}x{columns + 1}",
            place,
        )


UNKNOWN_FIELD = "mgd/unknown-field"


def unknown_fields(message: Any, places: Place) -> Iterator[Finding]:
    known = message.DESCRIPTOR.fields_by_name
    for name, found in places.fields.items():
        if name not in known:
            yield warning(
                UNKNOWN_FIELD.removeprefix("mgd/"),
                f"{message.DESCRIPTOR.name} has no field {name!r}; the runtime skips it in silence",
                f"remove or correct it.{did_you_mean(name, known)}",
                found[0],
            )
        elif known[name].message_type is not None:
            values = getattr(message, name)
            for value, place in zip([values] if isinstance(values, Message) else values, found, strict=False):
                yield from unknown_fields(value, place)


def _unused(message: Any, places: Place, population: Population) -> Iterator[Finding]:
    used = {(instance.kind, instance.name) for instance in population.instances}
    for kind in (Kind.MESH, Kind.SWITCH, Kind.GRAPH):
        field = f"{kind.value.lower()}_descriptors"
        for i, descriptor in enumerate(getattr(message, field)):
            if (kind, descriptor.name) not in used:
                yield note(
                    "unused-descriptor",
                    f"{kind.value.capitalize()} descriptor {descriptor.name} is never instantiated",
                    "remove it, or name it in instances or top_level_instance",
                    places.of(field, i),
                )


def _short_rings(message: Any, places: Place) -> Iterator[Finding]:
    for i, mesh in enumerate(message.mesh_descriptors):
        topology = mesh.device_topology
        for axis, (dim, type_) in enumerate(zip(topology.dims, topology.dim_types, strict=True)):
            if type_ == _RING and dim <= 2:
                yield note(
                    "short-ring",
                    f"Dim {axis} of {mesh.name} is a RING of {dim}: a ring needs more than 2 chips, so it "
                    "works as a LINE",
                    "write LINE, or give the dim more chips",
                    places.of("mesh_descriptors", i).of("device_topology").of("dim_types", axis),
                )


def _lonely_layouts(population: Population) -> Iterator[Finding]:
    for graph in population.of_kind(Kind.GRAPH):
        if graph.template.HasField("graph_topology") and len(graph.children) < 2:
            yield warning(
                "lonely-layout",
                f"The graph_topology of {graph.name} joins nothing: the graph has one instance",
                "add instances, or remove graph_topology",
                graph.place,
            )


def _self_connections(population: Population) -> Iterator[Finding]:
    for request in population.requests:
        owners = [_owner(node) for node in request.nodes]
        if len(set(owners)) < len(owners):
            twice = next(owner for owner in owners if owners.count(owner) > 1)
            yield error(
                "self-connection",
                f"A connection of {request.parent.name} joins {twice} with itself",
                "connections join different meshes; the links inside a mesh follow from its device_topology",
                request.place,
            )


def _owner(node: Instance) -> Instance:
    return node.parent if node.is_chip and node.parent is not None else node


def _repeated_pairs(population: Population) -> Iterator[Finding]:
    """Between meshes the last request of a pair counts, and those before it are lost."""
    last: dict[frozenset[Instance], Request] = {}
    for request in population.requests:
        pair = frozenset(request.nodes)
        before = last.get(pair)
        if before is not None and before.place is not request.place and not request.nodes[0].is_chip:
            a, b = request.nodes[:2]
            yield warning(
                "pair-twice",
                f"{a} and {b} are connected twice: line {before.place.line} asks for {before.count} links, line "
                f"{request.place.line} for {request.count}; only the latter counts",
                "remove one of the two",
                before.place if request.is_generated else request.place,
            )
        last[pair] = request


def _mixed_connections(population: Population) -> Iterator[Finding]:
    levels = {request.nodes[0].is_chip for request in population.requests}
    if len(levels) > 1:
        first = population.requests[0]
        odd = next(r for r in population.requests if r.nodes[0].is_chip != first.nodes[0].is_chip)
        yield warning(
            "mixed-connections",
            "Mesh Graph Descriptor must specify either RelaxedGraph or Graph connections, not both.",
            "give device_id in all connections or in none; the fabric will not come up with both",
            odd.place,
        )
