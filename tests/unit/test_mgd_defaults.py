"""Graphs of known machines, and the wraps a fabric configuration leaves in use."""

from __future__ import annotations

import pytest
from descriptors import FIXTURES

from softmesh.errors import MeshError, SoftmeshWarning
from softmesh.fabric.descriptors.default_graphs import default_graph
from softmesh.fabric.descriptors.loader import load_mesh_graph
from softmesh.fabric.graph_selection import effective_graph
from softmesh.fabric.mesh_graph import LogicalMesh, MeshGraph, Node
from softmesh.hardware import Arch, ClusterType, FabricConfig, FabricType

SHAPES = {
    "N150": ((1, 1), 1),
    "N300": ((1, 2), 2),
    "N300_2x2": ((2, 2), 2),
    "T3K": ((2, 4), 2),
    "GALAXY": ((8, 4), 4),
    "P100": ((1, 1), 1),
    "P150": ((1, 1), 1),
    "P150_X2": ((1, 2), 4),
    "P150_X4": ((2, 2), 4),
    "P150_X8": ((2, 4), 2),
    "P300": ((1, 2), 2),
    "P300_X2": ((2, 2), 2),
    "BLACKHOLE_GALAXY": ((8, 4), 2),
    "SIMULATOR_WORMHOLE_B0": ((1, 1), 1),
    "SIMULATOR_BLACKHOLE": ((1, 1), 1),
    "SIMULATOR_QUASAR": ((1, 1), 1),
}


def torus(*shape: int, rings: tuple[bool, bool] = (True, True)) -> MeshGraph:
    return MeshGraph("x.textproto", Arch.WORMHOLE_B0, (LogicalMesh(0, "M0", shape, rings, line=3),))


def rings(graph: MeshGraph, config: str, cluster: ClusterType = ClusterType.GALAXY) -> tuple[bool, bool]:
    return effective_graph(graph, getattr(FabricConfig, config), cluster).meshes[0].rings


@pytest.mark.parametrize("name", SHAPES)
def test_known_machines_are_one_relaxed_mesh_of_lines_on_one_host(name):
    graph = default_graph(getattr(ClusterType, name))
    assert graph is not None
    (mesh,) = graph.meshes
    assert (mesh.shape, mesh.channels) == SHAPES[name]
    assert (mesh.strict, mesh.hosts, mesh.rings) == (False, (1, 1), (False, False))


def test_every_machine_type_has_a_graph_or_needs_a_descriptor():
    without = [kind.name for kind in ClusterType if default_graph(kind) is None]
    assert without == ["INVALID", "CUSTOM"]


@pytest.mark.parametrize("kind", [ClusterType.GALAXY, ClusterType.BLACKHOLE_GALAXY])
def test_galaxies_have_toruses_and_a_pinned_corner(kind):
    graph = default_graph(kind, FabricType.TORUS_Y)
    assert graph is not None
    assert graph.meshes[0].rings == (True, False)
    assert [(pinning.nodes, pinning.positions) for pinning in graph.pinnings] == [((Node(0, 0),), ((1, 1),))]


def test_a_torus_elsewhere_falls_back_to_the_mesh_with_a_warning():
    with pytest.warns(SoftmeshWarning, match="no TORUS_XY descriptor for T3K"):
        graph = default_graph(ClusterType.T3K, FabricType.TORUS_XY)
    assert graph == default_graph(ClusterType.T3K)


def test_a_tg_is_a_galaxy_behind_four_gateways():
    graph = default_graph(ClusterType.TG)
    assert graph is not None
    assert [mesh.shape for mesh in graph.meshes] == [(1, 1)] * 4 + [(4, 8)]
    assert [(str(connection), connection.count) for connection in graph.connections] == [
        (f"M{gateway} <-> M4", 2) for gateway in range(4)
    ]


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ("DISABLED", (False, False)),
        ("FABRIC_1D", (False, False)),
        ("FABRIC_2D", (False, False)),
        ("FABRIC_2D_TORUS_X", (False, True)),
        ("FABRIC_2D_TORUS_Y", (True, False)),
        ("FABRIC_2D_TORUS_XY", (True, True)),
        ("FABRIC_1D_RING", (True, True)),
        ("FABRIC_1D_NEIGHBOR_EXCHANGE", (True, True)),
        ("CUSTOM", (True, True)),
    ],
)
def test_a_configuration_leaves_the_wraps_it_uses(config, left):
    assert rings(torus(8, 4), config) == left


def test_outside_galaxies_rings_come_from_the_descriptor():
    ring = load_mesh_graph(FIXTURES / "t3k_ring.textproto")
    plain = load_mesh_graph(FIXTURES / "t3k.textproto")
    assert rings(ring, "FABRIC_1D_RING", ClusterType.T3K) == (False, True)
    assert rings(plain, "FABRIC_1D_RING", ClusterType.T3K) == (False, False)
    assert rings(ring, "FABRIC_1D_NEIGHBOR_EXCHANGE", ClusterType.T3K) == (False, False)


def test_a_configuration_cannot_add_wraps():
    expected = (
        r"^FabricConfig FABRIC_2D_TORUS_XY requests topology TORUS_XY which requires more connectivity than MGD "
        r"provides TORUS_Y\. FabricConfig can only restrict topology \(e\.g\., torus→mesh\), not create new "
        r"connections\. Mesh 0 \(M0, 8x4\) of x\.textproto:3 has no wrap on dim 1: .* or use FABRIC_2D\.$"
    )
    with pytest.raises(MeshError, match=expected):
        rings(torus(8, 4, rings=(True, False)), "FABRIC_2D_TORUS_XY")


def test_a_ring_on_a_galaxy_needs_declared_wraps():
    with pytest.raises(MeshError, match=r"FABRIC_1D_RING requests topology TORUS_XY .* provides MESH.* use FABRIC_1D"):
        rings(torus(8, 4, rings=(False, False)), "FABRIC_1D_RING")


def test_axes_too_short_to_wrap_do_not_count():
    assert rings(torus(8, 2, rings=(True, False)), "FABRIC_2D_TORUS_XY") == (True, False)
