"""What the runtime needs of a descriptor beyond a well-formed description: one flat graph of 2-D meshes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from softmesh.fabric.descriptors.complaints import error
from softmesh.fabric.descriptors.positions import Place
from softmesh.fabric.finding import Finding

KINDS = {"mesh_descriptors": "Mesh", "graph_descriptors": "Graph", "switch_descriptors": "Switch"}
_PREFIX = "MGD 1.0 Compatibility requirement: "


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
        fix = "write all meshes as instances of one graph of type FABRIC; levels above it are for inspection"
        yield error("several-graphs", text, fix, graphs[1][1])
    for graph, place, who in graphs:
        yield from _runtime_graph(graph, place, who)


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


def _runtime_graph(graph: Any, place: Place, who: str) -> Iterator[Finding]:
    if graph.type != "FABRIC":
        text = f"{_PREFIX}There can only be one FABRIC level graph {who}"
        yield error("not-a-fabric", text, f'write type: "FABRIC" instead of "{graph.type}"', place.of("type"))
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
