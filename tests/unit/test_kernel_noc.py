"""The NoC: bytes from bank to core and from core to core, alone and by multicast."""

from __future__ import annotations

import pytest
import torch
from kernel_programs import CORE, add_cb, program_of, run, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    INVALID,
    VALID,
    CircularBuffer,
    InterleavedAddrGen,
    L1Pointer,
    MulticastEndpoint,
    Noc,
    Semaphore,
    TensorAccessor,
    TensorAccessorArgs,
    UnicastEndpoint,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    float32,
    get_absolute_logical_x,
    get_arg_val,
    get_noc_addr,
    get_noc_addr_from_bank_id,
    get_noc_multicast_addr,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    int32_t,
    my_x,
    my_y,
    noc_async_read,
    noc_async_read_barrier,
    noc_async_read_barrier_with_trid,
    noc_async_read_one_packet,
    noc_async_read_one_packet_set_state,
    noc_async_read_one_packet_with_state,
    noc_async_read_page,
    noc_async_read_set_trid,
    noc_async_read_shard,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_write_multicast,
    noc_async_write_multicast_loopback_src,
    noc_async_write_one_packet_set_state,
    noc_async_write_one_packet_with_state,
    noc_async_write_page,
    noc_async_write_shard,
    noc_inline_dw_write,
    noc_semaphore_inc_multicast,
    noc_semaphore_set,
    noc_semaphore_set_multicast,
    noc_semaphore_set_remote,
    noc_semaphore_wait,
    uint8_t,
    uint16_t,
)

LINE = ttnn.CoreRange((0, 0), (3, 0))


@pytest.fixture(scope="module")
def chip():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        yield mesh


def rows(mesh, count, width=16, **options):
    """Row-major uint32, one row to a page, each row filled with its number."""
    values = torch.arange(count, dtype=torch.int32).reshape(count, 1).expand(count, width).contiguous()
    return ttnn.from_torch(values, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=mesh, **options)


def on_one_core(mesh, kernel, *args, compile_args=(), strict=None):
    program = metal.CreateProgram(strict=strict)
    handle = metal.CreateKernel(program, kernel, CORE, metal.ReaderDataMovementConfig(compile_args))
    add_cb(program, 0, 8, page_size=1024, dtype=ttnn.uint32)
    metal.SetRuntimeArgs(program, handle, CORE, list(args))
    run(mesh, program)


def on_a_line(mesh, kernel, *, semaphores=2, strict=None):
    program = program_of(reader=kernel, cores=LINE, strict=strict)
    add_cb(program, 0, 2, cores=LINE, page_size=64, dtype=ttnn.uint32)
    for _ in range(semaphores):
        metal.CreateSemaphore(program, LINE, 0)
    run(mesh, program)


def test_pages_are_dealt_to_the_dram_banks_in_turn(chip):
    tensor = rows(chip, 30)
    seen = []

    def kernel():
        accessor = TensorAccessor(TensorAccessorArgs[0](), get_arg_val(0))
        for page in (0, 11, 12, 29):
            noc_async_read_page(page, accessor, get_write_ptr(0))
            noc_async_read_barrier()
            seen.append(L1Pointer(get_write_ptr(0))[3])
        # page 12 is the second of bank 0: rows take 64 bytes there
        noc_async_read(get_noc_addr_from_bank_id(0, get_arg_val(0) + 64), get_write_ptr(0), 64)
        noc_async_read_barrier()
        seen.append(L1Pointer(get_write_ptr(0))[15])

    words = ttnn.TensorAccessorArgs(tensor).get_compile_time_args()
    on_one_core(chip, kernel, tensor.buffer_address(), compile_args=words)
    assert seen == [0, 11, 12, 29, 12]


