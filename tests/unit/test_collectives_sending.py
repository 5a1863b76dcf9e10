"""One device's piece for others, and what is told of pieces that nobody wrote."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh.collectives.rooted_collectives import all_broadcast, broadcast, point_to_point
from softmesh.errors import MeshError

At = ttnn.MeshCoordinate


def opened(*shape: int, fabric: ttnn.FabricConfig = ttnn.FabricConfig.FABRIC_1D) -> ttnn.MeshDevice:
    ttnn.set_fabric_config(fabric)
    return ttnn.create_mesh_device(ttnn.MeshShape(shape))


@pytest.fixture
def mesh(idle_machine: None) -> Iterator[ttnn.MeshDevice]:
    with opened(2, 4) as mesh:
        yield mesh


def numbered(
    mesh: ttnn.MeshDevice, dtype: ttnn.DataType = ttnn.bfloat16, layout: ttnn.Layout = ttnn.TILE_LAYOUT
) -> ttnn.Tensor:
    """Device i holds a tile of i + 1."""
    count = mesh.get_num_devices()
    values = torch.arange(1.0, count + 1).reshape(count, 1, 1, 1).expand(count, 1, 32, 32)
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    return ttnn.from_torch(values, dtype=dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def held(tensor: ttnn.Tensor) -> list[float]:
    """The one number of each device's piece."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttnn.SoftmeshWarning)
        pieces = [ttnn.to_torch(shard) for shard in ttnn.get_device_tensors(tensor)]
    assert all((piece == piece.flatten()[0]).all() or piece.isnan().all() for piece in pieces)
    return [piece.flatten()[0].item() for piece in pieces]


def labels(tensor: ttnn.Tensor) -> tuple[list[int], list[str]]:
    topology = tensor.tensor_topology()
    return list(topology.distribution_shape()), [repr(word) for word in topology.placements()]


def test_the_group_of_the_sender_gets_its_piece_and_other_groups_keep_their_own(mesh):
    x = numbered(mesh)
    along_row = broadcast(x, At(1, 2), cluster_axis=1)
    assert held(along_row) == [1, 2, 3, 4, 7, 7, 7, 7]
    assert labels(along_row) == ([2, 4], ["PlacementShard(0)", "PlacementReplicate()"])
    down_column = broadcast(x, At(1, 2), cluster_axis=0)
    assert held(down_column) == [1, 2, 7, 4, 5, 6, 7, 8]
    assert held(x) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_broadcast_over_a_line_is_stored_once(idle_machine):
    with opened(1, 8) as mesh:
        result = broadcast(numbered(mesh), At(0, 5))
        assert held(result) == [6] * 8
        assert ttnn.placements(result) == (ttnn.Replicate(), ttnn.Replicate())
        assert labels(result) == ([8], ["PlacementReplicate()"])


def test_broadcast_of_what_all_members_share_changes_nothing(mesh):
    columns = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(0, None))
    values = torch.arange(2.0).reshape(2, 1).expand(2, 32)
    x = ttnn.from_torch(values, device=mesh, mesh_mapper=columns)
    result = broadcast(x, At(0, 3), cluster_axis=1)
    assert held(result) == [0] * 4 + [1] * 4
    assert ttnn.placements(result) == (ttnn.Shard(0), ttnn.Replicate())


def test_all_broadcast_gives_a_tensor_for_each_member(mesh):
    first, second = all_broadcast(numbered(mesh), cluster_axis=0)
    assert held(first) == [1, 2, 3, 4] * 2
    assert held(second) == [5, 6, 7, 8] * 2
    assert labels(first) == ([2, 4], ["PlacementReplicate()", "PlacementShard(0)"])
    assert [held(one) for one in all_broadcast(numbered(mesh), cluster_axis=1)] == [
        [i] * 4 + [i + 4] * 4 for i in range(1, 5)
    ]


