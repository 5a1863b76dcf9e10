"""generic_op: programs in TT-NN's words, run on tensors."""

from __future__ import annotations

import pytest
import torch
from kernel_programs import CORE, TILE_BYTES, shards, tiles

import softmesh as ttnn
from softmesh.kernels import (
    TensorAccessor,
    TensorAccessorArgs,
    add_init,
    add_tiles,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    compute_kernel_hw_startup,
    copy_tile,
    exp_tile,
    exp_tile_init,
    get_arg_val,
    get_common_arg_val,
    get_named_compile_time_arg_val,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    init_sfpu,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    noc_semaphore_set,
    noc_semaphore_wait,
    pack_tile,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
)
from softmesh.runtime.traces.trace_api import (
    begin_trace_capture,
    end_trace_capture,
    execute_trace,
    release_trace,
)


def read_two():
    first, count = get_arg_val(0), get_arg_val(1)
    args = TensorAccessorArgs(0)
    both = [TensorAccessor(args, get_common_arg_val(i)) for i in range(2)]
    for i in range(first, first + count):
        for index, source in enumerate(both):
            cb_reserve_back(index, 1)
            noc_async_read_tile(i, source, get_write_ptr(index))
            noc_async_read_barrier()
            cb_push_back(index, 1)


def add():
    compute_kernel_hw_startup(0, 1, 16)
    add_init(0, 1)
    for _ in range(get_arg_val(0)):
        cb_wait_front(0, 1)
        cb_wait_front(1, 1)
        tile_regs_acquire()
        add_tiles(0, 1, 0, 0, 0)
        tile_regs_commit()
        cb_pop_front(0, 1)
        cb_pop_front(1, 1)
        cb_reserve_back(16, 1)
        tile_regs_wait()
        pack_tile(0, 16)
        tile_regs_release()
        cb_push_back(16, 1)


def write_one():
    first, count = get_arg_val(0), get_arg_val(1)
    target = TensorAccessor(TensorAccessorArgs(0), get_common_arg_val(0))
    for i in range(first, first + count):
        cb_wait_front(16, 1)
        noc_async_write_tile(i, target, get_read_ptr(16))
        noc_async_write_barrier()
        cb_pop_front(16, 1)


def adding(a, b, output):
    """The tiles split over the cores of a chip."""
    count = output.spec.num_pages()
    _, cores, busier, others, most, fewest = ttnn.split_work_to_cores(ttnn.CoreCoord(4, 2), count)
    ranges, counts = ttnn.RuntimeArgs(), ttnn.RuntimeArgs()
    first = 0
    for group, each in ((busier, most), (others, fewest)):
        for core in ttnn.corerange_to_cores(group):
            ranges[core.x][core.y] = [first, each]
            counts[core.x][core.y] = [each]
            first += each
    pages = ttnn.TensorAccessorArgs(a).get_compile_time_args()
    return ttnn.ProgramDescriptor(
        kernels=[
            ttnn.KernelDescriptor(
                kernel_source=read_two,
                core_ranges=cores,
                compile_time_args=pages,
                runtime_args=ranges,
                common_runtime_args=[a.buffer_address(), b.buffer_address()],
                config=ttnn.ReaderConfigDescriptor(),
            ),
            ttnn.KernelDescriptor(
                kernel_source=write_one,
                core_ranges=cores,
                compile_time_args=pages,
                runtime_args=ranges,
                common_runtime_args=[output.buffer_address()],
                config=ttnn.WriterConfigDescriptor(),
            ),
            ttnn.KernelDescriptor(
                kernel_source=add,
                core_ranges=cores,
                runtime_args=counts,
                config=ttnn.ComputeConfigDescriptor(),
            ),
        ],
        cbs=[
            ttnn.CBDescriptor(
                total_size=2 * TILE_BYTES,
                core_ranges=cores,
                format_descriptors=[ttnn.CBFormatDescriptor(index, ttnn.bfloat16, TILE_BYTES)],
            )
            for index in (0, 1, 16)
        ],
    )


def test_work_is_split_over_cores_and_the_output_returned(mesh):
    values = torch.randn(8, 1, 32, 32 * 13)
    a = tiles(mesh, values, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    b = tiles(mesh, torch.randn(1, 1, 32, 32 * 13))
    output = tiles(mesh, torch.zeros(1, 1, 32, 32 * 13))
    returned = ttnn.generic_op([a, b, output], adding(a, b, output))
    assert returned is output
    expected = ttnn.add(a, b)
    assert all(map(torch.equal, shards(output), shards(expected)))


def test_ranges_of_the_mesh_run_programs_of_their_own(mesh):
    a, b = (tiles(mesh, torch.randn(1, 1, 32, 32)) for _ in range(2))
    output = tiles(mesh, torch.zeros(1, 1, 32, 32))
    top = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 3))
    bottom = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(1, 0), ttnn.MeshCoordinate(1, 2))
    programs = ttnn.MeshProgramDescriptor({top: adding(a, b, output)})
    programs[bottom] = adding(a, a, output)
    assert top in programs
    assert len(list(programs)) == 2
    ttnn.generic_op([a, b, output], programs)
    x, y, zero = shards(a)[0], shards(b)[0], torch.zeros(1, 1, 32, 32).bfloat16()
    for found, expected in zip(shards(output), [x + y] * 4 + [x + x] * 3 + [zero], strict=True):
        assert torch.equal(found, expected)
    programs[ttnn.MeshCoordinateRange(mesh.shape)] = adding(a, b, output)
    with pytest.raises(ttnn.MeshError, match="overlap: each device runs one program"):
        ttnn.generic_op([a, b, output], programs)


