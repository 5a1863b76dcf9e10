"""Kernels, ops, traces and the host take turns with tensors and a buffer: each finds what the one before left."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import mesh_of

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    cb_reserve_back,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
)

PAGES, DEVICES, CORE = 2, 4, ttnn.CoreCoord(0, 0)
SHAPES = {ttnn.TILE_LAYOUT: (32, 32 * PAGES), ttnn.ROW_MAJOR_LAYOUT: (PAGES, 16)}
BYTES = {ttnn.TILE_LAYOUT: 4096, ttnn.ROW_MAJOR_LAYOUT: 64}
TENSORS, BUFFER, NEW = (0, 1), 2, 3  # what a kernel moves pages between; NEW is a tensor that was never there

Page = tuple[int, int]  # of which, and which


class Turns:
    """What there is, what it must hold, and the ways to change and to read it. A page holds one number, many times."""

    def __init__(self, layout: ttnn.Layout, is_shared: bool) -> None:
        self.mesh = mesh_of((2, 2))
        self._layout, self._shape, self._page_size = layout, SHAPES[layout], BYTES[layout]
        self._count = itertools.count(1)
        self._kept: list[object] = []  # what somebody has in hand
        zeros = torch.zeros(DEVICES, PAGES)
        self._tensors = [ttnn.neg(self._on_devices(zeros, is_shared)) for _ in TENSORS]  # nobody else's
        self._bytes = [metal.TensorBytes(tensor) for tensor in self._tensors]
        local = metal.DeviceLocalBufferConfig(page_size=self._page_size, buffer_type=ttnn.BufferType.DRAM)
        size = metal.ReplicatedBufferConfig(size=PAGES * self._page_size)
        self._buffer = metal.MeshBuffer.create(size, local, self.mesh)
        self._values = [zeros.clone() for _ in (*TENSORS, BUFFER)]
        self._trace: ttnn.MeshTraceId | None = None
        self.write_buffer()

    def _in_pages(self, numbers: torch.Tensor) -> torch.Tensor:
        """(..., PAGES) as values of a device."""
        if self._layout is ttnn.TILE_LAYOUT:
            return numbers.repeat_interleave(32, -1).unsqueeze(-2).expand(*numbers.shape[:-1], *self._shape)
        return numbers.unsqueeze(-1).expand(*numbers.shape, 16)

    def _on_devices(self, numbers: torch.Tensor, is_shared: bool) -> ttnn.Tensor:
        values = self._in_pages(numbers)
        mapper = ttnn.ReplicateTensorToMesh(self.mesh) if is_shared else ttnn.ShardTensorToMesh(self.mesh, 0)
        given = values[0] if is_shared else values.flatten(0, 1)
        return ttnn.from_torch(given, dtype=ttnn.float32, layout=self._layout, device=self.mesh, mesh_mapper=mapper)

    def launch(self, is_shared: bool, moves: Sequence[tuple[Page, Page]], only: int | None) -> None:
        """A kernel moves pages, one after the other through the same place; on one device, where that is said."""
        new = 100.0 * next(self._count) + torch.arange(PAGES).expand(DEVICES, -1)
        if not is_shared:
            new = new + 10 * torch.arange(DEVICES).unsqueeze(-1)
        source = self._on_devices(new, is_shared)
        addresses = [each.buffer_address() for each in self._tensors]
        addresses += [self._buffer.address(), source.buffer_address()]

        def kernel() -> None:
            cb_reserve_back(0, 1)
            for ends in moves:
                for call, (which, page) in zip((noc_async_read_tile, noc_async_write_tile), ends, strict=True):
                    call(page, InterleavedAddrGen(addresses[which], self._page_size), get_write_ptr(0))
                    noc_async_read_barrier()
                noc_async_write_barrier()

        where = ttnn.MeshCoordinateRange(self.mesh.shape)
        if only is not None:
            where = ttnn.MeshCoordinateRange(*[ttnn.MeshCoordinate(*divmod(only, 2))] * 2)
        self._run(kernel, where)
        devices = slice(None) if only is None else slice(only, only + 1)
        held = [*self._values, new]
        for (which, page), (to, place) in moves:
            held[to][devices, place] = held[which][devices, page]

    def _run(self, kernel, where: ttnn.MeshCoordinateRange) -> None:
        program = metal.CreateProgram()
        metal.CreateKernel(program, kernel, CORE, metal.ReaderDataMovementConfig())
        config = metal.CircularBufferConfig(self._page_size, {0: ttnn.float32})
        metal.CreateCircularBuffer(program, CORE, config.set_page_size(0, self._page_size))
        workload = metal.MeshWorkload()
        workload.add_program(where, program)
        metal.EnqueueMeshWorkload(self.mesh.mesh_command_queue(), workload, blocking=True)

    def write_buffer(self) -> None:
        numbers = 100.0 * next(self._count) + torch.arange(PAGES)
        pages = numbers.repeat_interleave(self._page_size // 4)
        metal.EnqueueWriteMeshBuffer(self.mesh.mesh_command_queue(), self._buffer, pages, blocking=True)
        self._values[BUFFER][:] = numbers

    def add_in_place(self, which: int) -> None:
        ttnn.add(self._tensors[which], 1.0, output_tensor=self._tensors[which])
        self._values[which] += 1

    def write_bytes(self, which: int) -> None:
        """Somebody else who looks at the bytes, and has for long, changes the first page of every device."""
        held = self._bytes[which]
        held.materialise().view(torch.float32)[..., 0, :] = 5.0
        held.store()
        self._values[which][:, 0] = 5.0

    def spoil_bytes(self, which: int) -> None:
        """Somebody changes bytes, and does not store them."""
        metal.TensorBytes(self._tensors[which]).data.fill_(7)

    def keep(self, which: int) -> None:
        self._kept.append(self._tensors[which].view_data())

    def let_go(self, which: int) -> None:
        self._kept.clear()

    def record(self, which: int) -> None:
        self.close()
        self._recorded, tensor = which, self._tensors[which]
        self._placed = ttnn.placements(tensor)
        ttnn.add(self._on_devices(torch.zeros(DEVICES, PAGES), False), 1.0)  # compiled before it is recorded
        ttnn.add(tensor, 1.0)
        self._trace = ttnn.begin_trace_capture(self.mesh)
        self._one_more = ttnn.add(tensor, 1.0)
        ttnn.end_trace_capture(self.mesh, self._trace)

    def replay(self, which: int) -> None:
        if self._trace is None or ttnn.placements(self._tensors[self._recorded]) != self._placed:
            return  # where devices differ since then, a trace refuses
        ttnn.execute_trace(self.mesh, self._trace)
        self._check(self._one_more, self._values[self._recorded] + 1)

    def compute(self, which: int) -> None:
        self._check(ttnn.multiply(self._tensors[which], 2.0), self._values[which] * 2)

    def read(self, which: int) -> None:
        self._check(self._tensors[which], self._values[which])

    def read_bytes(self, which: int) -> None:
        data = self._bytes[which].data.view(torch.float32)
        numbers = self._values[which].reshape(2, 2, PAGES, 1)
        assert torch.equal(data.expand(2, 2, -1, -1), numbers.expand(-1, -1, -1, self._page_size // 4))

    def read_bytes_of_a_device(self, which: int) -> None:
        device = ttnn.get_device_tensors(self._tensors[which])[2]
        data = metal.TensorBytes(device).data.view(torch.float32)
        assert torch.equal(data[1, 0, :, 0], self._values[which][2])

    def _check(self, tensor: ttnn.Tensor, numbers: torch.Tensor) -> None:
        found = [ttnn.to_torch(each) for each in ttnn.get_device_tensors(tensor)]
        assert torch.equal(torch.stack(found), self._in_pages(numbers))

    def read_all(self) -> None:
        for which in TENSORS:
            self.read(which)
        for device in range(DEVICES):
            found = torch.zeros(PAGES * self._page_size // 4)
            where = ttnn.MeshCoordinate(*divmod(device, 2))
            metal.ReadShard(self.mesh.mesh_command_queue(), found, self._buffer, where)
            pages = found.reshape(PAGES, -1)
            assert torch.equal(pages, self._values[BUFFER][device].unsqueeze(-1).expand_as(pages))

    def close(self) -> None:
        if self._trace is not None:
            ttnn.release_trace(self.mesh, self._trace)
        self._trace = None


_pages = st.tuples(st.integers(0, NEW), st.integers(0, PAGES - 1))
_targets = st.tuples(st.integers(0, BUFFER), st.integers(0, PAGES - 1))
_fill = st.sampled_from([[((NEW, page), (to, page)) for page in range(PAGES)] for to in range(NEW)])
_moves = st.one_of(_fill, st.lists(st.tuples(_pages, _targets), min_size=1, max_size=5))
_launches = st.builds(
    lambda shared, moves, only: lambda turns: turns.launch(shared, moves, only),
    st.booleans(),
    _moves,
    st.sampled_from([None, None, None, 0, 3]),
)
_others = st.builds(
    lambda act, which: lambda turns: act(turns, which),
    st.sampled_from(
        [
            Turns.add_in_place,
            Turns.write_bytes,
            Turns.spoil_bytes,
            Turns.keep,
            Turns.let_go,
            Turns.record,
            Turns.replay,
            Turns.compute,
            Turns.read,
            Turns.read_bytes,
            Turns.read_bytes_of_a_device,
            lambda turns, which: turns.write_buffer(),
        ]
    ),
    st.sampled_from(TENSORS),
)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(list(SHAPES)),
    st.booleans(),
    st.lists(st.one_of(_launches, _others), min_size=2, max_size=12),
)
def test_whoever_comes_next_finds_what_was_left(layout, is_shared, acts):
    turns = Turns(layout, is_shared)
    try:
        for act in acts:
            act(turns)
        turns.read_all()
    finally:
        turns.close()