def test_on_a_mesh_of_three_axes_groups_run_along_the_named_one(idle_machine):
    with opened(2, 2, 3, fabric=ttnn.FabricConfig.FABRIC_2D) as mesh:
        x = numbered(mesh)
        assert held(all_broadcast(x, cluster_axis=2)[1]) == [2, 2, 2, 5, 5, 5, 8, 8, 8, 11, 11, 11]
        assert held(broadcast(x, At(1, 0, 1), cluster_axis=1)) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 8, 12]


def test_a_submesh_broadcasts_among_its_own_devices(mesh):
    part = mesh.create_submesh(ttnn.MeshShape(1, 4), At(1, 0))
    assert held(broadcast(numbered(part), At(0, 3))) == [4] * 4


def test_a_tensor_on_some_devices_is_broadcast_among_those(mesh):
    some = ttnn.combine_device_tensors(tensors=ttnn.get_device_tensors(numbered(mesh))[4:7])
    result = broadcast(some, At(1, 1), cluster_axis=1)
    assert held(result) == [6] * 3
    assert result.device_coords() == [At(1, 0), At(1, 1), At(1, 2)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: broadcast(x, At(0, 0)), "1D fabric on a 2D mesh_device requires cluster_axis to be set"),
        (lambda x: broadcast(x, At(2, 0), cluster_axis=1), "sender_coord MeshCoordinate.* holds no piece"),
        (
            lambda x: broadcast(x, At(0, 0), cluster_axis=2),
            "cluster axis 2 is out of range for mesh shape rank 2",
        ),
        (lambda x: broadcast(x, At(0, 0), cluster_axis=1, num_links=0), "num_links must be greater than 0"),
        (
            lambda x: broadcast(x, At(0, 0), cluster_axis=1, topology=ttnn.Topology.Mesh),
            "Topology must be either Ring or Linear",
        ),
        (
            lambda x: point_to_point(x, At(0, 0), At(0, 4)),
            "Mesh device must contain receiver coordinate device",
        ),
        (
            lambda x: point_to_point(x, At(2, 0), At(0, 0)),
            "Mesh device must contain sender coordinate device",
        ),
        (
            lambda x: point_to_point(x, At(0, 0), At(1, 1)),
            r"Routing coordinates MeshCoordinate\(\[0, 0\]\) and MeshCoordinate\(\[1, 1\]\) invalid for 1D fabric",
        ),
    ],
)
def test_a_send_that_cannot_be_is_refused(mesh, call, message):
    with pytest.raises(RuntimeError, match=message):
        call(numbered(mesh))


@pytest.mark.parametrize("fabric", [ttnn.FabricConfig.FABRIC_1D, ttnn.FabricConfig.FABRIC_2D])
def test_without_an_axis_a_tensor_dealt_in_two_dims_is_no_line(idle_machine, fabric):
    with opened(2, 4, fabric=fabric) as mesh:
        two_dims = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(0, 1))
        x = ttnn.from_torch(torch.ones(64, 128), layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=two_dims)
        with pytest.raises(RuntimeError, match="broadcast op is only supported for a linear tensor topology shape"):
            broadcast(x, At(0, 0))


def test_without_an_axis_a_broadcast_reaches_every_device_of_a_fabric_of_two_dims(idle_machine):
    with opened(2, 4, fabric=ttnn.FabricConfig.FABRIC_2D) as mesh:
        assert held(broadcast(numbered(mesh), At(1, 1))) == [6] * 8


@pytest.mark.parametrize("fabric", [ttnn.FabricConfig.FABRIC_1D, ttnn.FabricConfig.FABRIC_2D])
def test_all_broadcast_without_an_axis_counts_devices_row_by_row(idle_machine, fabric):
    with opened(2, 4, fabric=fabric) as mesh:
        two_dims = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=(0, 1))
        values = torch.arange(1.0, 9).reshape(2, 4).repeat_interleave(32, 0).repeat_interleave(32, 1)
        x = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=two_dims)
        for sent in (all_broadcast(x), all_broadcast(numbered(mesh))):
            assert [held(one) for one in sent] == [[i] * 8 for i in range(1, 9)]


