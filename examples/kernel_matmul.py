"""A matrix product over 16 cores of every device, the blocks of both operands shared by multicast.

softmesh run examples/kernel_matmul.py

Core (x, y) computes block (y, x) of the result. It needs row y of A's blocks and column x of B's: the first core of
each row reads A from DRAM and multicasts it along the row, the first core of each column does the same with B. Two
semaphores keep them in step: receivers say that they have room, the sender says that the data is there.
"""

import torch
import ttnn

from softmesh.kernels import (
    INVALID,
    VALID,
    TensorAccessor,
    TensorAccessorArgs,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    compute_kernel_hw_startup,
    get_absolute_logical_x,
    get_absolute_logical_y,
    get_arg_val,
    get_noc_addr,
    get_noc_multicast_addr,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    matmul_block,
    matmul_init,
    my_x,
    my_y,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_multicast,
    noc_async_write_tile,
    noc_async_writes_flushed,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_set_multicast,
    noc_semaphore_wait,
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
    CreateSemaphore,
    DataFormat,
    EnqueueMeshWorkload,
    MeshWorkload,
    ReaderDataMovementConfig,
    SetRuntimeArgs,
    WriterDataMovementConfig,
)

GRID = 4  # cores in a row, and in a column
BLOCK = 2  # tiles along each side of a block of the result
STEPS, STEP = 2, 2  # the inner dim: so many steps of so many tiles
TILE_BYTES = ttnn.tile_size(ttnn.bfloat16)
A, B, C = 0, 1, 16  # circular buffers
CORES = ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(GRID - 1, GRID - 1))


def fill(cb: int, tensor: TensorAccessor, tiles: list[int]) -> None:
    """Read tiles into the window at the back of a circular buffer."""
    for i, tile in enumerate(tiles):
        noc_async_read_tile(tile, tensor, get_write_ptr(cb) + i * TILE_BYTES)
    noc_async_read_barrier()


def send(cb: int, tiles: int, line: tuple[int, int, int, int], have_room: int, is_there: int) -> None:
    """Multicast the window at the back to the other cores of a line, once all of them have room."""
    noc_semaphore_wait(have_room, GRID - 1)
    noc_semaphore_set(have_room, 0)
    window = get_write_ptr(cb)
    noc_async_write_multicast(window, get_noc_multicast_addr(*line, window), tiles * TILE_BYTES, GRID - 1)
    noc_async_writes_flushed()
    noc_semaphore_set(is_there, VALID)
    noc_semaphore_set_multicast(is_there, get_noc_multicast_addr(*line, is_there), GRID - 1)


def receive(sender: tuple[int, int], have_room: int, is_there: int) -> None:
    """Tell the sender that there is room, and wait for what it sends."""
    noc_semaphore_set(is_there, INVALID)
    noc_semaphore_inc(get_noc_addr(*sender, have_room), 1)
    noc_semaphore_wait(is_there, VALID)


def bring_a() -> None:
    """Row y of A's blocks, from the first core of the row to all of it."""
    address, first_x, last_x, have_room, is_there = (get_arg_val(i) for i in range(5))
    have_room, is_there = get_semaphore(have_room), get_semaphore(is_there)
    a = TensorAccessor(TensorAccessorArgs(0), address)
    top, columns = get_absolute_logical_y() * BLOCK, STEPS * STEP
    for step in range(STEPS):
        cb_reserve_back(A, BLOCK * STEP)
        if get_absolute_logical_x() == 0:
            rows, inner = range(top, top + BLOCK), range(step * STEP, (step + 1) * STEP)
            fill(A, a, [row * columns + k for row in rows for k in inner])
            send(A, BLOCK * STEP, (first_x, my_y[0], last_x, my_y[0]), have_room, is_there)
        else:
            receive((first_x, my_y[0]), have_room, is_there)
        cb_push_back(A, BLOCK * STEP)


