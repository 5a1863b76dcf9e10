"""Programs on ranges of a mesh: one run for all devices where it can be, and the same results either way."""

from __future__ import annotations

import pytest
import torch
from kernel_programs import CORE, TILE_BYTES, add_cb, compute_on, program_of, run, shards, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    L1Pointer,
    TensorAccessor,
    TensorAccessorArgs,
    add_init,
    add_tiles,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    compute_kernel_hw_startup,
    get_arg_val,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    pack_tile,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
)

COUNTED = []


def add():
    COUNTED.append(1)
    compute_kernel_hw_startup(0, 1, 16)
    add_init(0, 1)
    cb_wait_front(0, 1)
    cb_wait_front(1, 1)
    cb_reserve_back(16, 1)
    tile_regs_acquire()
    add_tiles(0, 1, 0, 0, 0)
    tile_regs_commit()
    tile_regs_wait()
    pack_tile(0, 16)
    tile_regs_release()
    cb_push_back(16, 1)


def each_its_own(mesh, dim=0):
    """A tile on each device, all different; and what they hold."""
    count = mesh.get_num_devices()
    values = torch.randn(count, 1, 32, 32)
    tensor = tiles(mesh, values, ttnn.float32, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=dim))
    return tensor, list(values.split(1))


@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (4, 8)])
def test_a_kernel_runs_once_however_many_devices_there_are(shape):
    COUNTED.clear()
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        a, own = each_its_own(mesh)
        shared = torch.randn(1, 1, 32, 32)
        b = tiles(mesh, shared, ttnn.float32)
        found = compute_on(mesh, add, [a, b], tiles(mesh, torch.zeros(1, 1, 32, 32), ttnn.float32))
    assert len(COUNTED) == 1
    assert len(found) == shape[0] * shape[1]
    assert all(torch.equal(sum_, each + shared) for sum_, each in zip(found, own, strict=True))


def test_values_that_all_devices_share_stay_stored_once(mesh):
    a, b = (tiles(mesh, torch.randn(1, 1, 32, 32), ttnn.float32) for _ in range(2))
    output = tiles(mesh, torch.zeros(1, 1, 32, 32), ttnn.float32)
    compute_on(mesh, add, [a, b], output)
    assert output.view_data().shape[:2] == (1, 1)
    assert ttnn.placements(output) == (ttnn.Replicate(), ttnn.Replicate())


def copy_first_tile(source, target):
    def kernel():
        cb_reserve_back(0, 1)
        noc_async_read_tile(0, InterleavedAddrGen(source.buffer_address(), 4096), get_write_ptr(0))
        noc_async_read_barrier()
        noc_async_write_tile(0, InterleavedAddrGen(target.buffer_address(), 4096), get_write_ptr(0))
        noc_async_write_barrier()

    program = program_of(reader=kernel)
    add_cb(program, 0, 1, page_size=4096)
    return program


def test_each_launch_reads_what_a_tensor_holds_by_then(mesh):
    source, target = (tiles(mesh, torch.zeros(1, 1, 32, 32), ttnn.float32) for _ in range(2))
    copy, back = copy_first_tile(source, target), copy_first_tile(target, source)
    run(mesh, copy)
    for step in (1.0, 2.0):
        new = ttnn.from_torch(torch.full((1, 1, 32, 32), step), dtype=ttnn.float32, layout=ttnn.TILE_LAYOUT)
        ttnn.copy_host_to_device_tensor(new, source)
        run(mesh, copy)
        assert all((found == step).all() for found in shards(target))
        ttnn.add(target, 10.0, output_tensor=target)
        run(mesh, back)
        assert all((found == step + 10).all() for found in shards(source))


@pytest.mark.parametrize("devices", [1, 4])
def test_a_launch_that_fails_leaves_tensors_as_they_were(mesh, devices):
    target = tiles(mesh, torch.ones(1, 1, 32, 32), ttnn.float32)
    result = tiles(mesh, torch.zeros(1, 1, 32, 32), ttnn.float32)

    def write_and_fail():
        cb_reserve_back(0, 1)
        L1Pointer(get_write_ptr(0))[0:1024] = 0
        noc_async_write_tile(0, InterleavedAddrGen(target.buffer_address(), 4096), get_write_ptr(0))
        noc_async_write_barrier()
        raise ValueError("too late")

    program = program_of(reader=write_and_fail)
    add_cb(program, 0, 1, page_size=4096)
    where = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, devices - 1))
    run(mesh, copy_first_tile(target, result))
    with pytest.raises(ttnn.MeshError, match="too late"):
        run(mesh, program, where)
    assert all((found == 1).all() for found in shards(target))
    run(mesh, copy_first_tile(target, result))
    assert all((found == 1).all() for found in shards(result))


def test_devices_outside_the_range_keep_what_they_have(mesh):
    a, own = each_its_own(mesh)
    target = tiles(mesh, torch.zeros(1, 1, 32, 32), ttnn.float32)
    part = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 1), ttnn.MeshCoordinate(1, 2))
    run(mesh, copy_first_tile(a, target), part)
    for i, found in enumerate(shards(target)):
        inside = i % 4 in (1, 2)
        assert torch.equal(found, own[i] if inside else torch.zeros(1, 1, 32, 32))


