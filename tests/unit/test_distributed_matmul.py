"""softmesh.distributed.matmul and linear: what they compute, where they leave it, and what they insert on the way."""

from __future__ import annotations

import pytest
import torch
from unified_operands import SUM, commands_of, spread, value_of, words_of

import softmesh as ttnn
from softmesh import Replicate, Shard, distributed

R = Replicate()
TILE = ttnn.TILE_LAYOUT


@pytest.fixture
def mesh(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as opened:
        yield opened


def collectives(names: list[str]) -> list[str]:
    return [name for name in names if name not in ("matmul", "linear", "distributed.activation")]


def test_the_prototypes_example_runs_and_agrees_with_torch(idle_machine):
    mesh_device = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    a = torch.randn([4, 1, 64, 64], dtype=torch.bfloat16)
    b = torch.randn([1, 1, 64, 128], dtype=torch.bfloat16)
    replicate = ttnn.ReplicateTensorToMesh(mesh_device)
    tt_a = ttnn.from_torch(a, device=mesh_device, layout=TILE, mesh_mapper=replicate)
    tt_b = ttnn.from_torch(b, device=mesh_device, layout=TILE, mesh_mapper=replicate)
    output = ttnn.distributed.matmul(tt_a, tt_b)
    assert value_of(output).shape == (4, 1, 64, 128)
    pcc = ttnn.pearson_correlation_coefficient((a.float() @ b.float()), value_of(output).float())
    assert pcc > 0.9999


def test_bfloat16_results_are_within_one_unit_in_the_last_place_and_correlate(mesh):
    a, b = torch.randn(64, 128).bfloat16().float(), torch.randn(128, 32).bfloat16().float()
    x, y = spread(a, mesh, (Shard(0), R), ttnn.bfloat16), spread(b, mesh, (R, Shard(1)), ttnn.bfloat16)
    got, exact = value_of(distributed.matmul(x, y)).float(), a @ b
    assert ttnn.pearson_correlation_coefficient(exact, got) > 0.99999
    unit = 2.0 ** (exact.abs().clamp_min(2.0**-126).log2().floor() - 7)
    assert ((got - exact).abs() <= unit).all()


def test_columns_of_a_weight_need_nothing_sent(mesh):
    x = spread(torch.randn(32, 64), mesh, (Shard(0), R))
    w = spread(torch.randn(64, 128), mesh, (R, Shard(1)))
    with commands_of() as names:
        y = distributed.matmul(x, w)
    assert names == ["matmul"]
    assert words_of(y) == (Shard(0), Shard(1))


@pytest.mark.parametrize(
    ("request_", "inserted"),
    [((R, R), "all_reduce"), ((R, Shard(1)), "reduce_scatter"), ((R, SUM), None)],
)
def test_rows_of_a_weight_leave_sums_to_be_combined_as_the_request_wants(mesh, request_, inserted):
    a, b = torch.randn(32, 64), torch.randn(64, 128)
    x, w = spread(a, mesh, (R, Shard(1))), spread(b, mesh, (R, Shard(0)))
    with commands_of() as names:
        y = distributed.matmul(x, w, output_topology=request_)
    assert collectives(names) == ([] if inserted is None else [inserted])
    assert words_of(y) == request_
    torch.testing.assert_close(value_of(y), a @ b, atol=1e-4, rtol=1e-4)


def test_contributions_of_a_factor_pass_through_and_are_combined_once(mesh):
    a, b = torch.randn(32, 64), torch.randn(64, 8)
    x, w = spread(a, mesh, (SUM, R)), spread(b, mesh, (R, R))
    with commands_of() as names:
        y = distributed.matmul(x, w, output_topology=[R, R])
    assert collectives(names) == ["all_reduce"]
    assert names.index("matmul") < names.index("all_reduce")  # the product is smaller than the factor
    torch.testing.assert_close(value_of(y), a @ b, atol=1e-4, rtol=1e-4)


def test_a_split_that_does_not_divide_is_kept_where_the_work_allows(mesh):
    a, b = torch.randn(30, 64), torch.randn(64, 16)
    x, w = spread(a, mesh, (R, Shard(0))), spread(b, mesh, (R, R))
    with commands_of() as names:
        y = distributed.matmul(x, w)
    assert names == ["matmul"]
    assert y.view_distribution().placements == (R, Shard(0, 30))
    torch.testing.assert_close(value_of(y), a @ b, atol=1e-4, rtol=1e-4)


def test_a_result_is_split_unevenly_where_that_is_asked_for_and_never_else(mesh):
    a, b = torch.randn(30, 64), torch.randn(64, 50)
    x, w = spread(a, mesh, (R, R)), spread(b, mesh, (R, R))
    asked = distributed.matmul(x, w, output_topology=[R, Shard(0)])
    assert asked.view_distribution().placements == (R, Shard(0, 30))
    nested = distributed.matmul(x, w, output_topology=[Shard(1), Shard(1)])
    assert nested.view_distribution().placements == (Shard(1, 50), Shard(1, 50))
    for y in (asked, nested):
        torch.testing.assert_close(value_of(y), a @ b, atol=1e-4, rtol=1e-4)
    free = distributed.matmul(x, w)
    assert all(getattr(word, "size", None) is None for word in free.view_distribution().placements)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_an_activation_waits_until_contributions_are_combined(mesh, activation):
    a, b = torch.randn(32, 64), torch.randn(64, 32)
    bias = torch.randn(32)
    x, w, c = spread(a, mesh, (R, Shard(1))), spread(b, mesh, (R, Shard(0))), spread(bias, mesh, (R, R))
    y = distributed.linear(x, w, bias=c, activation=activation, output_topology=[R, R])
    expected = getattr(torch.nn.functional, activation)(a @ b + bias)
    torch.testing.assert_close(value_of(y), expected, atol=1e-4, rtol=1e-4)


def test_contributions_to_an_activated_product_can_be_asked_for(mesh):
    a, b = torch.randn(32, 64), torch.randn(64, 32)
    x, w = spread(a, mesh, (R, Shard(1))), spread(b, mesh, (R, Shard(0)))
    y = distributed.matmul(x, w, activation="relu", output_topology=[R, SUM])
    assert words_of(y) == (R, SUM)
    torch.testing.assert_close(value_of(y), (a @ b).relu(), atol=1e-4, rtol=1e-4)


def test_the_result_has_the_dtype_that_is_asked_for(mesh):
    x, w = spread(torch.randn(32, 64), mesh, (R, Shard(1))), spread(torch.randn(64, 32), mesh, (R, Shard(0)))
    assert distributed.matmul(x, w, dtype=ttnn.bfloat16, output_topology=[R, R]).dtype is ttnn.bfloat16


def test_operands_may_be_named_in_any_order_and_be_the_same_tensor(mesh):
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    x, w = spread(a, mesh, (R, R)), spread(b, mesh, (R, R))
    torch.testing.assert_close(value_of(distributed.matmul(x, x)), a @ a)
    torch.testing.assert_close(value_of(distributed.matmul(x, w)), a @ b)
    torch.testing.assert_close(value_of(distributed.matmul(b=w, a=x)), a @ b)
    torch.testing.assert_close(value_of(distributed.matmul(w, input_tensor_b=x)), b @ a)


def test_a_topology_of_ttnns_own_words_is_a_request_too(mesh):
    x, w = spread(torch.randn(32, 64), mesh, (R, R)), spread(torch.randn(64, 32), mesh, (R, R))
    words = [ttnn.PlacementReplicate(), ttnn.PlacementShard(-1)]
    assert words_of(distributed.matmul(x, w, output_topology=words)) == (R, Shard(1))
    by_rows = ttnn.from_torch(
        torch.randn(32, 32), device=mesh, layout=TILE, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0)
    )
    like = by_rows.tensor_topology()
    assert words_of(distributed.matmul(x, w, output_topology=like)) == (Shard(0), Shard(0))


