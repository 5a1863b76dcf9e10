"""Validates a descriptor in stages, before anything is built from it.

A stage runs if those before it found nothing. The words of each message are the runtime's own, so that a search for
them leads to its documents too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from softmesh.fabric.descriptors.pinnings import pinning_errors
from softmesh.fabric.descriptors.source_positions import Place, error
from softmesh.input_files.text_files import Finding, errors_of

# What the runtime needs of a descriptor beyond a well-formed description: one flat graph of 2-D meshes.


KINDS = {"mesh_descriptors": "Mesh", "graph_descriptors": "Graph", "switch_descriptors": "Switch"}
FILE, FLAT_FILE = "{descriptor}", "{flat descriptor}"  # in the text of a fix: the file itself, and one to be written
_PREFIX = "MGD 1.0 Compatibility requirement: "
_ONE_GRAPH = f"softmesh flatten {FILE} -o {FLAT_FILE} writes them as one graph of type FABRIC: name that file instead"
_ABOUT_LEVELS = {"mgd/several-graphs", "mgd/not-a-fabric"}


def each_descriptor(message: Any, places: Place, field: str) -> Iterator[tuple[Any, Place, str]]:
    """Each descriptor of a kind with its place and the `(Mesh: M0)` that ends its messages."""
    for i, descriptor in enumerate(getattr(message, field)):
        yield descriptor, places.of(field, i), f"({KINDS[field]}: {descriptor.name})"


def compatibility(message: Any, places: Place) -> Iterator[Finding]:
    for mesh, place, who in each_descriptor(message, places, "mesh_descriptors"):
        yield from _runtime_mesh(mesh, place, who)
    graphs = list(each_descriptor(message, places, "graph_descriptors"))
    if len(graphs) > 1:
        text = f"{_PREFIX}There can only be one FABRIC level graph or less"
        fix = f"{_ONE_GRAPH}. softmesh runs this file as that graph too, with a warning; silicon does not"
        yield error("several-graphs", text, fix, graphs[1][1])
    for graph, place, who in graphs:
        yield from _runtime_graph(graph, place, who, is_level=len(graphs) > 1)


def is_about_levels(found: Iterable[Finding]) -> bool:
    """True if graphs within graphs are all that the runtime refuses."""
    rules = {finding.rule for finding in found}
    return "mgd/several-graphs" in rules and rules <= _ABOUT_LEVELS


def _runtime_mesh(mesh: Any, place: Place, who: str) -> Iterator[Finding]:
    dims, hosts = len(mesh.device_topology.dims), len(mesh.host_topology.dims)
    fix = "write two dims: rows and columns"
    if dims != 2:
        text = f"{_PREFIX}There can only be 2 dimensions in the device topology {who}"
        yield error("not-two-dimensional", text, fix, place.of("device_topology"))
    if mesh.express_connections:
        text = f"{_PREFIX}Express connections are not supported {who}"
        remedy = "remove express_connections; the runtime routes along rows and columns only"
        yield error("express-connections", text, remedy, place.of("express_connections"))
    if dims != 2 or hosts != 2:
        both = "the device topology and host topology"
        text = f"{_PREFIX}There can only be 2 dimensions in {both} {who}"
        yield error("not-two-dimensional", text, fix, place.of("host_topology"))


def _runtime_graph(graph: Any, place: Place, who: str, *, is_level: bool) -> Iterator[Finding]:
    """`is_level`: there are others, which it is in or which are in it."""
    if graph.type != "FABRIC":
        text = f"{_PREFIX}There can only be one FABRIC level graph {who}"
        fix = f'write type: "FABRIC" instead of "{graph.type}"'
        yield error("not-a-fabric", text, _ONE_GRAPH if is_level else fix, place.of("type"))
    for i, connection in enumerate(graph.connections):
        if len(connection.nodes) != 2:
            text = f"{_PREFIX}Connections must have exactly 2 nodes {who}"
            fix = f"write one connection for each pair of its {len(connection.nodes)} nodes"
            yield error("not-a-pair", text, fix, place.of("connections", i))
    policies = [connection.channels.policy for connection in graph.connections]
    odd = next((i for i, policy in enumerate(policies) if policy != policies[0]), None)
    if odd is not None:
        yield error(
            "mixed-policies",
            f"{_PREFIX}Cannot mix STRICT and RELAXED policies in the same graph. All connections in a "
            f"graph must use the same policy {who}",
            f"give this connection the policy of the one in line {place.of('connections', 0).line}; without "
            "one it is STRICT",
            place.of("connections", odd).of("channels"),
        )


_RESERVED = ("DEVICE", "MESH", "SWITCH")
_MOST_DIMS = {1: 2, 2: 3}  # by Architecture: Wormhole, Blackhole

_Stage = Callable[[Any, Place], Iterator[Finding]]


def validate(message: Any, places: Place, runtime: bool) -> list[Finding]:
    """The findings of the first stage that has any. Defaults must have been filled in before."""
    stages: list[_Stage] = [_structure, _names_and_channels, _topologies]
    for stage in [*stages, compatibility] if runtime else stages:
        if found := errors_of(stage(message, places)):
            return found
    return []


def _structure(message: Any, places: Place) -> Iterator[Finding]:
    if not message.mesh_descriptors and not message.switch_descriptors:
        yield error(
            "no-mesh",
            "There must be at least one mesh descriptor or switch descriptor",
            'add mesh_descriptors { name: "M0" ... }',
            places,
        )
    if not message.HasField("top_level_instance"):
        yield error(
            "no-top-level-instance",
            "Top level instance is required",
            'add top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }, or name a graph there',
            places,
        )


def _names_and_channels(message: Any, places: Place) -> Iterator[Finding]:
    for field, kind in KINDS.items():
        yield from _names(message, places, field, kind)
    for graph, place, who in each_descriptor(message, places, "graph_descriptors"):
        if graph.type in _RESERVED:
            yield error(
                "reserved-type",
                f"Graph descriptor type cannot be DEVICE, MESH, or SWITCH {who}",
                'write type: "FABRIC", or a name of your own',
                place.of("type"),
            )
    for field in ("mesh_descriptors", "switch_descriptors"):
        for grid, place, who in each_descriptor(message, places, field):
            if grid.channels.count <= 0:
                yield _no_channels(f"Channel count must be positive {who}", place)
    yield from _graph_channels(message, places)
    yield from _architectures(message, places)


def _names(message: Any, places: Place, field: str, kind: str) -> Iterator[Finding]:
    first: dict[str, Place] = {}
    for i, descriptor in enumerate(getattr(message, field)):
        place = places.of(field, i)
        if not descriptor.name:
            yield error("no-name", f"{kind} descriptor {i + 1} has no name", 'add name: "..."', place)
        elif descriptor.name in first:
            yield error(
                "duplicate-name",
                f"{kind} descriptor name is not unique ({kind}: {descriptor.name})",
                f"rename this one; line {first[descriptor.name].line} has the name already",
                place.of("name"),
            )
        else:
            first[descriptor.name] = place


def _no_channels(message: str, place: Place) -> Finding:
    return error("no-channels", message, "write channels { count: N } with N >= 1", place.of("channels"))


def _graph_channels(message: Any, places: Place) -> Iterator[Finding]:
    for graph, place, who in each_descriptor(message, places, "graph_descriptors"):
        if graph.HasField("graph_topology") and graph.graph_topology.channels.count <= 0:
            yield _no_channels(f"Graph topology channel count must be positive {who}", place.of("graph_topology"))
        for i, connection in enumerate(graph.connections):
            if connection.channels.count <= 0:
                yield _no_channels(f"Connection channel count must be positive {who}", place.of("connections", i))


def _architectures(message: Any, places: Place) -> Iterator[Finding]:
    """Where meshes and switches disagree, the rest of the questions has no answer."""
    meshes = list(each_descriptor(message, places, "mesh_descriptors"))
    switches = list(each_descriptor(message, places, "switch_descriptors"))
    arch = (meshes or switches)[0][0].arch
    for group, text in (
        (meshes, "All mesh descriptors must have the same architecture"),
        (switches, "All switch descriptors must have the same architecture as meshes"),
    ):
        odd = [(grid, place) for grid, place, _ in group if grid.arch != arch]
        if odd:
            grid, place = odd[0]
            fix = f"give {grid.name} the arch of the first descriptor; a job runs on chips of one kind"
            yield error("mixed-architectures", text, fix, place.of("arch"))
            return
    for mesh, place, who in meshes:
        yield from _architecture(mesh, place, who, "Mesh")


def _architecture(grid: Any, place: Place, who: str, kind: str) -> Iterator[Finding]:
    most = _MOST_DIMS.get(grid.arch)
    dims = len(grid.device_topology.dims)
    if most is None:
        text = f"{kind} descriptor must have a valid architecture {who}"
        yield error("no-architecture", text, "write arch: WORMHOLE_B0 or arch: BLACKHOLE", place.of("arch"))
    elif dims > most:
        yield error(
            "too-many-dims",
            f"Architecture devices allow a maximum of {most} dimensions, but {dims} were provided {who}",
            "write two dims: rows and columns",
            place.of("device_topology").of("dims"),
        )


def _topologies(message: Any, places: Place) -> Iterator[Finding]:
    for mesh, place, who in each_descriptor(message, places, "mesh_descriptors"):
        yield from _dims(mesh, place, who)
        yield from _hosts(mesh, place, who)
        yield from _express(mesh, place, who)
    for switch, place, who in each_descriptor(message, places, "switch_descriptors"):
        yield from _dims(switch, place, who)
        yield from _architecture(switch, place, who, "Switch")
        yield from _express(switch, place, who)
    for graph, place, who in each_descriptor(message, places, "graph_descriptors"):
        yield from _graph(graph, place, who)
    for i, pinning in enumerate(message.pinnings):
        yield from pinning_errors(pinning, places.of("pinnings", i))


def _dims(grid: Any, place: Place, who: str) -> Iterator[Finding]:
    topology, where = grid.device_topology, place.of("device_topology")
    for i, dim in enumerate(topology.dims):
        if dim <= 0:
            text = f"Device topology dimensions must be positive {who}"
            yield error("bad-dims", text, f"dim {i} is {dim}; write 1 or more", where.of("dims", i))
    if len(topology.dim_types) > len(topology.dims):
        yield error(
            "too-many-dim-types",
            f"Device topology dimensions and types must be the same size {who}",
            f"{len(topology.dims)} dims take as many dim_types, not {len(topology.dim_types)}",
            where.of("dim_types"),
        )


def _hosts(mesh: Any, place: Place, who: str) -> Iterator[Finding]:
    dims, hosts = list(mesh.device_topology.dims), list(mesh.host_topology.dims)
    where = place.of("host_topology")
    if len(dims) != len(hosts):
        yield error(
            "host-rank",
            f"Device and host topology dimensions must be the same size {who}",
            f"write host_topology {{ dims: {[1] * len(dims)} }} for one host",
            where,
        )
        return
    for i, (dim, count) in enumerate(zip(dims, hosts, strict=True)):
        if count <= 0 or dim % count:
            counts = ", ".join(str(n) for n in range(1, min(dim, 1024) + 1) if dim % n == 0)
            yield error(
                "hosts-do-not-divide",
                f"Device topology dimensions must be divisible by host topology dimensions {who}",
                f"{count} hosts cannot share {dim} chips of dim {i}; {counts or 1} can",
                where.of("dims", i),
            )


def _express(grid: Any, place: Place, who: str) -> Iterator[Finding]:
    chips = math.prod(grid.device_topology.dims)
    is_switch = who.startswith("(Switch")
    for i, pair in enumerate(grid.express_connections):
        where = place.of("express_connections", i)
        outside = [field for field in ("src", "dst") if not 0 <= getattr(pair, field) < chips]
        for field in outside[:1] if is_switch else outside:
            end = "source" if field == "src" and not is_switch else "destination"
            text = f"Express connection {end} is out of bounds {who}"
            fix = f"the chips are 0..{chips - 1}"
            yield error("express-out-of-bounds", text, fix, where.of(field))


def _graph(graph: Any, place: Place, who: str) -> Iterator[Finding]:
    if not graph.instances:
        text = f"Graph descriptor must have at least one instance {who}"
        fix = 'add instances { mesh { mesh_descriptor: "M0" mesh_id: 0 } }'
        yield error("no-instances", text, fix, place)
    if not graph.type:
        text = f"Graph descriptor must have a type specified {who}"
        yield error("no-type", text, 'add type: "FABRIC"', place)
    for i, connection in enumerate(graph.connections):
        if len(connection.nodes) < 2:
            text = f"Connection must have at least two nodes {who}"
            fix = "name both ends: nodes { mesh { ... } } nodes { mesh { ... } }"
            yield error("too-few-nodes", text, fix, place.of("connections", i))