def test_one_device_has_nobody_to_broadcast_to(idle_machine):
    with opened(1, 1) as mesh:
        with pytest.raises(RuntimeError, match="broadcast op will only work for num_devices > 1, but has 1, shape: "):
            broadcast(numbered(mesh), At(0, 0))
        with pytest.raises(RuntimeError, match="all_broadcast op will only work for num_devices > 1, but has 1"):
            all_broadcast(numbered(mesh))


def test_arguments_of_the_wrong_kind_are_type_errors(mesh):
    x = numbered(mesh)
    with pytest.raises(TypeError, match="sender_coord must be a MeshCoordinate"):
        broadcast(x, (0, 1), cluster_axis=1)
    with pytest.raises(TypeError, match="cluster_axis must be 0 or more, got -1"):
        broadcast(x, At(0, 1), cluster_axis=-1)
    with pytest.raises(TypeError, match="Did you mean 'cluster_axis'"):
        all_broadcast(x, cluster_axes=1)
    with pytest.raises(TypeError, match="argument 'receiver_coord' is missing"):
        point_to_point(x, At(0, 0))


def test_a_host_tensor_is_refused(mesh):
    with pytest.raises(RuntimeError, match="Operands to broadcast need to be on device!"):
        broadcast(ttnn.from_torch(torch.ones(32, 32)), At(0, 0), cluster_axis=0)


def test_sends_need_a_fabric_and_local_copies_none(idle_machine):
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 4)) as mesh:
        x = numbered(mesh)
        with pytest.raises(RuntimeError, match="Trying to get un-initialized fabric context"):
            point_to_point(x, At(0, 0), At(0, 1))
        assert held(point_to_point(x, At(0, 2), At(0, 2)))[2] == 3


# -- pieces that nobody wrote ----------------------------------------------------------------------


def test_only_the_receiver_gets_the_piece_and_the_rest_is_nan(mesh):
    result = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    values = held(result)
    assert values[3] == 2
    assert all(value != value for i, value in enumerate(values) if i != 3)
    assert labels(result) == ([8], ["PlacementShard(0)"])


@pytest.mark.parametrize(
    ("dtype", "poison"),
    [(ttnn.uint16, 65535), (ttnn.uint32, 2**32 - 1), (ttnn.int32, 2**31 - 1), (ttnn.uint8, 255)],
)
def test_integers_that_nobody_wrote_are_the_largest_there_are(mesh, dtype, poison):
    values = held(point_to_point(numbered(mesh, dtype), At(0, 1), At(1, 1)))
    assert values == [poison] * 5 + [2] + [poison] * 2


@pytest.mark.parametrize("dtype", [ttnn.bfloat8_b, ttnn.bfloat4_b, ttnn.float32])
def test_floats_of_every_kind_that_nobody_wrote_are_nan(mesh, dtype):
    values = held(point_to_point(numbered(mesh, dtype), At(0, 1), At(0, 0)))
    assert values[0] == 2
    assert values[1] != values[1]