def test_a_trace_replays_an_op_of_ones_own_between_others(device):
    a = tiles(device, torch.full((1, 1, 32, 32), 2.0))
    output = tiles(device, torch.zeros(1, 1, 32, 32))

    def doubled_twice():
        b = ttnn.add(a, a)
        ttnn.generic_op([a, b, output], adding(a, b, output))
        return ttnn.add(output, a)

    with pytest.raises(ttnn.MeshError, match="generic_op with a program that never ran"):
        captured(device, lambda: ttnn.generic_op([a, a, output], adding(a, a, output)))
    doubled_twice()
    trace, result = captured(device, doubled_twice)
    fresh = ttnn.from_torch(torch.full((1, 1, 32, 32), 5.0), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    ttnn.copy_host_to_device_tensor(fresh, a)
    execute_trace(device, trace, blocking=True)
    assert ttnn.to_torch(output)[0, 0, 0, 0] == 15.0
    assert ttnn.to_torch(result)[0, 0, 0, 0] == 20.0
    release_trace(device, trace)


def captured(mesh, work):
    trace = begin_trace_capture(mesh)
    try:
        result = work()
    finally:
        end_trace_capture(mesh, trace)
    return trace, result


def in_place(count):
    def kernel():
        for _ in range(count):
            cb_reserve_back(0, 1)
            cb_push_back(0, 1)

    return kernel


def exponential():
    init_sfpu(0, 16)
    exp_tile_init()
    for _ in range(get_named_compile_time_arg_val("tiles")):
        cb_wait_front(0, 1)
        tile_regs_acquire()
        copy_tile(0, 0, 0)
        exp_tile(0)
        tile_regs_commit()
        cb_pop_front(0, 1)
        cb_reserve_back(16, 1)
        tile_regs_wait()
        pack_tile(0, 16)
        tile_regs_release()
        cb_push_back(16, 1)


def test_circular_buffers_are_the_shards_of_tensors(mesh):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (3, 0))])
    config = ttnn.create_sharded_memory_config(
        (64, 32), cores, ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    values = torch.randn(8, 1, 256, 32)
    a = tiles(mesh, values, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0), memory_config=config)
    output = tiles(mesh, torch.zeros(1, 1, 256, 32), memory_config=config)
    descriptor = ttnn.ProgramDescriptor(
        kernels=[
            ttnn.KernelDescriptor(
                kernel_source=in_place(2), core_ranges=cores, config=ttnn.DataMovementConfigDescriptor()
            ),
            ttnn.KernelDescriptor(
                kernel_source=exponential,
                core_ranges=cores,
                named_compile_time_args=[("tiles", 2)],
                config=ttnn.ComputeConfigDescriptor(math_fidelity=ttnn.MathFidelity.HiFi2, fp32_dest_acc_en=True),
            ),
        ],
        cbs=[
            ttnn.cb_descriptor_from_sharded_tensor(0, a),
            ttnn.cb_descriptor_from_sharded_tensor(16, output),
        ],
    )
    assert ttnn.get_cb_address(descriptor.cbs[0]) == a.buffer_address()
    ttnn.generic_op([a, output], descriptor)
    for found, each in zip(shards(output), values.bfloat16().split(1), strict=True):
        assert torch.equal(found, each.float().exp().bfloat16())


def test_semaphores_have_the_ids_they_are_given(device):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(CORE, CORE)])
    reached = []

    def waits():
        noc_semaphore_wait(get_semaphore(5), 3)
        reached.append(True)

    descriptor = ttnn.ProgramDescriptor(
        kernels=[
            ttnn.KernelDescriptor(kernel_source=waits, core_ranges=cores, config=ttnn.ReaderConfigDescriptor()),
            ttnn.KernelDescriptor(
                kernel_source=lambda: noc_semaphore_set(get_semaphore(5), 3),
                core_ranges=cores,
                config=ttnn.WriterConfigDescriptor(),
            ),
        ],
        semaphores=[ttnn.SemaphoreDescriptor(id=5, core_ranges=cores, initial_value=1)],
    )
    a, b = (tiles(device, torch.zeros(1, 1, 32, 32)) for _ in range(2))
    ttnn.generic_op([a, b], descriptor)
    assert reached == [True]
    descriptor.semaphores *= 2
    with pytest.raises(ttnn.MeshError, match="Semaphore id 5 is taken"):
        ttnn.generic_op([a, b], descriptor)


