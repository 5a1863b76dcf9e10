"""Kernels: how many pages are reserved, filled and pushed, and what is in them."""

import torch
from catalogue import Told, mistake, right
from kernel_launches import BYTES, bring, launched, line, pages_of, store, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    L1Pointer,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    copy_tile,
    fill_tile,
    get_absolute_logical_x,
    get_noc_addr,
    get_read_ptr,
    get_write_ptr,
    init_sfpu,
    my_x,
    my_y,
    noc_async_read,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    pack_tile,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
    unary_op_init_common,
)


def tile_of(number):
    return get_write_ptr(0) + number * BYTES


def filled_by_two(mesh, reserved):
    """Two tiles at a time, in a circular buffer of four."""
    source, target = tiles(mesh), tiles(mesh, 0.0)

    def reader():
        for page in range(0, 4, 2):
            cb_reserve_back(0, reserved)
            for i in range(2):
                noc_async_read_tile(page + i, pages_of(source), tile_of(i))
            noc_async_read_barrier()
            cb_push_back(0, 2)

    launched(mesh, reader, lambda: [store(page, target) for page in range(4)], pages=4)


@mistake(
    Told.WARNING,
    "cb_push_back(0, 2) publishes more than the 1 pages that were reserved",
    "call cb_reserve_back(0, 2)",
    symptom="All is well as long as the circular buffer has room for everything; then tiles are overwritten.",
    mend="Reserve as many pages as are filled and pushed.",
)
def fewer_pages_are_reserved_than_are_pushed(mesh):
    filled_by_two(mesh, 1)


@right
def as_many_pages_are_reserved_as_are_pushed(mesh):
    filled_by_two(mesh, 2)


@mistake(
    Told.WARNING,
    "publishes more than the 0 pages that were reserved",
    symptom="All is well as long as the circular buffer has room for everything; then tiles are overwritten.",
    mend="Call cb_reserve_back before the page is filled.",
)
def pages_are_pushed_that_were_never_reserved(mesh):
    source, target = tiles(mesh), tiles(mesh, 0.0)

    def reader():
        for page in range(4):
            noc_async_read_tile(page, pages_of(source), get_write_ptr(0))
            noc_async_read_barrier()
            cb_push_back(0, 1)

    launched(mesh, reader, lambda: [store(page, target) for page in range(4)], pages=4)


def packed_twice(mesh, push):
    """Two tiles of each round are packed."""
    target = tiles(mesh, 0.0)

    def compute():
        init_sfpu(1, 1)
        for _ in range(2):
            cb_reserve_back(1, 2)
            tile_regs_acquire()
            fill_tile(0, 1.0)
            fill_tile(1, 2.0)
            tile_regs_commit()
            tile_regs_wait()
            pack_tile(0, 1)
            pack_tile(1, 1)
            tile_regs_release()
            push()

    def writer(pages):
        for page in range(pages):
            cb_wait_front(1, 1)
            noc_async_write_tile(page, pages_of(target), get_read_ptr(1))
            noc_async_write_barrier()
            cb_pop_front(1, 1)

    pushed = 4 if push is not push_one else 2
    launched(mesh, lambda: None, lambda: writer(pushed), compute, pages=4, indexes=(1,))


def push_one():
    cb_push_back(1, 1)


def push_one_by_one():
    cb_push_back(1, 1)
    cb_push_back(1, 1)


@mistake(
    Told.WARNING,
    "1 pages of circular buffer 1 were packed, and not pushed",
    symptom="Every other tile is missing.",
    mend="Push as many pages as are packed.",
)
def more_pages_are_packed_than_are_pushed(mesh):
    packed_twice(mesh, push_one)


@right
def packed_pages_are_pushed_together(mesh):
    packed_twice(mesh, lambda: cb_push_back(1, 2))


@right
def packed_pages_are_pushed_one_by_one(mesh):
    packed_twice(mesh, push_one_by_one)


# -- formats of circular buffers and tensors ---------------------------------------------------------


def through_compute(mesh, dtype, formats, *, page_size=None):
    """Four tiles of a tensor, copied by a compute kernel; `formats` are those of its two circular buffers."""
    source = ttnn.typecast(tiles(mesh), dtype)
    target = ttnn.typecast(tiles(mesh, 0.0), dtype)
    size = ttnn.tile_size(dtype)

    def reader():
        for page in range(4):
            cb_reserve_back(0, 1)
            noc_async_read_tile(page, pages_of(source, size), get_write_ptr(0))
            noc_async_read_barrier()
            cb_push_back(0, 1)

    def compute():
        unary_op_init_common(0, 1)
        for _ in range(4):
            cb_wait_front(0, 1)
            tile_regs_acquire()
            copy_tile(0, 0, 0)
            tile_regs_commit()
            cb_pop_front(0, 1)
            cb_reserve_back(1, 1)
            tile_regs_wait()
            pack_tile(0, 1)
            tile_regs_release()
            cb_push_back(1, 1)

    def writer():
        for page in range(4):
            cb_wait_front(1, 1)
            noc_async_write_tile(page, pages_of(target, size), get_read_ptr(1))
            noc_async_write_barrier()
            cb_pop_front(1, 1)

    launched(mesh, reader, writer, compute, indexes=dict(enumerate(formats)), page_size=page_size)


