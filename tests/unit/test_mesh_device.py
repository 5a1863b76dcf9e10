"""MeshDevice: the member table, submeshes, reshape and close, on the elastic machine."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh import CoreCoord, MeshCoordinate, MeshDevice, MeshShape
from softmesh.runtime.device import MeshId
from softmesh.runtime.device_lifecycle import open_meshes


@pytest.fixture
def mesh() -> Iterator[MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(2, 4), physical_device_ids=range(40, 48)) as mesh_device:
        yield mesh_device


def exactly(text: str) -> str:
    return re.escape(text)


# -- what it is ------------------------------------------------------------------------------------


def test_repr_and_str_count_devices_in_the_plural(mesh: MeshDevice):
    assert repr(mesh) == str(mesh) == "MeshDevice(2x4 grid, 8 devices)"
    assert repr(mesh.create_submesh(MeshShape(1, 1))) == "MeshDevice(1x1 grid, 1 devices)"


def test_device_is_another_name_of_mesh_device():
    assert ttnn.Device is ttnn.MeshDevice


def test_any_attribute_may_be_set_on_a_mesh(mesh: MeshDevice):
    mesh.my_note = "prefill"
    assert mesh.my_note == "prefill"


def test_meshes_compare_and_hash_by_identity(mesh: MeshDevice):
    same_chips = mesh.create_submesh(MeshShape(2, 4))
    assert mesh == mesh
    assert mesh != same_chips
    assert len({mesh, same_chips}) == 2


def test_a_mesh_is_neither_iterable_nor_sized_nor_a_list_of_devices(mesh: MeshDevice):
    with pytest.raises(TypeError):
        iter(mesh)
    with pytest.raises(TypeError):
        len(mesh)
    assert not hasattr(mesh, "get_device")
    assert not hasattr(mesh, "get_devices")


def test_shape_unpacks_into_rows_and_columns(mesh: MeshDevice):
    rows, cols = mesh.shape
    assert (rows, cols) == (2, 4)
    assert list(mesh.shape) == [2, 4]
    assert mesh.shape == MeshShape(2, 4)


def test_device_ids_are_row_major_and_found_by_coordinate(mesh: MeshDevice):
    assert mesh.get_num_devices() == 8
    assert mesh.get_device_ids() == list(range(40, 48))
    assert mesh.get_device_id(MeshCoordinate(1, 2)) == 46


def test_the_list_of_device_ids_is_a_copy(mesh: MeshDevice):
    mesh.get_device_ids().clear()
    assert mesh.get_num_devices() == 8


def test_a_coordinate_outside_the_mesh_has_no_device_id(mesh: MeshDevice):
    expected = exactly("Device ID requested for MeshCoord MeshCoordinate([2, 0]) not found.")
    with pytest.raises(RuntimeError, match=expected):
        mesh.get_device_id(MeshCoordinate(2, 0))


def test_every_mesh_and_submesh_has_an_id_of_its_own(mesh: MeshDevice):
    ids = [mesh.id(), *(submesh.id() for submesh in mesh.create_submeshes(MeshShape(1, 4)))]
    assert len(set(ids)) == 3
    assert all(isinstance(i, int) for i in ids)


def test_a_fabric_node_id_names_mesh_and_chip(mesh: MeshDevice):
    node = mesh.get_fabric_node_id(MeshCoordinate(1, 3))
    assert repr(node) == "FabricNodeId(M0, D47)"
    assert node.mesh_id == MeshId(0)
    assert int(node.mesh_id) == 0
    assert repr(node.mesh_id) == "MeshId(0)"
    assert node.chip_id == 47
    assert node == ttnn.FabricNodeId(MeshId(0), 47) != ttnn.FabricNodeId(MeshId(0), 46)


def test_the_fields_of_a_fabric_node_id_are_read_only(mesh: MeshDevice):
    with pytest.raises(AttributeError):
        mesh.get_fabric_node_id(MeshCoordinate(0, 0)).chip_id = 3


def test_a_single_mesh_has_system_mesh_id_0(mesh: MeshDevice):
    assert mesh.get_system_mesh_id() == 0


def test_the_view_knows_shape_and_coordinates(mesh: MeshDevice):
    view = mesh.get_view()
    assert view.shape() == MeshShape(2, 4)
    assert view.num_devices() == 8
    assert view.is_local(MeshCoordinate(1, 3)) is True
    assert [list(c) for c in view.get_local_mesh_coord_range()] == [list(c) for c in mesh.shape.coordinates()]


def test_the_view_refuses_a_coordinate_outside(mesh: MeshDevice):
    expected = exactly("Coordinate MeshCoordinate([9, 9]) not found in mesh MeshShape([2, 4])")
    with pytest.raises(RuntimeError, match=expected):
        mesh.get_view().is_local(MeshCoordinate(9, 9))


# -- the chip --------------------------------------------------------------------------------------


def test_the_elastic_machine_has_wormhole_chips(mesh: MeshDevice):
    assert mesh.arch() is ttnn.Arch.WORMHOLE_B0
    assert mesh.arch().value == 2
    assert mesh.compute_with_storage_grid_size() == CoreCoord(8, 8)
    assert repr(mesh.core_grid) == "ttnn.CoreGrid(x=8, y=8)"
    assert mesh.dram_grid_size() == CoreCoord(12, 1)


def test_sfpu_constants_are_wormholes(mesh: MeshDevice):
    assert (mesh.sfpu_eps(), mesh.sfpu_nan(), mesh.sfpu_inf()) == (1.19209e-07, 7.004e19, 1.7014e38)


def test_logical_and_virtual_worker_cores_are_18_apart(mesh: MeshDevice):
    assert mesh.worker_core_from_logical_core(CoreCoord(0, 0)) == CoreCoord(18, 18)
    assert mesh.logical_core_from_worker_core(CoreCoord(20, 25)) == CoreCoord(2, 7)


@pytest.mark.parametrize(
    ("method", "core"),
    [
        ("worker_core_from_logical_core", CoreCoord(8, 0)),
        ("logical_core_from_worker_core", CoreCoord(17, 18)),
        ("dram_core_from_logical_core", CoreCoord(0, 1)),
    ],
)
def test_a_core_outside_the_grid_is_refused_with_the_grid(mesh: MeshDevice, method: str, core: CoreCoord):
    with pytest.raises(RuntimeError, match=f"No core coordinate found at location {core}.* lies between"):
        getattr(mesh, method)(core)


def test_every_dram_bank_has_a_core_and_a_worker_of_its_own(mesh: MeshDevice):
    banks = [mesh.dram_core_from_logical_core(CoreCoord(bank, 0)) for bank in range(12)]
    assert len(set(banks)) == 12
    workers = mesh.get_optimal_dram_bank_to_logical_worker_assignment(ttnn.NOC.RISCV_0_default)
    assert len(set(workers)) == 12
    assert all(worker.x < 8 and worker.y < 8 for worker in workers)
    by_bank = mesh.get_optimal_dram_bank_to_logical_worker_assignment(ttnn.NOC.RISCV_0_default, MeshCoordinate(0, 1))
    assert by_bank == dict(enumerate(workers))


def test_workers_of_dram_banks_are_cores_that_programs_may_use():
    config = ttnn.DispatchCoreConfig(ttnn.DispatchCoreType.WORKER, ttnn.DispatchCoreAxis.COL)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1), dispatch_core_config=config) as mesh:
        grid = mesh.compute_with_storage_grid_size()
        workers = mesh.get_optimal_dram_bank_to_logical_worker_assignment(ttnn.NOC.RISCV_0_default)
        assert len(set(workers)) == 12
        assert all(worker.x < grid.x and worker.y < grid.y for worker in workers)


# -- submeshes -------------------------------------------------------------------------------------


def test_a_submesh_is_a_rectangle_with_coordinates_of_its_own(mesh: MeshDevice):
    submesh = mesh.create_submesh(MeshShape(2, 2), MeshCoordinate(0, 1))
    assert submesh.shape == MeshShape(2, 2)
    assert submesh.get_device_ids() == [41, 42, 45, 46]
    assert submesh.get_device_id(MeshCoordinate(1, 0)) == 45
    assert repr(submesh.get_fabric_node_id(MeshCoordinate(1, 0))) == "FabricNodeId(M0, D45)"


def test_a_submesh_starts_at_the_origin_unless_told_otherwise(mesh: MeshDevice):
    assert mesh.create_submesh(submesh_shape=MeshShape(1, 2)).get_device_ids() == [40, 41]
    assert mesh.create_submesh(MeshShape(1, 2), offset=MeshCoordinate(1, 2)).get_device_ids() == [46, 47]


def test_submeshes_tile_the_mesh_row_major(mesh: MeshDevice):
    tiles = mesh.create_submeshes(MeshShape(1, 2))
    assert [tile.get_device_ids() for tile in tiles] == [[40, 41], [42, 43], [44, 45], [46, 47]]


def test_submeshes_may_overlap_and_nest(mesh: MeshDevice):
    left, both = mesh.create_submesh(MeshShape(2, 2)), mesh.create_submesh(MeshShape(2, 4))
    assert set(left.get_device_ids()) < set(both.get_device_ids())
    inner = left.create_submesh(MeshShape(1, 1), MeshCoordinate(1, 1))
    assert inner.get_device_ids() == [45]
    assert left.get_submeshes() == [inner]
    assert inner not in mesh.get_submeshes()


def test_get_submeshes_lists_the_live_ones(mesh: MeshDevice):
    kept, closed = mesh.create_submesh(MeshShape(1, 4)), mesh.create_submesh(MeshShape(1, 4))
    mesh.create_submesh(MeshShape(1, 1))  # dropped at once
    closed.close()
    gc.collect()
    assert mesh.get_submeshes() == [kept]


def test_a_submesh_inherits_the_options_of_its_mesh():
    with ttnn.create_mesh_device(
        MeshShape(1, 2), l1_small_size=1024, trace_region_size=4096, num_command_queues=2
    ) as mesh_device:
        options = mesh_device.create_submesh(MeshShape(1, 1)).options
    assert (options["l1_small_size"], options["trace_region_size"], options["num_command_queues"]) == (
        1024,
        4096,
        2,
    )


def test_a_submesh_keeps_its_parent_alive():
    submesh = ttnn.open_mesh_device(MeshShape(1, 2)).create_submesh(MeshShape(1, 1))
    gc.collect()
    parent = next(mesh for mesh in open_meshes() if submesh in mesh.get_submeshes())
    parent.close()
    assert not submesh.is_open


@pytest.mark.parametrize(
    ("shape", "offset", "message"),
    [
        (
            MeshShape(0, 1),
            None,
            "Invalid submesh shape: (MeshShape([0, 1])). All dimensions must be positive.",
        ),
        (
            MeshShape([4]),
            None,
            "Submesh shape MeshShape([4]) and mesh device shape MeshShape([2, 4]) must have the same number of "
            "dimensions.",
        ),
        (
            MeshShape(2, 2),
            MeshCoordinate(0, 3),
            "Submesh shape MeshShape([2, 2]) and offset MeshCoordinate([0, 3]) does not fit within parent mesh "
            "(MeshShape([2, 4])).",
        ),
        (MeshShape(4, 2), None, "does not fit within parent mesh (MeshShape([2, 4]))."),
        (
            MeshShape(1, 2),
            MeshCoordinate([0]),
            "Submesh shape MeshShape([1, 2]) and offset MeshCoordinate([0]) must have the same number of dimensions.",
        ),
    ],
)
def test_a_submesh_that_cannot_be_says_why(
    mesh: MeshDevice, shape: MeshShape, offset: MeshCoordinate | None, message: str
):
    with pytest.raises(RuntimeError, match=exactly(message)):
        mesh.create_submesh(shape, offset)


def test_submeshes_must_divide_the_mesh(mesh: MeshDevice):
    expected = "Shape MeshShape([2, 4]) is not divisible by submesh shape MeshShape([1, 3]) along dimension 1"
    with pytest.raises(RuntimeError, match=exactly(expected)):
        mesh.create_submeshes(MeshShape(1, 3))


# -- reshape ---------------------------------------------------------------------------------------


def test_reshape_is_in_place_and_returns_nothing(mesh: MeshDevice):
    assert mesh.reshape(MeshShape(1, 8)) is None
    assert mesh.shape == MeshShape(1, 8)
    assert repr(mesh) == "MeshDevice(1x8 grid, 8 devices)"


def test_reshaping_back_restores_the_order(mesh: MeshDevice):
    before = mesh.get_device_ids()
    mesh.reshape(MeshShape(4, 2))
    mesh.reshape(MeshShape(2, 4))
    assert mesh.get_device_ids() == before


def test_a_line_keeps_its_order_when_it_is_turned(mesh: MeshDevice):
    line = mesh.create_submesh(MeshShape(1, 4))
    line.reshape(MeshShape(4, 1))
    assert (line.shape, line.get_device_ids()) == (MeshShape(4, 1), [40, 41, 42, 43])


def test_reshape_keeps_the_number_of_devices(mesh: MeshDevice):
    with pytest.raises(RuntimeError, match="New shape must have the same number of devices as current shape"):
        mesh.reshape(MeshShape(2, 3))
    assert mesh.shape == MeshShape(2, 4)


def test_tensors_made_before_a_reshape_keep_their_values_and_print(mesh: MeshDevice):
    values = torch.arange(8.0).reshape(8, 1)
    tensor = ttnn.from_torch(values, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0))
    mesh.reshape(MeshShape(1, 8))
    assert torch.equal(ttnn.compose(tensor), values)
    assert repr(tensor).count("device_id: ") == 8


# -- programs --------------------------------------------------------------------------------------


def test_the_program_cache_counts_distinct_op_configurations(mesh: MeshDevice):
    x = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    assert mesh.num_program_cache_entries() == 0
    ttnn.softmax(x)
    ttnn.softmax(x)
    assert mesh.num_program_cache_entries() == 1
    ttnn.softmax(ttnn.ones([64, 32], layout=ttnn.TILE_LAYOUT, device=mesh))
    ttnn.exp(x)
    assert mesh.num_program_cache_entries() == 3
    mesh.clear_program_cache()
    assert mesh.num_program_cache_entries() == 0


def test_a_disabled_program_cache_counts_nothing(mesh: MeshDevice):
    x = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    ttnn.relu(x)
    mesh.disable_and_clear_program_cache()
    ttnn.relu(x)
    assert mesh.num_program_cache_entries() == 0
    mesh.enable_program_cache()
    ttnn.relu(x)
    assert mesh.num_program_cache_entries() == 1


def test_a_forbidden_program_cache_miss_is_an_error(mesh: MeshDevice):
    x = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    ttnn.relu(x)
    mesh.set_program_cache_misses_allowed(False)
    ttnn.relu(x)
    with pytest.raises(RuntimeError, match="program cache miss occurred, but cache misses are forbidden"):
        ttnn.exp(x)
    mesh.set_program_cache_misses_allowed(True)
    ttnn.exp(x)


def test_quiescing_an_open_mesh_returns_nothing(mesh: MeshDevice):
    assert mesh.quiesce_devices() is None


# -- close -----------------------------------------------------------------------------------------


def test_a_closed_mesh_still_answers_what_it_was(mesh: MeshDevice):
    ttnn.close_mesh_device(mesh)
    ttnn.close_mesh_device(mesh)
    assert repr(mesh) == "MeshDevice(2x4 grid, 8 devices)"
    assert mesh.shape == MeshShape(2, 4)
    assert mesh.get_num_devices() == 8
    assert mesh.get_device_ids() == list(range(40, 48))


def test_a_closed_mesh_takes_no_tensors_and_no_submeshes(mesh: MeshDevice):
    host = ttnn.from_torch(torch.ones(2, 2))
    ttnn.close_mesh_device(mesh)
    attempts = [
        lambda: ttnn.from_torch(torch.ones(2, 2), device=mesh),
        lambda: ttnn.to_device(host, mesh),
        lambda: ttnn.zeros([2, 2], device=mesh),
        lambda: ttnn.allocate_tensor_on_device(ttnn.Shape([2, 2]), ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, mesh),
        lambda: mesh.create_submesh(MeshShape(1, 1)),
        lambda: mesh.create_submeshes(MeshShape(1, 1)),
        lambda: mesh.reshape(MeshShape(1, 8)),
        lambda: mesh.quiesce_devices(),
        lambda: ttnn.synchronize_device(mesh),
    ]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match=r"is closed\. Open it again with ttnn\.open_mesh_device"):
            attempt()


def test_tensors_of_a_closed_mesh_neither_compute_nor_come_back(mesh: MeshDevice):
    x = ttnn.ones([32, 32], layout=ttnn.TILE_LAYOUT, device=mesh)
    host = ttnn.from_device(x)
    shard = ttnn.get_device_tensors(x)[0]
    ttnn.close_mesh_device(mesh)
    composer = ttnn.ConcatMeshToTensor(mesh, 0)
    attempts = [
        lambda: ttnn.relu(x),
        lambda: x + x,
        lambda: ttnn.to_torch(shard),
        lambda: ttnn.to_torch(x, mesh_composer=composer),
        lambda: ttnn.from_device(x),
        lambda: ttnn.compose(x),
        lambda: ttnn.aggregate_tensor(x, composer),
        lambda: ttnn.copy_host_to_device_tensor(host, x),
        lambda: ttnn.copy_device_to_host_tensor(x, host),
    ]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match="is closed"):
            attempt()
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(host)[0]), torch.ones(32, 32).bfloat16())
    assert "1.0000" in repr(x)


def test_closing_a_mesh_closes_its_submeshes_but_not_the_other_way_round(mesh: MeshDevice):
    first, second = mesh.create_submeshes(MeshShape(1, 4))
    first.close()
    assert mesh.is_open
    assert second.is_open
    mesh.close()
    assert not second.is_open


def test_meshes_over_different_chips_are_open_at_once(mesh: MeshDevice):
    with ttnn.create_mesh_device(MeshShape(1, 2)) as other:
        assert not set(other.get_device_ids()) & set(mesh.get_device_ids())
        ttnn.ones([2, 2], device=mesh)
        ttnn.ones([2, 2], device=other)


@pytest.mark.parametrize("rank", [1, 3, 4])
def test_the_elastic_machine_opens_meshes_of_any_rank(rank: int):
    with ttnn.create_mesh_device(MeshShape([2] * rank)) as cube:
        assert cube.get_num_devices() == 2**rank
        x = ttnn.from_torch(torch.ones(4), device=cube)
        assert len(x.device_coords()) == 2**rank
        assert torch.equal(ttnn.compose(x), torch.ones(4))


# -- wrong arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize("silly", [None, "2x4", (1, 2), [1, 2], 3])
def test_members_that_want_a_shape_say_so(mesh: MeshDevice, silly: object):
    for method, name in [
        (mesh.create_submesh, "submesh_shape"),
        (mesh.create_submeshes, "submesh_shape"),
        (mesh.reshape, "new_shape"),
    ]:
        with pytest.raises(TypeError, match=f"incompatible function arguments: {name} must be a MeshShape"):
            method(silly)
    assert mesh.shape == MeshShape(2, 4)


@pytest.mark.parametrize("silly", [None, "0,0", (0, 0), 3])
def test_members_that_want_a_coordinate_say_so(mesh: MeshDevice, silly: object):
    for method in (mesh.get_device_id, mesh.get_fabric_node_id, mesh.get_view().is_local):
        with pytest.raises(TypeError, match="coord must be a MeshCoordinate"):
            method(silly)


def test_an_offset_must_be_a_coordinate(mesh: MeshDevice):
    with pytest.raises(TypeError, match="offset must be a MeshCoordinate"):
        mesh.create_submesh(MeshShape(1, 1), (0, 1))


@pytest.mark.parametrize("named", ["gpu", "cuda:first", "cuda:-1", "cuda:", "cuda:01", "cpu:0"])
def test_a_torch_device_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch, named: str):
    monkeypatch.setenv("SOFTMESH_DEVICE", named)
    with pytest.raises(RuntimeError, match=f"SOFTMESH_DEVICE={named}: choose cpu, cuda, or cuda:1"):
        ttnn.open_mesh_device(MeshShape(1, 1))


@pytest.mark.parametrize(
    ("gpus", "named", "told"),
    [
        (0, "cuda", "finds no GPU. Install a build of torch for CUDA, or unset SOFTMESH_DEVICE"),
        (2, "cuda:2", "SOFTMESH_DEVICE=cuda:2: torch finds 2 of them; choose cuda:0 to cuda:1"),
        (1, "cuda:1", "SOFTMESH_DEVICE=cuda:1: torch finds 1 of them; choose cuda:0\\."),
        (2, "cuda:256", "SOFTMESH_DEVICE=cuda:256: torch finds 2 of them"),
    ],
)
def test_a_gpu_that_is_not_there_is_said_when_a_mesh_is_opened(
    monkeypatch: pytest.MonkeyPatch, gpus: int, named: str, told: str
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("SOFTMESH_DEVICE", named)
    with pytest.raises(RuntimeError, match=told):
        ttnn.open_mesh_device(MeshShape(1, 1))
