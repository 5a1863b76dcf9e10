"""An all_gather of one's own: a kernel on each of eight devices passes slices on to the next around a ring.

softmesh run examples/ring_all_gather_kernel.py

Every device starts with one slice. In each step it sends the slice that came last to its neighbour: a packet for
each tile, which is written into the neighbour's output and raises the neighbour's semaphore. After seven steps
all slices have come by everywhere. The result is held against ttnn.all_gather.
"""

import torch
import ttnn

from softmesh.kernels import (
    NocUnicastAtomicIncFusedCommandHeader,
    PacketHeaderPool,
    TensorAccessor,
    TensorAccessorArgs,
    WorkerToFabricEdmSender,
    cb_reserve_back,
    fabric_unicast_noc_fused_unicast_with_atomic_inc,
    get_arg_val,
    get_noc_addr,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    noc_semaphore_set,
    noc_semaphore_wait_min,
)

DEVICES, TILES = 8, 2  # in the ring; and in the slice of one device
TILE_BYTES = ttnn.tile_size(ttnn.bfloat16)
WORKER = ttnn.CoreCoord(0, 0)
WORKERS = ttnn.CoreRangeSet([ttnn.CoreRange(WORKER, WORKER)])


def pass_slices_on() -> None:
    """Runs on one core of every device."""
    me, slice_address, whole_address, arrived = (get_arg_val(i) for i in range(4))
    to_next = WorkerToFabricEdmSender.build_from_args(4)
    args = TensorAccessorArgs(0)
    own = TensorAccessor(args, slice_address)
    whole = TensorAccessor(TensorAccessorArgs(args.next_compile_time_args_offset()), whole_address)
    header = PacketHeaderPool.allocate_header()
    cb_reserve_back(0, 1)
    tile = get_write_ptr(0)  # room for the tile that is on its way

    to_next.open()
    for step in range(DEVICES - 1):
        first = (me - step) % DEVICES * TILES  # of the slice that came last: at first one's own
        for i in range(first, first + TILES):
            if step == 0:
                noc_async_read_tile(i - first, own, tile)
                noc_async_read_barrier()
                noc_async_write_tile(i, whole, tile)
                noc_async_write_barrier()
            else:
                noc_semaphore_wait_min(arrived, (step - 1) * TILES + i - first + 1)
                noc_async_read_tile(i, whole, tile)
                noc_async_read_barrier()
            # Addresses are the same on every device, so the neighbour's tile and semaphore are where ours are.
            there = NocUnicastAtomicIncFusedCommandHeader(whole.get_noc_addr(i), get_noc_addr(arrived), 1)
            fabric_unicast_noc_fused_unicast_with_atomic_inc(to_next, header, tile, TILE_BYTES, there, num_hops=1)
    noc_semaphore_wait_min(arrived, (DEVICES - 1) * TILES)
    noc_semaphore_set(arrived, 0)
    to_next.close()


def ring_all_gather(slices: ttnn.Tensor, whole: ttnn.Tensor, mesh: ttnn.MeshDevice) -> ttnn.Tensor:
    """One program for each device: they differ in the number of the device and in its neighbour."""
    semaphore = ttnn.create_global_semaphore(mesh, WORKERS, 0)
    arrived = ttnn.get_global_semaphore_address(semaphore)
    programs = ttnn.MeshProgramDescriptor()
    ring = list(mesh.shape.coordinates())
    for me, here in enumerate(ring):
        program = ttnn.ProgramDescriptor()
        neighbour = ring[(me + 1) % DEVICES]
        connection = ttnn.setup_fabric_connection(
            mesh.get_fabric_node_id(here), mesh.get_fabric_node_id(neighbour), 0, program, WORKER
        )
        arguments = ttnn.RuntimeArgs()
        arguments[WORKER.x][WORKER.y] = [
            me, slices.buffer_address(), whole.buffer_address(), arrived, *connection
        ]  # fmt: skip
        program.kernels = [
            ttnn.KernelDescriptor(
                kernel_source=pass_slices_on,
                core_ranges=WORKERS,
                compile_time_args=[
                    *ttnn.TensorAccessorArgs(slices).get_compile_time_args(),
                    *ttnn.TensorAccessorArgs(whole).get_compile_time_args(),
                ],
                runtime_args=arguments,
                config=ttnn.WriterConfigDescriptor(),
            )
        ]
        room = ttnn.CBFormatDescriptor(buffer_index=0, data_format=ttnn.bfloat16, page_size=TILE_BYTES)
        program.cbs = [ttnn.CBDescriptor(TILE_BYTES, WORKERS, [room])]
        programs[ttnn.MeshCoordinateRange(here, here)] = program
    return ttnn.generic_op([slices, whole], programs)


torch.manual_seed(0)
torch_input = torch.randn(1, 1, 32, DEVICES * TILES * 32, dtype=torch.bfloat16)

# The ring of the fabric: the last device is a neighbour of the first
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
with ttnn.open_mesh_device(ttnn.MeshShape(1, DEVICES)) as mesh:
    slices = ttnn.from_torch(
        torch_input, layout=ttnn.TILE_LAYOUT, device=mesh, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=3)
    )
    whole = ttnn.from_torch(torch.zeros_like(torch_input), layout=ttnn.TILE_LAYOUT, device=mesh)
    gathered = ring_all_gather(slices, whole, mesh)
    on_devices = [ttnn.to_torch(each) for each in ttnn.get_device_tensors(gathered)]
    collective = ttnn.all_gather(slices, dim=3)
    expected = [ttnn.to_torch(each) for each in ttnn.get_device_tensors(collective)]
ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)

agree = all(map(torch.equal, on_devices, expected))
complete = all(torch.equal(each, torch_input) for each in on_devices)
print(f"{len(on_devices)} devices hold all of {list(torch_input.shape)}: {complete}")
print(f"the kernel agrees with ttnn.all_gather: {agree}")
assert complete, "not every device has all slices"
assert agree, "the kernel's result is not that of ttnn.all_gather"
