"""A mesh that other processes hold: it has a shape, tensors on it have a form, and nothing of it has values."""

from __future__ import annotations

import pytest
import torch

import softmesh as ttnn
from softmesh.runtime.mesh_view import HELD_ELSEWHERE

FIRST = ttnn.MeshCoordinate(0, 0)


@pytest.fixture
def here(idle_machine) -> ttnn.MeshDevice:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    return ttnn.open_mesh_device(ttnn.MeshShape(2, 4))


@pytest.fixture
def remote(here) -> ttnn.MeshDevice:
    return ttnn.MeshDevice(here.shape, here.all_device_ids, here.system, holding=HELD_ELSEWHERE)


def put(mesh: ttnn.MeshDevice, *shape: int, dims=(None, None), dtype=ttnn.bfloat16) -> ttnn.Tensor:
    values = torch.zeros(*shape, dtype=torch.int32 if dtype is ttnn.uint32 else torch.float32)
    layout = ttnn.ROW_MAJOR_LAYOUT if dtype is ttnn.uint32 else ttnn.TILE_LAYOUT
    mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), dims=dims)
    return ttnn.from_torch(values, dtype, layout=layout, device=mesh, mesh_mapper=mapper)


def test_it_has_a_shape_and_no_devices_of_its_own(remote):
    assert remote.is_remote_only()
    assert (remote.shape, remote.get_num_devices()) == (ttnn.MeshShape(2, 4), 8)
    assert remote.get_device_ids() == []
    assert not remote.get_view().is_local(FIRST)
    assert remote.get_fabric_node_id(FIRST).chip_id == 0
    with pytest.raises(RuntimeError, match=r"Device ID requested for MeshCoord .* Another process holds"):
        remote.get_device_id(FIRST)
    with pytest.raises(RuntimeError, match="other processes hold all devices"):
        remote.get_view().get_local_mesh_coord_range()


def test_its_parts_are_remote_too(remote):
    assert all(tile.is_remote_only() for tile in remote.create_submeshes(ttnn.MeshShape(1, 2)))


def test_a_mesh_of_this_process_is_not_remote(mesh):
    assert not mesh.is_remote_only()
    mesh.check_local("reading")


def test_what_does_nothing_can_be_done(remote):
    tensor = put(remote, 64, 128, dims=(0, 1))
    new = ttnn.from_torch(torch.ones(64, 128), ttnn.bfloat16, mesh_mapper=ttnn.ShardTensorToMesh(remote, 1))
    on_device = ttnn.to_device(new, remote)
    ttnn.copy_host_to_device_tensor(new, on_device)
    ttnn.full((32, 32), 1.0, optional_tensor=tensor)
    ttnn.synchronize_device(remote)
    ttnn.deallocate(tensor)
    assert not tensor.is_allocated()


READINGS = {
    "to_torch": ttnn.to_torch,
    "from_device": ttnn.from_device,
    "compose": ttnn.compose,
    "a shard": lambda tensor: ttnn.to_torch(ttnn.get_device_tensors(tensor)[5]),
    "to_list": lambda tensor: tensor.to_list(),
    "dump_tensor": lambda tensor: ttnn.dump_tensor("never.tensorbin", tensor),
    "dump_tensor locally": lambda tensor: ttnn.dump_tensor("never.tensorbin", tensor, mode=ttnn.DumpTensorMode.LOCAL),
    "copy": lambda tensor: ttnn.copy_device_to_host_tensor(
        tensor, ttnn.allocate_tensor_on_host(tensor.spec, tensor.device())
    ),
}


@pytest.mark.parametrize("how", sorted(READINGS))
def test_values_are_refused_with_a_remedy(remote, how):
    with pytest.raises(ttnn.MeshError, match=r"is remote-only in this process.*if not mesh.is_remote_only"):
        READINGS[how](put(remote, 64, 128, dims=(0, 1)))


def test_a_tensor_says_that_others_hold_it(remote):
    assert str(put(remote, 64, 128, dims=(0, 1))).startswith("ttnn.Tensor(<held by other processes>, shape=")


def test_pictures_tell_what_is_remote(remote, capsys):
    ttnn.visualize_mesh_device(remote)
    assert capsys.readouterr().out.count("Unknown ID") == 8


def _decode(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    q, k = put(mesh, 1, 4, 8, 32), put(mesh, 4, 2, 64, 32)
    return ttnn.transformer.scaled_dot_product_attention_decode(q, k, k, cur_pos=[3, 4, 5, 6])


def _cache(mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    cache = put(mesh, 4, 2, 64, 32)
    ttnn.fill_cache(cache, put(mesh, 1, 2, 32, 32), 1)
    return cache


CALLS = {
    "embedding": lambda mesh: ttnn.embedding(put(mesh, 1, 32, dtype=ttnn.uint32), put(mesh, 8, 64)),
    "attention": _decode,
    "a cache": _cache,
    "all_reduce": lambda mesh: ttnn.all_reduce(put(mesh, 64, 128, dims=(0, 1)), cluster_axis=1),
    "all_gather": lambda mesh: ttnn.all_gather(put(mesh, 64, 128, dims=(0, 1)), 1, cluster_axis=1),
    "reduce_scatter": lambda mesh: ttnn.reduce_scatter(put(mesh, 64, 512, dims=(0, 1)), 1, cluster_axis=1),
    "mesh_partition": lambda mesh: ttnn.mesh_partition(put(mesh, 64, 512), 1, 1),
    "broadcast": lambda mesh: ttnn.broadcast(put(mesh, 64, 128, dims=(0, 1)), FIRST, cluster_axis=1),
    "point_to_point": lambda mesh: ttnn.point_to_point(
        put(mesh, 64, 128, dims=(0, 1)), FIRST, ttnn.MeshCoordinate(0, 1)
    ),
}


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.filterwarnings("ignore::softmesh.SoftmeshWarning")
def test_results_have_the_form_that_they_have_elsewhere(here, remote, name):
    expected, found = CALLS[name](here), CALLS[name](remote)
    assert (found.spec, ttnn.placements(found)) == (expected.spec, ttnn.placements(expected))
    assert found.tensor_topology() == expected.tensor_topology()
    with pytest.raises(ttnn.MeshError, match="remote-only"):
        ttnn.to_torch(found)
