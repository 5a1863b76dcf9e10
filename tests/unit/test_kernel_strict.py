"""Strict mode: what silicon computes nonsense from is an error that names the kernel, the core and the line."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from kernel_programs import CORE, TILE_BYTES, add_cb, program_of, run, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    L1Pointer,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_absolute_logical_x,
    get_arg_val,
    get_noc_addr,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    my_x,
    my_y,
    noc_async_read_barrier,
    noc_async_read_page,
    noc_async_read_tile,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_write_page,
    noc_async_write_tile,
    noc_async_writes_flushed,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_set_remote,
    noc_semaphore_wait,
)

PAIR = ttnn.CoreRange((0, 0), (1, 0))


@pytest.fixture(scope="module")
def chip():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


@pytest.fixture
def ones(chip):
    return tiles(chip, torch.ones(1, 1, 32, 32 * 4))


def mistake(mesh, *, matching, warns=None, reader=None, writer=None, cores=CORE, semaphores=0):
    """A program that fails in strict mode with this message; without it, it runs, with a warning or none."""

    def program(strict):
        made = program_of(reader=reader, writer=writer, cores=cores, cbs=[0], strict=strict)
        for _ in range(semaphores):
            metal.CreateSemaphore(made, cores, 0)
        return made

    with nullcontext() if warns is None else pytest.warns(ttnn.SoftmeshWarning, match=warns):
        run(mesh, program(False))
    with pytest.raises(ttnn.MeshError, match=matching) as caught:
        run(mesh, program(True))
    assert "test_kernel_strict.py:" in str(caught.value)
    assert "on core " in str(caught.value)


def test_pushing_before_the_read_barrier_is_an_error(chip, ones):
    def reader():
        cb_reserve_back(0, 1)
        noc_async_read_tile(0, InterleavedAddrGen(ones.buffer_address(), TILE_BYTES), get_write_ptr(0))
        cb_push_back(0, 1)
        noc_async_read_barrier()

    message = r"publishes bytes that the noc_async_read of test_kernel_strict.py:\d+ is still bringing: call noc_async"
    mistake(chip, reader=reader, matching=message, warns="publishes bytes that a noc_async_read may still be bringing")


def test_reading_what_is_still_on_its_way_is_an_error(chip, ones):
    def reader():
        cb_reserve_back(0, 1)
        noc_async_read_tile(0, InterleavedAddrGen(ones.buffer_address(), TILE_BYTES), get_write_ptr(0))
        L1Pointer(get_write_ptr(0))[0]
        noc_async_read_barrier()

    warns = r"reads page 0 of circular buffer 0 on core 0-0 while a noc_async_read of its own may still be under way"
    mistake(
        chip, reader=reader, matching=r"are read while the noc_async_read of .* is still bringing them", warns=warns
    )


def test_ending_without_a_barrier_is_an_error(chip, ones):
    def reader():
        cb_reserve_back(0, 1)
        noc_async_read_tile(0, InterleavedAddrGen(ones.buffer_address(), TILE_BYTES), get_write_ptr(0))

    mistake(
        chip,
        reader=reader,
        matching=r"The kernel ends while the transfer of .* is under way: call noc_async_read_b",
        warns="The kernel ends while its noc_async_read may still be under way",
    )


def fill(cb, value=1):
    cb_reserve_back(cb, 1)
    L1Pointer(get_write_ptr(cb))[0 : TILE_BYTES // 4] = value
    cb_push_back(cb, 1)


def test_popping_before_a_write_has_left_is_an_error(chip, ones):
    def writer():
        fill(0)
        cb_wait_front(0, 1)
        noc_async_write_tile(0, InterleavedAddrGen(ones.buffer_address(), TILE_BYTES), get_read_ptr(0))
        cb_pop_front(0, 1)
        noc_async_write_barrier()

    mistake(chip, writer=writer, matching=r"gives back bytes that the noc_async_write of .* may still be reading")


def test_flushing_is_enough_to_reuse_the_source(chip, ones):
    def writer():
        for value in (0x40004000, 0x40404040):  # bfloat16 2.0 twice, then 3.0
            fill(0, value)
            cb_wait_front(0, 1)
            target = InterleavedAddrGen(ones.buffer_address(), TILE_BYTES)
            noc_async_write_tile(value >> 22 & 1, target, get_read_ptr(0))
            noc_async_writes_flushed()
            cb_pop_front(0, 1)
        noc_async_write_barrier()

    run(chip, program_of(writer=writer, cbs=[0], strict=True))
    assert ttnn.to_torch(ones)[0, 0, 0, ::32].tolist() == [2.0, 3.0, 1.0, 1.0]


def test_overwriting_the_source_of_a_write_is_an_error(chip, ones):
    def writer():
        cb_reserve_back(0, 1)
        pointer = L1Pointer(get_write_ptr(0))
        pointer[0 : TILE_BYTES // 4] = 0
        noc_async_write_tile(0, InterleavedAddrGen(ones.buffer_address(), TILE_BYTES), get_write_ptr(0))
        pointer[5] = 1
        noc_async_write_barrier()

    mistake(
        chip,
        writer=writer,
        matching=r"are overwritten while the noc_async_write of .* may still be reading them",
        warns=r"call noc_async_writes_flushed\(\) or noc_async_write_barrier\(\) before",
    )


def test_data_arrives_at_the_barrier_and_not_before(chip, ones):
    seen = []

    def reader():
        target = InterleavedAddrGen(ones.buffer_address(), TILE_BYTES)
        fill(0, 0)
        cb_wait_front(0, 1)
        cb_reserve_back(1, 1)
        noc_async_write_tile(0, target, get_read_ptr(0))
        barriers[-1]()
        noc_async_read_tile(0, target, get_write_ptr(1))
        noc_async_read_barrier()
        seen.append(L1Pointer(get_write_ptr(1))[0])

    barriers = [noc_async_writes_flushed]
    program = program_of(reader=reader, cbs=[0, 1], strict=True)
    with pytest.raises(ttnn.MeshError, match=r"are read while the noc_async_write of .* may still be under way"):
        run(chip, program)
    barriers.append(noc_async_write_barrier)
    run(chip, program)
    assert seen == [0]


def test_memory_that_nobody_wrote_is_not_read(chip, ones):
    def writer():
        cb_reserve_back(0, 1)
        L1Pointer(get_write_ptr(0))[0:8] = 1
        cb_push_back(0, 1)
        cb_wait_front(0, 1)
        noc_async_write_tile(0, InterleavedAddrGen(ones.buffer_address(), TILE_BYTES), get_read_ptr(0))
        noc_async_write_barrier()

    mistake(chip, writer=writer, matching=r"\(circular buffer 0\) are read, and nobody has written byte \d+")


def test_a_read_of_a_buffer_that_nobody_wrote_is_told(chip):
    local = metal.DeviceLocalBufferConfig(page_size=64, buffer_type=ttnn.BufferType.DRAM)
    buffer = metal.MeshBuffer.create(metal.ReplicatedBufferConfig(size=128), local, chip)

    def reader():
        place = InterleavedAddrGen(buffer.address(), 64)
        cb_reserve_back(0, 1)
        L1Pointer(get_write_ptr(0))[0:16] = 1
        if get_arg_val(0):
            noc_async_write_page(1, place, get_write_ptr(0))
            noc_async_write_barrier()
        noc_async_read_page(0, place, get_write_ptr(0))
        noc_async_read_barrier()

    program = program_of(reader=reader, cbs=[0], strict=True)
    metal.SetRuntimeArgs(program, 0, CORE, [0])
    with pytest.warns(ttnn.SoftmeshWarning, match=r"The DRAM buffer at \d+ is read, and nobody has ever written to it"):
        run(chip, program)
    metal.SetRuntimeArgs(program, 0, CORE, [1])
    run(chip, program)


def test_writing_into_pages_that_are_published_is_an_error(chip):
    def writer():
        fill(0)
        L1Pointer(get_write_ptr(0) - TILE_BYTES)[3] = 4

    mistake(chip, writer=writer, matching=r"pages of circular buffer 0 that were pushed and not yet popped")


def test_windows_that_share_memory_do_not_overlap(chip):
    def writer():
        fill(0)
        cb_reserve_back(1, 1)

    def program(strict):
        made = program_of(writer=writer, strict=strict)
        config = metal.CircularBufferConfig(2 * TILE_BYTES, {0: ttnn.bfloat16, 1: ttnn.bfloat16})
        metal.CreateCircularBuffer(made, CORE, config.set_page_size(0, TILE_BYTES).set_page_size(1, TILE_BYTES))
        return made

    run(chip, program(False))
    message = r"cb_reserve_back\(1, 1\) gives bytes that are pages of circular buffer 0"
    with pytest.raises(ttnn.MeshError, match=message):
        run(chip, program(True))


def test_pushing_without_reserving_and_popping_without_waiting_are_errors(chip):
    message = "publishes more than the 0 pages that were reserved"
    mistake(chip, reader=lambda: cb_push_back(0, 1), matching=message, warns=message)

    def writer():
        fill(0)
        cb_pop_front(0, 1)

    mistake(chip, writer=writer, matching="gives back more than the 0 pages that were waited for")


def test_a_semaphore_must_not_overtake_the_data_it_announces(chip):
    def reader():
        if get_absolute_logical_x() == 0:
            fill(0)
            noc_async_write(get_read_ptr(0), get_noc_addr(my_x[0] + 1, my_y[0], get_write_ptr(0)), 64)
            noc_semaphore_inc(get_noc_addr(my_x[0] + 1, my_y[0], get_semaphore(0)), 1)
            noc_async_write_barrier()
        else:
            noc_semaphore_wait(get_semaphore(0), 1)

    message = r"A semaphore of core 1-0 is raised while the write of .* to that core may still be under way"
    mistake(chip, reader=reader, cores=PAIR, semaphores=1, matching=message)


def test_a_word_written_to_the_same_core_comes_behind_the_data(chip):
    seen = []

    def reader():
        place = get_noc_addr(my_x[0] + 1, my_y[0], 0)
        if get_absolute_logical_x() == 0:
            fill(0, 9)
            noc_async_write(get_read_ptr(0), place + get_write_ptr(0), 64)
            noc_semaphore_set(get_semaphore(0), 1)
            noc_semaphore_set_remote(get_semaphore(0), place + get_semaphore(0))
            noc_async_write_barrier()
        else:
            cb_reserve_back(0, 2)
            noc_semaphore_wait(get_semaphore(0), 1)
            seen.append(L1Pointer(get_write_ptr(0) + TILE_BYTES)[15])

    program = program_of(reader=reader, cores=PAIR, cbs=[0], strict=True)
    metal.CreateSemaphore(program, PAIR, 0)
    run(chip, program)
    assert seen == [9]


def test_the_environment_makes_every_program_strict(chip, monkeypatch):
    def reader():
        L1Pointer(get_write_ptr(0))[0] = 1
        L1Pointer(get_write_ptr(0))[0:2]

    program = program_of(reader=reader, cbs=[0])
    run(chip, program)
    monkeypatch.setenv("SOFTMESH_STRICT", "1")
    with pytest.raises(ttnn.MeshError, match="nobody has written byte"):
        run(chip, program)
    run(chip, program_of(reader=reader, cbs=[0], strict=False))


def test_a_program_without_mistakes_gives_the_same_in_strict_mode(chip, ones):
    result = tiles(chip, torch.zeros(1, 1, 32, 32 * 4))

    def reader():
        source = InterleavedAddrGen(ones.buffer_address(), TILE_BYTES)
        for i in range(4):
            cb_reserve_back(0, 1)
            noc_async_read_tile(i, source, get_write_ptr(0))
            noc_async_read_barrier()
            cb_push_back(0, 1)

    def writer():
        target = InterleavedAddrGen(result.buffer_address(), TILE_BYTES)
        for i in range(4):
            cb_wait_front(0, 1)
            noc_async_write_tile(i, target, get_read_ptr(0))
            noc_async_write_barrier()
            cb_pop_front(0, 1)

    program = program_of(reader=reader, writer=writer, strict=True)
    add_cb(program, 0, 2)
    run(chip, program)
    assert torch.equal(ttnn.to_torch(result), ttnn.to_torch(ones))
