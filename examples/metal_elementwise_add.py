"""c = a + b, one tile on each device of a 2x4 mesh: a reader, a compute kernel and a writer on one core.

softmesh run examples/metal_elementwise_add.py
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
    WriterDataMovementConfig,
)

TILE_BYTES = ttnn.tile_size(ttnn.bfloat16)
CORE = ttnn.CoreCoord(0, 0)
A, B, OUT = 0, 1, 16  # circular buffers


def read_tiles() -> None:
    a_address, b_address, tiles = (get_arg_val(i) for i in range(3))
    sources = [
        (A, TensorAccessor(TensorAccessorArgs(0), a_address)),
        (B, TensorAccessor(TensorAccessorArgs(0), b_address)),
    ]
    for tile in range(tiles):
        for cb, source in sources:
            cb_reserve_back(cb, 1)
            noc_async_read_tile(tile, source, get_write_ptr(cb))
        noc_async_read_barrier()
        for cb, _ in sources:
            cb_push_back(cb, 1)


def add() -> None:
    tiles = get_arg_val(0)
    compute_kernel_hw_startup(A, B, OUT)
    add_init(A, B)
    for _ in range(tiles):
        cb_wait_front(A, 1)
        cb_wait_front(B, 1)
        tile_regs_acquire()
        add_tiles(A, B, 0, 0, 0)
        tile_regs_commit()
        cb_pop_front(A, 1)
        cb_pop_front(B, 1)
        cb_reserve_back(OUT, 1)
        tile_regs_wait()
        pack_tile(0, OUT)
        tile_regs_release()
        cb_push_back(OUT, 1)


def write_tiles() -> None:
    c_address, tiles = (get_arg_val(i) for i in range(2))
    target = TensorAccessor(TensorAccessorArgs(0), c_address)
    for tile in range(tiles):
        cb_wait_front(OUT, 1)
        noc_async_write_tile(tile, target, get_read_ptr(OUT))
        noc_async_write_barrier()
        cb_pop_front(OUT, 1)


def program_for(a: MeshBuffer, b: MeshBuffer, c: MeshBuffer) -> Program:
    program = CreateProgram()
    for cb in (A, B, OUT):
        config = CircularBufferConfig(2 * TILE_BYTES, {cb: DataFormat.Float16_b}).set_page_size(cb, TILE_BYTES)
        CreateCircularBuffer(program, CORE, config)
    accessor = ttnn.TensorAccessorArgs(a).get_compile_time_args()
    reader = CreateKernel(program, read_tiles, CORE, ReaderDataMovementConfig(compile_args=accessor))
    writer = CreateKernel(program, write_tiles, CORE, WriterDataMovementConfig(compile_args=accessor))
    compute = CreateKernel(program, add, CORE, ComputeConfig(math_fidelity=ttnn.MathFidelity.HiFi4))
    SetRuntimeArgs(program, reader, CORE, [a.address(), b.address(), 1])
    SetRuntimeArgs(program, compute, CORE, [1])
    SetRuntimeArgs(program, writer, CORE, [c.address(), 1])
    return program


with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    devices = mesh.get_num_devices()
    whole = Shape2D(32 * mesh.shape[0], 32 * mesh.shape[1])
    on_each = DeviceLocalBufferConfig(page_size=TILE_BYTES, buffer_type=ttnn.BufferType.DRAM, bottom_up=False)
    config = ShardedBufferConfig(
        global_size=devices * TILE_BYTES, global_buffer_shape=whole, shard_shape=Shape2D(32, 32)
    )
    a, b, c = (MeshBuffer.create(config, on_each, mesh) for _ in range(3))

    torch.manual_seed(0)
    of_a = torch.rand(devices * 1024).to(torch.bfloat16)
    of_b = torch.full((devices * 1024,), 0.5, dtype=torch.bfloat16)
    queue = mesh.mesh_command_queue()
    EnqueueWriteMeshBuffer(queue, a, of_a)
    EnqueueWriteMeshBuffer(queue, b, of_b)

    workload = MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program_for(a, b, c))
    EnqueueMeshWorkload(queue, workload, blocking=False)
    of_c = EnqueueReadMeshBuffer(queue, None, c, blocking=True).view(torch.bfloat16)

    right = int(torch.isclose(of_c, of_a + 0.5).sum())
    print(f"{right} of {len(of_c)} values are right")
    if right != len(of_c):
        raise SystemExit("the sum is wrong")
