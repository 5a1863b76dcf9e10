"""Two queues, two sub-devices, one trace: inputs go in on queue 1 while queue 0 replays what it recorded.

softmesh run examples/metal_trace_and_events.py

Sub-device 1 adds on all devices; sub-device 2 multiplies on the top row of the mesh and subtracts on the bottom row.
Both workloads are recorded once. Events keep the queues in step: queue 0 waits for the inputs, queue 1 for the results.
"""

import torch
import ttnn

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
    get_arg_val,
    get_read_ptr,
    get_write_ptr,
    mul_init,
    mul_tiles,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    pack_tile,
    sub_init,
    sub_tiles,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
)
from softmesh.metal import (
    CircularBufferConfig,
    ComputeConfig,
    CreateCircularBuffer,
    CreateKernel,
    CreateProgram,
    DataFormat,
    DeviceLocalBufferConfig,
    EnqueueMeshWorkload,
    EnqueueReadMeshBuffer,
    EnqueueWriteMeshBuffer,
    MeshBuffer,
    MeshWorkload,
    Program,
    ReaderDataMovementConfig,
    SetRuntimeArgs,
    Shape2D,
    ShardedBufferConfig,
    SubDevice,
    WriterDataMovementConfig,
    begin_mesh_trace,
    end_mesh_trace,
    release_mesh_trace,
    replay_mesh_trace,
)

TILES = 2048  # on each device
BLOCK = 8  # tiles that move together
TILE_BYTES = ttnn.tile_size(ttnn.bfloat16)
A, B, OUT = 0, 1, 16  # circular buffers
ADDER, OTHER = ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 1)  # the one core of each sub-device


def read_blocks() -> None:
    sources = [(A, get_arg_val(0)), (B, get_arg_val(1))]
    for first in range(0, TILES, BLOCK):
        for cb, address in sources:
            cb_reserve_back(cb, BLOCK)
            source = TensorAccessor(TensorAccessorArgs(0), address)
            for i in range(BLOCK):
                noc_async_read_tile(first + i, source, get_write_ptr(cb) + i * TILE_BYTES)
        noc_async_read_barrier()
        for cb, _ in sources:
            cb_push_back(cb, BLOCK)


def write_blocks() -> None:
    target = TensorAccessor(TensorAccessorArgs(0), get_arg_val(0))
    for first in range(0, TILES, BLOCK):
        cb_wait_front(OUT, BLOCK)
        for i in range(BLOCK):
            noc_async_write_tile(first + i, target, get_read_ptr(OUT) + i * TILE_BYTES)
        noc_async_write_barrier()
        cb_pop_front(OUT, BLOCK)


def computing(init, combine):
    """The compute kernel of one operation."""

    def compute() -> None:
        compute_kernel_hw_startup(A, B, OUT)
        init(A, B)
        for _ in range(0, TILES, BLOCK):
            cb_wait_front(A, BLOCK)
            cb_wait_front(B, BLOCK)
            cb_reserve_back(OUT, BLOCK)
            tile_regs_acquire()
            for i in range(BLOCK):
                combine(A, B, i, i, i)
            tile_regs_commit()
            tile_regs_wait()
            for i in range(BLOCK):
                pack_tile(i, OUT)
            tile_regs_release()
            cb_pop_front(A, BLOCK)
            cb_pop_front(B, BLOCK)
            cb_push_back(OUT, BLOCK)

    return compute


def program_of(compute, core: ttnn.CoreCoord, a: MeshBuffer, b: MeshBuffer, out: MeshBuffer) -> Program:
    program = CreateProgram()
    for cb in (A, B, OUT):
        config = CircularBufferConfig(2 * BLOCK * TILE_BYTES, {cb: DataFormat.Float16_b}).set_page_size(cb, TILE_BYTES)
        CreateCircularBuffer(program, core, config)
    accessor = ttnn.TensorAccessorArgs(a).get_compile_time_args()
    reader = CreateKernel(program, read_blocks, core, ReaderDataMovementConfig(compile_args=accessor))
    writer = CreateKernel(program, write_blocks, core, WriterDataMovementConfig(compile_args=accessor))
    CreateKernel(program, compute, core, ComputeConfig())
    SetRuntimeArgs(program, reader, core, [a.address(), b.address()])
    SetRuntimeArgs(program, writer, core, [out.address()])
    return program


