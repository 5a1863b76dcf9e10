"""Over the host or over the fabric, rounded once or at each hop; and what is said of topologies that are not there."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
import torch

import softmesh as ttnn
from softmesh import FabricConfig, MeshShape, Topology, collectives
from softmesh.collectives import mode_collectives
from softmesh.collectives.device_groups import group_of
from softmesh.collectives.fabric_topology import group_links, remarks_on
from softmesh.dispatch.operation import OPERATIONS

WAYS = [{}, {"mode": "host"}, {"numerics": "chip"}, {"numerics": "fp32"}]

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


def test_what_rows_share_is_counted_before_it_is_rounded():
    """Three times 257, which is no bfloat16."""
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(MeshShape(3, 2))
    values = torch.cat([torch.full((32, 64), 256.0), torch.ones(32, 64)], dim=1)
    mapper = ttnn.ShardTensor2dMesh(mesh, (3, 2), dims=(None, 1))
    x = ttnn.from_torch(values, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=mapper)
    for _ in range(3):
        assert first_piece(ttnn.all_reduce(x)).unique().tolist() == [772]
    assert first_piece(collectives.all_reduce(x, mode="host")).unique().tolist() == [772]


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
        ({"numerics": "fp16"}, TypeError, r"all_reduce\(\).*numerics must be 'chip' or 'fp32', got 'fp16'"),
        ({"mode": 3}, TypeError, r"all_reduce\(\).*mode must be a string, got 3"),
        ({"numerics": 3}, TypeError, r"all_reduce\(\).*numerics must be a string or None, got 3"),
        ({"mod": "host"}, TypeError, "Did you mean 'mode'"),
        ({"mode": "host", "numerics": "chip"}, TypeError, "numerics is about the hops of a fabric"),
    ],
)
def test_a_mode_that_is_none_is_refused(arguments, error, said):
    with pytest.raises(error, match=said):
        collectives.all_reduce(ring_of_eight(), **arguments)


def test_host_tensors_are_refused_by_every_mode():
    for how in WAYS:
        with pytest.raises(ttnn.MeshError, match="all_reduce got a tensor on the host"):
            collectives.all_reduce(ttnn.from_torch(torch.zeros(2, 2)), **how)


# -- the same checks by every way ----------------------------------------------------------------


def split_over_four(**how: object) -> ttnn.Tensor:
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(MeshShape(1, 4))
    return ttnn.from_torch(
        torch.arange(4 * 32.0).reshape(4, 32),
        ttnn.float32,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0),
        **how,
    )


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    ("dim", "error", "said"),
    [
        (2, RuntimeError, "Invalid gather dim 2 for 2D input tensor"),
        (-3, RuntimeError, "Invalid gather dim -3 for 2D input tensor"),
        ("0", TypeError, "dim must be an int, got '0'"),
        (1.0, TypeError, "dim must be an int, got 1.0"),
    ],
)
def test_a_dim_that_is_none_is_refused_by_every_way(how, dim, error, said):
    with pytest.raises(error, match=said):
        collectives.all_gather(split_over_four(), dim, **how)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"cluster_axis": -1}, TypeError, "cluster_axis must be 0 or more, got -1"),
        ({"cluster_axis": 2}, RuntimeError, "cluster axis 2 is out of range for mesh shape rank 2"),
        ({"cluster_axis": "x"}, TypeError, "cluster_axis must be an int or None, got 'x'"),
        ({"num_links": 0}, RuntimeError, "num_links must be greater than 0"),
        ({"num_links": 1.5}, TypeError, "num_links must be an int.*got 1.5"),
        ({"topology": "Ring"}, TypeError, r"topology must be a ttnn\.Topology"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_every_way(how, arguments, error, said):
    x = split_over_four()
    if how == {"mode": "host"} and error is RuntimeError and "cluster_axis" not in arguments:
        error, said = TypeError, "mode='host' uses no links"
    for call in (collectives.all_reduce, collectives.all_gather):
        with pytest.raises(error, match=said) as caught:
            call(x, **how, **arguments)
        assert isinstance(caught.value, ttnn.SoftmeshError)


@pytest.mark.parametrize("how", WAYS)
def test_what_is_no_tensor_is_refused_by_every_way(how):
    for call in (collectives.all_reduce, collectives.all_gather):
        with pytest.raises(ttnn.ArgumentError, match=r"needs a ttnn\.Tensor"):
            call(torch.zeros(2, 2), **how)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("shape", [(4,), ()])
def test_tensors_of_one_dim_or_none_are_added_by_every_way(how, shape):
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(MeshShape(1, 2))
    x = ttnn.from_torch(torch.ones(shape), device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    summed = collectives.all_reduce(x, **how)
    assert tuple(summed.shape) == shape
    assert first_piece(summed).unique().tolist() == [2]


@pytest.mark.parametrize("how", WAYS)
def test_filler_of_an_uneven_split_is_gathered_by_no_way(how):
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(MeshShape(1, 4))
    with ttnn.lenient():
        x = ttnn.from_torch(torch.zeros(5, 4), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    with pytest.raises(RuntimeError, match="is split unevenly"):
        collectives.all_gather(x, 0, **how)


@pytest.mark.parametrize("how", WAYS)
def test_contributions_that_are_no_summands_are_reported_by_every_way(how):
    x = split_over_four(layout=ttnn.TILE_LAYOUT)
    highest = ttnn.max(x, dim=0, keepdim=True)
    assert ttnn.Partial("max") in ttnn.placements(highest)
    with pytest.warns(ttnn.PartialWarning, match="combine by max"):
        collectives.all_reduce(highest, **how)


@pytest.mark.parametrize("how", WAYS)
def test_closed_meshes_and_freed_tensors_compute_by_no_way(how):
    x = split_over_four()
    y = ttnn.clone(x)
    ttnn.deallocate(y)
    for call in (collectives.all_reduce, collectives.all_gather):
        with pytest.raises(RuntimeError, match=r"deallocated|not allocated"):
            call(y, **how)
    ttnn.close_mesh_device(x.device())
    for call in (collectives.all_reduce, collectives.all_gather):
        with pytest.raises(RuntimeError, match="closed"):
            call(x, **how)


def test_hops_need_a_fabric_and_the_host_does_not():
    mesh = ttnn.open_mesh_device(MeshShape(1, 2))
    x = ttnn.from_torch(torch.ones(2, 4), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    with pytest.raises(RuntimeError, match="un-initialized fabric context"):
        collectives.all_reduce(x, numerics="chip")
    assert first_piece(collectives.all_reduce(x, "host")).unique().tolist() == [2]
    with ttnn.lenient():
        assert first_piece(collectives.all_reduce(x, numerics="chip")).unique().tolist() == [2]


def test_a_line_fabric_adds_without_an_axis_along_one_after_the_other():
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    assert first_piece(collectives.all_reduce(x, numerics="chip")).unique().tolist() == [8]
    assert first_piece(ttnn.all_reduce(x)).unique().tolist() == [8]
    assert first_piece(collectives.all_reduce(x, "host")).unique().tolist() == [8]


@pytest.mark.parametrize("how", [{"numerics": "chip"}, {"numerics": "fp32"}, {}])
def test_wishes_that_the_machine_cannot_grant_are_told_by_every_way(how, monkeypatch):
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    wishes = [
        ({"topology": Topology.Ring}, r"topology=Topology\.Ring was asked for along axis 1"),
        ({"num_links": 9}, "num_links=9, but T3000 has 1"),
    ]
    for wish, said in wishes:
        for call in (collectives.all_reduce, collectives.all_gather):
            with pytest.warns(ttnn.SoftmeshWarning, match=said):
                call(x, cluster_axis=1, **wish, **how)
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    for wish, said in wishes:
        with pytest.raises(ttnn.MeshError, match=said):
            collectives.all_reduce(x, cluster_axis=1, **wish, **how)


@pytest.mark.parametrize("how", WAYS)
def test_a_shard_spec_that_does_not_fit_the_result_is_not_kept(how):
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(MeshShape(1, 2))
    config = ttnn.create_sharded_memory_config(
        (32, 64), ttnn.CoreGrid(y=1, x=2), ttnn.ShardStrategy.WIDTH, ttnn.ShardOrientation.ROW_MAJOR
    )
    x = ttnn.from_torch(
        torch.ones(64, 64),
        ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        memory_config=config,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0),
    )
    assert collectives.all_gather(x, 0, **how).memory_config() == ttnn.DRAM_MEMORY_CONFIG
    assert collectives.all_reduce(x, **how).memory_config() == config


@pytest.mark.parametrize("how", WAYS)
def test_every_way_is_a_command_and_a_program(how):
    x = split_over_four()
    seen: list[ttnn.Command] = []
    with ttnn.observe(SimpleNamespace(on_command=seen.append)):
        for _ in range(2):
            collectives.all_reduce(x, **how)
            collectives.all_gather(x, 0, **how)
    launched = [command for command in seen if not command.name.endswith("_device")]
    assert [command.name.removeprefix("collectives.") for command in launched] == [
        "all_reduce",
        "all_gather",
    ] * 2
    assert all(command.arguments.items() >= how.items() for command in launched)
    assert len(seen) == len(launched) * (3 if "mode" in how else 1)
    # TT-NN's own, of rows: all pieces to all devices, joined, and for the sum turned and added.
    assert x.device().num_program_cache_entries() == (2 if how else 4 + 2)


def test_the_host_reads_and_writes_and_the_log_shows_it():
    x = split_over_four()
    for _ in range(3):  # planned, by a shortcut, and by heart
        seen: list[ttnn.Command] = []
        with ttnn.observe(SimpleNamespace(on_command=seen.append)):
            y = collectives.all_reduce(x, "host")
        assert [command.name for command in seen] == ["from_device", "collectives.all_reduce", "to_device"]
        read, _, write = seen
        assert (read.inputs, read.outputs, read.blocking) == ((x,), (), True)
        assert (write.inputs, write.outputs) == ((), (y,))
        assert {command.site.file for command in seen} == {__file__}


def test_the_host_reads_nothing_while_a_trace_is_captured():
    x = split_over_four()
    for _ in range(2):
        collectives.all_reduce(x, "host")
        collectives.all_reduce(x, numerics="chip")
    trace = ttnn.begin_trace_capture(x.device(), cq_id=0)
    said = r"Reads are not supported during trace capture\. softmesh\.collectives\.all_reduce was called"
    with pytest.raises(RuntimeError, match=said):
        collectives.all_reduce(x, "host")
    collectives.all_reduce(x, numerics="chip")
    ttnn.end_trace_capture(x.device(), trace, cq_id=0)
    assert first_piece(collectives.all_reduce(x, "host")).sum().item() == torch.arange(128.0).sum().item()


@pytest.mark.parametrize("wish", [{"topology": Topology.Ring}, {"num_links": 9}])
def test_the_host_uses_no_links(wish):
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    with pytest.raises(TypeError, match=f"{next(iter(wish))} is about the hops .* mode='host' uses no links"):
        collectives.all_reduce(x, "host", cluster_axis=1, **wish)


def test_a_mode_may_stand_in_second_place():
    x = split_over_four()
    expected = ttnn.to_torch(x, mesh_composer=ttnn.ConcatMeshToTensor(x.device(), 0))
    seen: list[ttnn.Command] = []
    with ttnn.observe(SimpleNamespace(on_command=seen.append)):
        gathered = [
            collectives.all_gather(x, "host"),
            collectives.all_gather(x, "host", 0),
            collectives.all_gather(x, "host", dim=0),
            collectives.all_gather(x, 0, "host"),
            collectives.all_gather(x, 0, mode="host"),
            collectives.all_gather(x, "fabric", 0, numerics="chip"),
        ]
        dealt = collectives.reduce_scatter(x, "host", 1)
    assert all(torch.equal(first_piece(one), expected) for one in gathered)
    assert list(dealt.shape) == [1, 8]
    modes_asked = [command.arguments["mode"] for command in seen if command.name.startswith("collectives.")]
    assert modes_asked == ["host"] * 5 + ["fabric", "host"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda x: collectives.all_reduce(x, "host", "x"),
            r"takes 2 positional arguments \(tensor, mode\), got 3",
        ),
        (lambda x: collectives.all_reduce(), "argument 'tensor' is missing"),
        (lambda x: collectives.reduce_scatter(x), "argument 'dim' is missing"),
        (lambda x: collectives.all_reduce([x], "host"), r"needs a ttnn\.Tensor, got list"),
        (lambda x: collectives.all_reduce([x]), r"needs a ttnn\.Tensor, got list"),
        (lambda x: collectives.all_gather(x, "hst"), "dim must be an int, got 'hst'"),
        (lambda x: collectives.all_gather(x, "host", "fabric"), "dim must be an int, got 'fabric'"),
    ],
)
def test_wrong_calls_are_told_by_the_name_that_was_called(call, said):
    with pytest.raises(ttnn.ArgumentError, match=said) as caught:
        call(split_over_four())
    told = str(caught.value)
    assert told.startswith("\nsoftmesh.collectives.")
    assert "mode='fabric'" in told
    assert "OperandOnMesh" not in told
    assert "ttnn.collectives" not in told


def test_the_ways_are_no_names_of_the_registry():
    assert not [name for name in OPERATIONS if name.startswith("collectives")]


def test_sums_follow_the_links_of_the_chips_they_run_on():
    """Four chips of a T3000 are a ring if they are a square, and a line if they are a row."""
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(FabricConfig.FABRIC_1D)
    square = ttnn.open_mesh_device(MeshShape(2, 2))
    square.reshape(MeshShape(1, 4))
    around = hop_by_hop(square)
    ttnn.close_mesh_device(square)
    with pytest.warns(ttnn.SoftmeshWarning, match="goes on as"):
        along = hop_by_hop(ttnn.open_mesh_device(MeshShape(1, 4)))
    assert set(along.unique().tolist()) == {256, 258, 260}
    assert set(around.unique().tolist()) == {258, 260}


def hop_by_hop(mesh: ttnn.MeshDevice) -> torch.Tensor:
    values = torch.tensor([256.0, 1, 1, 1]).reshape(4, 1).repeat(1, 64)
    x = ttnn.from_torch(values, ttnn.bfloat16, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    return first_piece(collectives.all_reduce(x, cluster_axis=1, numerics="chip", topology=Topology.Ring))


def test_chunks_of_the_sum_are_dealt_by_every_way():
    x = split_over_four()
    total = ttnn.to_torch(x, mesh_composer=ttnn.ConcatMeshToTensor(x.device(), 0)).sum(0, keepdim=True)
    for how in WAYS:
        dealt = mode_collectives.reduce_scatter(x, 1, **how)
        assert torch.equal(ttnn.to_torch(dealt, mesh_composer=ttnn.ConcatMeshToTensor(x.device(), 1)), total)


# -- topologies that are not there ---------------------------------------------------------------


def on_t3000(shape: tuple[int, int], config: FabricConfig, columns: int = 32) -> ttnn.Tensor:
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(config)
    mesh = ttnn.open_mesh_device(MeshShape(*shape))
    return ttnn.from_torch(
        torch.ones(8, columns),
        ttnn.float32,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0),
    )


def test_a_ring_where_no_link_closes_it_becomes_a_line_and_says_so():
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    with pytest.warns(ttnn.SoftmeshWarning, match=r"all_reduce: topology=Topology\.Ring.*axis 1.*goes on as"):
        ttnn.all_reduce(x, cluster_axis=1, topology=Topology.Ring)
    with pytest.warns(ttnn.SoftmeshWarning, match="a ring needs more than 2 devices, and axis 0 has 2"):
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


@pytest.mark.parametrize("topology", [Topology.Mesh, Topology.Torus])
def test_a_collective_runs_along_lines_and_rings_only(topology):
    x = on_t3000((2, 4), FabricConfig.FABRIC_2D)
    with pytest.raises(ttnn.MeshError, match="Topology must be either Ring or Linear: all_reduce got"):
        ttnn.all_reduce(x, cluster_axis=1, topology=topology)


def test_a_ring_of_one_device_is_taken_without_a_word():
    x = on_t3000((1, 8), FabricConfig.FABRIC_1D_RING)
    ttnn.all_reduce(x, cluster_axis=0, topology=Topology.Ring)
    ttnn.all_reduce(x, topology=Topology.Ring)


def test_a_ring_that_tt_nn_would_keep_without_a_link_is_told():
    x = on_t3000((1, 4), FabricConfig.FABRIC_1D_RING)
    assert ttnn.get_usable_topology(x, Topology.Ring) is Topology.Ring
    with pytest.warns(ttnn.SoftmeshWarning, match="silicon would be told to use a link that is not there"):
        ttnn.all_reduce(x, topology=Topology.Ring)
    assert ttnn.get_usable_topology(x, Topology.Ring, 1) is Topology.Linear
    with pytest.warns(ttnn.SoftmeshWarning, match="goes on as") as told:
        ttnn.all_reduce(x, cluster_axis=1, topology=Topology.Ring)
    assert "silicon" not in str(told[0].message)


def test_a_ring_that_nobody_asked_for_is_told_where_no_link_closes_it():
    x = on_t3000((1, 4), FabricConfig.FABRIC_1D_RING)
    for _ in range(3):
        with pytest.warns(ttnn.SoftmeshWarning, match=r"Ring is what FabricConfig\.FABRIC_1D_RING stands for"):
            ttnn.all_reduce(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ttnn.mesh_partition(ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT), 1, 1)
        collectives.all_reduce(x, "host")


def test_every_line_that_asks_for_too_much_is_told_once():
    x = on_t3000((2, 4), FabricConfig.FABRIC_1D)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            ttnn.all_reduce(x, cluster_axis=1, num_links=4)
        ttnn.all_reduce(x, cluster_axis=1, num_links=4)
    assert [one.lineno - told[0].lineno for one in told] == [0, 1]


def test_axes_that_close_stay_rings_beside_those_that_do_not():
    ttnn.use_system("Galaxy")
    ttnn.set_fabric_config(FabricConfig.FABRIC_2D_TORUS_X)
    mesh = ttnn.open_mesh_device(MeshShape(8, 4))
    x = ttnn.from_torch(torch.ones(32, 32), device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    with pytest.warns(ttnn.SoftmeshWarning, match="as Topology.Linear along axis 0, and as a ring along axis 1"):
        ttnn.all_reduce(x, topology=Topology.Ring)
    assert group_links(group_of(x.view_distribution(), None), x, Topology.Ring, None).wraps == (False, True)


def test_links_are_not_counted_where_nothing_is_sent():
    x = on_t3000((1, 8), FabricConfig.FABRIC_1D_RING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ttnn.all_reduce(x, cluster_axis=0, num_links=4)


def test_a_gather_takes_any_topology_and_chooses_itself():
    x = on_t3000((2, 4), FabricConfig.FABRIC_2D)
    usable = ttnn.get_usable_topology(x, None, 1)
    with pytest.warns(ttnn.SoftmeshWarning, match=r"topology=Topology\.Mesh is ignored"):
        gathered = ttnn.all_gather(x, 0, cluster_axis=1, topology=usable)
    assert gathered.shape == ttnn.all_gather(x, 0, cluster_axis=1).shape


@pytest.mark.parametrize(
    ("system", "shape", "config"),
    [
        ("T3000", (1, 8), FabricConfig.FABRIC_1D),
        ("T3000", (1, 8), FabricConfig.FABRIC_1D_RING),
        ("T3000", (2, 4), FabricConfig.FABRIC_2D),
        ("T3000", (1, 4), FabricConfig.FABRIC_1D_RING),
        ("Galaxy", (8, 4), FabricConfig.FABRIC_1D),
        ("Galaxy", (8, 4), FabricConfig.FABRIC_1D_RING),
        ("Galaxy", (8, 4), FabricConfig.FABRIC_2D_TORUS_XY),
        ("N300", (1, 2), FabricConfig.FABRIC_1D_RING),
    ],
)
def test_rings_are_taken_and_told_of_as_the_usable_topology_says(system, shape, config):
    ttnn.use_system(system)
    ttnn.set_fabric_config(config)
    mesh = ttnn.open_mesh_device(MeshShape(*shape))
    x = ttnn.from_torch(torch.ones(32, 32), device=mesh, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh))
    for axis in (None, 0, 1):
        kept = ttnn.get_usable_topology(x, Topology.Ring, axis) is Topology.Ring
        told = remarks_on("all_reduce", mesh, axis, Topology.Ring, None, x)
        has_other_owner = axis is None or mesh.shape[axis] > 1
        assert kept or bool(told) == has_other_owner
        assert not (kept and told) or "get_usable_topology keeps" in told[0]
        group = group_of(x.view_distribution(), axis)
        for asked in (None, Topology.Ring, Topology.Linear):
            usable = ttnn.get_usable_topology(x, asked, axis)
            wraps = group_links(group, x, asked, None).wraps
            assert not any(wraps) or usable in (Topology.Ring, Topology.Torus)
            assert any(wraps) or usable not in (Topology.Ring, Topology.Torus) or told
