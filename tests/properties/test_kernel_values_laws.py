"""Kernels, ops, traces and the host take turns with one tensor: each finds what the one before left."""

from __future__ import annotations

import itertools

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


class Turns:
    """A tensor, what it must hold, and the ways to change and to read it."""

    def __init__(self, layout: ttnn.Layout, is_shared: bool) -> None:
        self.mesh = mesh_of((2, 2))
        self._layout, self._shape = layout, SHAPES[layout]
        self._count = itertools.count(1)
        self._kept: list[object] = []  # what somebody has in hand
        self.tensor = ttnn.neg(
            self._on_devices(torch.zeros(DEVICES, *self._shape), is_shared)
        )  # nobody else's
        self._values = torch.zeros(DEVICES, *self._shape)
        self._bytes = metal.TensorBytes(self.tensor)
        self._trace: ttnn.MeshTraceId | None = None

    def _on_devices(self, values: torch.Tensor, is_shared: bool = False) -> ttnn.Tensor:
        mapper = ttnn.ReplicateTensorToMesh(self.mesh) if is_shared else ttnn.ShardTensorToMesh(self.mesh, 0)
        given = values[0] if is_shared else values.flatten(0, 1)
        return ttnn.from_torch(
            given, dtype=ttnn.float32, layout=self._layout, device=self.mesh, mesh_mapper=mapper
        )

    def _new(self, is_shared: bool) -> torch.Tensor:
        values = torch.full((DEVICES, *self._shape), 10.0 * next(self._count))
        return values if is_shared else values + torch.arange(DEVICES).reshape(-1, 1, 1)

    def _page(self, values: torch.Tensor, page: int) -> torch.Tensor:
        tiled = self._layout is ttnn.TILE_LAYOUT
        return values[..., 32 * page : 32 * page + 32] if tiled else values[:, page : page + 1]

    def launch(self, is_shared: bool, pages: tuple[int, ...], only: int | None) -> None:
        """A kernel writes new values into pages; on one device only, where that is said."""
        new = self._new(is_shared)
        source, size = self._on_devices(new, is_shared), BYTES[self._layout]

        def kernel() -> None:
            cb_reserve_back(0, 1)
            for page in pages:
                for call, tensor in ((noc_async_read_tile, source), (noc_async_write_tile, self.tensor)):
                    call(page, InterleavedAddrGen(tensor.buffer_address(), size), get_write_ptr(0))
                    noc_async_read_barrier()
            noc_async_write_barrier()

        where = ttnn.MeshCoordinateRange(self.mesh.shape)
        if only is not None:
            where = ttnn.MeshCoordinateRange(*[ttnn.MeshCoordinate(*divmod(only, 2))] * 2)
        self._run(kernel, where)
        devices = slice(None) if only is None else slice(only, only + 1)
        for page in pages:
            self._page(self._values, page)[devices] = self._page(new, page)[devices]

    def exchange(self) -> None:
        """A kernel gives each of two pages the other's bytes."""
        size = BYTES[self._layout]

        def kernel() -> None:
            cb_reserve_back(0, 2)
            place = InterleavedAddrGen(self.tensor.buffer_address(), size)
            for page in (0, 1):
                noc_async_read_tile(page, place, get_write_ptr(0) + page * size)
            noc_async_read_barrier()
            for page in (0, 1):
                noc_async_write_tile(1 - page, place, get_write_ptr(0) + page * size)
            noc_async_write_barrier()

        self._run(kernel, ttnn.MeshCoordinateRange(self.mesh.shape))
        first, second = (self._page(self._values, page).clone() for page in (0, 1))
        self._page(self._values, 0)[:], self._page(self._values, 1)[:] = second, first

    def _run(self, kernel, where: ttnn.MeshCoordinateRange) -> None:
        size = BYTES[self._layout]
        program = metal.CreateProgram()
        metal.CreateKernel(program, kernel, CORE, metal.ReaderDataMovementConfig())
        config = metal.CircularBufferConfig(2 * size, {0: ttnn.float32}).set_page_size(0, size)
        metal.CreateCircularBuffer(program, CORE, config)
        workload = metal.MeshWorkload()
        workload.add_program(where, program)
        metal.EnqueueMeshWorkload(self.mesh.mesh_command_queue(), workload, blocking=True)

    def add_in_place(self) -> None:
        ttnn.add(self.tensor, 1.0, output_tensor=self.tensor)
        self._values = self._values + 1

    def write_bytes(self) -> None:
        """Somebody else who looks at the bytes, and has for long, changes the first of every device."""
        data = self._bytes.materialise()
        data.view(torch.float32)[..., 0, 0] = 5.0
        self._bytes.store()
        self._values[:, 0, 0] = 5.0

    def keep(self) -> None:
        """Somebody has the values in hand, and sees every change of them."""
        self._kept.append(self.tensor.view_data())

    def let_go(self) -> None:
        self._kept.clear()

    def record(self) -> None:
        """A trace has the values in hand."""
        self.close()
        self._placed = ttnn.placements(self.tensor)
        ttnn.add(self.tensor, 1.0)  # compiled before it is recorded
        self._trace = ttnn.begin_trace_capture(self.mesh)
        self._one_more = ttnn.add(self.tensor, 1.0)
        ttnn.end_trace_capture(self.mesh, self._trace)

    def replay(self) -> None:
        if self._trace is None or ttnn.placements(self.tensor) != self._placed:
            return  # where devices differ since then, a trace refuses
        ttnn.execute_trace(self.mesh, self._trace)
        self._check(self._one_more, self._values + 1)

    def compute(self) -> None:
        self._check(ttnn.multiply(self.tensor, 2.0), self._values * 2)

    def read(self) -> None:
        self._check(self.tensor, self._values)

    def read_bytes(self) -> None:
        data = self._bytes.data.view(torch.float32)
        sums = self._values.reshape(DEVICES, -1).sum(-1)
        assert torch.equal(data.flatten(2).sum(-1).expand(2, 2).flatten(), sums)

    def _check(self, tensor: ttnn.Tensor, values: torch.Tensor) -> None:
        found = [ttnn.to_torch(each) for each in ttnn.get_device_tensors(tensor)]
        assert torch.equal(torch.stack(found), values)

    def close(self) -> None:
        if self._trace is not None:
            ttnn.release_trace(self.mesh, self._trace)
        self._trace = None


_launches = st.builds(
    lambda shared, pages, only: lambda turns: turns.launch(shared, pages, only),
    st.booleans(),
    st.sampled_from([(0,), (1,), (0, 1)]),
    st.sampled_from([None, None, 0, 3]),
)
_others = st.sampled_from(
    [
        Turns.exchange,
        Turns.add_in_place,
        Turns.write_bytes,
        Turns.keep,
        Turns.let_go,
        Turns.record,
        Turns.replay,
        Turns.compute,
        Turns.read,
        Turns.read_bytes,
    ]
)


@settings(max_examples=80, deadline=None)
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
        turns.read()
    finally:
        turns.close()