def test_what_is_written_is_what_the_tensor_holds(chip):
    tensor = rows(chip, 3)

    def kernel():
        accessor = InterleavedAddrGen(get_arg_val(0), 64)
        L1Pointer(get_write_ptr(0))[0:16] = range(100, 116)
        noc_async_write_page(1, accessor, get_write_ptr(0))
        noc_async_write(get_write_ptr(0), accessor.get_noc_addr(2, 32), 16)
        noc_async_write_barrier()

    on_one_core(chip, kernel, tensor.buffer_address())
    found = ttnn.to_torch(tensor).to(torch.int64)
    assert found[1].tolist() == list(range(100, 116))
    assert found[2].tolist() == [2] * 8 + [100, 101, 102, 103] + [2] * 4
    assert found[0].tolist() == [0] * 16


def test_a_page_outside_the_buffer_is_refused(chip):
    tensor = rows(chip, 3)

    def kernel():
        noc_async_read_page(3, InterleavedAddrGen(get_arg_val(0), 64), get_write_ptr(0))

    with pytest.raises(ttnn.MeshError, match=r"Page 3 is outside the buffer at \d+: it has 3 pages of 64 bytes"):
        on_one_core(chip, kernel, tensor.buffer_address())


def test_memory_of_nobody_is_neither_read_nor_written(chip):
    tensor = rows(chip, 3)
    address = tensor.buffer_address()
    tensor.deallocate()
    with pytest.raises(ttnn.MeshError, match=rf"DRAM address {address} belongs to no live buffer or tensor"):
        on_one_core(chip, lambda: InterleavedAddrGen(get_arg_val(0), 64).get_noc_addr(0), address)
    message = r"L1 bytes 16 to 19 of core 0-0 belong to nobody. .*circular buffer 0 \["
    with pytest.raises(ttnn.MeshError, match=message):
        on_one_core(chip, lambda: noc_semaphore_set(16, 1))
    with pytest.raises(ttnn.MeshError, match=r"belong to circular buffer 0 only up to \d+"):
        on_one_core(chip, lambda: noc_async_read(get_noc_addr(get_write_ptr(0)), get_write_ptr(0) + 1024, 8192))
    message = r"Nothing is at NoC coordinate \(40, 40\): worker cores are at \(18, 18\)"
    with pytest.raises(ttnn.MeshError, match=message):
        on_one_core(chip, lambda: noc_async_read(get_noc_addr(40, 40, 0), get_write_ptr(0), 64))


@pytest.mark.parametrize("strategy", [ttnn.ShardStrategy.HEIGHT, ttnn.ShardStrategy.WIDTH, ttnn.ShardStrategy.BLOCK])
def test_shards_are_found_by_page_and_as_a_whole(chip, strategy):
    values = torch.arange(128 * 128).reshape(1, 1, 128, 128).float()
    shape = {"HEIGHT": (32, 128), "WIDTH": (128, 32), "BLOCK": (64, 64)}[strategy.name]
    grid = ttnn.CoreRangeSet([ttnn.CoreRange((0, 0), (1, 1))])
    config = ttnn.create_sharded_memory_config(shape, grid, strategy, use_height_and_width_as_shard_shape=True)
    tensor = tiles(chip, values, ttnn.float32, memory_config=config)
    copy = tiles(chip, torch.zeros_like(values), ttnn.float32, memory_config=config)

    def by_page():
        args = TensorAccessorArgs(0)
        source, target = TensorAccessor(args, get_arg_val(0)), TensorAccessor(args, get_arg_val(1))
        for page in range(16):
            noc_async_read_page(page, source, get_write_ptr(0))
            noc_async_read_barrier()
            noc_async_write_page(page, target, get_write_ptr(0))
            noc_async_write_barrier()

    def by_shard():
        args = TensorAccessorArgs(0)
        source, target = TensorAccessor(args, get_arg_val(0)), TensorAccessor(args, get_arg_val(1))
        for shard in range(4):
            noc_async_read_shard(shard, source, get_write_ptr(0))
            noc_async_read_barrier()
            noc_async_write_shard(3 - shard, target, get_write_ptr(0))
            noc_async_write_barrier()

    def run_with(kernel):
        program = metal.CreateProgram()
        words = ttnn.TensorAccessorArgs(tensor).get_compile_time_args()
        handle = metal.CreateKernel(program, kernel, CORE, metal.ReaderDataMovementConfig(words))
        add_cb(program, 0, 4, page_size=4096)
        metal.SetRuntimeArgs(program, handle, CORE, [tensor.buffer_address(), copy.buffer_address()])
        run(chip, program)
        return ttnn.to_torch(copy)

    assert torch.equal(run_with(by_page), values)
    down, across = 128 // shape[0], 128 // shape[1]
    blocks = values.reshape(down, shape[0], across, shape[1]).transpose(1, 2).reshape(4, *shape).flip(0)
    turned = blocks.reshape(down, across, *shape).transpose(1, 2).reshape(1, 1, 128, 128)
    assert torch.equal(run_with(by_shard), turned)


