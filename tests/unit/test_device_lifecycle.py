"""Opening and closing meshes and devices, and what the elastic machine answers about itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch

import softmesh as ttnn
from softmesh import MeshCoordinate, MeshDevice, MeshShape
from softmesh.runtime import machine_queries
from softmesh.runtime.device_lifecycle import open_meshes


@pytest.fixture(autouse=True)
def close_what_a_test_leaves_open() -> Iterator[None]:
    before = set(open_meshes())
    yield
    for mesh in set(open_meshes()) - before:
        mesh.close()


def free_ids(count: int) -> list[int]:
    """Physical ids that no test running beside this one holds."""
    taken = [i for mesh in open_meshes() for i in mesh.get_device_ids()]
    first = max(taken, default=0) + 100
    return list(range(first, first + count))


def test_without_a_shape_the_whole_system_mesh_is_opened():
    mesh = ttnn.open_mesh_device()
    assert mesh.shape == MeshShape(2, 4)
    assert mesh.get_num_devices() == ttnn.get_num_devices()


def test_every_documented_keyword_is_accepted():
    config = ttnn.DispatchCoreConfig(ttnn.DispatchCoreType.WORKER, ttnn.DispatchCoreAxis.ROW)
    mesh = ttnn.open_mesh_device(
        mesh_shape=MeshShape(1, 2),
        l1_small_size=24576,
        trace_region_size=1 << 20,
        num_command_queues=2,
        dispatch_core_config=config,
        offset=MeshCoordinate(0, 0),
        physical_device_ids=[],
        worker_l1_size=1 << 16,
    )
    assert mesh.options == {
        "l1_small_size": 24576,
        "trace_region_size": 1 << 20,
        "num_command_queues": 2,
        "dispatch_core_config": config,
        "worker_l1_size": 1 << 16,
    }


def test_the_same_arguments_go_by_position():
    ids = free_ids(2)
    mesh = ttnn.open_mesh_device(MeshShape(2, 1), 0, 0, 1, None, None, ids, 0)
    assert (mesh.shape, mesh.get_device_ids()) == (MeshShape(2, 1), ids)


def test_default_sizes_are_zero():
    assert ttnn.DEFAULT_L1_SMALL_SIZE == 0
    assert ttnn.DEFAULT_TRACE_REGION_SIZE == 0
    assert ttnn.DEFAULT_WORKER_L1_SIZE == 0


def test_two_meshes_get_different_chips():
    first, second = ttnn.open_mesh_device(MeshShape(2, 2)), ttnn.open_mesh_device(MeshShape(1, 4))
    assert not set(first.get_device_ids()) & set(second.get_device_ids())


def test_a_closed_mesh_gives_its_chips_back():
    mesh = ttnn.open_mesh_device(MeshShape(1, 2))
    ids = mesh.get_device_ids()
    ttnn.close_mesh_device(mesh)
    assert ttnn.open_mesh_device(MeshShape(1, 2)).get_device_ids() == ids


# -- what cannot be opened -------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 4), [2, 4]])
def test_a_tuple_is_not_a_shape_and_the_error_writes_the_right_call(shape: object):
    expected = re.escape("mesh_shape must be a MeshShape: write ttnn.MeshShape(2, 4)")
    with pytest.raises(TypeError, match=f"incompatible function arguments: {expected}"):
        ttnn.open_mesh_device(shape)


def test_a_shape_without_devices_is_refused():
    expected = (
        "Requested mesh shape MeshShape([0, 4]) has zero devices (mesh_size=0). "
        "MeshShape must have at least one device."
    )
    with pytest.raises(RuntimeError, match=re.escape(expected)):
        ttnn.open_mesh_device(MeshShape(0, 4))


def test_physical_ids_must_be_as_many_as_devices():
    expected = "Shape and values size mismatch; shape mesh_size: 4, values size: 2"
    with pytest.raises(RuntimeError, match=re.escape(expected)):
        ttnn.open_mesh_device(MeshShape(1, 4), physical_device_ids=[0, 1])


def test_a_physical_id_given_twice_is_named():
    first, second = free_ids(2)
    with pytest.raises(RuntimeError, match=f"physical_device_ids names device {first} twice"):
        ttnn.open_mesh_device(MeshShape(1, 3), physical_device_ids=[first, second, first])


def test_a_chip_of_an_open_mesh_cannot_be_opened_again():
    ids = free_ids(2)
    mesh = ttnn.open_mesh_device(MeshShape(1, 2), physical_device_ids=ids)
    expected = rf"Cannot re-initialize device {ids[1]}, must first call close\(\)"
    with pytest.raises(RuntimeError, match=expected):
        ttnn.open_device(device_id=ids[1])
    ttnn.close_mesh_device(mesh)
    assert ttnn.open_device(device_id=ids[1]).get_device_ids() == [ids[1]]


def test_a_refused_opening_takes_no_chips():
    before = open_meshes()
    for wrong in ({"num_command_queues": 3}, {"physical_device_ids": [1]}, {"l1_small_size": -1}):
        with pytest.raises((RuntimeError, TypeError)):
            ttnn.open_mesh_device(MeshShape(1, 2), **wrong)
    assert open_meshes() == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"l1_small_size": "big"}, "l1_small_size must be an int, got 'big'"),
        ({"trace_region_size": 1.5}, "trace_region_size must be an int, got 1.5"),
        ({"worker_l1_size": -4}, "worker_l1_size counts bytes and cannot be negative, got -4"),
        ({"num_command_queues": None}, "num_command_queues must be an int, got None"),
        (
            {"dispatch_core_config": "ETH"},
            "dispatch_core_config must be a ttnn.DispatchCoreConfig, got 'ETH'",
        ),
        ({"offset": (0, 1)}, "offset must be a MeshCoordinate"),
        ({"physical_device_ids": 3}, "physical_device_ids must be a list of ints, got 3"),
        ({"physical_device_ids": ["a", "b"]}, "physical_device_ids[0] must be an int, got 'a'"),
        ({"mesh_shpe": 1}, "it has no argument 'mesh_shpe'. Did you mean 'mesh_shape'?"),
    ],
)
def test_wrong_options_name_the_argument(wrong: dict[str, object], message: str):
    with pytest.raises(TypeError, match=re.escape(message)):
        ttnn.open_mesh_device(MeshShape(1, 2), **wrong)


def test_there_are_one_or_two_command_queues():
    with pytest.raises(RuntimeError, match="num_command_queues must be 1 or 2, got 3"):
        ttnn.open_mesh_device(MeshShape(1, 1), num_command_queues=3)


def test_an_offset_must_have_the_rank_of_the_mesh():
    with pytest.raises(RuntimeError, match="Requested mesh shape dimensions mismatch"):
        ttnn.open_mesh_device(MeshShape(1, 2), offset=MeshCoordinate([1]))


def test_ethernet_dispatch_has_no_column_axis():
    with pytest.raises(RuntimeError, match="COL axis is not supported for ETH dispatch core type"):
        ttnn.DispatchCoreConfig(ttnn.DispatchCoreType.ETH, ttnn.DispatchCoreAxis.COL)


# -- one device ------------------------------------------------------------------------------------


def test_open_device_gives_a_1x1_mesh_by_keyword_and_by_position():
    first, second = free_ids(2)
    by_keyword = ttnn.open_device(
        device_id=first,
        l1_small_size=32,
        trace_region_size=64,
        num_command_queues=2,
        dispatch_core_config=None,
        worker_l1_size=0,
    )
    by_position = ttnn.open_device(second)
    for device, device_id in ((by_keyword, first), (by_position, second)):
        assert isinstance(device, MeshDevice)
        assert device.shape == MeshShape(1, 1)
        assert device.get_device_ids() == [device_id]
        ttnn.close_device(device)
        ttnn.close_device(device)


@pytest.mark.parametrize("device_id", [None, "0", 0.0, [0], True])
def test_a_device_id_is_an_int(device_id: object):
    with pytest.raises(TypeError, match="device_id must be an int, got"):
        ttnn.open_device(device_id=device_id)


def test_a_device_id_is_not_negative():
    with pytest.raises(RuntimeError, match="must not be negative"):
        ttnn.open_device(device_id=-1)


def test_the_native_spellings_open_the_same_kind_of_device():
    first, *others = free_ids(3)
    device = ttnn.CreateDevice(first, 1, 0, 0, None, worker_l1_size=0)
    assert repr(device) == "MeshDevice(1x1 grid, 1 devices)"
    ttnn.CloseDevice(device)
    assert not device.is_open
    devices = ttnn.CreateDevices(others, 2, l1_small_size=16)
    assert {i: d.get_device_ids() for i, d in devices.items()} == {i: [i] for i in others}
    assert all(d.options["num_command_queues"] == 2 for d in devices.values())
    ttnn.CloseDevices(devices)
    assert not any(d.is_open for d in devices.values())


def test_creating_several_devices_opens_all_or_none():
    first, second = free_ids(2)
    held = ttnn.open_device(second)
    with pytest.raises(RuntimeError, match="Cannot re-initialize device"):
        ttnn.CreateDevices([first, second])
    assert ttnn.open_device(first).is_open
    assert held.is_open


# -- context managers ------------------------------------------------------------------------------


def test_create_mesh_device_closes_at_the_end_of_the_block():
    with ttnn.create_mesh_device(MeshShape(1, 2), num_command_queues=2) as mesh:
        assert mesh.is_open
    assert not mesh.is_open


def test_create_mesh_device_closes_on_an_exception():
    with pytest.raises(KeyError), ttnn.create_mesh_device(MeshShape(1, 2)) as mesh:
        raise KeyError("the user's own")
    assert not mesh.is_open


def test_manage_device_closes_too():
    with ttnn.manage_device(device_id=free_ids(1)[0]) as device:
        assert device.shape == MeshShape(1, 1)
    assert not device.is_open


def test_a_mesh_is_a_context_manager_itself():
    with ttnn.open_mesh_device(MeshShape(1, 2)) as mesh:
        assert mesh.is_open
    assert not mesh.is_open


# -- the tutorials' older spelling -----------------------------------------------------------------


def test_the_tutorials_open_a_device_mesh_from_a_device_grid():
    mesh = ttnn.open_device_mesh(ttnn.DeviceGrid(y=1, x=4))
    assert mesh.shape == MeshShape(1, 4)
    ttnn.close_device_mesh(mesh)
    assert not mesh.is_open


def test_a_device_grid_has_rows_first_and_prints_them():
    assert repr(ttnn.DeviceGrid(2, 4)) == "DeviceGrid(y=2, x=4)"
    assert ttnn.DeviceGrid(y=2, x=4).as_shape() == MeshShape(2, 4)
    with pytest.raises(TypeError, match="x must be an int, got '4'"):
        ttnn.DeviceGrid(y=2, x="4")


def test_the_older_spelling_takes_device_ids():
    ids = free_ids(4)
    assert ttnn.open_device_mesh(ttnn.DeviceGrid(2, 2), ids).get_device_ids() == ids


# -- closing what is not a mesh --------------------------------------------------------------------


@pytest.mark.parametrize("silly", [None, "mesh", 0, MeshShape(2, 4)])
def test_closing_something_else_says_what_was_expected(silly: object):
    for close in (ttnn.close_mesh_device, ttnn.close_device, ttnn.CloseDevice):
        with pytest.raises(TypeError, match="mesh_device must be a MeshDevice"):
            close(silly)
    with pytest.raises(TypeError, match="device must be a MeshDevice"):
        ttnn.synchronize_device(silly)


def test_closing_devices_wants_the_dict_that_creating_gave():
    with pytest.raises(TypeError, match="devices must be a dict"):
        ttnn.CloseDevices([])


# -- the machine -----------------------------------------------------------------------------------


def test_the_elastic_machine_calls_itself_eight_wormhole_chips_on_the_host():
    assert ttnn.get_num_devices() == machine_queries.GetNumAvailableDevices() == 8
    assert ttnn.get_device_ids() == list(range(8))
    assert machine_queries.get_num_pcie_devices() == machine_queries.GetNumPCIeDevices() == 8
    assert machine_queries.get_pcie_device_ids() == list(range(8))
    assert machine_queries.GetPCIeDeviceID(5) == 5
    assert ttnn.get_arch_name() == "wormhole_b0"


def test_a_program_can_ask_for_the_architecture():
    with ttnn.create_mesh_device(MeshShape(1, 1)) as mesh:
        assert machine_queries.is_wormhole_b0()
        assert machine_queries.is_wormhole_b0(mesh)
        assert not machine_queries.is_blackhole()
        assert not machine_queries.is_blackhole(device=mesh)
        assert not ttnn.device.is_grayskull(mesh)  # no machine has the chips that programs of earlier releases ask for
    with pytest.raises(TypeError, match="device must be a MeshDevice or None"):
        machine_queries.is_blackhole("blackhole")


def test_the_system_mesh_descriptor_tells_shape_and_ids():
    descriptor = machine_queries.SystemMeshDescriptor()
    assert descriptor.shape() == descriptor.local_shape() == MeshShape(2, 4)
    assert descriptor.get_device_id(MeshCoordinate(1, 0)) == 4
    assert descriptor.is_local(MeshCoordinate(1, 3))
    assert descriptor.all_local()
    with pytest.raises(RuntimeError, match="out of bounds"):
        descriptor.get_device_id(MeshCoordinate(2, 0))


# -- the default device ----------------------------------------------------------------------------


@pytest.fixture
def no_default_device() -> Iterator[None]:
    yield
    ttnn.SetDefaultDevice(None)


def test_creation_ops_use_the_default_device(no_default_device: None):
    assert ttnn.GetDefaultDevice() is None
    assert ttnn.zeros([2, 2]).device() is None
    with ttnn.create_mesh_device(MeshShape(1, 2)) as mesh:
        ttnn.SetDefaultDevice(mesh)
        assert ttnn.GetDefaultDevice() is mesh
        assert ttnn.ones([2, 2]).device() is mesh
        assert ttnn.from_torch(torch.ones(2)).device() is None
        ttnn.SetDefaultDevice(None)
        assert ttnn.ones([2, 2]).device() is None


def test_only_a_mesh_can_be_the_default_device(no_default_device: None):
    with pytest.raises(TypeError, match="device must be a MeshDevice"):
        ttnn.SetDefaultDevice("cuda")
    assert ttnn.GetDefaultDevice() is None
