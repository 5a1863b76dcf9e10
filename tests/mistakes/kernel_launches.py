"""What programs of kernels share: tiles, a launch on a line of cores, places on their neighbours."""

import torch

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    L1Pointer,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_noc_addr,
    get_read_ptr,
    get_write_ptr,
    my_x,
    my_y,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
)

BYTES = 2048  # a tile


def line(cores):
    return ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (cores - 1, 0))])


def tiles(mesh, value=1.0):
    """Four tiles."""
    return ttnn.from_torch(torch.full((64, 64), value).bfloat16(), layout=ttnn.TILE_LAYOUT, device=mesh)


def pages_of(tensor, size=BYTES):
    return InterleavedAddrGen(tensor.buffer_address(), size)


def launched(mesh, *kernels, cores=1, pages=2, indexes=(0,), semaphores=(), first_value=0, page_size=None):
    """A reader, perhaps a writer and compute, on a line of cores; each semaphore is on so many of them.

    `indexes` are those of circular buffers, of bfloat16 unless they come with their formats.
    """
    program, place = metal.CreateProgram(), line(cores)
    formats = indexes if isinstance(indexes, dict) else dict.fromkeys(indexes, ttnn.bfloat16)
    for index, dtype in formats.items():
        size = page_size or ttnn.tile_size(dtype)
        config = metal.CircularBufferConfig(pages * size, {index: dtype}).set_page_size(index, size)
        metal.CreateCircularBuffer(program, place, config)
    for count in semaphores:
        metal.CreateSemaphore(program, line(count), first_value)
    configs = metal.ReaderDataMovementConfig(), metal.WriterDataMovementConfig(), metal.ComputeConfig()
    for kernel, config in zip(kernels, configs, strict=False):
        metal.CreateKernel(program, kernel, place, config)
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def right_of(address, distance=1):
    """The same address on another core of the line."""
    return get_noc_addr(my_x[0] + distance, my_y[0], address)


def fill(index=0):
    """A page of this kernel's own numbers, pushed."""
    cb_reserve_back(index, 1)
    L1Pointer(get_write_ptr(index))[0 : BYTES // 4] = 1
    cb_push_back(index, 1)


def bring(page, source):
    cb_reserve_back(0, 1)
    noc_async_read_tile(page, pages_of(source), get_write_ptr(0))
    noc_async_read_barrier()
    cb_push_back(0, 1)


def store(page, target):
    cb_wait_front(0, 1)
    noc_async_write_tile(page, pages_of(target), get_read_ptr(0))
    noc_async_write_barrier()
    cb_pop_front(0, 1)


def copied(mesh, *, read=bring, write=store):
    """Four tiles from one tensor to another; `read` and `write` do it for one page."""
    source, target = tiles(mesh), tiles(mesh, 0.0)

    def reader():
        for page in range(4):
            read(page, source)

    def writer():
        for page in range(4):
            write(page, target)

    launched(mesh, reader, writer)
