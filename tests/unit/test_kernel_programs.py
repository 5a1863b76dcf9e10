"""Programs as the host puts them together: what each part may be, how many there are, and what clashes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import CORE, add_cb, program_of, run

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    float32,
    float_bits,
    get_arg_val,
    get_common_arg_val,
    get_compile_time_arg_val,
    get_define,
    get_named_compile_time_arg_val,
    get_relative_logical_x,
    get_relative_logical_y,
    get_semaphore,
    int32_t,
    my_x,
    my_y,
    uint32_t,
)

LINE = ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 0))


def nothing():
    """A kernel that does nothing."""


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 200), st.booleans())
def test_work_is_shared_out_completely_and_evenly(x, y, units, row_wise):
    count, everyone, busier, others, most, fewest = ttnn.split_work_to_cores(ttnn.CoreCoord(x, y), units, row_wise)
    assert count == min(units, x * y) == everyone.num_cores()
    assert busier.num_cores() * most + others.num_cores() * fewest == units
    assert busier.num_cores() + others.num_cores() == count
    cores = ttnn.corerange_to_cores(busier) + ttnn.corerange_to_cores(others)
    assert len(set(cores)) == count
    assert others.empty() or most == fewest + 1


def test_an_empty_kernel_runs_on_every_device(mesh):
    ran = []
    program = metal.CreateProgram()
    kernel = metal.CreateKernel(program, lambda: ran.append(1), CORE, metal.ComputeConfig())
    metal.SetRuntimeArgs(program, kernel, CORE, [])
    run(mesh, program)
    assert ran == [1]  # once, for all eight devices


def test_a_second_kernel_on_the_same_core_and_processor_is_refused():
    program = program_of(reader=nothing, cores=LINE)
    message = r"Cannot create kernel nothing because core 2-0 already runs nothing on NCR"
    with pytest.raises(ttnn.MeshError, match=message):
        metal.CreateKernel(program, nothing, ttnn.CoreCoord(2, 0), metal.ReaderDataMovementConfig())
    metal.CreateKernel(program, nothing, ttnn.CoreCoord(2, 1), metal.ReaderDataMovementConfig())


def test_two_data_movement_kernels_of_a_core_use_different_nocs():
    program = program_of(reader=nothing)
    same = metal.DataMovementConfig(noc=ttnn.NOC.RISCV_0_default)
    with pytest.raises(ttnn.MeshError, match="cannot use the same NOC, doing so results in hangs"):
        metal.CreateKernel(program, nothing, CORE, same)
    reader = metal.CreateProgram()
    shared = metal.NOC_MODE.DM_DYNAMIC_NOC
    for processor in (ttnn.DataMovementProcessor.RISCV_0, ttnn.DataMovementProcessor.RISCV_1):
        metal.CreateKernel(reader, nothing, CORE, metal.DataMovementConfig(processor=processor, noc_mode=shared))


def test_a_core_has_two_processors_for_data():
    with pytest.raises(ttnn.ArgumentError, match="RISCV_0 and RISCV_1"):
        metal.DataMovementConfig(processor=ttnn.DataMovementProcessor.RISCV_5)


def test_a_kernel_in_cpp_is_answered_with_what_to_give_instead():
    program = metal.CreateProgram()
    with pytest.raises(ttnn.NotModelled, match=r"'kernels/reader.cpp' is a kernel in C\+\+.*Give a Python function"):
        metal.CreateKernel(program, "kernels/reader.cpp", CORE, metal.ComputeConfig())
    with pytest.raises(ttnn.NotModelled, match="Give a Python function"):
        metal.CreateKernelFromString(program, "void kernel_main() {}", CORE, metal.ComputeConfig())
    with pytest.raises(ttnn.ArgumentError, match="a kernel is a Python function"):
        metal.CreateKernel(program, 7, CORE, metal.ComputeConfig())


def test_a_kernel_is_called_without_arguments():
    message = r"missing a required argument: 'tiles'\): it asks for its own with get_arg"
    with pytest.raises(ttnn.ArgumentError, match=message):
        metal.CreateKernel(metal.CreateProgram(), lambda tiles: None, CORE, metal.ComputeConfig())


def test_cores_beyond_the_grid_are_refused_when_the_program_is_enqueued(device):
    program = program_of(reader=nothing, cores=ttnn.CoreCoord(8, 0))
    with pytest.raises(ttnn.MeshError, match=r"Kernel nothing is placed on \{\[8-0 - 8-0\]\}, beyond the 8 x 8"):
        run(device, program)


def test_arguments_arrive_as_words_and_can_be_read_as_other_types(device):
    seen = []

    def kernel():
        seen.append(get_arg_val(0))
        seen.append(get_arg_val[uint32_t](1))
        seen.append(get_arg_val[int32_t](1))
        seen.append(get_arg_val(2, type=float32))
        seen.append(get_common_arg_val(0))
        seen.append(get_compile_time_arg_val(1))
        seen.append(get_named_compile_time_arg_val("blocks"))
        seen.append(get_define("FAST"))
        seen.append(get_define("SLOW"))

    program = metal.CreateProgram()
    config = metal.ReaderDataMovementConfig([3, 4], {"blocks": 5}, {"FAST": "1"})
    handle = metal.CreateKernel(program, kernel, CORE, config)
    metal.SetRuntimeArgs(program, handle, CORE, [1, 0xFFFFFFFE, float_bits(0.5)])
    metal.SetCommonRuntimeArgs(program, handle, [9])
    run(device, program)
    assert seen == [1, 0xFFFFFFFE, -2, 0.5, 9, 4, 5, "1", None]


def test_each_core_has_its_own_arguments_and_place(device):
    seen = {}

    def kernel():
        place = get_relative_logical_x(), get_relative_logical_y(), my_x[0], my_y[0]
        seen[get_arg_val(0)] = place

    program = program_of(reader=kernel, cores=ttnn.CoreRange((1, 1), (2, 1)))
    cores = [ttnn.CoreCoord(1, 1), ttnn.CoreCoord(2, 1)]
    metal.SetRuntimeArgs(program, 0, cores, [[10], [20]])
    run(device, program)
    assert seen == {10: (0, 0, 19, 19), 20: (1, 0, 20, 19)}


def test_arguments_may_change_between_launches_but_not_their_number(device):
    seen = []
    program = program_of(reader=lambda: seen.append([get_arg_val(0), get_arg_val(1)]))
    metal.SetRuntimeArgs(program, 0, CORE, [1, 2])
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(device.shape), program)
    for _ in range(2):
        metal.EnqueueMeshWorkload(device.mesh_command_queue(), workload, blocking=False)
        metal.GetRuntimeArgs(program, 0, CORE)[1] = 7
    metal.SetRuntimeArgs(program, 0, CORE, [3, 4])
    metal.EnqueueMeshWorkload(device.mesh_command_queue(), workload, blocking=False)
    assert seen == [[1, 2], [1, 7], [3, 4]]
    message = "Number of runtime args must not change: this kernel was given 2 first, not 3"
    with pytest.raises(ttnn.MeshError, match=message):
        metal.SetRuntimeArgs(program, 0, CORE, [1, 2, 3])
    with pytest.raises(ttnn.MeshError, match="Number of runtime args must not change"):
        metal.GetRuntimeArgs(program, 0, CORE).append(5)


def test_341_words_are_taken_and_more_refused():
    program = program_of(reader=nothing)
    metal.SetCommonRuntimeArgs(program, 0, [0] * 41)
    metal.SetRuntimeArgs(program, 0, CORE, [0] * 300)
    other = program_of(reader=nothing)
    message = r"342 unique\+common runtime args targeting kernel nothing on 0-0 are too large"
    with pytest.raises(ttnn.MeshError, match=message):
        metal.SetRuntimeArgs(other, 0, CORE, [0] * 342)


@pytest.mark.parametrize("word", [-1, 2**32])
def test_a_word_has_32_bits(word):
    with pytest.raises(ttnn.ArgumentError, match=r"runtime_args\[0\] must fit 32 bits"):
        metal.SetRuntimeArgs(program_of(reader=nothing), 0, CORE, [word])


def test_arguments_for_a_core_without_the_kernel_are_refused():
    with pytest.raises(ttnn.MeshError, match="it is not placed on that core"):
        metal.SetRuntimeArgs(program_of(reader=nothing), 0, ttnn.CoreCoord(1, 0), [1])
    with pytest.raises(ttnn.MeshError, match="this program has 1 kernels, and none with handle 4"):
        metal.SetRuntimeArgs(program_of(reader=nothing), 4, CORE, [1])


def test_an_argument_that_is_not_there_is_named(device):
    def kernel():
        get_arg_val(2)

    with pytest.raises(ttnn.MeshError, match=r"get_arg_val\(2\): kernel has 0 runtime arguments on this core"):
        run(device, program_of(reader=kernel))


def test_a_circular_buffer_holds_whole_pages():
    config = metal.CircularBufferConfig(5000, {0: ttnn.bfloat16})
    message = "Total circular buffer size 5000 B must be divisible by page size 2048 B"
    with pytest.raises(ttnn.MeshError, match=message):
        config.set_page_size(0, 2048)
    with pytest.raises(ttnn.MeshError, match="Illegal circular buffer index 1"):
        config.set_page_size(1, 2500)
    with pytest.raises(ttnn.MeshError, match="index 0 has no page size"):
        metal.CreateCircularBuffer(metal.CreateProgram(), CORE, config)


def test_an_index_is_used_once_on_a_core():
    program = program_of(reader=nothing, cbs=[3])
    with pytest.raises(ttnn.MeshError, match="Invalid circular buffer index: Cannot add circular buffer at index 3"):
        add_cb(program, 3, cores=LINE)
    add_cb(program, 3, cores=ttnn.CoreCoord(1, 0))


def test_indexes_go_to_31_on_wormhole_and_to_63_on_blackhole(idle_machine):
    with pytest.raises(ttnn.MeshError, match=r"Buffer index \(64\) exceeds max number of circular buffers per core"):
        metal.CircularBufferConfig(2048, {64: ttnn.bfloat16})
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as wormhole:  # noqa: SIM117
        with pytest.raises(ttnn.MeshError, match=r"per core \(32\)"):
            run(wormhole, program_of(reader=nothing, cbs=[40]))
    ttnn.use_system("P150")
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as blackhole:
        run(blackhole, program_of(reader=nothing, cbs=[40]))


def test_buffers_that_do_not_fit_l1_are_refused(device):
    program = program_of(reader=nothing)
    add_cb(program, 0, 700)
    message = r"on core range \{\[0-0 - 0-0\]\} grow to 1539264 B which is beyond max L1 size of 1499136 B"
    with pytest.raises(ttnn.MeshError, match=message):
        run(device, program)


def test_buffers_that_reach_into_tensors_in_l1_are_refused_until_those_are_gone(device):
    program = program_of(reader=nothing)
    add_cb(program, 0, 600)
    tensor = ttnn.from_torch(
        torch.zeros(64, 1, 32, 32 * 100),
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=device,
        memory_config=ttnn.L1_MEMORY_CONFIG,
    )
    end, lowest = 105_664 + 600 * 2048, tensor.buffer_address()
    message = (
        r"clash with L1 buffers on core range \{\[0-0 - 0-0\]\}. "
        rf"L1 buffer allocated at {lowest} and static circular buffer region ends at {end}"
    )
    with pytest.raises(ttnn.MeshError, match=message):
        run(device, program)
    tensor.deallocate()
    run(device, program)


def test_buffers_clash_with_the_memory_of_their_own_sub_device_only(device):
    """Both sub-devices have some of the lowest L1; one of them has a buffer there."""
    corners = [ttnn.CoreRangeSet([ttnn.CoreRange((x, 0), (x, 0))]) for x in (0, 1)]
    manager = device.create_sub_device_manager([ttnn.SubDevice([cores]) for cores in corners], 4096)
    device.load_sub_device_manager(manager)
    sharding = metal.BufferShardingArgs(
        metal.ShardSpecBuffer(ttnn.ShardSpec(corners[0], [32, 32], ttnn.ShardOrientation.ROW_MAJOR), [32, 32], [1, 1]),
        ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
    )
    local = metal.DeviceLocalBufferConfig(
        page_size=2048,
        buffer_type=ttnn.BufferType.L1,
        sharding_args=sharding,
        sub_device_id=ttnn.SubDeviceId(0),
    )
    buffer = metal.MeshBuffer.create(metal.ReplicatedBufferConfig(2048), local, device)
    run(device, program_of(reader=nothing, cores=ttnn.CoreCoord(1, 0), cbs=[0]))
    with pytest.raises(ttnn.MeshError, match=rf"L1 buffer allocated at {buffer.address()} and static circular buffer"):
        run(device, program_of(reader=nothing, cores=ttnn.CoreCoord(0, 0), cbs=[0]))
    buffer.deallocate()
    device.clear_loaded_sub_device_manager()


def test_kernels_need_memory_with_addresses(monkeypatch, idle_machine):
    monkeypatch.setenv("SOFTMESH_MEMORY", "off")
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        program = program_of(reader=nothing)
        with pytest.raises(ttnn.MeshError, match="SOFTMESH_MEMORY=off gives none: set track or enforce"):
            run(mesh, program)


def test_a_core_has_16_semaphores():
    program = program_of(reader=nothing)
    assert [metal.CreateSemaphore(program, LINE, 0) for _ in range(16)] == list(range(16))
    with pytest.raises(ttnn.MeshError, match="a core has 16, ids 0 to 15"):
        metal.CreateSemaphore(program, ttnn.CoreCoord(3, 0), 0)
    assert metal.CreateSemaphore(program, ttnn.CoreCoord(4, 0), 0) == 0


def test_a_semaphore_of_other_cores_is_not_there(device):
    program = program_of(reader=lambda: get_semaphore(0))
    metal.CreateSemaphore(program, ttnn.CoreCoord(1, 0), 0)
    with pytest.raises(ttnn.MeshError, match=r"get_semaphore\(0\): core 0-0 has no semaphore 0; its ids: none"):
        run(device, program)


def test_nothing_is_added_to_a_program_that_has_run(device):
    program = program_of(reader=nothing)
    run(device, program)
    for add in (
        lambda: metal.CreateKernel(program, nothing, CORE, metal.ComputeConfig()),
        lambda: add_cb(program, 0),
        lambda: metal.CreateSemaphore(program, CORE, 0),
    ):
        with pytest.raises(ttnn.MeshError, match="it has been enqueued, and with that it is final"):
            add()


def test_sizes_of_circular_buffers_may_change_between_launches(device):
    program = program_of(reader=nothing)
    handle = add_cb(program, 0, 2)
    run(device, program)
    metal.UpdateCircularBufferTotalSize(program, handle, 4096 * 2)
    metal.UpdateCircularBufferPageSize(program, handle, 0, 4096)
    assert metal.GetCircularBufferConfig(program, handle).page_sizes == {0: 4096}
    with pytest.raises(ttnn.MeshError, match="must be divisible by page size 4096 B"):
        metal.UpdateCircularBufferTotalSize(program, handle, 5000)
