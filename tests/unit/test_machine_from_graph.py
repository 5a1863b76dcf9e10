"""Without a machine, a descriptor gets one that fits it."""

from __future__ import annotations

from pathlib import Path

import pytest

import softmesh as ttnn
from softmesh import FabricConfig, MeshShape
from softmesh.fabric.descriptors.loader import load_mesh_graph
from softmesh.fabric.machine_from_graph import machine_from_graph
from softmesh.fabric.matching.find_match import match
from softmesh.fabric.routing.network import Network

pytestmark = pytest.mark.usefixtures("idle_machine")

DESCRIPTORS = Path(__file__).parent.parent / "fixtures" / "mgd"
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "descriptors"
FITTING = [
    *(DESCRIPTORS / f"{name}.textproto" for name in ("t3k", "t3k_ring", "t3k_two_meshes", "t3k_named_chips")),
    *(DESCRIPTORS / f"{name}.textproto" for name in ("split_galaxy", "exabox", "superpod", "t3k_two_hosts")),
    *sorted(EXAMPLES.glob("*.textproto")),
]


@pytest.mark.parametrize("path", FITTING, ids=lambda path: path.stem)
def test_an_imagined_machine_has_what_the_descriptor_asks_for(path):
    graph = load_mesh_graph(path)
    found = match(graph, machine_from_graph(graph))
    assert not found.warnings
    network = Network(found, FabricConfig.FABRIC_2D)
    assert network.deadlock().is_free
    ports = [port for link in found.machine.links for port in link]
    assert len(ports) == len(set(ports))


def test_a_descriptor_alone_chooses_mesh_and_fabric(monkeypatch):
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(EXAMPLES / "t3000_pair.textproto"))
    monkeypatch.setenv("TT_MESH_ID", "1")
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(MeshShape(2, 2))
    assert mesh.get_system_mesh_id() == 1
    assert mesh.get_device_ids() == [4, 5, 6, 7]
    with pytest.raises(RuntimeError, match="only 4 devices are available"):
        ttnn.open_mesh_device(MeshShape(2, 4))


def test_processes_that_share_a_machine_see_it_through_their_bindings(monkeypatch):
    monkeypatch.setenv("SOFTMESH_SYSTEM", "T3000")
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(EXAMPLES / "t3000_pair.textproto"))
    monkeypatch.setenv("TT_MESH_ID", "1")
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "2,3")
    mesh = ttnn.open_mesh_device()
    assert mesh.get_num_devices() == 4
