"""Small programs for tests of kernels: one core, a few circular buffers, tensors of tiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
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
)

CORE = ttnn.CoreCoord(0, 0)
TILE_BYTES = 2048
Kernel = Callable[[], None]


def add_cb(
    program: metal.Program,
    index: int,
    pages: int = 2,
    *,
    cores: Any = CORE,
    page_size: int = TILE_BYTES,
    dtype: Any = ttnn.bfloat16,
) -> int:
    config = metal.CircularBufferConfig(pages * page_size, {index: dtype}).set_page_size(index, page_size)
    return metal.CreateCircularBuffer(program, cores, config)


def run(mesh: ttnn.MeshDevice, program: metal.Program, where: ttnn.MeshCoordinateRange | None = None) -> None:
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape) if where is None else where, program)
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def program_of(
    *,
    reader: Kernel | None = None,
    writer: Kernel | None = None,
    compute: Kernel | None = None,
    cores: Any = CORE,
    cbs: Sequence[int] = (),
    strict: bool | None = None,
    config: metal.ComputeConfig | None = None,
) -> metal.Program:
    """Kernels on a core, and circular buffers of two bfloat16 tiles under these indexes."""
    program = metal.CreateProgram(strict=strict)
    if reader is not None:
        metal.CreateKernel(program, reader, cores, metal.ReaderDataMovementConfig())
    if writer is not None:
        metal.CreateKernel(program, writer, cores, metal.WriterDataMovementConfig())
    if compute is not None:
        metal.CreateKernel(program, compute, cores, config or metal.ComputeConfig())
    for index in cbs:
        add_cb(program, index, cores=cores)
    return program


def tiles(mesh: ttnn.MeshDevice, values: torch.Tensor, dtype: Any = ttnn.bfloat16, **options: Any) -> ttnn.Tensor:
    """A tensor of tiles, the same on all devices unless a mapper says otherwise."""
    return ttnn.from_torch(values, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=mesh, **options)


def shards(tensor: ttnn.Tensor) -> list[torch.Tensor]:
    return [ttnn.to_torch(each) for each in ttnn.get_device_tensors(tensor)]


def compute_on(
    mesh: ttnn.MeshDevice,
    compute: Kernel,
    inputs: Sequence[ttnn.Tensor],
    output: ttnn.Tensor,
    *,
    strict: bool | None = None,
    config: metal.ComputeConfig | None = None,
) -> list[torch.Tensor]:
    """Run a compute kernel between a reader and a writer: input i in circular buffer i, all its tiles at once.

    The output is circular buffer 16. What the devices then hold of it is returned.
    """
    program = metal.CreateProgram(strict=strict)
    counts = [each.spec.num_pages() for each in inputs]
    sizes = [each.spec.page_size() for each in inputs]
    produced = output.spec.num_pages()

    def reader() -> None:
        for index, (count, size) in enumerate(zip(counts, sizes, strict=True)):
            source = InterleavedAddrGen(get_arg_val(index), size)
            cb_reserve_back(index, count)
            for i in range(count):
                noc_async_read_tile(i, source, get_write_ptr(index) + i * size)
            noc_async_read_barrier()
            cb_push_back(index, count)

    def writer() -> None:
        target = InterleavedAddrGen(get_arg_val(0), output.spec.page_size())
        cb_wait_front(16, produced)
        for i in range(produced):
            noc_async_write_tile(i, target, get_read_ptr(16) + i * output.spec.page_size())
        noc_async_write_barrier()
        cb_pop_front(16, produced)

    @functools.wraps(compute)
    def computing() -> None:
        compute_kernel_hw_startup(0, min(1, len(inputs) - 1), 16)
        compute()

    reading = metal.CreateKernel(program, reader, CORE, metal.ReaderDataMovementConfig())
    writing = metal.CreateKernel(program, writer, CORE, metal.WriterDataMovementConfig())
    metal.CreateKernel(program, computing, CORE, config or metal.ComputeConfig())
    for index, each in enumerate(inputs):
        add_cb(program, index, counts[index], page_size=sizes[index], dtype=each.dtype)
    add_cb(program, 16, produced, page_size=output.spec.page_size(), dtype=output.dtype)
    metal.SetRuntimeArgs(program, reading, CORE, [each.buffer_address() for each in inputs])
    metal.SetRuntimeArgs(program, writing, CORE, [output.buffer_address()])
    run(mesh, program)
    return shards(output)