def test_reading_a_piece_that_nobody_wrote_warns_with_the_op_the_line_and_the_device(mesh):
    result = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    shards = ttnn.get_device_tensors(result)
    message = r"undefined values on MeshCoordinate\(\[1, 2\]\).*point_to_point \(test_collectives_sending.py:\d+\)"
    with pytest.warns(ttnn.SoftmeshWarning, match=message) as caught:
        ttnn.to_torch(shards[6])
    assert caught[0].filename == __file__
    with pytest.warns(ttnn.SoftmeshWarning, match=r"and 3 more"):
        ttnn.to_torch(result, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    with pytest.warns(ttnn.SoftmeshWarning, match="^print: "):
        repr(shards[0])
    with pytest.warns(ttnn.SoftmeshWarning, match="^from_device: "):
        ttnn.from_device(result)


def test_reading_the_piece_that_was_written_is_silent(mesh):
    result = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ttnn.to_torch(ttnn.get_device_tensors(result)[3])
        repr(ttnn.get_device_tensors(result)[3])


def test_under_strictness_reading_what_nobody_wrote_is_an_error(mesh, monkeypatch):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    result = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    with pytest.raises(MeshError, match="undefined values"):
        ttnn.to_torch(ttnn.get_device_tensors(result)[0])


def test_writing_a_piece_makes_it_defined(mesh):
    result = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    shard = ttnn.get_device_tensors(result)[0]
    host = ttnn.from_torch(torch.zeros(1, 1, 32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, shard)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ttnn.to_torch(shard).eq(0).all()
        ttnn.copy_host_to_device_tensor(host, result)
        assert held(result) == [0] * 8
        ttnn.to_torch(ttnn.get_device_tensors(result)[7])


def test_an_output_tensor_is_written_at_the_receiver_and_keeps_the_rest(mesh):
    x, given = numbered(mesh), numbered(mesh)
    for sender, receiver in ((At(0, 0), At(1, 0)), (At(0, 1), At(0, 2))):
        assert point_to_point(x, sender, receiver, output_tensor=given) is given
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ttnn.to_torch(given, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
    assert held(given) == [1, 2, 2, 4, 1, 6, 7, 8]


def told_undefined(tensor: ttnn.Tensor) -> list[int]:
    """The devices whose pieces cannot be read without a warning."""
    found = []
    for device, shard in enumerate(ttnn.get_device_tensors(tensor)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ttnn.to_torch(shard)
        if caught:
            found.append(device)
    return found


def test_a_second_send_into_a_result_defines_one_more_device(mesh):
    x = numbered(mesh)
    first = point_to_point(x, At(0, 0), At(0, 1))
    second = point_to_point(x, At(0, 3), At(1, 3), output_tensor=first)
    assert second is first
    assert told_undefined(second) == [0, 2, 3, 4, 5, 6]
    with pytest.warns(ttnn.SoftmeshWarning, match=r"point_to_point \(test_collectives_sending.py:\d+\)"):
        ttnn.from_device(second)


def test_sends_to_all_devices_leave_nothing_undefined(idle_machine):
    with opened(1, 4) as mesh:
        x = numbered(mesh)
        result = point_to_point(x, At(0, 2), At(0, 0))
        for column in range(1, 4):
            point_to_point(x, At(0, 2), At(0, column), output_tensor=result)
        assert told_undefined(result) == []
        assert held(result) == [3] * 4


LOCAL_OPS = {
    "add": lambda x: ttnn.add(x, x),
    "add another": lambda x: ttnn.add(ttnn.zeros_like(x), x),
    "clone": ttnn.clone,
    "to_layout": lambda x: ttnn.to_layout(x, ttnn.ROW_MAJOR_LAYOUT),
    "slice": lambda x: x[:, :, :16, :16],
    "into an output": lambda x: ttnn.add(x, 1, output_tensor=ttnn.zeros_like(x)),
    "of a shard view": lambda x: ttnn.clone(ttnn.combine_device_tensors(tensors=ttnn.get_device_tensors(x)[:8])),
}


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.int32])
@pytest.mark.parametrize("op", LOCAL_OPS.values(), ids=LOCAL_OPS.keys())
def test_what_a_device_makes_of_an_undefined_piece_is_undefined(mesh, op, dtype):
    result = op(point_to_point(numbered(mesh, dtype), At(0, 1), At(0, 3)))
    assert told_undefined(result) == [0, 1, 2, 4, 5, 6, 7]
    assert told_undefined(ttnn.clone(result)) == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.int32])
def test_under_strictness_reading_what_was_made_of_it_is_an_error(mesh, monkeypatch, dtype):
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    x = point_to_point(numbered(mesh, dtype), At(0, 1), At(0, 3))
    shards = ttnn.get_device_tensors(ttnn.add(x, x))
    assert ttnn.to_torch(shards[3]).flatten()[0] == 4
    with pytest.raises(MeshError, match=r"undefined values on .*point_to_point \(test_collectives_sending.py"):
        ttnn.to_torch(shards[0])


