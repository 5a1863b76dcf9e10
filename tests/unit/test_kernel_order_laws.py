"""Laws of order between kernels: right programs are quiet, and one call less for order is told."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import CORE, TILE_BYTES, add_cb, run, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_read_ptr,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    noc_async_writes_flushed,
)

CALLS = ("reserve", "read barrier", "wait", "flush", "write barrier")


@pytest.fixture(scope="module")
def mesh():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as opened:
        yield opened


def copied(mesh, block, depth, turns, *, writer_first, without):
    """Tiles from one tensor to another, `block` at a time, through room for `depth` blocks."""
    count = block * turns
    source, target = (tiles(mesh, torch.full((1, 1, 32, 32 * count), value)) for value in (1.0, 0.0))
    places = [InterleavedAddrGen(each.buffer_address(), TILE_BYTES) for each in (source, target)]

    def unless(name, call, *arguments):
        if name != without:
            call(*arguments)

    def reader():
        for first in range(0, count, block):
            unless("reserve", cb_reserve_back, 0, block)
            for i in range(block):
                noc_async_read_tile(first + i, places[0], get_write_ptr(0) + i * TILE_BYTES)
            unless("read barrier", noc_async_read_barrier)
            cb_push_back(0, block)

    def writer():
        for first in range(0, count, block):
            unless("wait", cb_wait_front, 0, block)
            for i in range(block):
                noc_async_write_tile(first + i, places[1], get_read_ptr(0) + i * TILE_BYTES)
            unless("flush", noc_async_writes_flushed)
            cb_pop_front(0, block)
        unless("write barrier", noc_async_write_barrier)

    program = metal.CreateProgram()
    kernels = [(reader, metal.ReaderDataMovementConfig()), (writer, metal.WriterDataMovementConfig())]
    for kernel, config in kernels[:: -1 if writer_first else 1]:
        metal.CreateKernel(program, kernel, CORE, config)
    add_cb(program, 0, block * depth)
    run(mesh, program)
    return torch.equal(ttnn.to_torch(source), ttnn.to_torch(target))


shapes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3))


@settings(max_examples=25)
@given(shape=shapes, writer_first=st.booleans())
def test_right_programs_are_quiet(mesh, shape, writer_first):
    block, depth, more = shape
    assert copied(mesh, block, depth, depth + more, writer_first=writer_first, without=None)


@settings(max_examples=25)
@given(shape=shapes, writer_first=st.booleans(), without=st.sampled_from(CALLS))
def test_a_call_less_is_told(mesh, shape, writer_first, without):
    """Where pages are used again, at the latest."""
    block, depth, more = shape
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            copied(mesh, block, depth, depth + 1 + more, writer_first=writer_first, without=without)
        except ttnn.MeshError:
            return
    assert told
