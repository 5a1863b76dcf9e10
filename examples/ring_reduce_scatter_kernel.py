"""A reduce_scatter of one's own: partial sums travel around a ring of eight devices and grow by a term at each.

softmesh run examples/ring_reduce_scatter_kernel.py

Every device starts with a whole tensor and ends with one slice of the sum of all. The slice that ends on device d
sets out on device d + 1; each device adds its own tiles to what comes in and sends the result on. Three kernels do
it: a reader brings tiles and waits for those that the neighbour sends, compute adds them, a writer sends them on.
The host side is TT-Metalium's: programs, a workload, a queue. The result is held against ttnn.reduce_scatter.
"""

import torch
import ttnn

from softmesh.kernels import (
    NocUnicastAtomicIncFusedCommandHeader,
    PacketHeaderPool,
    TensorAccessor,
    TensorAccessorArgs,
    WorkerToFabricEdmSender,
    add_init,
    add_tiles,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    compute_kernel_hw_startup,
    copy_tile,
    copy_tile_init,
    fabric_unicast_noc_fused_unicast_with_atomic_inc,
    get_arg_val,
    get_noc_addr,
    get_read_ptr,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    noc_semaphore_set,
    noc_semaphore_wait_min,
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
    EnqueueMeshWorkload,
    MeshWorkload,
    Program,
    ReaderDataMovementConfig,
    SetRuntimeArgs,
    WriterDataMovementConfig,
    append_fabric_connection_rt_args,
)

DEVICES, TILES = 8, 2  # in the ring; and in a slice
TILE_BYTES = ttnn.tile_size(ttnn.bfloat16)
WORKER = ttnn.CoreCoord(0, 0)
WORKERS = ttnn.CoreRangeSet([ttnn.CoreRange(WORKER, WORKER)])
OWN, COMING, SUM = 0, 1, 16  # circular buffers


def reader() -> None:
    me, tensor_address, inbox_address, arrived = (get_arg_val(i) for i in range(4))
    args = TensorAccessorArgs(0)
    tensor, inbox = TensorAccessor(args, tensor_address), TensorAccessor(args, inbox_address)
    for step in range(DEVICES):
        first = (me - 1 - step) % DEVICES * TILES  # of the slice that this device adds to now
        for i in range(TILES):
            cb_reserve_back(OWN, 1)
            noc_async_read_tile(first + i, tensor, get_write_ptr(OWN))
            noc_async_read_barrier()
            cb_push_back(OWN, 1)
            if step > 0:
                cb_reserve_back(COMING, 1)
                number = (step - 1) * TILES + i
                noc_semaphore_wait_min(arrived, number + 1)
                noc_async_read_tile(number, inbox, get_write_ptr(COMING))
                noc_async_read_barrier()
                cb_push_back(COMING, 1)
    noc_semaphore_set(arrived, 0)


def add() -> None:
    compute_kernel_hw_startup(OWN, COMING, SUM)
    for step in range(DEVICES):
        for _ in range(TILES):
            cb_wait_front(OWN, 1)
            tile_regs_acquire()
            if step == 0:
                copy_tile_init(OWN)
                copy_tile(OWN, 0, 0)
            else:
                cb_wait_front(COMING, 1)
                add_init(OWN, COMING)
                add_tiles(OWN, COMING, 0, 0, 0)
                cb_pop_front(COMING, 1)
            tile_regs_commit()
            cb_pop_front(OWN, 1)
            cb_reserve_back(SUM, 1)
            tile_regs_wait()
            pack_tile(0, SUM)
            tile_regs_release()
            cb_push_back(SUM, 1)