def test_a_cpp_kernel_is_answered_with_what_to_give_instead(device):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(CORE, CORE)])
    kernel = ttnn.KernelDescriptor(
        kernel_source="reader.cpp",
        source_type=ttnn.KernelDescriptor.SourceType.FILE_PATH,
        core_ranges=cores,
        config=ttnn.ReaderConfigDescriptor(),
    )
    a, b = (tiles(device, torch.zeros(1, 1, 32, 32)) for _ in range(2))
    with pytest.raises(ttnn.NotModelled, match=r"'reader.cpp' is a kernel in C\+\+.*Give a Python function"):
        ttnn.generic_op([a, b], ttnn.ProgramDescriptor([kernel]))


def test_tensors_must_be_on_one_mesh_and_at_least_two(device):
    a = tiles(device, torch.zeros(1, 1, 32, 32))
    message = "io_tensors must contain at least one input tensor and one output tensor"
    with pytest.raises(ttnn.MeshError, match=message):
        ttnn.generic_op([a], ttnn.ProgramDescriptor())
    host = ttnn.from_torch(torch.zeros(1, 1, 32, 32))
    with pytest.raises(ttnn.MeshError, match="all tensors must be on one mesh"):
        ttnn.generic_op([a, host], ttnn.ProgramDescriptor())
    with pytest.raises(ttnn.ArgumentError, match=r"program_descriptor must be a ttnn\.ProgramDescriptor"):
        ttnn.generic_op([a, a], "program")


def test_a_kernel_needs_a_config(device):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(CORE, CORE)])
    a = tiles(device, torch.zeros(1, 1, 32, 32))
    with pytest.raises(ttnn.ArgumentError, match="config must be a Reader-, Writer-, DataMovement- or Compute"):
        ttnn.generic_op([a, a], ttnn.ProgramDescriptor([ttnn.KernelDescriptor(add, core_ranges=cores)]))


def test_runtime_args_are_given_by_core():
    args = ttnn.RuntimeArgs()
    args[1][2] = [3, 4]
    args[1].append(2, 5)
    args.append(ttnn.CoreCoord(0, 0), [7])
    assert args[1][2] == [3, 4, 5]
    assert args.to_list() == [(ttnn.CoreCoord(1, 2), [3, 4, 5]), (ttnn.CoreCoord(0, 0), [7])]
    assert args.get(1) == (ttnn.CoreCoord(0, 0), [7])
    assert len(args) == 2
    nested = ttnn.KernelDescriptor(add, runtime_args=[[[1], [2]]])
    assert nested.runtime_args.to_list() == [(ttnn.CoreCoord(0, 0), [1]), (ttnn.CoreCoord(0, 1), [2])]


def test_arguments_of_kernel_descriptors_can_be_joined():
    cores = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 0))])
    one, other = ttnn.KernelDescriptor(add, core_ranges=cores), ttnn.KernelDescriptor(add, core_ranges=cores)
    one.extend_runtime_args_uniform([1])
    other.runtime_args = [(ttnn.CoreCoord(1, 0), [8])]
    other.common_runtime_args = [9]
    one.append_runtime_args_from(other)
    one.append_common_runtime_args_from(other)
    assert one.runtime_args.to_list() == [(ttnn.CoreCoord(0, 0), [1]), (ttnn.CoreCoord(1, 0), [1, 8])]
    assert one.common_runtime_args == [9]
    one.clear_runtime_args()
    assert len(one.runtime_args) == 0


def test_programs_are_merged_and_hashed_without_their_arguments(device):
    a, b, c = (tiles(device, torch.zeros(1, 1, 32, 32)) for _ in range(3))
    one, same = adding(a, b, c), adding(b, a, c)
    assert ttnn.compute_program_descriptor_hash(one) == ttnn.compute_program_descriptor_hash(same)
    merged = ttnn.merge_program_descriptors([one, ttnn.ProgramDescriptor(semaphores=[ttnn.SemaphoreDescriptor()])])
    assert len(merged.kernels) == 3
    assert ttnn.compute_program_descriptor_hash(merged) != ttnn.compute_program_descriptor_hash(one)
    merged.custom_program_hash = 5
    assert ttnn.compute_program_descriptor_hash(merged) == 5


def test_tiles_are_described_by_height_and_width():
    assert ttnn.TileDescriptor(16, 32) == ttnn.TileDescriptor(ttnn.Tile((16, 32)))
    assert ttnn.TileDescriptor(ttnn.TileDescriptor(16, 32)).height == 16
    assert ttnn.TileDescriptor() != ttnn.TileDescriptor(16, 32)
    assert ttnn.CBFormatDescriptor(0, ttnn.bfloat16, 2048).data_format_as_uint8 == 5


def test_an_op_of_ones_own_is_a_command_like_any_other(device):
    class Heard:
        commands = []

        def on_command(self, command):
            self.commands.append((command.name, len(command.inputs), len(command.outputs)))

    a, b, c = (tiles(device, torch.zeros(1, 1, 32, 32)) for _ in range(3))
    with ttnn.observe(Heard()) as heard:
        ttnn.generic_op([a, b, c], adding(a, b, c))
    assert heard.commands == [("generic_op", 2, 1)]
