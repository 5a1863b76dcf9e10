"""The work of `softmesh bench runtime`: traces, queues, the allocator, kernels, and the same by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

import softmesh as ttnn
from softmesh import metal
from softmesh.bench.operands import put
from softmesh.hardware.buffer_type import BufferType
from softmesh.kernels import (
    TensorAccessor,
    TensorAccessorArgs,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_arg_val,
    get_read_ptr,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
)

Work = Callable[[], object]
_OPS = 20
_CORE = ttnn.CoreCoord(0, 0)


class Replay(NamedTuple):
    """A trace, the same ops called one by one, and the bare torch calls."""

    trace: Work
    eager: Work
    by_hand: Work


def chain(mesh: ttnn.MeshDevice) -> Replay:
    """20 small ops, one after the other."""
    x, w = _tiles(mesh, 1), _tiles(mesh, 2)

    def ops(value: ttnn.Tensor) -> ttnn.Tensor:
        for _ in range(_OPS // 2):
            value = ttnn.add(ttnn.relu(value), w)
        return value

    data, other = x.view_data(), w.view_data()

    def by_hand() -> torch.Tensor:
        value = data
        for _ in range(_OPS // 2):
            value = torch.add(torch.relu(value), other)
        return value

    return _captured(mesh, lambda: ops(x), by_hand)


def mlp(mesh: ttnn.MeshDevice, rows: int, width: int) -> Replay:
    """gelu(x w1) w2, its rows split over the devices."""
    draw = torch.Generator().manual_seed(0)
    shapes = ((rows, width), (width, 4 * width), (4 * width, width))
    values = [torch.randn(*shape, generator=draw) / 16 for shape in shapes]
    on_all = ttnn.ReplicateTensorToMesh(mesh)
    x = put(values[0], "float32", mesh, ttnn.ShardTensorToMesh(mesh, 0))
    up, down = (put(value, "float32", mesh, on_all) for value in values[1:])

    def ops() -> ttnn.Tensor:
        return ttnn.matmul(ttnn.gelu(ttnn.matmul(x, up)), down)

    def by_hand() -> torch.Tensor:
        return torch.matmul(F.gelu(torch.matmul(values[0], values[1])), values[2])

    return _captured(mesh, ops, by_hand)


def _captured(mesh: ttnn.MeshDevice, ops: Work, by_hand: Work) -> Replay:
    ops()
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    result = ops()
    ttnn.end_trace_capture(mesh, trace, cq_id=0)

    def replay() -> object:
        ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
        return result

    return Replay(replay, ops, by_hand)


def _tiles(mesh: ttnn.MeshDevice, seed: int) -> ttnn.Tensor:
    rows, columns = mesh.shape
    values = torch.randn(32 * rows, 32 * columns, generator=torch.Generator().manual_seed(seed))
    mapper = ttnn.ShardTensor2dMesh(mesh, dims=(0, 1), mesh_shape=(rows, columns))
    return put(values, "float32", mesh, mapper)


def event(mesh: ttnn.MeshDevice) -> Work:
    """An event recorded on one queue and waited for on the other."""

    def record_and_wait() -> None:
        ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))

    return record_and_wait


def empty_workload(mesh: ttnn.MeshDevice) -> Work:
    """A workload that has no kernels: what enqueueing costs."""
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), metal.CreateProgram())
    queue = mesh.mesh_command_queue(0)
    return lambda: queue.enqueue_mesh_workload(workload, False)


def allocation(mesh: ttnn.MeshDevice, live: int) -> Work:
    """One buffer allocated and another freed, among `live` of mixed sizes with holes between them."""
    allocator, pick = mesh.allocator(), random.Random(0)
    owner = _Owner()

    def allocate() -> int:
        return allocator.allocate(32 * pick.randint(1, 64), BufferType.DRAM, owner=owner, label="bench")

    held = [allocate() for _ in range(live + live // 4)]
    pick.shuffle(held)
    for _ in range(live // 4):
        allocator.free(held.pop(), BufferType.DRAM)

    def allocate_and_free() -> None:
        at = pick.randrange(live)
        allocator.free(held[at], BufferType.DRAM)
        held[at] = allocate()

    return allocate_and_free


class _Owner:
    """Whose the buffers are; allocators hold it weakly."""


def copy_program(mesh: ttnn.MeshDevice, tiles: int) -> Work:
    """A reader and a writer that copy tiles through a circular buffer, the same on every device."""
    values = torch.randn(mesh.get_num_devices() * 32, 32 * tiles, generator=torch.Generator().manual_seed(0))
    source = put(values, "bfloat16", mesh, ttnn.ShardTensorToMesh(mesh, 0))
    target = ttnn.zeros_like(source)
    tile_bytes = ttnn.tile_size(ttnn.bfloat16)
    program = metal.CreateProgram()
    config = metal.CircularBufferConfig(2 * tile_bytes, {0: metal.DataFormat.Float16_b})
    metal.CreateCircularBuffer(program, _CORE, config.set_page_size(0, tile_bytes))
    pages = ttnn.TensorAccessorArgs(source).get_compile_time_args()
    for kernel, kind, tensor in (
        (_read, metal.ReaderDataMovementConfig, source),
        (_write, metal.WriterDataMovementConfig, target),
    ):
        handle = metal.CreateKernel(program, kernel, _CORE, kind(pages))
        metal.SetRuntimeArgs(program, handle, _CORE, [tensor.buffer_address(), tiles])
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    queue = mesh.mesh_command_queue(0)

    def run() -> tuple[ttnn.Tensor, ttnn.Tensor]:
        queue.enqueue_mesh_workload(workload, False)
        return source, target

    return run


def _read() -> None:
    source = TensorAccessor(TensorAccessorArgs(0), get_arg_val(0))
    for tile in range(get_arg_val(1)):
        cb_reserve_back(0, 1)
        noc_async_read_tile(tile, source, get_write_ptr(0))
        noc_async_read_barrier()
        cb_push_back(0, 1)


def _write() -> None:
    target = TensorAccessor(TensorAccessorArgs(0), get_arg_val(0))
    for tile in range(get_arg_val(1)):
        cb_wait_front(0, 1)
        noc_async_write_tile(tile, target, get_read_ptr(0))
        noc_async_write_barrier()
        cb_pop_front(0, 1)