def writer() -> None:
    output_address, inbox_address, arrived = (get_arg_val(i) for i in range(3))
    to_next = WorkerToFabricEdmSender.build_from_args(3)
    args = TensorAccessorArgs(0)
    output, inbox = TensorAccessor(args, output_address), TensorAccessor(args, inbox_address)
    header = PacketHeaderPool.allocate_header()
    to_next.open()
    for number in range((DEVICES - 1) * TILES):
        cb_wait_front(SUM, 1)
        there = NocUnicastAtomicIncFusedCommandHeader(inbox.get_noc_addr(number), get_noc_addr(arrived), 1)
        fabric_unicast_noc_fused_unicast_with_atomic_inc(
            to_next, header, get_read_ptr(SUM), TILE_BYTES, there, num_hops=1
        )
        cb_pop_front(SUM, 1)
    to_next.close()
    for i in range(TILES):
        cb_wait_front(SUM, 1)
        noc_async_write_tile(i, output, get_read_ptr(SUM))
        noc_async_write_barrier()
        cb_pop_front(SUM, 1)


def program_for(
    me: int, mesh: ttnn.MeshDevice, tensor: ttnn.Tensor, inbox: ttnn.Tensor, output: ttnn.Tensor, arrived: int
) -> Program:
    program = CreateProgram()
    for index in (OWN, COMING, SUM):
        config = CircularBufferConfig(2 * TILE_BYTES, {index: DataFormat.Float16_b})
        CreateCircularBuffer(program, WORKER, config.set_page_size(index, TILE_BYTES))
    pages = ttnn.TensorAccessorArgs(tensor).get_compile_time_args()
    reading = CreateKernel(program, reader, WORKER, ReaderDataMovementConfig(pages))
    CreateKernel(program, add, WORKER, ComputeConfig())
    writing = CreateKernel(program, writer, WORKER, WriterDataMovementConfig(pages))
    SetRuntimeArgs(program, reading, WORKER, [me, tensor.buffer_address(), inbox.buffer_address(), arrived])
    arguments = [output.buffer_address(), inbox.buffer_address(), arrived]
    ring = list(mesh.shape.coordinates())
    here, neighbour = (mesh.get_fabric_node_id(ring[i % DEVICES]) for i in (me, me + 1))
    append_fabric_connection_rt_args(here, neighbour, 0, program, WORKER, arguments)
    SetRuntimeArgs(program, writing, WORKER, arguments)
    return program


def ring_reduce_scatter(tensor: ttnn.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    output, inbox = (
        ttnn.zeros((1, 1, 32, tiles * 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        for tiles in (TILES, (DEVICES - 1) * TILES)
    )
    semaphore = ttnn.create_global_semaphore(mesh, WORKERS, 0)
    arrived = ttnn.get_global_semaphore_address(semaphore)
    workload = MeshWorkload()
    for me, here in enumerate(mesh.shape.coordinates()):
        program = program_for(me, mesh, tensor, inbox, output, arrived)
        workload.add_program(ttnn.MeshCoordinateRange(here, here), program)
    EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)
    return output


torch.manual_seed(0)
# Whole numbers, so that every order of adding gives the same bits
torch_inputs = torch.randint(-8, 9, (DEVICES, 1, 32, DEVICES * TILES * 32)).to(torch.bfloat16)

# The ring of the fabric: the last device is a neighbour of the first
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
with ttnn.open_mesh_device(ttnn.MeshShape(1, DEVICES)) as mesh:
    tensor = ttnn.from_torch(
        torch_inputs, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0)
    )
    output = ring_reduce_scatter(tensor, mesh)
    on_devices = [ttnn.to_torch(each) for each in ttnn.get_device_tensors(output)]
    collective = ttnn.reduce_scatter(tensor, dim=3)
    expected = [ttnn.to_torch(each) for each in ttnn.get_device_tensors(collective)]
ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)

slices = torch_inputs.float().sum(0, keepdim=True).to(torch.bfloat16).chunk(DEVICES, dim=3)
right = all(map(torch.equal, on_devices, slices))
agree = all(map(torch.equal, on_devices, expected))
print(f"{len(on_devices)} devices hold a slice of the sum each: {right}")
print(f"the kernels agree with ttnn.reduce_scatter: {agree}")
assert right, "not every device has its slice of the sum"
assert agree, "the kernels' result is not that of ttnn.reduce_scatter"