def test_ranges_of_one_workload_run_different_programs(mesh):
    a, own = each_its_own(mesh)
    b, other = each_its_own(mesh)
    target = tiles(mesh, torch.zeros(1, 1, 32, 32), ttnn.float32)
    workload = metal.MeshWorkload()
    for row, source in enumerate((a, b)):
        corners = ttnn.MeshCoordinate(row, 0), ttnn.MeshCoordinate(row, 3)
        workload.add_program(ttnn.MeshCoordinateRange(*corners), copy_first_tile(source, target))
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)
    expected = own[:4] + other[4:]
    assert all(map(torch.equal, shards(target), expected))


def count_of_ones():
    """Reads one number from a tensor: how many tiles to fill with ones."""
    COUNTED.append(1)
    numbers, target = InterleavedAddrGen(get_arg_val(0), 64), InterleavedAddrGen(get_arg_val(1), TILE_BYTES)
    cb_reserve_back(0, 1)
    noc_async_read_tile(0, numbers, get_write_ptr(0))
    noc_async_read_barrier()
    count = L1Pointer(get_write_ptr(0))[0]
    L1Pointer(get_write_ptr(0))[0 : TILE_BYTES // 4] = 0x3F803F80
    for i in range(count):
        noc_async_write_tile(i, target, get_write_ptr(0))
    noc_async_write_barrier()


def ones_on(mesh, numbers):
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    held = ttnn.from_torch(numbers, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, mesh_mapper=mapper)
    target = tiles(mesh, torch.zeros(1, 1, 32, 32 * 8))
    program = program_of(reader=count_of_ones, cbs=[0])
    metal.SetRuntimeArgs(program, 0, CORE, [held.buffer_address(), target.buffer_address()])
    return program, target, held


def test_a_number_that_differs_between_devices_makes_each_run_for_itself(mesh):
    numbers = torch.arange(8, dtype=torch.int32).reshape(8, 1).expand(8, 16).contiguous()
    program, target, _numbers = ones_on(mesh, numbers)
    COUNTED.clear()
    run(mesh, program)
    assert len(COUNTED) == 1 + 8  # once for all until the number was read, then for each
    for i, found in enumerate(shards(target)):
        assert found[0, 0, 0, ::32].tolist() == [1.0] * i + [0.0] * (8 - i)
    COUNTED.clear()
    run(mesh, program)
    assert len(COUNTED) == 8  # the program remembers


def test_a_number_that_all_devices_share_does_not(mesh):
    program, target, _numbers = ones_on(mesh, torch.full((8, 16), 3, dtype=torch.int32))
    COUNTED.clear()
    run(mesh, program)
    assert len(COUNTED) == 1
    assert all(found[0, 0, 0, ::32].tolist() == [1.0] * 3 + [0.0] * 5 for found in shards(target))


def test_what_was_written_before_devices_differed_is_put_back(mesh):
    """The kernel doubles a tile in place, then reads a number that differs: the tile is doubled once."""
    numbers = torch.arange(8, dtype=torch.int32).reshape(8, 1).expand(8, 16).contiguous()
    held = ttnn.from_torch(
        numbers,
        dtype=ttnn.uint32,
        layout=ttnn.ROW_MAJOR_LAYOUT,
        device=mesh,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
    )
    target = ttnn.from_torch(torch.full((1, 16), 5, dtype=torch.int32), dtype=ttnn.uint32, device=mesh)

    def kernel():
        cb_reserve_back(0, 1)
        value = L1Pointer(get_write_ptr(0))
        place = InterleavedAddrGen(target.buffer_address(), 64)
        noc_async_read_tile(0, place, get_write_ptr(0))
        noc_async_read_barrier()
        value[0] = 2 * value[0]
        noc_async_write_tile(0, place, get_write_ptr(0))
        noc_async_write_barrier()
        noc_async_read_tile(0, InterleavedAddrGen(held.buffer_address(), 64), get_write_ptr(0))
        noc_async_read_barrier()
        assert value[0] < 8

    run(mesh, program_of(reader=kernel, cbs=[0]))
    assert [int(found[0, 0]) for found in shards(target)] == [10] * 8


@pytest.mark.parametrize("layout", [ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT])
@pytest.mark.parametrize("pages", [1, 3])
def test_two_tensors_change_places_in_one_launch(mesh, layout, pages):
    mapper = ttnn.ShardTensorToMesh(mesh, dim=0)
    height = 32 * pages if layout == ttnn.TILE_LAYOUT else pages
    values = [torch.randn(8 * height, 32) for _ in range(2)]
    one, other = (
        ttnn.from_torch(each, dtype=ttnn.float32, layout=layout, device=mesh, mesh_mapper=mapper) for each in values
    )
    size = 4096 if layout == ttnn.TILE_LAYOUT else 128

    def kernel():
        places = [InterleavedAddrGen(tensor.buffer_address(), size) for tensor in (one, other)]
        here = [get_write_ptr(0), get_write_ptr(0) + size]
        for page in range(pages):
            for place, to in zip(places, here, strict=True):
                noc_async_read_tile(page, place, to)
            noc_async_read_barrier()
            for place, start in zip(reversed(places), here, strict=True):
                noc_async_write_tile(page, place, start)
            noc_async_write_barrier()

    program = program_of(reader=kernel)
    add_cb(program, 0, 2, page_size=size)
    for _ in range(3):
        run(mesh, program)
    assert torch.equal(torch.cat(shards(one)), values[1])
    assert torch.equal(torch.cat(shards(other)), values[0])


def numbered_buffer(mesh, pages):
    """On all devices the numbers from 0 on, 16 to a page; and a queue."""
    local = metal.DeviceLocalBufferConfig(page_size=64, buffer_type=ttnn.BufferType.DRAM)
    buffer = metal.MeshBuffer.create(metal.ReplicatedBufferConfig(size=64 * pages), local, mesh)
    queue = mesh.mesh_command_queue()
    metal.EnqueueWriteMeshBuffer(queue, buffer, torch.arange(16 * pages, dtype=torch.int32))
    return buffer, queue


def test_a_launch_that_fails_leaves_buffers_as_they_were(mesh):
    buffer, queue = numbered_buffer(mesh, pages=4)

    def kernel():
        cb_reserve_back(0, 1)
        L1Pointer(get_write_ptr(0))[0:16] = 7
        noc_async_write_tile(2, InterleavedAddrGen(buffer.address(), 64), get_write_ptr(0))
        noc_async_write_barrier()
        raise ValueError("too late")

    with pytest.raises(ttnn.MeshError, match="too late"):
        run(mesh, program_of(reader=kernel, cbs=[0]))
    found = torch.zeros(64, dtype=torch.int32)
    metal.ReadShard(queue, found, buffer, ttnn.MeshCoordinate(1, 3))
    assert torch.equal(found, torch.arange(64, dtype=torch.int32))


def test_a_kernel_writes_the_tensor_and_not_what_the_tensor_was_made_of(device):
    """Values that came from torch without a copy stay the user's."""
    values = torch.full((2, 16), 5, dtype=torch.int32)
    tensor = ttnn.from_torch(values, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)

    def kernel():
        cb_reserve_back(0, 1)
        L1Pointer(get_write_ptr(0))[0:16] = 1
        noc_async_write_tile(1, InterleavedAddrGen(tensor.buffer_address(), 64), get_write_ptr(0))
        noc_async_write_barrier()

    run(device, program_of(reader=kernel, cbs=[0]))
    assert ttnn.to_torch(tensor).tolist() == [[5] * 16, [1] * 16]
    assert torch.equal(values, torch.full((2, 16), 5, dtype=torch.int32))


def test_mesh_buffers_are_read_and_written_as_tensors_are(mesh):
    buffer, queue = numbered_buffer(mesh, pages=20)

    def kernel():
        cb_reserve_back(0, 1)
        place = TensorAccessor(TensorAccessorArgs(0), buffer.address())
        noc_async_read_tile(19, place, get_write_ptr(0))
        noc_async_read_barrier()
        noc_async_write_tile(0, place, get_write_ptr(0))
        noc_async_write_barrier()

    program = metal.CreateProgram()
    words = metal.TensorAccessorArgs(buffer).get_compile_time_args()
    metal.CreateKernel(program, kernel, CORE, metal.ReaderDataMovementConfig(words))
    add_cb(program, 0)
    run(mesh, program)
    found = torch.zeros(320, dtype=torch.int32)
    metal.ReadShard(queue, found, buffer, ttnn.MeshCoordinate(1, 3))
    assert found[:16].tolist() == list(range(304, 320))
    assert found[16:].tolist() == list(range(16, 320))


def test_a_frozen_workload_keeps_the_arguments_it_had(device):
    """What a trace replays."""
    seen = []
    program = program_of(reader=lambda: seen.append(get_arg_val(0)))
    metal.SetRuntimeArgs(program, 0, CORE, [1])
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(device.shape), program)
    queue = device.mesh_command_queue()
    metal.EnqueueMeshWorkload(queue, workload, blocking=True)
    frozen = workload.frozen()
    metal.SetRuntimeArgs(program, 0, CORE, [2])
    metal.EnqueueMeshWorkload(queue, frozen, blocking=True)
    metal.EnqueueMeshWorkload(queue, workload, blocking=True)
    assert seen == [1, 1, 2]


def test_observers_hear_what_a_launch_read_and_wrote(device):
    class Heard:
        commands = []

        def on_command(self, command):
            self.commands.append(command)

    a, b = (tiles(device, torch.randn(1, 1, 32, 32), ttnn.float32) for _ in range(2))
    output = tiles(device, torch.zeros(1, 1, 32, 32), ttnn.float32)
    with ttnn.observe(Heard()) as heard:
        compute_on(device, add, [a, b], output)
    (launch,) = (one for one in heard.commands if one.name == "enqueue_mesh_workload")
    assert {access.memory.address for access in launch.reads} == {a.buffer_address(), b.buffer_address()}
    assert [access.memory.address for access in launch.writes] == [output.buffer_address()]
