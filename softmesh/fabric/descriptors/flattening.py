"""`softmesh flatten`: a descriptor with levels (meshes in PODs in clusters) as one FABRIC graph, which the runtime
takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from softmesh.errors import MeshError
from softmesh.fabric.descriptors.loader import load_mesh_graph
from softmesh.fabric.mesh_graph import Connection, LogicalMesh, MeshGraph, Pinning
from softmesh.hardware import Arch
from softmesh.terminal_text import echo

_ARCHITECTURES = {Arch.WORMHOLE_B0: "WORMHOLE_B0", Arch.BLACKHOLE: "BLACKHOLE"}


def flat_text(graph: MeshGraph) -> str:
    """The descriptor of the same meshes and connections, without levels."""
    templates = {mesh.name: mesh for mesh in graph.meshes}
    return "\n".join(
        [
            f"# {Path(graph.source).name}, as one graph",
            *(_template(mesh, _ARCHITECTURES[graph.arch]) for mesh in templates.values()),
            'graph_descriptors {\n  name: "Fabric"\n  type: "FABRIC"',
            *(f"  instances {{ {_instance(mesh)} }}" for mesh in graph.meshes),
            *(_block(connection, graph) for connection in graph.without_levels().connections),
            "}",
            *map(_pinning, graph.pinnings),
            'top_level_instance { graph { graph_descriptor: "Fabric" graph_id: 0 } }',
            "",
        ]
    )


def _template(mesh: LogicalMesh, arch: str) -> str:
    rings = ["RING" if wraps else "LINE" for wraps in mesh.rings]
    policy = "STRICT" if mesh.strict else "RELAXED"
    if mesh.is_switch:
        raise MeshError(f"softmesh flatten: {mesh.name} is a switch, which is not flattened. Write the graph by hand.")
    return (
        f'mesh_descriptors {{\n  name: "{mesh.name}"\n  arch: {arch}\n'
        f"  device_topology {{ dims: {list(mesh.shape)} dim_types: [ {', '.join(rings)} ] }}\n"
        f"  host_topology {{ dims: {list(mesh.hosts)} }}\n"
        f"  channels {{ count: {mesh.channels} policy: {policy} }}\n}}"
    )


def _instance(mesh: LogicalMesh, chip: int | None = None) -> str:
    device = "" if chip is None else f" device_id: {chip}"
    return f'mesh {{ mesh_descriptor: "{mesh.name}" mesh_id: {mesh.id}{device} }}'


def _block(connection: Connection, graph: MeshGraph) -> str:
    policy = "STRICT" if connection.strict else "RELAXED"
    ends = (_instance(graph.mesh(side.meshes[0]), side.chip) for side in (connection.a, connection.b))
    nodes = "".join(f"    nodes {{ {end} }}\n" for end in ends)
    in_z = "    assign_z_direction: true\n" if connection.z else ""
    return f"  connections {{\n{nodes}    channels {{ count: {connection.count} policy: {policy} }}\n{in_z}  }}"


def _pinning(pinning: Pinning) -> str:
    nodes = (f"  logical_fabric_node_id {{ mesh_id: {node.mesh} chip_id: {node.chip} }}" for node in pinning.nodes)
    places = (f"  physical_asic_position {{ tray_id: {tray} asic_location: {at} }}" for tray, at in pinning.positions)
    return "\n".join(["pinnings {", *nodes, *places, "}"])


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  softmesh flatten closetbox.textproto -o closetbox_fabric.textproto",
)
@click.argument("descriptor", metavar="FILE")
@click.option("-o", "--output", metavar="FILE", help="Where to write it; by default it is printed.")
def flatten(descriptor: str, output: str | None) -> None:
    """Write the meshes of a descriptor with POD and CLUSTER levels as one graph of type FABRIC."""
    try:
        text = flat_text(load_mesh_graph(descriptor, runtime=False))
        if output is None:
            echo(text, nl=False)
        else:
            Path(output).write_text(text, encoding="utf-8")
    except MeshError as error:
        echo(f"Error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        echo(f"Error: {output} cannot be written: {error.strerror}", err=True)
        sys.exit(1)
