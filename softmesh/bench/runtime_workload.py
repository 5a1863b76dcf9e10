"""The workload of `softmesh bench runtime`: traces, queues, the allocator, kernels, and the same by hand."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

import softmesh as ttnn
from softmesh import metal
from softmesh.bench.harness import put
from softmesh.hardware.enums import BufferType
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
_BATCH = 50  # allocations that are timed together
_CORE = ttnn.CoreCoord(0, 0)


class Replay(NamedTuple):
    """A trace, the same ops called one by one, and the bare torch calls."""

    trace: Work
    eager: Work
    by_hand: Work


def chain(mesh: ttnn.MeshDevice) -> Replay:
    """20 small ops, one after the other."""
    x, w = _tiles(mesh, 1), _tiles(mesh, 2)
    data, other = x.view_data(), w.view_data()

    def by_hand() -> torch.Tensor:
        value = data
        for _ in range(_OPS // 2):
            value = torch.add(torch.relu(value), other)
        return value

    return _captured(mesh, _small_ops(x, w), by_hand)


def small_ops(mesh: ttnn.MeshDevice) -> Work:
    """The same without a trace."""
    return _small_ops(_tiles(mesh, 1), _tiles(mesh, 2))


def _small_ops(x: ttnn.Tensor, w: ttnn.Tensor) -> Work:
    def ops() -> ttnn.Tensor:
        value = x
        for _ in range(_OPS // 2):
            value = ttnn.add(ttnn.relu(value), w)
        return value

    return ops


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


class Churn:
    """Buffers of mixed sizes with holes between them; some are freed and as many allocated, again and again."""

    def __init__(self, mesh: ttnn.MeshDevice, live: int) -> None:
        self._allocator, self._pick, self._owner = mesh.allocator(), random.Random(0), _Owner()
        self._held = [self._allocate(self._size()) for _ in range(live + live // 4)]
        self._pick.shuffle(self._held)
        for _ in range(live // 4):
            self._free(self._held.pop())

    def allocating(self) -> float:
        """Seconds of one allocation."""
        return self._turn()[1]

    def freeing(self) -> float:
        return self._turn()[0]

    def _turn(self) -> tuple[float, float]:
        places = self._pick.sample(range(len(self._held)), _BATCH)
        sizes = [self._size() for _ in places]
        start = time.perf_counter()
        for at in places:
            self._free(self._held[at])
        between = time.perf_counter()
        for at, size in zip(places, sizes, strict=True):
            self._held[at] = self._allocate(size)
        return (between - start) / _BATCH, (time.perf_counter() - between) / _BATCH

    def _size(self) -> int:
        return 32 * self._pick.randint(1, 64)

    def _allocate(self, size: int) -> int:
        return self._allocator.allocate(size, BufferType.DRAM, owner=self._owner, label="bench")

    def _free(self, address: int) -> None:
        self._allocator.free(address, BufferType.DRAM)


class _Owner:
    """Whose the buffers are; allocators hold it weakly."""


class CopyProgram:
    """A reader and a writer that copy tiles through a circular buffer, the same on every device.

    `alike`: the devices hold the same tiles too.
    """

    def __init__(self, mesh: ttnn.MeshDevice, tiles: int, *, alike: bool = False) -> None:
        draw = torch.Generator().manual_seed(0)
        values = torch.randn(32 if alike else mesh.get_num_devices() * 32, 32 * tiles, generator=draw)
        mapper = ttnn.ReplicateTensorToMesh(mesh) if alike else ttnn.ShardTensorToMesh(mesh, 0)
        self.source = put(values, "bfloat16", mesh, mapper)
        self.target = ttnn.zeros_like(self.source)
        self._queue, self._workload = mesh.mesh_command_queue(0), metal.MeshWorkload()
        self._workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), self._program(tiles))

    def _program(self, tiles: int) -> metal.Program:
        tile_bytes = ttnn.tile_size(ttnn.bfloat16)
        program = metal.CreateProgram()
        config = metal.CircularBufferConfig(2 * tile_bytes, {0: metal.DataFormat.Float16_b})
        metal.CreateCircularBuffer(program, _CORE, config.set_page_size(0, tile_bytes))
        pages = ttnn.TensorAccessorArgs(self.source).get_compile_time_args()
        for kernel, kind, tensor in (
            (_read, metal.ReaderDataMovementConfig, self.source),
            (_write, metal.WriterDataMovementConfig, self.target),
        ):
            handle = metal.CreateKernel(program, kernel, _CORE, kind(pages))
            metal.SetRuntimeArgs(program, handle, _CORE, [tensor.buffer_address(), tiles])
        return program

    def run(self) -> None:
        self._queue.enqueue_mesh_workload(self._workload, False)

    def run_and_read(self) -> None:
        """With the values of what was copied, which nobody makes before they are asked for."""
        self.run()
        self.target.view_data()


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