def test_operands_with_different_holes_make_results_with_both(mesh):
    x = numbered(mesh)
    sums = ttnn.add(point_to_point(x, At(0, 1), At(0, 3)), point_to_point(x, At(0, 1), At(1, 1)))
    assert told_undefined(sums) == list(range(8))


def test_an_op_on_the_shard_that_was_written_makes_something_defined(mesh):
    x = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    shards = ttnn.get_device_tensors(x)
    assert told_undefined(ttnn.clone(shards[3])) == []
    assert told_undefined(ttnn.clone(shards[4])) == [0]


def test_a_comparison_does_not_hide_what_nobody_wrote(mesh):
    x = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    assert told_undefined(ttnn.gt(x, 0)) == [0, 1, 2, 4, 5, 6, 7]


def test_what_is_masked_out_or_only_shaped_like_it_is_defined(mesh):
    x = numbered(mesh)
    received = point_to_point(x, At(0, 1), At(0, 3))
    assert told_undefined(ttnn.zeros_like(received)) == []
    masked = ttnn.where(ttnn.eq(x, 4), received, 0.0)
    assert told_undefined(masked) == []
    assert held(masked) == [0, 0, 0, 2, 0, 0, 0, 0]
    assert told_undefined(ttnn.where(ttnn.eq(x, 1), received, 0.0)) == [0]


def test_neighbours_alone_are_reached_where_the_fabric_only_exchanges_with_them(idle_machine):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_NEIGHBOR_EXCHANGE)
    x = numbered(ttnn.open_mesh_device(ttnn.MeshShape(2, 4)))
    point_to_point(x, At(0, 1), At(0, 2))
    point_to_point(x, At(0, 1), At(1, 1))
    with pytest.raises(MeshError, match=r"forwarding direction from src .*\[0, 1\].* sends over 2 links"):
        point_to_point(x, At(0, 1), At(0, 3))
    with pytest.raises(MeshError, match="Mesh device must contain receiver"):
        point_to_point(x, At(0, 1), At(0, 7))


def test_a_ring_that_is_not_there_is_told_of_the_axis_that_is_gone_along(idle_machine):
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    x = numbered(ttnn.open_mesh_device(ttnn.MeshShape(2, 4)))
    with pytest.warns(ttnn.SoftmeshWarning, match="asked for along axis 1 of"):
        point_to_point(x, At(0, 1), At(0, 3), topology=ttnn.Topology.Ring)


def test_a_choice_by_what_nobody_wrote_is_undefined(mesh):
    x = numbered(mesh)
    received, others = point_to_point(x, At(0, 1), At(0, 3)), [0, 1, 2, 4, 5, 6, 7]
    for condition in (received, ttnn.gt(received, 0.0), ttnn.isnan(received)):
        assert told_undefined(condition) == others
        assert told_undefined(ttnn.where(condition, x, 0.0)) == others


def test_nothing_of_an_empty_tensor_is_undefined(mesh):
    x = ttnn.from_torch(torch.zeros(8, 0, 32), ttnn.bfloat16, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    assert told_undefined(point_to_point(x, At(0, 1), At(0, 3))) == []


COLLECTIVES = {
    "all_reduce": lambda x: ttnn.all_reduce(x, cluster_axis=1),
    "all_gather": lambda x: ttnn.all_gather(x, 0, cluster_axis=1),
    "all_broadcast": lambda x: all_broadcast(x, cluster_axis=1),
}


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.int32])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_reads_what_nobody_wrote_says_so(mesh, monkeypatch, name, dtype):
    x = point_to_point(numbered(mesh, dtype), At(0, 1), At(0, 3))
    with pytest.warns(ttnn.SoftmeshWarning, match=f"^{name}: .*undefined values on .*point_to_point"):
        COLLECTIVES[name](x)
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(MeshError, match=f"^{name}: .*undefined values"):
        COLLECTIVES[name](ttnn.add(x, x))