@mistake(
    Told.WARNING,
    "circular buffer 0 has the format DataType.FLOAT32, and the page it reads is of a tensor of DataType.BFLOAT16",
    symptom="The values are nonsense: two numbers are taken for one, and half of the page is what was there before.",
    mend="Make the circular buffer with the dtype of the tensor, and its page size.",
)
def a_circular_buffer_has_another_format_than_its_tensor(mesh):
    through_compute(mesh, ttnn.bfloat16, (ttnn.float32, ttnn.bfloat16))


@mistake(
    Told.WARNING,
    "circular buffer 0 has the format DataType.BFLOAT16, and the page it reads is of a tensor of DataType.FLOAT32",
    symptom="The values are nonsense, and half of each tile is never looked at.",
    mend="The page size alone is not enough: give the circular buffer the format of the tensor, too.",
)
def a_circular_buffer_has_the_page_size_of_its_tensor_and_not_its_format(mesh):
    through_compute(mesh, ttnn.float32, (ttnn.bfloat16, ttnn.float32), page_size=4096)


@mistake(
    Told.WARNING,
    "a tile that was packed as DataType.BFLOAT16 goes to a tensor of DataType.FLOAT32",
    symptom="The output is nonsense, though all that was computed is right.",
    mend="Make the circular buffer of the output with the dtype of the output.",
)
def the_output_is_packed_in_another_format_than_its_tensor(mesh):
    through_compute(mesh, ttnn.float32, (ttnn.float32, ttnn.bfloat16), page_size=4096)


@mistake(
    Told.STRICT,
    "circular buffer 0 has the format DataType.FLOAT32, and the page it reads is of a tensor of DataType.INT32",
    symptom="Small whole numbers are all zero.",
    mend="Make the circular buffer with the dtype of the tensor, or convert it with typecast_tile.",
)
def integers_are_read_as_floats(mesh):
    through_compute(mesh, ttnn.int32, (ttnn.float32, ttnn.int32))


@right
def circular_buffers_have_the_format_of_their_tensors(mesh):
    for dtype in (ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b):
        through_compute(mesh, dtype, (dtype, dtype))


@right
def two_pages_are_moved_at_once_over_what_was_in_another_format(mesh):
    brief, source = tiles(mesh), ttnn.typecast(tiles(mesh, 2.0), ttnn.float32)
    size = ttnn.tile_size(ttnn.float32)

    def reader():
        for i in range(4):  # numbers of 2 bytes, which nobody computes with
            noc_async_read_tile(i, pages_of(brief), tile_of(i))
        noc_async_read_barrier()
        for i in range(2):
            noc_async_read_tile(i, pages_of(source, size), get_write_ptr(1) + i * size)
        noc_async_read_barrier()
        cb_reserve_back(0, 2)
        noc_async_read(get_noc_addr(my_x[0], my_y[0], get_write_ptr(1)), get_write_ptr(0), 2 * size)
        noc_async_read_barrier()
        cb_push_back(0, 2)

    def compute():
        unary_op_init_common(0, 0)
        cb_wait_front(0, 2)
        tile_regs_acquire()
        for i in range(2):
            copy_tile(0, i, i)
        tile_regs_commit()
        tile_regs_wait()
        tile_regs_release()
        cb_pop_front(0, 2)

    launched(mesh, reader, lambda: None, compute, indexes={0: ttnn.float32, 1: ttnn.float32})


@right
def pages_of_any_format_are_copied_as_they_are(mesh):
    """Nobody computes with them: a circular buffer is as good as any other of its page size."""
    source, target = (ttnn.typecast(tiles(mesh, value), ttnn.float32) for value in (1.0, 0.0))

    def reader():
        for page in range(4):
            cb_reserve_back(0, 2)
            noc_async_read_tile(page, pages_of(source, 4096), get_write_ptr(0))
            noc_async_read_barrier()
            cb_push_back(0, 2)

    def writer():
        for page in range(4):
            cb_wait_front(0, 2)
            noc_async_write_tile(page, pages_of(target, 4096), get_read_ptr(0))
            noc_async_write_barrier()
            cb_pop_front(0, 2)

    launched(mesh, reader, writer, pages=4)


@mistake(
    Told.STRICT,
    "a page of a tensor of DataType.BFLOAT16 goes to a tensor of DataType.FLOAT32 as it is",
    symptom="The output is nonsense: two numbers are taken for one.",
    mend="Convert in a compute kernel with typecast_tile, or make the output with the dtype of the input.",
)
def pages_are_copied_to_a_tensor_of_another_format(mesh):
    source, target = tiles(mesh), ttnn.typecast(tiles(mesh, 0.0), ttnn.float32)

    def reader():
        for page in range(4):
            cb_reserve_back(0, 1)
            noc_async_read_tile(page, pages_of(source), get_write_ptr(0))
            noc_async_read_barrier()
            cb_push_back(0, 1)

    launched(mesh, reader, lambda: [store(page, target) for page in range(4)])


