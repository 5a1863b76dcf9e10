"""A ring only where the wrap exists and the fabric uses it; links as many as there are."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh import FabricConfig, MeshShape, Topology

LINEAR, RING, MESH, TORUS = Topology.Linear, Topology.Ring, Topology.Mesh, Topology.Torus


pytestmark = pytest.mark.usefixtures("idle_machine")


def on_mesh(system: str | None, shape: tuple[int, int], config: FabricConfig) -> ttnn.Tensor:
    ttnn.use_system(system)
    ttnn.set_fabric_config(config)
    mesh = ttnn.open_mesh_device(MeshShape(*shape))
    return ttnn.from_torch(
        torch.zeros(32, 32),
        device=mesh,
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
        layout=ttnn.TILE_LAYOUT,
    )


def answers(tensor: ttnn.Tensor, asked: Topology | None) -> list[Topology]:
    return [ttnn.get_usable_topology(tensor, asked, axis) for axis in (None, 0, 1)]


# machine, mesh, fabric: answers for axis None, 0, 1 without a wish, and to the wish for a ring
TABLE = [
    ("T3000", (1, 8), FabricConfig.FABRIC_1D, [LINEAR] * 3, [RING, LINEAR, RING]),
    ("T3000", (1, 8), FabricConfig.FABRIC_1D_RING, [RING, LINEAR, RING], [RING, LINEAR, RING]),
    ("T3000", (2, 4), FabricConfig.FABRIC_1D, [LINEAR] * 3, [LINEAR] * 3),
    ("T3000", (2, 4), FabricConfig.FABRIC_1D_RING, [LINEAR] * 3, [LINEAR] * 3),
    ("T3000", (1, 4), FabricConfig.FABRIC_1D_RING, [RING, LINEAR, LINEAR], [RING, LINEAR, LINEAR]),
    ("T3000", (2, 4), FabricConfig.FABRIC_2D, [MESH] * 3, [LINEAR] * 3),
    ("Galaxy", (8, 4), FabricConfig.FABRIC_1D, [LINEAR] * 3, [RING, LINEAR, LINEAR]),
    ("Galaxy", (4, 8), FabricConfig.FABRIC_1D, [LINEAR] * 3, [RING, LINEAR, LINEAR]),
    ("Galaxy", (8, 4), FabricConfig.FABRIC_1D_RING, [RING] * 3, [RING] * 3),
    ("Galaxy", (4, 8), FabricConfig.FABRIC_1D_RING, [RING] * 3, [RING] * 3),
    ("Galaxy", (8, 4), FabricConfig.FABRIC_2D_TORUS_XY, [TORUS] * 3, [RING] * 3),
    ("N300", (1, 2), FabricConfig.FABRIC_1D, [LINEAR] * 3, [LINEAR] * 3),
    ("N300", (1, 2), FabricConfig.FABRIC_1D_RING, [LINEAR] * 3, [LINEAR] * 3),
    ("N300", (1, 2), FabricConfig.FABRIC_2D, [MESH] * 3, [LINEAR] * 3),
]


@pytest.mark.parametrize(("system", "shape", "config", "without_a_wish", "for_a_ring"), TABLE)
def test_the_topology_is_what_machine_and_fabric_allow(system, shape, config, without_a_wish, for_a_ring):
    tensor = on_mesh(system, shape, config)
    assert answers(tensor, None) == without_a_wish
    assert answers(tensor, RING) == for_a_ring


def test_a_torus_fabric_on_a_t3000_warns_and_keeps_the_rings_that_close():
    with pytest.warns(ttnn.SoftmeshWarning, match="There is no TORUS_XY descriptor for T3K"):
        tensor = on_mesh("T3000", (1, 8), FabricConfig.FABRIC_2D_TORUS_XY)
    assert answers(tensor, None) == [TORUS, MESH, TORUS]
    assert answers(tensor, RING) == [RING, LINEAR, RING]


def test_a_ring_whose_wrap_is_broken_cannot_come_up_and_a_line_can():
    ttnn.use_system("torus:4x4", down=["link:0-3"])
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D_RING, ttnn.FabricReliabilityMode.RELAXED_INIT)
    with pytest.raises(RuntimeError, match="chip 0 ch 0 <-> chip 3 ch 12 is down"):
        ttnn.open_mesh_device(MeshShape(4, 4))
    ttnn.set_fabric_config(FabricConfig.DISABLED)
    tensor = on_mesh("torus:4x4", (4, 4), FabricConfig.FABRIC_1D)
    assert answers(tensor, RING) == [RING, LINEAR, LINEAR]


def test_linear_and_mesh_are_taken_as_asked():
    tensor = on_mesh("Galaxy", (8, 4), FabricConfig.FABRIC_1D_RING)
    assert answers(tensor, LINEAR) == [LINEAR] * 3
    assert answers(tensor, MESH) == [MESH] * 3


def test_the_elastic_machine_closes_every_ring_that_the_fabric_uses():
    tensor = on_mesh(None, (2, 4), FabricConfig.FABRIC_2D_TORUS_X)
    assert answers(tensor, None) == [MESH, MESH, TORUS]


@pytest.mark.parametrize(
    ("system", "shape", "links"),
    [
        ("T3000", (2, 4), 1),
        ("N300", (1, 2), 1),
        ("Galaxy", (8, 4), 4),
        ("P150x4", (2, 2), 2),
        ("BH-Galaxy", (8, 4), 2),
    ],
)
def test_collectives_may_use_the_links_that_host_traffic_leaves(system, shape, links):
    tensor = on_mesh(system, shape, FabricConfig.FABRIC_1D)
    mesh = tensor.device()
    assert [ttnn.get_num_links(mesh, axis) for axis in (None, 0, 1)] == [links] * 3


def test_without_a_fabric_there_is_no_topology_to_take():
    ttnn.use_system("T3000")
    mesh = ttnn.open_mesh_device(MeshShape(2, 4))
    tensor = ttnn.from_torch(torch.zeros(32, 32), device=mesh, layout=ttnn.TILE_LAYOUT)
    with pytest.raises(RuntimeError, match="Trying to get un-initialized fabric context"):
        ttnn.get_usable_topology(tensor)


def test_wrong_arguments_are_refused():
    tensor = on_mesh("T3000", (2, 4), FabricConfig.FABRIC_1D)
    with pytest.raises(RuntimeError, match="cluster axis 2 is out of range for mesh shape rank 2"):
        ttnn.get_usable_topology(tensor, RING, 2)
    with pytest.raises(TypeError, match="cluster_axis must be 0 or more"):
        ttnn.get_usable_topology(tensor, RING, -1)
    with pytest.raises(TypeError, match=r"topology must be a ttnn\.Topology"):
        ttnn.get_usable_topology(tensor, "Ring")
    with pytest.raises(RuntimeError, match="on host"):
        ttnn.get_usable_topology(ttnn.from_torch(torch.zeros(2)), RING)
    with pytest.raises(TypeError, match="mesh_device must be a MeshDevice"):
        ttnn.get_num_links(tensor)