def test_a_sharded_tensor_is_addressed_by_its_own_pages(chip):
    grid = ttnn.CoreRangeSet([ttnn.CoreRange(CORE, CORE)])
    config = ttnn.create_sharded_memory_config(
        (64, 32), grid, ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    tensor = tiles(chip, torch.zeros(1, 1, 64, 32), memory_config=config)

    def kernel():
        TensorAccessor(TensorAccessorArgs(0), get_arg_val(0), 1024).get_noc_addr(0)

    words = ttnn.TensorAccessorArgs(tensor).get_compile_time_args()
    with pytest.raises(ttnn.MeshError, match=r"the sharded buffer there has pages of 2048 bytes"):
        on_one_core(chip, kernel, tensor.buffer_address(), compile_args=words)


def test_an_interleaved_tensor_in_l1_lies_on_all_cores(chip):
    tensor = rows(chip, 70, memory_config=ttnn.L1_MEMORY_CONFIG)
    seen = []

    def kernel():
        accessor = TensorAccessor(TensorAccessorArgs(0), get_arg_val(0))
        for page in (0, 63, 64, 69):
            noc_async_read_page(page, accessor, get_write_ptr(0))
            noc_async_read_barrier()
            seen.append(L1Pointer(get_write_ptr(0))[0])

    words = ttnn.TensorAccessorArgs(tensor).get_compile_time_args()
    on_one_core(chip, kernel, tensor.buffer_address(), compile_args=words)
    assert seen == [0, 63, 64, 69]


def test_cores_write_into_each_others_memory(chip):
    seen = {}

    def kernel():
        me = get_absolute_logical_x()
        cb_reserve_back(0, 2)
        L1Pointer(get_write_ptr(0))[0:16] = [me] * 16
        right = 18 + (me + 1) % 4
        noc_async_write(get_write_ptr(0), get_noc_addr(right, my_y[0], get_write_ptr(0) + 64), 64)
        noc_async_write_barrier()
        noc_semaphore_set(get_semaphore(1), VALID)
        noc_semaphore_set_remote(get_semaphore(1), get_noc_addr(right, my_y[0], get_semaphore(0)))
        noc_semaphore_wait(get_semaphore(0), VALID)
        seen[me] = L1Pointer(get_write_ptr(0) + 64)[5]

    on_a_line(chip, kernel)
    assert seen == {0: 3, 1: 0, 2: 1, 3: 2}


@pytest.mark.parametrize("strict", [False, True])
def test_a_multicast_reaches_the_others_and_with_loopback_the_sender(chip, strict):
    seen = {}

    def kernel():
        me = get_absolute_logical_x()
        cb_reserve_back(0, 2)
        if me == 1:
            L1Pointer(get_write_ptr(0))[0:16] = [7] * 16
            first = get_noc_multicast_addr(18, 18, 21, 18, get_write_ptr(0))
            second = get_noc_multicast_addr(21, 18, 18, 18, get_write_ptr(0) + 64)  # corners either way round
            noc_async_write_multicast(get_write_ptr(0), first, 64, 3)
            noc_async_write_multicast_loopback_src(get_write_ptr(0), second, 64, 4)
            noc_async_write_barrier()
            noc_semaphore_set(get_semaphore(0), VALID)
            noc_semaphore_set_multicast(get_semaphore(0), get_noc_multicast_addr(18, 18, 21, 18, get_semaphore(0)), 3)
            noc_semaphore_inc_multicast(get_noc_multicast_addr(18, 18, 21, 18, get_semaphore(1)), 5, 3)
        noc_semaphore_wait(get_semaphore(0), VALID)
        if me != 1:
            noc_semaphore_wait(get_semaphore(1), 5)
        seen[me] = L1Pointer(get_write_ptr(0))[0], L1Pointer(get_write_ptr(0) + 64)[15]

    on_a_line(chip, kernel, strict=strict)
    assert seen == dict.fromkeys(range(4), (7, 7))


@pytest.mark.parametrize(("count", "last"), [(4, 21), (2, 21), (0, 18)])
def test_a_multicast_counts_its_receivers_right(chip, count, last):
    def kernel():
        address = get_noc_multicast_addr(18, 18, last, 18, get_write_ptr(0))
        noc_async_write_multicast(get_write_ptr(0), address, 64, count)

    program = program_of(reader=kernel, cbs=[0])
    message = rf"num_dests is {count}, and the rectangle .* has {last - 18} other cores"
    with pytest.raises(ttnn.MeshError, match=message):
        run(chip, program)


def test_a_unicast_address_is_not_taken_for_a_multicast_one(chip):
    def kernel():
        noc_async_write_multicast(get_write_ptr(0), get_noc_addr(get_write_ptr(0)), 64, 1)

    with pytest.raises(ttnn.MeshError, match="This is no multicast address"):
        on_one_core(chip, kernel)
    with pytest.raises(ttnn.MeshError, match="This is a multicast address"):
        on_one_core(chip, lambda: noc_async_read(get_noc_multicast_addr(18, 18, 19, 18, 0), get_write_ptr(0), 64))


def test_transfers_that_differ_modulo_the_alignment_are_warned_of(chip):
    tensor = rows(chip, 3)

    def kernel():
        noc_async_read(InterleavedAddrGen(get_arg_val(0), 64).get_noc_addr(0), get_write_ptr(0) + 16, 32)
        noc_async_read_barrier()

    message = r"A NoC read from DRAM bank 0: .* must be alike modulo 32.*on core 0-0"
    with pytest.warns(ttnn.SoftmeshWarning, match=message):
        on_one_core(chip, kernel, tensor.buffer_address())
    with pytest.raises(ttnn.MeshError, match="must be alike modulo 32"):
        on_one_core(chip, kernel, tensor.buffer_address(), strict=True)


def test_transfers_that_repeat_and_transaction_ids_move_the_same_bytes(chip):
    tensor = rows(chip, 3)
    seen = []

    def kernel():
        page = InterleavedAddrGen(get_arg_val(0), 64).get_noc_addr
        noc_async_read_one_packet_set_state(page(2), 64)
        noc_async_read_one_packet_with_state(get_arg_val(0), get_write_ptr(0))
        noc_async_read_set_trid(3)
        noc_async_read(page(1), get_write_ptr(0) + 64, 64)
        noc_async_read_barrier_with_trid(3)
        seen.append(L1Pointer(get_write_ptr(0) + 64)[0])
        noc_async_read_barrier()
        seen.append(L1Pointer(get_write_ptr(0))[0])
        noc_async_write_one_packet_set_state(page(0), 64)
        noc_async_write_one_packet_with_state(get_write_ptr(0), get_arg_val(0))
        noc_async_write_barrier()

    on_one_core(chip, kernel, tensor.buffer_address(), strict=True)
    assert seen == [1, 2]
    assert ttnn.to_torch(tensor)[0, 0] == 2


def test_a_packet_has_a_largest_size(chip):
    with pytest.raises(ttnn.MeshError, match="a packet carries at most 8192 bytes on this chip, got 8193"):
        on_one_core(chip, lambda: noc_async_read_one_packet(0, get_write_ptr(0), 8193))
    with pytest.raises(ttnn.MeshError, match="call noc_async_read_one_packet_set_state"):
        on_one_core(chip, lambda: noc_async_read_one_packet_with_state(0, 0))


def test_single_words_travel_without_a_copy_in_l1(chip):
    def kernel():
        noc_inline_dw_write(get_noc_addr(my_x[0], my_y[0], get_semaphore(0)), 42)
        noc_semaphore_wait(get_semaphore(0), 42)

    program = program_of(reader=kernel)
    metal.CreateSemaphore(program, CORE, INVALID)
    run(chip, program)


def test_kernels_move_data_on_data_movement_processors_only(chip):
    message = r"noc_async_read_barrier\(\) moves data over the NoC: it belongs into a reader"
    with pytest.raises(ttnn.MeshError, match=message):
        run(chip, program_of(compute=noc_async_read_barrier))


def test_the_object_style_does_the_same(chip):
    tensor = rows(chip, 4)
    seen = {}

    def kernel():
        noc, cb, there = Noc(), CircularBuffer(0), Semaphore(0)
        me = get_absolute_logical_x()
        accessor = InterleavedAddrGen(get_arg_val(0), 64)
        cb.reserve_back(1)
        if me == 0:
            noc.async_read(accessor, cb, 64, page_id=2)
            noc.async_read_barrier()
            there.down(3)
            line = MulticastEndpoint(18, 18, 21, 18, cb.get_write_ptr())
            noc.async_write_multicast(cb, line, 64, 3)
            noc.async_write_barrier()
            there.set(1)
            there.set_multicast(noc, 18, 18, 21, 18, 3)
        else:
            there.up(noc, 18, 18, 1)
            there.wait(1)
        cb.push_back(1)
        cb.wait_front(1)
        seen[me] = L1Pointer(cb.get_read_ptr())[9]
        if me == 3:
            noc.async_write(cb, accessor, 64, page_id=1)
            noc.async_writes_flushed()
            noc.async_read(UnicastEndpoint(18, 18, cb.get_read_ptr()), cb.get_read_ptr(), 64)
            noc.async_full_barrier()
        cb.pop_front(1)

    program = program_of(reader=kernel, cores=LINE)
    add_cb(program, 0, 1, cores=LINE, page_size=64, dtype=ttnn.uint32)
    metal.CreateSemaphore(program, LINE, 0)
    metal.SetRuntimeArgs(program, 0, LINE, [tensor.buffer_address()])
    run(chip, program)
    assert seen == dict.fromkeys(range(4), 2)
    assert ttnn.to_torch(tensor)[1, 0] == 2


def test_a_kernel_reads_and_writes_numbers_of_every_kind_in_l1(chip):
    seen = []

    def kernel():
        cb_reserve_back(0, 1)
        words = L1Pointer(get_write_ptr(0))
        words[0] = 0xFFFF0001
        seen.append(L1Pointer(words, int32_t)[0])
        seen.append(L1Pointer(words, uint16_t)[0:2])
        seen.append(L1Pointer(words, uint8_t)[3])
        (words + 1)[0] = 0x3F800000
        seen.append(L1Pointer(words, float32)[1])
        words[4:8] = 9
        seen.append(words[3:6])
        cb_push_back(0, 1)
        cb_wait_front(0, 1)
        seen.append(L1Pointer(get_read_ptr(0))[7])

    on_one_core(chip, kernel)
    assert seen == [-65535, [1, 0xFFFF], 255, 1.0, [0, 9, 9], 9]
    with pytest.raises(ttnn.ArgumentError, match="type must be one of"):
        L1Pointer(0, str)


def test_a_program_runs_on_tensors_whose_pages_have_padding(chip):
    """100-byte rows lie 128 bytes apart: transfers over several rows of a bank pass the gaps."""
    values = torch.arange(24 * 25, dtype=torch.int32).reshape(24, 25)
    tensor = ttnn.from_torch(values, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=chip)
    seen = []

    def kernel():
        noc_async_read(get_noc_addr_from_bank_id(5, get_arg_val(0)), get_write_ptr(0), 256)
        noc_async_read_barrier()
        seen.append(L1Pointer(get_write_ptr(0))[24:33])

    on_one_core(chip, kernel, tensor.buffer_address())
    assert seen == [[int(values[5, 24]), *[0] * 7, int(values[17, 0])]]
