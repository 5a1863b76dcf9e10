"""Sub-devices: groups of cores with managers, stall groups and memory of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import softmesh as ttnn
from softmesh import BufferType, MeshCoordinateRange, MeshShape, SubDevice, SubDeviceId
from softmesh.metal import EnqueueMeshWorkload, Finish, MeshCommandQueue, MeshWorkload


def cores(*boxes: tuple[tuple[int, int], tuple[int, int]]) -> ttnn.CoreRangeSet:
    return ttnn.CoreRangeSet([ttnn.CoreRange(*box) for box in boxes])


LEFT, RIGHT = cores(((0, 0), (1, 1))), cores(((4, 4), (5, 5)))
LOCAL = 3200


class Program:
    """Kernels on these cores that do nothing."""

    def __init__(self, where: ttnn.CoreRangeSet) -> None:
        self.where = where

    def validate(self, mesh: ttnn.MeshDevice) -> None: ...

    def compile(self, mesh: ttnn.MeshDevice) -> None: ...

    def sub_device_cores(self) -> ttnn.CoreRangeSet:
        return self.where

    def launch(self, mesh: ttnn.MeshDevice, box: MeshCoordinateRange, queue: MeshCommandQueue) -> None: ...


def workload(mesh: ttnn.MeshDevice, *where: ttnn.CoreRangeSet) -> MeshWorkload:
    """One program for each column of the mesh."""
    made = MeshWorkload()
    for column, place in enumerate(where):
        coord = ttnn.MeshCoordinate(0, column)
        made.add_program(MeshCoordinateRange(coord, coord), Program(place))
    return made


@pytest.fixture
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.create_mesh_device(MeshShape(1, 2), num_command_queues=2) as mesh_device:
        yield mesh_device


@pytest.fixture
def manager(mesh: ttnn.MeshDevice) -> ttnn.SubDeviceManagerId:
    return mesh.create_sub_device_manager([SubDevice([LEFT]), SubDevice([RIGHT])], LOCAL)


@pytest.fixture
def loaded(mesh: ttnn.MeshDevice, manager: ttnn.SubDeviceManagerId) -> ttnn.MeshDevice:
    mesh.load_sub_device_manager(manager)
    return mesh


def test_a_mesh_begins_with_one_sub_device_of_all_cores(mesh):
    assert mesh.get_sub_device_ids() == [SubDeviceId(0)]
    assert mesh.get_active_sub_device_manager_id() == mesh.get_default_sub_device_manager_id()
    grid = mesh.compute_with_storage_grid_size()
    assert mesh.sub_devices.cores(SubDeviceId(0)).num_cores() == grid.x * grid.y
    mesh.clear_loaded_sub_device_manager()


def test_a_manager_counts_only_once_it_is_loaded(mesh, manager):
    assert mesh.num_sub_devices() == 1
    mesh.load_sub_device_manager(manager)
    assert mesh.get_sub_device_ids() == [SubDeviceId(0), SubDeviceId(1)]
    assert mesh.get_active_sub_device_manager_id() == manager
    mesh.clear_loaded_sub_device_manager()
    assert mesh.num_sub_devices() == 1


def test_sub_devices_have_the_bottom_of_l1_and_the_rest_is_for_all(mesh, manager):
    whole = mesh.allocator().get_bank_size(BufferType.L1)
    mesh.load_sub_device_manager(manager)
    assert mesh.allocator().get_bank_size(BufferType.L1) == whole - LOCAL
    own = mesh.allocator(SubDeviceId(1))
    assert own.get_bank_size(BufferType.L1) == LOCAL
    assert own.get_base_allocator_addr(BufferType.L1) < mesh.allocator().get_base_allocator_addr(BufferType.L1)
    mesh.clear_loaded_sub_device_manager()
    assert mesh.allocator().get_bank_size(BufferType.L1) == whole


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([LEFT, cores(((1, 1), (2, 2)))], "SubDevices specified for SubDeviceManager intersect"),
        ([cores(((x, 0), (x, 0))) for x in range(8)] + [RIGHT], "Too many sub devices specified"),
        ([cores(((0, 0), (50, 50)))], "must be within device grid"),
        ([], "at least one sub device"),
    ],
)
def test_a_manager_refuses_what_cannot_be(mesh, parts, said):
    with pytest.raises(RuntimeError, match=said):
        mesh.create_sub_device_manager([SubDevice([part]) for part in parts], LOCAL)


def test_a_sub_device_has_worker_cores_only():
    SubDevice([LEFT, cores()])
    with pytest.raises(RuntimeError, match="worker cores only"):
        SubDevice([LEFT, RIGHT])
    with pytest.raises(RuntimeError, match="Too many core types"):
        SubDevice([LEFT, cores(), cores()])
    with pytest.raises(TypeError, match="cores must be a list"):
        SubDevice(LEFT)


def test_managers_are_removed_unless_they_are_in_use(mesh, manager):
    with pytest.raises(RuntimeError, match="Cannot remove default sub device manager 0"):
        mesh.remove_sub_device_manager(mesh.get_default_sub_device_manager_id())
    mesh.load_sub_device_manager(manager)
    with pytest.raises(RuntimeError, match="Cannot remove active sub device manager"):
        mesh.remove_sub_device_manager(manager)
    mesh.clear_loaded_sub_device_manager()
    mesh.remove_sub_device_manager(manager)
    for use in (mesh.load_sub_device_manager, mesh.remove_sub_device_manager):
        with pytest.raises(RuntimeError, match="Sub device manager does not exist"):
            use(manager)


def test_a_manager_belongs_to_its_mesh(manager, device):
    with pytest.raises(RuntimeError, match="Sub device manager does not exist"):
        device.load_sub_device_manager(manager)
    with pytest.raises(TypeError, match="sub_device_manager_id must be"):
        device.load_sub_device_manager(0)
    with pytest.raises(TypeError, match="no constructor"):
        ttnn.SubDeviceManagerId()


def test_the_stall_group_is_all_sub_devices_until_it_is_set(loaded):
    loaded.set_sub_device_stall_group([SubDeviceId(1)])
    assert loaded.get_sub_device_stall_group() == [SubDeviceId(1)]
    loaded.reset_sub_device_stall_group()
    assert loaded.get_sub_device_stall_group() == [SubDeviceId(0), SubDeviceId(1)]
    with pytest.raises(RuntimeError, match="sub_device_ids to stall must not be empty"):
        loaded.set_sub_device_stall_group([])
    with pytest.raises(RuntimeError, match="SubDevice index 7 out of bounds 2"):
        loaded.set_sub_device_stall_group([SubDeviceId(7)])
    loaded.clear_loaded_sub_device_manager()
    with pytest.raises(RuntimeError, match="SubDevice index 7 out of bounds 1"):
        loaded.set_sub_device_stall_group([SubDeviceId(7)])


def test_two_queues_may_run_on_two_sub_devices(loaded):
    EnqueueMeshWorkload(loaded.mesh_command_queue(0), workload(loaded, LEFT), False)
    EnqueueMeshWorkload(loaded.mesh_command_queue(1), workload(loaded, RIGHT), False)
    with pytest.raises(RuntimeError, match="Sub device id 1 currently in use by cq 1"):
        EnqueueMeshWorkload(loaded.mesh_command_queue(0), workload(loaded, RIGHT), False)


def test_what_waits_for_one_sub_device_hands_over_that_one_only(loaded):
    for place in (LEFT, RIGHT):
        EnqueueMeshWorkload(loaded.mesh_command_queue(0), workload(loaded, place), False)
    Finish(loaded.mesh_command_queue(0), [SubDeviceId(0)])
    EnqueueMeshWorkload(loaded.mesh_command_queue(1), workload(loaded, LEFT), False)
    ttnn.wait_for_event(1, ttnn.record_event(loaded, 0, [SubDeviceId(0)]))
    with pytest.raises(RuntimeError, match="Sub device id 1 currently in use by cq 0"):
        EnqueueMeshWorkload(loaded.mesh_command_queue(1), workload(loaded, RIGHT), False)
    loaded.set_sub_device_stall_group([SubDeviceId(1)])
    ttnn.wait_for_event(1, ttnn.record_event(loaded, 0))
    EnqueueMeshWorkload(loaded.mesh_command_queue(1), workload(loaded, RIGHT), False)
    with pytest.raises(RuntimeError, match="SubDevice index 5 out of bounds 2"):
        ttnn.synchronize_device(loaded, 0, [SubDeviceId(5)])


def test_a_workload_runs_on_one_sub_device(loaded):
    queue = loaded.mesh_command_queue(0)
    with pytest.raises(RuntimeError, match=r"Programs must be executed on a single sub-device: .* use \[0, 1\]"):
        EnqueueMeshWorkload(queue, workload(loaded, LEFT, RIGHT), False)
    with pytest.raises(RuntimeError, match="Programs must be executed on a single sub-device"):
        EnqueueMeshWorkload(queue, workload(loaded, LEFT.merge(RIGHT)), False)
    with pytest.raises(RuntimeError, match="Kernel group cores do not match sub device cores"):
        EnqueueMeshWorkload(queue, workload(loaded, cores(((1, 1), (2, 1)))), False)


def test_a_workload_stays_with_the_manager_it_was_compiled_under(loaded, manager):
    made = workload(loaded, LEFT)
    EnqueueMeshWorkload(loaded.mesh_command_queue(0), made, True)
    loaded.clear_loaded_sub_device_manager()
    with pytest.raises(RuntimeError, match="was compiled under sub-device manager"):
        EnqueueMeshWorkload(loaded.mesh_command_queue(0), made, True)
    loaded.load_sub_device_manager(manager)
    EnqueueMeshWorkload(loaded.mesh_command_queue(0), made, True)


def test_quiescing_needs_the_default_manager_everywhere(loaded):
    with pytest.raises(RuntimeError, match="Cannot quiesce when non-default sub-device manager is active"):
        loaded.quiesce_devices()
    loaded.clear_loaded_sub_device_manager()
    child = loaded.create_submesh(MeshShape(1, 1))
    child.load_sub_device_manager(child.create_sub_device_manager([SubDevice([LEFT])], 0))
    with pytest.raises(RuntimeError, match="Cannot quiesce when non-default sub-device manager is active"):
        loaded.quiesce_devices()
    child.clear_loaded_sub_device_manager()
    loaded.quiesce_devices()


def test_a_closed_mesh_has_no_sub_devices(mesh):
    mesh.close()
    with pytest.raises(RuntimeError, match="is closed"):
        mesh.get_sub_device_ids()
