"""`ttnn.cluster`: what kind of machine this is."""

from __future__ import annotations

import tempfile
from pathlib import Path

from softmesh.arguments import checked, checked_int
from softmesh.errors import MeshError
from softmesh.fabric.mesh_graph import Node
from softmesh.fabric.system import current_system, machine_system
from softmesh.hardware import ClusterType
from softmesh.runtime.device import MeshDevice

__all__ = [
    "ClusterType",
    "get_chip_unique_id_from_fabric_node_id",
    "get_cluster_type",
    "serialize_cluster_descriptor",
]


def get_cluster_type() -> ClusterType:
    return current_system().cluster_type


def serialize_cluster_descriptor() -> str:
    """Write the machine down as a cluster descriptor file; returns its path. The file is the caller's to remove."""
    from softmesh.systems.cluster_descriptor import descriptor_text

    machine = machine_system("serialize_cluster_descriptor").machine
    path = Path(tempfile.mkdtemp(prefix="softmesh-")) / "cluster_descriptor.yaml"
    path.write_text(descriptor_text(machine))
    return str(path)


def get_chip_unique_id_from_fabric_node_id(mesh_device: MeshDevice, mesh_id: int, chip_id: int) -> int:
    where = "get_chip_unique_id_from_fabric_node_id"
    checked(where, "mesh_device", mesh_device, MeshDevice, "a MeshDevice")
    node = Node(checked_int(where, "mesh_id", mesh_id), checked_int(where, "chip_id", chip_id))
    match = machine_system(where).match
    if node not in match.chips:
        raise MeshError(f"{where}: the mesh graph {match.graph.source} has no {node}.")
    return match.machine.asics[match.chips[node]].unique_id