# -- work that is split over cores -------------------------------------------------------------------


def split_over_two(mesh, each, read):
    """Nine tiles, copied by two cores into memory of ttnn.empty."""
    shape, count = (32, 9 * 32), 9
    source = ttnn.ones(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    target = ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)

    def own_pages():
        first = get_absolute_logical_x() * each
        return range(first, min(first + each, count))

    def reader():
        for page in own_pages():
            bring(page, source)

    def writer():
        for page in own_pages():
            store(page, target)

    launched(mesh, reader, writer, cores=2)
    ttnn.to_torch(ttnn.get_device_tensors(read(target))[0])


@mistake(
    Told.WARNING,
    "is made of memory that nothing was written to since ttnn.empty",
    symptom="Sums are those of tiles that nobody has computed, and another number on each run.",
    mend="Give the rest of the division to one of the cores, as split_work_to_cores does.",
)
def a_tile_is_left_over_where_work_is_split(mesh):
    split_over_two(mesh, 4, ttnn.sum)


@mistake(
    Told.STRICT,
    "some was never written since ttnn.empty",
    symptom="The last tile is what the memory held before.",
    mend="Give the rest of the division to one of the cores, as split_work_to_cores does.",
)
def a_tile_is_left_over_and_the_rest_is_read(mesh):
    split_over_two(mesh, 4, lambda target: target)


@right
def no_tile_is_left_over_where_work_is_split(mesh):
    split_over_two(mesh, 5, ttnn.sum)


@right
def what_was_written_is_read_where_work_was_for_a_part(mesh):
    split_over_two(mesh, 4, lambda target: ttnn.sum(ttnn.slice(target, [0, 0], [32, 8 * 32])))


def copied_on_a_row(mesh, device):
    """By a program that is only for the first row of the mesh."""
    source, target = tiles(mesh), ttnn.empty((64, 64), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh)
    program = metal.CreateProgram()
    config = metal.CircularBufferConfig(2 * BYTES, {0: ttnn.bfloat16}).set_page_size(0, BYTES)
    metal.CreateCircularBuffer(program, line(1), config)
    reader, writer = metal.ReaderDataMovementConfig(), metal.WriterDataMovementConfig()
    metal.CreateKernel(program, lambda: [bring(page, source) for page in range(4)], line(1), reader)
    metal.CreateKernel(program, lambda: [store(page, target) for page in range(4)], line(1), writer)
    workload = metal.MeshWorkload()
    row = ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 3))
    workload.add_program(row, program)
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)
    ttnn.to_torch(ttnn.get_device_tensors(ttnn.add(target, 1.0))[device])


@mistake(
    Told.WARNING,
    "is made of memory that nothing was written to since ttnn.empty",
    symptom="The result is right on some devices, and what their memory held before on the others.",
    mend="Add the program for the whole mesh, ttnn.MeshCoordinateRange(mesh.shape), or one for each part of it.",
)
def a_program_runs_on_a_part_of_the_mesh(mesh):
    copied_on_a_row(mesh, 5)


@right
def what_a_part_of_the_mesh_has_made_is_read(mesh):
    copied_on_a_row(mesh, 2)


def shard_read_by(mesh, cores):
    """Two cores have shards."""
    config = ttnn.create_sharded_memory_config(
        (32, 32), line(2), ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    values = torch.ones(64, 32).bfloat16()
    shards = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=config)
    launched(mesh, lambda: L1Pointer(shards.buffer_address())[0:4], cores=cores)


@mistake(
    Told.ERROR,
    "has no part on core 2-0",
    symptom="The kernel computes with what that memory is used for on its core.",
    mend="Run it on the cores of the shards, or read a shard of another core with noc_async_read.",
)
def a_shard_is_read_on_a_core_that_has_none(mesh):
    shard_read_by(mesh, 3)


@right
def a_shard_is_read_on_its_own_core(mesh):
    shard_read_by(mesh, 2)


def copied_by_generic_op(mesh, *, output_last):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    room = ttnn.CBFormatDescriptor(buffer_index=0, data_format=ttnn.bfloat16, page_size=BYTES)
    kernels = (
        (lambda: [bring(page, source) for page in range(4)], ttnn.ReaderConfigDescriptor()),
        (lambda: [store(page, target) for page in range(4)], ttnn.WriterConfigDescriptor()),
    )
    program = ttnn.ProgramDescriptor()
    program.kernels = [
        ttnn.KernelDescriptor(kernel_source=kernel, core_ranges=line(1), config=config) for kernel, config in kernels
    ]
    program.cbs = [ttnn.CBDescriptor(2 * BYTES, line(1), [room])]
    ttnn.generic_op([source, target] if output_last else [target, source], program)


@mistake(
    Told.STRICT,
    "generic_op returns the last of its 2 tensors",
    symptom="The result is one of the inputs.",
    mend="Name the output last: ttnn.generic_op([*inputs, output], program).",
)
def the_output_of_generic_op_is_not_the_last(mesh):
    copied_by_generic_op(mesh, output_last=False)


@right
def the_output_of_generic_op_is_the_last(mesh):
    copied_by_generic_op(mesh, output_last=True)