def test_a_grid_that_refines_the_mesh_is_understood(mesh):
    columns_first = ttnn.MeshMapperConfig([ttnn.PlacementReplicate(), ttnn.PlacementReplicate()], ttnn.MeshShape(4, 2))
    values = torch.randn(32, 32)
    fine = ttnn.from_torch(
        torch.zeros(16, 8),
        device=mesh,
        layout=TILE,
        mesh_mapper=ttnn.create_mesh_mapper(mesh, columns_first),
    )
    x = ttnn.add(spread(values, mesh, (Shard(0), Shard(1))), fine)
    assert x.view_distribution().grid == (2, 2, 2)
    y = distributed.matmul(x, x, output_topology=[R, R])
    torch.testing.assert_close(value_of(y), values @ values, atol=1e-4, rtol=1e-4)


def test_nothing_needs_a_fabric_that_sends_nothing(idle_machine, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        x, w = spread(torch.randn(32, 64), mesh, (R, Shard(0))), spread(torch.randn(64, 32), mesh, (R, R))
        assert words_of(distributed.matmul(x, w)) == (R, Shard(0))
        with (
            commands_of() as names,
            pytest.raises(ttnn.MeshError, match=r"un-initialized fabric context") as told,
        ):
            distributed.matmul(x, w, output_topology=[R, R])
        assert names == []
        assert "inserts all_gather(dim 0, axis 1)" in str(told.value)
        assert "set_fabric_config" in str(told.value)
        with ttnn.lenient():
            assert words_of(distributed.matmul(x, w, output_topology=[R, R])) == (R, R)


@pytest.mark.parametrize("system", [None, "T3000", "Galaxy"])
def test_a_fabric_that_nobody_configured_is_brought_up_and_told_once(idle_machine, monkeypatch, system):
    monkeypatch.delenv("SOFTMESH_STRICT", raising=False)
    if system is not None:
        ttnn.use_system(system)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        values = torch.randn(32, 64)
        x, w = spread(values, mesh, (Shard(0), Shard(1))), spread(torch.eye(64), mesh, (R, Shard(0)))
        with pytest.warns(ttnn.FabricWarning, match=r"softmesh configures FabricConfig.FABRIC_1D from here on") as told:
            distributed.matmul(x, w, output_topology=[R, R])
        assert "inserts" in str(told[0].message)
        y = distributed.matmul(x, w, output_topology=[R, R])  # a second warning would be an error here
        torch.testing.assert_close(value_of(y), values, atol=1e-2, rtol=1e-2)
        assert ttnn.get_fabric_config() == ttnn.FabricConfig.FABRIC_1D
        ttnn.all_gather(x, dim=0, cluster_axis=0)


def test_a_plan_is_made_once_for_shapes_placements_and_a_request(mesh):
    x, w = spread(torch.randn(32, 64), mesh, (R, R)), spread(torch.randn(64, 32), mesh, (R, R))
    first, _, _ = distributed.matmul.planned((x, w), {}, [R, Shard(1)])
    again, _, _ = distributed.matmul.planned((x, w), {}, [R, Shard(1)])
    other, _, _ = distributed.matmul.planned((x, w), {}, [R, Shard(0)])
    assert first is again
    assert first is not other


def test_the_module_goes_on_answering_for_ttnns_mesh_functions():
    assert ttnn.distributed.ReplicateTensorToMesh is ttnn.ReplicateTensorToMesh
    assert ttnn.distributed.MeshDevice is ttnn.MeshDevice
    assert ttnn.distributed.matmul is distributed.matmul
    assert ttnn.distributed.matmul is not ttnn.matmul
