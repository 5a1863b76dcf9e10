"""Over the host or over the fabric, rounded once or at each hop; and what is said of topologies that are not there."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh import FabricConfig, MeshShape, Topology, collectives

pytestmark = pytest.mark.usefixtures("idle_machine")


def ring_of_eight(dtype: ttnn.DataType = ttnn.bfloat16) -> ttnn.Tensor:
    """Chip 0 holds 256, the others 1."""
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D_RING)
    mesh = ttnn.open_mesh_device(MeshShape(1, 8))
    values = torch.tensor([256.0, 1, 1, 1, 1, 1, 1, 1]).reshape(8, 1).repeat(1, 64)
    mapper = ttnn.ShardTensorToMesh(mesh, 0)
    return ttnn.from_torch(values, dtype, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)


def first_piece(tensor: ttnn.Tensor) -> torch.Tensor:
    return ttnn.to_torch(ttnn.get_device_tensors(tensor)[0]).float()


def test_the_host_and_the_fabric_agree_when_both_round_once():
    x = ring_of_eight()
    for result in (
        collectives.all_reduce(x),
        collectives.all_reduce(x, mode="host"),
        collectives.all_reduce(x, numerics="fp32"),
    ):
        assert first_piece(result).unique().tolist() == [264]
        assert ttnn.placements(result) == (ttnn.Replicate(), ttnn.Replicate())


def test_rounding_at_each_hop_loses_ones_that_arrive_late():
    found = first_piece(collectives.all_reduce(ring_of_eight(), numerics="chip"))
    assert set(found.unique().tolist()) <= {256, 260, 264}
    assert len(found.unique()) > 1


def test_float32_loses_nothing_at_any_hop():
    x = ring_of_eight(ttnn.float32)
    assert first_piece(collectives.all_reduce(x, numerics="chip")).unique().tolist() == [263]


def test_the_same_call_gives_the_same_bits():
    x = ring_of_eight()
    one, two = (first_piece(collectives.all_reduce(x, numerics="chip")) for _ in range(2))
    assert torch.equal(one, two)


def test_gathering_over_the_host_is_gathering():
    x = ring_of_eight()
    for result in (
        collectives.all_gather(x, 0, mode="host"),
        collectives.all_gather(x, 0, numerics="chip"),
        collectives.all_gather(x, 0),
    ):
        assert first_piece(result)[:, 0].tolist() == [256, 1, 1, 1, 1, 1, 1, 1]


def test_whole_numbers_are_added_exactly_over_the_host():
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(MeshShape(1, 2))
    values = torch.tensor([[2**24], [1]], dtype=torch.int32)
    x = ttnn.from_torch(values, ttnn.int32, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert ttnn.to_torch(ttnn.get_device_tensors(collectives.all_reduce(x, "host"))[0]).item() == 2**24 + 1


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"mode": "cloud"}, TypeError, "mode must be 'host' or 'fabric'"),
        ({"numerics": "fp16"}, TypeError, "it must be 'chip' or 'fp32'"),
        ({"mode": "host", "numerics": "chip"}, TypeError, "numerics is about the hops of a fabric"),
    ],
)
def test_a_mode_that_is_none_is_refused(arguments, error, said):
    with pytest.raises(error, match=said):
        collectives.all_reduce(ring_of_eight(), **arguments)


def test_host_tensors_are_refused_by_every_mode():
    for mode in ("host", "fabric"):
        with pytest.raises(RuntimeError, match="Mesh device is required for all_reduce operation"):
            collectives.all_reduce(ttnn.from_torch(torch.zeros(2, 2)), mode)


# -- topologies that are not there ---------------------------------------------------------------


def on_t3000(shape: tuple[int, int], config: FabricConfig) -> ttnn.Tensor:
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(config)
    mesh = ttnn.open_mesh_device(MeshShape(*shape))
    return ttnn.from_torch(
        torch.ones(8, 32),
        ttnn.float32,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0),
    )


def test_a_ring_where_no_link_closes_it_becomes_a_line_and_says_so():
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    with pytest.warns(ttnn.SoftmeshWarning, match=r"all_reduce: topology=Topology\.Ring.*axis 1.*goes on as"):
        ttnn.all_reduce(x, cluster_axis=1, topology=Topology.Ring)
    with pytest.warns(ttnn.SoftmeshWarning, match="a ring needs more than 2 devices, and it has 2"):
        ttnn.all_reduce(x, cluster_axis=0, topology=Topology.Ring)


def test_a_ring_that_closes_is_taken_without_a_word():
    x = on_t3000((1, 8), FabricConfig.FABRIC_1D_RING)
    ttnn.all_reduce(x, cluster_axis=1, topology=Topology.Ring)


def test_more_links_than_there_are_become_those_there_are():
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    with pytest.warns(ttnn.SoftmeshWarning, match="num_links=4, but T3000 has 1"):
        ttnn.all_reduce(x, cluster_axis=1, num_links=4)


def test_no_links_at_all_are_refused():
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    with pytest.raises(RuntimeError, match="num_links must be greater than 0"):
        ttnn.all_gather(x, 0, cluster_axis=1, num_links=0)


def test_strictness_makes_an_error_of_it(monkeypatch):
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(ttnn.MeshError, match=r"topology=Topology\.Ring"):
        ttnn.all_reduce(x, cluster_axis=1, topology=Topology.Ring)


def test_a_topology_must_be_one():
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    with pytest.raises(TypeError, match=r"topology must be a ttnn\.Topology"):
        ttnn.all_reduce(x, cluster_axis=1, topology="Ring")