def only(core: ttnn.CoreCoord) -> ttnn.CoreRangeSet:
    return ttnn.CoreRangeSet([ttnn.CoreRange(core, core)])


with ttnn.open_mesh_device(
    ttnn.MeshShape(2, 4),
    num_command_queues=2,
    trace_region_size=16 << 20,
    dispatch_core_config=ttnn.DispatchCoreConfig(ttnn.DispatchCoreType.ETH),
) as mesh:
    manager = mesh.create_sub_device_manager([SubDevice([only(ADDER)]), SubDevice([only(OTHER)])], 3200)
    mesh.load_sub_device_manager(manager)

    rows, columns = mesh.shape
    whole = Shape2D(TILES * 32 * mesh.get_num_devices(), 32)
    on_each = DeviceLocalBufferConfig(page_size=TILE_BYTES, buffer_type=ttnn.BufferType.DRAM, bottom_up=True)
    size = whole.height * whole.width * 2
    config = ShardedBufferConfig(global_size=size, global_buffer_shape=whole, shard_shape=Shape2D(TILES * 32, 32))
    x, y, sums, u, v, others = (MeshBuffer.create(config, on_each, mesh) for _ in range(6))

    everywhere = ttnn.MeshCoordinateRange(mesh.shape)
    top = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, columns - 1))
    bottom = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(1, 0), ttnn.MeshCoordinate(1, columns - 1))
    adding, mixed = MeshWorkload(), MeshWorkload()
    adding.add_program(everywhere, program_of(computing(add_init, add_tiles), ADDER, x, y, sums))
    mixed.add_program(top, program_of(computing(mul_init, mul_tiles), OTHER, u, v, others))
    mixed.add_program(bottom, program_of(computing(sub_init, sub_tiles), OTHER, u, v, others))

    compute_queue, io_queue = mesh.mesh_command_queue(0), mesh.mesh_command_queue(1)
    for workload in (adding, mixed):  # once, so that their kernels are on the devices
        EnqueueMeshWorkload(compute_queue, workload, blocking=True)
    trace = begin_mesh_trace(compute_queue)
    for workload in (adding, mixed):
        EnqueueMeshWorkload(compute_queue, workload, blocking=False)
    end_mesh_trace(compute_queue, trace)

    for buffer, value in ((x, 2.0), (y, 3.0), (u, 7.0), (v, 5.0)):
        EnqueueWriteMeshBuffer(io_queue, buffer, torch.full((size // 2,), value, dtype=torch.bfloat16))
    written = io_queue.enqueue_record_event()
    compute_queue.enqueue_wait_for_event(written)
    replay_mesh_trace(compute_queue, trace, blocking=False)
    computed = compute_queue.enqueue_record_event()
    io_queue.enqueue_wait_for_event(computed)
    added = EnqueueReadMeshBuffer(io_queue, None, sums, blocking=True).view(torch.bfloat16)
    mixture = EnqueueReadMeshBuffer(io_queue, None, others, blocking=True).view(torch.bfloat16)
    release_mesh_trace(compute_queue, trace)

    half = len(mixture) // 2
    assert (added == 5).all(), "2 + 3 is not 5 everywhere"
    assert (mixture[:half] == 35).all(), "7 * 5 is not 35 on the whole top row"
    assert (mixture[half:] == 2).all(), "7 - 5 is not 2 on the whole bottom row"
    print(f"replayed on {rows}x{columns} devices: 2 + 3 = 5 everywhere, 7 * 5 = 35 on the top row, 7 - 5 = 2 below")
