"""Circular buffers: a queue of pages with windows that lie in one piece, one producer and one consumer."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import CORE, TILE_BYTES, add_cb, program_of, run, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    L1Pointer,
    cb_pages_available_at_front,
    cb_pages_reservable_at_back,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_dataformat,
    get_read_ptr,
    get_tile_size,
    get_write_ptr,
)


@pytest.fixture(scope="module")
def chip():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


def run_kernel(mesh, kernel, *, pages=4, strict=None):
    program = program_of(reader=kernel, strict=strict)
    add_cb(program, 0, pages, page_size=64)
    run(mesh, program)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.lists(st.sampled_from(["push", "pop"]), max_size=30))
def test_pages_come_out_in_the_order_they_went_in(pages, steps):
    """Against a deque, for any order of steps that never waits."""
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:

        def both_ends():
            model = deque()
            for number, step in enumerate(steps):
                assert cb_pages_available_at_front(0, len(model))
                assert cb_pages_reservable_at_back(0, pages - len(model))
                if step == "push" and len(model) < pages:
                    cb_reserve_back(0, 1)
                    L1Pointer(get_write_ptr(0))[0] = number
                    cb_push_back(0, 1)
                    model.append(number)
                elif step == "pop" and model:
                    cb_wait_front(0, 1)
                    assert L1Pointer(get_read_ptr(0))[0] == model.popleft()
                    cb_pop_front(0, 1)
            cb_wait_front(0, len(model))  # nothing is left that nobody knows of

        run_kernel(mesh, both_ends, pages=pages)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_blocks_of_any_size_that_divides_the_buffer_get_through(unit, in_blocks, out_blocks, trips):
    """Producer and consumer may take different blocks; what arrives is what was sent."""
    capacity = unit * in_blocks * out_blocks
    count, received = capacity * trips, []

    def producer():
        for first in range(0, count, unit * in_blocks):
            cb_reserve_back(0, unit * in_blocks)
            for i in range(unit * in_blocks):
                L1Pointer(get_write_ptr(0) + 64 * i)[0] = first + i
            cb_push_back(0, unit * in_blocks)

    def consumer():
        for _ in range(0, count, unit * out_blocks):
            cb_wait_front(0, unit * out_blocks)
            received.extend(L1Pointer(get_read_ptr(0) + 64 * i)[0] for i in range(unit * out_blocks))
            cb_pop_front(0, unit * out_blocks)

    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        program = program_of(reader=producer, writer=consumer)
        add_cb(program, 0, capacity, page_size=64)
        run(mesh, program)
    assert received == list(range(count))


def test_waiting_counts_from_the_front_and_not_on_top(chip):
    def kernel():
        cb_reserve_back(0, 3)
        cb_push_back(0, 3)
        cb_wait_front(0, 2)
        cb_wait_front(0, 3)  # three in all, not five
        cb_pop_front(0, 3)

    run_kernel(chip, kernel)


def test_a_window_that_would_go_around_the_end_is_refused(chip):
    def kernel():
        cb_reserve_back(0, 3)
        cb_push_back(0, 3)
        cb_wait_front(0, 3)
        cb_pop_front(0, 3)
        cb_reserve_back(0, 2)

    message = r"cb_reserve_back\(0, 2\) goes around the end of circular buffer 0: 1 of its 4 pages are left"
    with pytest.raises(ttnn.MeshError, match=message):
        run_kernel(chip, kernel)


def test_more_pages_than_there_are_would_wait_for_ever(chip):
    with pytest.raises(ttnn.MeshError, match=r"cb_wait_front\(0, 5\) waits for ever: circular buffer 0 has 4 pages"):
        run_kernel(chip, lambda: cb_wait_front(0, 5))


def test_pushing_over_unread_pages_is_refused(chip):
    def kernel():
        for _ in range(5):
            cb_push_back(0, 1)

    with pytest.raises(ttnn.MeshError, match="overwrites pages that nobody has read: 4 of 4 pages are full"):
        run_kernel(chip, kernel)


def test_popping_what_is_not_there_is_refused(chip):
    with pytest.raises(ttnn.MeshError, match="takes pages that are not there: 0 of 4 pages are full"):
        run_kernel(chip, lambda: cb_pop_front(0, 1))


def test_a_second_producer_is_refused(chip):
    def push():
        cb_reserve_back(0, 1)
        cb_push_back(0, 1)

    program = program_of(reader=push, writer=push)
    add_cb(program, 0, 4)
    with pytest.raises(ttnn.MeshError, match=r"already has its producer, push \(NCRISC\)"):
        run(chip, program)


def test_an_unknown_index_is_answered_with_the_known_ones(chip):
    with pytest.raises(ttnn.MeshError, match=r"core 0-0 has no circular buffer 3; its indexes: 0"):
        run_kernel(chip, lambda: cb_wait_front(3, 1))


def test_a_kernel_can_ask_for_the_format(chip):
    found = []
    program = program_of(reader=lambda: found.extend([get_dataformat(5), get_tile_size(5)]))
    add_cb(program, 5, page_size=1088, dtype=metal.DataFormat.Bfp8_b)
    run(chip, program)
    assert found == [metal.DataFormat.Bfp8_b, 1088]


def test_several_indexes_share_one_memory_and_count_for_themselves(chip):
    found = {}

    def kernel():
        assert get_write_ptr(0) == get_write_ptr(1)
        cb_reserve_back(0, 1)
        L1Pointer(get_write_ptr(0))[0:2] = [11, 22]
        cb_push_back(0, 1)
        found["pages of 1"] = cb_pages_reservable_at_back(1, 4)
        found["values"] = L1Pointer(get_read_ptr(1))[0:2]

    program = program_of(reader=kernel)
    config = metal.CircularBufferConfig(256, {0: ttnn.uint32, 1: ttnn.uint32})
    metal.CreateCircularBuffer(program, CORE, config.set_page_size(0, 128).set_page_size(1, 64))
    run(chip, program)
    assert found == {"pages of 1": True, "values": [11, 22]}


def test_buffers_lie_one_behind_the_other_from_the_bottom_of_l1(chip):
    addresses = []
    program = program_of(reader=lambda: addresses.extend([get_write_ptr(0), get_write_ptr(1)]))
    add_cb(program, 0, 1, page_size=100)
    add_cb(program, 1)
    run(chip, program)
    assert addresses == [105_664, 105_664 + 128]


def sharded(mesh, values):
    grid = ttnn.CoreRangeSet([ttnn.CoreRange(CORE, CORE)])
    config = ttnn.create_sharded_memory_config(
        (64, 32), grid, ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    return tiles(mesh, values, memory_config=config)


def test_a_globally_allocated_buffer_is_the_memory_of_a_tensor(chip):
    values = torch.arange(64 * 32).reshape(1, 1, 64, 32).float()
    tensor = sharded(chip, values)
    seen = []

    def kernel():
        cb_reserve_back(0, 2)
        cb_push_back(0, 2)
        cb_wait_front(0, 2)
        seen.append(get_read_ptr(0))
        L1Pointer(get_read_ptr(0) + TILE_BYTES)[0:1] = [0x40003F80]  # bfloat16 1.0, then 2.0
        cb_pop_front(0, 2)

    program = program_of(reader=kernel)
    config = metal.CircularBufferConfig(2 * TILE_BYTES, {0: ttnn.bfloat16}).set_page_size(0, TILE_BYTES)
    handle = metal.CreateCircularBuffer(program, CORE, config.set_globally_allocated_address(tensor))
    run(chip, program)
    assert seen == [tensor.buffer_address()]
    assert ttnn.to_torch(tensor)[0, 0, 32, :3].tolist() == [1.0, 2.0, values.to(torch.bfloat16)[0, 0, 32, 2]]

    other = sharded(chip, values)
    metal.UpdateDynamicCircularBufferAddress(program, handle, other)
    run(chip, program)
    assert seen[1] == other.buffer_address() != seen[0]
    assert ttnn.to_torch(other)[0, 0, 32, 1] == 2.0
