"""Global circular buffers: a core writes pages into the L1 of its receivers, across programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from kernel_programs import TILE_BYTES, add_cb, run, shards, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    L1Pointer,
    align_local_cbs_to_remote_cb,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    copy_tile,
    copy_tile_init,
    get_absolute_logical_x,
    get_arg_val,
    get_read_ptr,
    get_remote_receiver_cb_interface,
    get_remote_sender_cb_interface,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_write_tile,
    pack_tile,
    remote_cb_pop_front,
    remote_cb_push_back_and_write_pages,
    remote_cb_reserve_back,
    remote_cb_wait_front,
    resize_remote_receiver_cb_interface,
    resize_remote_sender_cb_interface,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
    unary_op_init_common,
)

SENDER = ttnn.CoreCoord(0, 0)
RECEIVERS = ttnn.CoreRangeSet([ttnn.CoreRange((1, 0), (2, 0))])
REMOTE = 31
PAGES = 4


@pytest.fixture(scope="module")
def mesh() -> Iterator[ttnn.MeshDevice]:
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as opened:
        yield opened


@pytest.fixture
def between(mesh: ttnn.MeshDevice) -> ttnn.GlobalCircularBuffer:
    return ttnn.create_global_circular_buffer(mesh, [(SENDER, RECEIVERS)], PAGES * TILE_BYTES)


def add_remote(program, cores, shared, *, page_size=TILE_BYTES, local=None):
    config = metal.CircularBufferConfig(shared.size())
    config.remote_index(REMOTE).set_data_format(ttnn.bfloat16).set_page_size(page_size)
    if local is not None:
        config.index(local).set_data_format(ttnn.bfloat16).set_page_size(page_size)
    return metal.CreateCircularBuffer(program, cores, config, shared)


def send():
    """Rows of two tiles from DRAM: the left one for the first receiver, the right one for the second."""
    source = InterleavedAddrGen(get_arg_val(0), TILE_BYTES)
    for row in range(get_arg_val(1), get_arg_val(2)):
        cb_reserve_back(0, 2)
        for i in range(2):
            noc_async_read_tile(2 * row + i, source, get_write_ptr(0) + i * TILE_BYTES)
        noc_async_read_barrier()
        remote_cb_reserve_back(REMOTE, 1)
        remote_cb_push_back_and_write_pages(REMOTE, get_write_ptr(0), 1, 1, 1, TILE_BYTES)
        cb_push_back(0, 2)
        cb_wait_front(0, 2)
        cb_pop_front(0, 2)


def receive():
    target = InterleavedAddrGen(get_arg_val(0), TILE_BYTES)
    for row in range(get_arg_val(1), get_arg_val(2)):
        remote_cb_wait_front(REMOTE, 1)
        tile = 2 * row + get_absolute_logical_x() - 1
        noc_async_write_tile(tile, target, get_remote_receiver_cb_interface(REMOTE).fifo_rd_ptr)
        noc_async_write_barrier()
        remote_cb_pop_front(REMOTE, 1)


def add_sender(program, shared, source, rows):
    handle = metal.CreateKernel(program, send, SENDER, metal.ReaderDataMovementConfig())
    metal.SetRuntimeArgs(program, handle, SENDER, [source.buffer_address(), rows.start, rows.stop])
    add_cb(program, 0, cores=SENDER)
    add_remote(program, SENDER, shared)


def add_receivers(program, shared, target, rows):
    handle = metal.CreateKernel(program, receive, RECEIVERS, metal.WriterDataMovementConfig())
    metal.SetRuntimeArgs(program, handle, RECEIVERS, [target.buffer_address(), rows.start, rows.stop])
    add_remote(program, RECEIVERS, shared)


def rows_of_two(mesh, count, seed=0):
    values = torch.randn(2, 32 * count, 64, generator=torch.Generator().manual_seed(seed)).bfloat16().float()
    return tiles(mesh, values, mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0)), list(values.split(1))


def room_for(mesh, count):
    return tiles(mesh, torch.zeros(1, 32 * count, 64))


def assert_same(tensor, expected):
    for got, wanted in zip(shards(tensor), expected, strict=True):
        assert torch.equal(got.float(), wanted)


@pytest.mark.parametrize("strict", [False, True])
def test_each_receiver_gets_its_part_of_every_row(mesh, between, strict):
    source, values = rows_of_two(mesh, 11)
    target = room_for(mesh, 11)
    program = metal.CreateProgram(strict=strict)
    add_sender(program, between, source, range(11))
    add_receivers(program, between, target, range(11))
    run(mesh, program)
    assert_same(target, values)


def test_a_program_goes_on_where_the_last_one_stopped(mesh, between):
    source, values = rows_of_two(mesh, 9)
    target = room_for(mesh, 9)
    for first in (0, 3, 6):
        sending, receiving = metal.CreateProgram(), metal.CreateProgram()
        add_sender(sending, between, source, range(first, first + 3))
        run(mesh, sending)
        add_receivers(receiving, between, target, range(first, first + 3))
        run(mesh, receiving)
    assert_same(target, values)


def test_devices_that_got_differently_far_run_apart(mesh, between):
    source, values = rows_of_two(mesh, 3)
    first, target = room_for(mesh, 3), room_for(mesh, 3)
    ahead = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 1), ttnn.MeshCoordinate(0, 1))
    program = metal.CreateProgram()
    add_sender(program, between, source, range(3))
    add_receivers(program, between, first, range(3))
    run(mesh, program, ahead)
    both = metal.CreateProgram()
    add_sender(both, between, source, range(3))
    add_receivers(both, between, target, range(3))
    run(mesh, both)
    assert both.runs_per_device
    assert_same(target, values)


def test_pages_may_change_their_size_at_the_same_place_of_the_stream(mesh, between):
    heard = []

    def sending():
        L1Pointer(get_write_ptr(0))[0 : 6 * TILE_BYTES // 4] = 1
        remote_cb_reserve_back(REMOTE, 3)
        remote_cb_push_back_and_write_pages(REMOTE, get_write_ptr(0), 3, 3, 1, TILE_BYTES)
        resize_remote_sender_cb_interface(REMOTE, 2 * TILE_BYTES)
        at = get_remote_sender_cb_interface(REMOTE)
        heard.append(("sender", at.fifo_wr_ptr - at.fifo_start_addr, at.fifo_page_size, at.num_receivers))
        remote_cb_reserve_back(REMOTE, 1)
        remote_cb_push_back_and_write_pages(REMOTE, get_write_ptr(0), 1, 1, 2, TILE_BYTES)

    def receiving():
        remote_cb_wait_front(REMOTE, 3)
        remote_cb_pop_front(REMOTE, 3)
        resize_remote_receiver_cb_interface(REMOTE, 2 * TILE_BYTES)
        remote_cb_wait_front(REMOTE, 1)
        at = get_remote_receiver_cb_interface(REMOTE)
        heard.append(("receiver", at.fifo_rd_ptr - at.fifo_start_addr))
        remote_cb_pop_front(REMOTE, 1)

    program = metal.CreateProgram()
    metal.CreateKernel(program, sending, SENDER, metal.ReaderDataMovementConfig())
    metal.CreateKernel(program, receiving, RECEIVERS, metal.ReaderDataMovementConfig())
    add_cb(program, 0, 6, cores=SENDER)
    add_remote(program, ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (2, 0))]), between)
    run(mesh, program)
    # Behind three pages there is room for one more of the old size, and none of the new one.
    assert sorted(heard) == [("receiver", 0), ("receiver", 0), ("sender", 0, 2 * TILE_BYTES, 2)]


def test_compute_reads_the_pages_through_a_local_circular_buffer(mesh, between):
    """The same memory under a local index, which begins where the global one stands."""
    source, values = rows_of_two(mesh, 2)
    target = room_for(mesh, 2)

    def hand_over():
        remote_cb_wait_front(REMOTE, 1)
        align_local_cbs_to_remote_cb(REMOTE, [1])
        cb_reserve_back(1, 1)
        cb_push_back(1, 1)
        cb_wait_front(16, 1)  # computed: the page may go
        tile = get_arg_val(1) + get_absolute_logical_x() - 1
        noc_async_write_tile(tile, InterleavedAddrGen(get_arg_val(0), TILE_BYTES), get_read_ptr(16))
        noc_async_write_barrier()
        cb_pop_front(16, 1)
        remote_cb_pop_front(REMOTE, 1)

    def compute():
        unary_op_init_common(1, 16)
        copy_tile_init(1)
        cb_wait_front(1, 1)
        cb_reserve_back(16, 1)
        tile_regs_acquire()
        copy_tile(1, 0, 0)
        tile_regs_commit()
        tile_regs_wait()
        pack_tile(0, 16)
        tile_regs_release()
        cb_push_back(16, 1)
        cb_pop_front(1, 1)

    for row in range(2):
        program = metal.CreateProgram()
        add_sender(program, between, source, range(row, row + 1))
        moving = metal.CreateKernel(program, hand_over, RECEIVERS, metal.WriterDataMovementConfig())
        metal.SetRuntimeArgs(program, moving, RECEIVERS, [target.buffer_address(), 2 * row])
        metal.CreateKernel(program, compute, RECEIVERS, metal.ComputeConfig())
        add_cb(program, 16, cores=RECEIVERS)
        add_remote(program, RECEIVERS, between, local=1)
        run(mesh, program)
    assert_same(target, values)


def test_a_descriptor_names_it_too(mesh, between):
    source, values = rows_of_two(mesh, 5)
    target = room_for(mesh, 5)

    def remote(cores):
        made = ttnn.CBDescriptor(between.size(), cores, [])
        made.remote_format_descriptors = [ttnn.CBFormatDescriptor(REMOTE, ttnn.bfloat16, TILE_BYTES)]
        made.set_global_circular_buffer(between)
        assert made.has_global_circular_buffer()
        return made

    def kernel(function, cores, config, args):
        words = ttnn.RuntimeArgs()
        for core in ttnn.corerange_to_cores(cores):
            words[core.x][core.y] = args
        return ttnn.KernelDescriptor(kernel_source=function, core_ranges=cores, runtime_args=words, config=config)

    one = ttnn.CoreRangeSet([ttnn.CoreRange(SENDER, SENDER)])
    local = ttnn.CBDescriptor(2 * TILE_BYTES, one, [ttnn.CBFormatDescriptor(0, ttnn.bfloat16, TILE_BYTES)])
    descriptor = ttnn.ProgramDescriptor(
        kernels=[
            kernel(send, one, ttnn.ReaderConfigDescriptor(), [source.buffer_address(), 0, 5]),
            kernel(receive, RECEIVERS, ttnn.WriterConfigDescriptor(), [target.buffer_address(), 0, 5]),
        ],
        cbs=[local, remote(one), remote(RECEIVERS)],
    )
    ttnn.generic_op([source, target], descriptor)
    assert_same(target, values)


def on_sender(mesh, shared, kernel):
    program = metal.CreateProgram()
    metal.CreateKernel(program, kernel, SENDER, metal.ReaderDataMovementConfig())
    add_cb(program, 0, 8, cores=SENDER)
    add_remote(program, SENDER, shared)
    run(mesh, program)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda: remote_cb_wait_front(REMOTE, 1), "core 0-0 is the sender .* Senders call remote_cb_reserve"),
        (lambda: remote_cb_reserve_back(7, 1), "has no global circular buffer 7; its remote indexes: 31"),
        (lambda: remote_cb_reserve_back(REMOTE, 5), "waits for ever: .* 8192 bytes, 4 pages of 2048"),
        (
            lambda: remote_cb_push_back_and_write_pages(REMOTE, get_write_ptr(0), 2, 1, 1, TILE_BYTES),
            "1 rows of 1 x 2048 bytes are 2048 bytes for each receiver, and 2 pages of 2048 bytes are 4096",
        ),
        (lambda: resize_remote_sender_cb_interface(REMOTE, 100), "a multiple of 16 bytes, got 100"),
        (
            lambda: [
                remote_cb_push_back_and_write_pages(REMOTE, get_write_ptr(0), 3, 3, 1, TILE_BYTES) for _ in range(2)
            ],
            "goes around the end of global circular buffer 31: 1 pages of 2048 bytes are left",
        ),
        (
            lambda: [
                remote_cb_push_back_and_write_pages(REMOTE, get_write_ptr(0), 2, 2, 1, TILE_BYTES) for _ in range(3)
            ],
            "overwrites pages that a receiver has not read: of 8192 bytes are unread: 8192 for core 1-0, 8192",
        ),
    ],
)
def test_mistakes_of_a_sender_are_told(mesh, between, kernel, message):
    with pytest.raises(ttnn.MeshError, match=message):
        on_sender(mesh, between, kernel)


def test_a_sender_without_receivers_gets_stuck_and_its_pointers_stay(mesh, between):
    def kernel():
        for _ in range(5):
            remote_cb_reserve_back(REMOTE, 1)
            remote_cb_push_back_and_write_pages(REMOTE, get_write_ptr(0), 1, 1, 1, TILE_BYTES)

    for _ in range(2):  # a launch that fails leaves the buffer as it was
        with pytest.raises(ttnn.MeshError, match=r"stuck.*\n.*remote_cb_reserve_back\(31, 1\), of 8192 bytes"):
            on_sender(mesh, between, kernel)


def test_local_indexes_are_lower_than_remote_ones(mesh, between):
    program = metal.CreateProgram()
    add_remote(program, SENDER, between)
    with pytest.raises(ttnn.MeshError, match="Local CB indexes must be lower than remote ones"):
        add_cb(program, 32, cores=SENDER)
    with pytest.raises(ttnn.MeshError, match="another circular buffer already exists there"):
        add_remote(program, SENDER, between)


def test_a_remote_index_needs_a_global_circular_buffer_that_has_the_cores(mesh, between):
    program = metal.CreateProgram()
    config = metal.CircularBufferConfig(TILE_BYTES)
    config.remote_index(REMOTE).set_page_size(TILE_BYTES)
    with pytest.raises(ttnn.MeshError, match="no global circular buffer is given"):
        metal.CreateCircularBuffer(program, SENDER, config)
    with pytest.raises(ttnn.MeshError, match="Specified cores are not contained in associated GlobalCircularBuffer"):
        metal.CreateCircularBuffer(program, ttnn.CoreCoord(5, 5), config, between)
    large = metal.CircularBufferConfig(2 * between.size())
    large.remote_index(REMOTE).set_page_size(TILE_BYTES)
    with pytest.raises(ttnn.MeshError, match="wants 16384 bytes of a global one that has 8192"):
        metal.CreateCircularBuffer(program, SENDER, large, between)
    with pytest.raises(ttnn.MeshError, match="has a remote index"):
        metal.CreateCircularBuffer(
            program, SENDER, metal.CircularBufferConfig(64, {0: ttnn.uint32}).set_page_size(0, 64), between
        )
    with pytest.raises(TypeError, match="global_circular_buffer must be what"):
        metal.CreateCircularBuffer(program, SENDER, config, "between")


def test_a_receiver_may_forward_what_it_got(mesh, between):
    """Pages are plain L1: other NoC calls reach them too."""
    source, values = rows_of_two(mesh, 1)
    target = room_for(mesh, 1)

    def forward():
        remote_cb_wait_front(REMOTE, 1)
        tile = get_absolute_logical_x() - 1
        accessor = InterleavedAddrGen(get_arg_val(0), TILE_BYTES)
        pointer = get_remote_receiver_cb_interface(REMOTE).fifo_rd_ptr
        for half in range(2):
            offset = half * TILE_BYTES // 2
            noc_async_write(pointer + offset, accessor.get_noc_addr(tile, offset), TILE_BYTES // 2)
        noc_async_write_barrier()
        remote_cb_pop_front(REMOTE, 1)

    program = metal.CreateProgram()
    add_sender(program, between, source, range(1))
    handle = metal.CreateKernel(program, forward, RECEIVERS, metal.WriterDataMovementConfig())
    metal.SetRuntimeArgs(program, handle, RECEIVERS, [target.buffer_address()])
    add_remote(program, RECEIVERS, between)
    run(mesh, program)
    assert_same(target, values)