def test_a_piece_can_be_passed_on_and_one_that_nobody_wrote_cannot(mesh):
    x = numbered(mesh)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        there = point_to_point(point_to_point(x, At(0, 1), At(0, 3)), At(0, 3), At(1, 3))
    assert told_undefined(there) == [0, 1, 2, 3, 4, 5, 6]
    assert held(there)[7] == 2
    with pytest.warns(ttnn.SoftmeshWarning, match=r"^point_to_point: .* on MeshCoordinate\(\[0, 0\]\): "):
        point_to_point(there, At(0, 0), At(0, 1))


def test_a_broadcast_defines_the_group_of_the_sender_only(mesh):
    received = point_to_point(numbered(mesh), At(0, 1), At(0, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = broadcast(received, At(0, 3), cluster_axis=1)
    assert held(result)[:4] == [2] * 4
    assert told_undefined(result) == [4, 5, 6, 7]
    with pytest.warns(ttnn.SoftmeshWarning, match=r"^broadcast: .* on MeshCoordinate\(\[0, 1\]\): "):
        broadcast(received, At(0, 1), cluster_axis=0)


def test_what_a_send_leaves_out_is_listed_once_for_all_calls(mesh):
    marks = [point_to_point(numbered(mesh), At(0, 1), At(0, 3)).storage.undefined for _ in range(2)]
    assert marks[0].coords is marks[1].coords
    assert len(marks[0].coords) == 7


def test_a_piece_that_all_share_can_be_sent_too(mesh):
    shared = ttnn.from_torch(torch.full((32, 32), 3.0), layout=ttnn.TILE_LAYOUT, device=mesh)
    given = ttnn.from_torch(torch.zeros(32, 32), layout=ttnn.TILE_LAYOUT, device=mesh)
    point_to_point(shared, At(0, 0), At(1, 0), output_tensor=given)
    assert held(given) == [0, 0, 0, 0, 3, 0, 0, 0]


def test_pages_that_the_fabric_cannot_write_are_refused(mesh):
    x = ttnn.from_torch(torch.ones(8, 5), device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    with pytest.raises(RuntimeError, match="Tensor page size must be 16 byte aligned"):
        point_to_point(x, At(0, 0), At(0, 1))
    sharded = ttnn.create_sharded_memory_config((32, 32), ttnn.CoreGrid(y=1, x=1), ttnn.ShardStrategy.HEIGHT)
    y = ttnn.to_memory_config(numbered(mesh), sharded)
    with pytest.raises(RuntimeError, match="Point to point does not yet support sharded configs"):
        point_to_point(y, At(0, 0), At(0, 1))


def test_the_same_send_is_one_program(mesh):
    x = numbered(mesh)
    mesh.clear_program_cache()
    for _ in range(3):
        point_to_point(x, At(0, 0), At(0, 1))
    assert mesh.num_program_cache_entries() == 1
    point_to_point(x, At(0, 1), At(0, 0))
    assert mesh.num_program_cache_entries() == 2


@pytest.mark.parametrize(
    ("dtype", "shape", "packets"),
    [
        (ttnn.bfloat16, (1, 1, 64, 512), (16, 2048)),  # 32 tiles of 2,048 bytes, two in 4,096
        (ttnn.bfloat8_b, (1, 1, 64, 512), (8, 4352)),  # of 1,088, four in 4,352 and a header
        (ttnn.float32, (1, 1, 32, 32), (1, 1024)),
    ],
)
def test_the_buffer_of_a_transfer_holds_packets_of_whole_pages(idle_machine, dtype, shape, packets):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        x = ttnn.zeros(shape, dtype, ttnn.TILE_LAYOUT, mesh)
        here, there = ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1)
        compute = ttnn._ttnn.operations.point_to_point.p2p_compute_intermediate_tensor_spec
        found = compute(x, here, there, ttnn.Topology.Linear)
        assert (tuple(found.shape), found.dtype, found.layout) == (packets, dtype, ttnn.TILE_LAYOUT)
        assert tuple(compute(x, here, here, ttnn.Topology.Linear).shape) == (1, 1)
        buffer = ttnn.allocate_tensor_on_device(found, mesh)
        ttnn.point_to_point(x, here, there, intermediate_tensor=buffer, topology=ttnn.Topology.Linear)
