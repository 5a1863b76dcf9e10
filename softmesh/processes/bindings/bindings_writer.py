"""Writes rank bindings, mapping files and mesh graph descriptors as text that their readers read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Pinning, Side, policy_name
from softmesh.processes.bindings.rank_bindings import RankBinding


def bindings_text(bindings: Sequence[RankBinding], descriptor: str, comment: str = "") -> str:
    """Strings are always in quotes: `0,1` without them would be a number."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines.append("rank_bindings:")
    for binding in bindings:
        lines += _binding_lines(binding)
    lines.append(f"mesh_graph_desc_path: {_quoted(descriptor)}")
    return "\n".join(lines) + "\n"


def _binding_lines(binding: RankBinding) -> Iterator[str]:
    yield f"  - rank: {binding.rank}"
    yield f"    mesh_id: {binding.mesh_id}"
    if binding.mesh_host_rank is not None:
        yield f"    mesh_host_rank: {binding.mesh_host_rank}"
    if binding.env_overrides:
        yield "    env_overrides:"
        for name, value in binding.env_overrides.items():
            yield f"      {name}: {_quoted(value)}"


def mapping_text(key: str, paths: Mapping[int, str]) -> str:
    return "\n".join([f"{key}:", *(f"  {id}: {_quoted(path)}" for id, path in paths.items())]) + "\n"


def _quoted(text: str) -> str:
    """A JSON string is a YAML string."""
    return json.dumps(text, ensure_ascii=False)


_GRAPH = "G0"


def graph_text(graph: MeshGraph, comment: str = "") -> str:
    lines = [f"# {line}" for line in comment.splitlines()]
    kinds = {mesh.name: mesh for mesh in graph.meshes}
    for kind in kinds.values():
        lines += _kind(kind, graph)
    if len(graph.meshes) == 1:
        lines.append(f"top_level_instance {{ {_instance(graph.meshes[0])} }}")
    else:
        lines += _graph(graph)
        lines.append(f'top_level_instance {{ graph {{ graph_descriptor: "{_GRAPH}" graph_id: 0 }} }}')
    for pinning in graph.pinnings:
        lines += _pinning(pinning)
    return "\n".join(lines) + "\n"


def _kind(mesh: LogicalMesh, graph: MeshGraph) -> Iterator[str]:
    yield "mesh_descriptors {"
    yield f'  name: "{mesh.name}"'
    yield f"  arch: {graph.arch.name}"
    types = ", ".join("RING" if ring else "LINE" for ring in mesh.rings)
    kinds = f" dim_types: [ {types} ]" if any(mesh.rings) else ""
    yield f"  device_topology {{ dims: [ {mesh.shape[0]}, {mesh.shape[1]} ]{kinds} }}"
    yield f"  host_topology {{ dims: [ {mesh.hosts[0]}, {mesh.hosts[1]} ] }}"
    yield f"  channels {{ count: {mesh.channels} policy: {policy_name(mesh.strict)} }}"
    yield "}"


def _graph(graph: MeshGraph) -> Iterator[str]:
    yield "graph_descriptors {"
    yield f'  name: "{_GRAPH}"'
    yield '  type: "FABRIC"'
    for mesh in graph.meshes:
        yield f"  instances {{ {_instance(mesh)} }}"
    for connection in graph.connections:
        yield from _connection(connection, graph)
    yield "}"


def _connection(connection: Connection, graph: MeshGraph) -> Iterator[str]:
    yield "  connections {"
    for side in (connection.a, connection.b):
        yield f"    nodes {{ {_instance(graph.mesh(_only_mesh(side)))} }}"
    yield f"    channels {{ count: {connection.count} policy: {policy_name(connection.strict)} }}"
    if connection.z:
        yield "    assign_z_direction: true"
    yield "  }"


def _only_mesh(side: Side) -> int:
    (mesh,) = side.meshes
    return mesh


def _instance(mesh: LogicalMesh) -> str:
    return f'mesh {{ mesh_descriptor: "{mesh.name}" mesh_id: {mesh.id} }}'


def _pinning(pinning: Pinning) -> Iterator[str]:
    yield "pinnings {"
    for node in pinning.nodes:
        yield f"  logical_fabric_node_id {{ mesh_id: {node.mesh} chip_id: {node.chip} }}"
    for tray, location in pinning.positions:
        yield f"  physical_asic_position {{ tray_id: {tray} asic_location: {location} }}"
    yield "}"