def bring_b_and_take_c() -> None:
    """Column x of B's blocks, from the first core of the column to all of it; and the result out."""
    address, first_y, last_y, have_room, is_there, result = (get_arg_val(i) for i in range(6))
    have_room, is_there = get_semaphore(have_room), get_semaphore(is_there)
    args = TensorAccessorArgs(0)
    b, c = TensorAccessor(args, address), TensorAccessor(args, result)
    left, columns = get_absolute_logical_x() * BLOCK, GRID * BLOCK
    across = range(left, left + BLOCK)
    for step in range(STEPS):
        cb_reserve_back(B, STEP * BLOCK)
        if get_absolute_logical_y() == 0:
            fill(
                B,
                b,
                [k * columns + column for k in range(step * STEP, (step + 1) * STEP) for column in across],
            )
            send(B, STEP * BLOCK, (my_x[0], first_y, my_x[0], last_y), have_room, is_there)
        else:
            receive((my_x[0], first_y), have_room, is_there)
        cb_push_back(B, STEP * BLOCK)
    cb_wait_front(C, BLOCK * BLOCK)
    top = get_absolute_logical_y() * BLOCK
    places = [row * columns + column for row in range(top, top + BLOCK) for column in across]
    for i, place in enumerate(places):
        noc_async_write_tile(place, c, get_read_ptr(C) + i * TILE_BYTES)
    noc_async_write_barrier()
    cb_pop_front(C, BLOCK * BLOCK)


def multiply() -> None:
    compute_kernel_hw_startup(A, B, C)
    matmul_init(A, B)
    tile_regs_acquire()
    for _ in range(STEPS):
        cb_wait_front(A, BLOCK * STEP)
        cb_wait_front(B, STEP * BLOCK)
        for k in range(STEP):
            matmul_block(A, B, k, k * BLOCK, 0, False, ct_dim=BLOCK, rt_dim=BLOCK, kt_dim=STEP)
        cb_pop_front(A, BLOCK * STEP)
        cb_pop_front(B, STEP * BLOCK)
    tile_regs_commit()
    cb_reserve_back(C, BLOCK * BLOCK)
    tile_regs_wait()
    for i in range(BLOCK * BLOCK):
        pack_tile(i, C)
    tile_regs_release()
    cb_push_back(C, BLOCK * BLOCK)


def enqueue_matmul(mesh: ttnn.MeshDevice, a: ttnn.Tensor, b: ttnn.Tensor, c: ttnn.Tensor) -> None:
    program = CreateProgram()
    for index, tiles in ((A, 2 * BLOCK * STEP), (B, 2 * BLOCK * STEP), (C, BLOCK * BLOCK)):
        config = CircularBufferConfig(tiles * TILE_BYTES, {index: DataFormat.Float16_b})
        CreateCircularBuffer(program, CORES, config.set_page_size(index, TILE_BYTES))
    a_room, a_there, b_room, b_there = (CreateSemaphore(program, CORES, INVALID) for _ in range(4))
    first, last = (mesh.worker_core_from_logical_core(core) for core in (CORES.start, CORES.end))
    pages = ttnn.TensorAccessorArgs(a).get_compile_time_args()
    bring = CreateKernel(program, bring_a, CORES, ReaderDataMovementConfig(pages))
    SetRuntimeArgs(program, bring, CORES, [a.buffer_address(), first.x, last.x, a_room, a_there])
    take = CreateKernel(program, bring_b_and_take_c, CORES, WriterDataMovementConfig(pages))
    arguments = [b.buffer_address(), first.y, last.y, b_room, b_there, c.buffer_address()]
    SetRuntimeArgs(program, take, CORES, arguments)
    CreateKernel(program, multiply, CORES, ComputeConfig())
    workload = MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


torch.manual_seed(0)
size, inner = GRID * BLOCK * 32, STEPS * STEP * 32
torch_a, torch_b = torch.randn(4, 1, size, inner).bfloat16(), torch.randn(1, 1, inner, size).bfloat16()

with ttnn.open_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
    shards = ttnn.ShardTensorToMesh(mesh, dim=0)  # another A on each device, the same B on all
    a = ttnn.from_torch(torch_a, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=shards)
    b = ttnn.from_torch(torch_b, layout=ttnn.TILE_LAYOUT, device=mesh)
    c = ttnn.zeros((1, 1, size, size), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    enqueue_matmul(mesh, a, b, c)
    products = torch.cat([ttnn.to_torch(each) for each in ttnn.get_device_tensors(c)])

pcc = ttnn.pearson_correlation_coefficient(torch_a.float() @ torch_b.float(), products)
print(
    f"{len(products)} products of [{size}, {inner}] and [{inner}, {size}], each on {GRID * GRID} cores: pcc {pcc:.5f}"
)
assert pcc > 0.9999, f"the products are not torch's: pcc {pcc:.5f}"
