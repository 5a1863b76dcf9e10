"""Kernels: order between cores, circular buffers, barriers and semaphores."""

import torch
from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    InterleavedAddrGen,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_arg_val,
    get_noc_addr,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    noc_async_atomic_barrier,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_wait,
    noc_semaphore_wait_min,
)

BYTES = 2048  # a tile
FIRST, SECOND = ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0)
PAIR = ttnn.CoreRangeSet([ttnn.CoreRange(FIRST, SECOND)])


def tiles(mesh, value=1.0):
    """Four tiles."""
    return ttnn.from_torch(torch.full((64, 64), value).bfloat16(), layout=ttnn.TILE_LAYOUT, device=mesh)


def program_on(cores, pages=2):
    program = metal.CreateProgram()
    config = metal.CircularBufferConfig(pages * BYTES, {0: ttnn.bfloat16}).set_page_size(0, BYTES)
    metal.CreateCircularBuffer(program, cores, config)
    return program


def launched(mesh, program):
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def bring(source, page):
    noc_async_read_tile(page, InterleavedAddrGen(source, BYTES), get_write_ptr(0))
    noc_async_read_barrier()


def store(target, page, start):
    noc_async_write_tile(page, InterleavedAddrGen(target, BYTES), start)
    noc_async_write_barrier()


# -- two cores, one page -----------------------------------------------------------------------------


def copied_by_two(mesh, page_of):
    """Each core copies its tile of one tensor to a page of another."""
    source, target = tiles(mesh), tiles(mesh, 0.0)
    places = source.buffer_address(), target.buffer_address()

    def copy():
        me = get_arg_val(0)
        cb_reserve_back(0, 1)
        bring(places[0], me)
        store(places[1], page_of(me), get_write_ptr(0))

    program = program_on(PAIR)
    kernel = metal.CreateKernel(program, copy, PAIR, metal.WriterDataMovementConfig())
    for number, core in enumerate((FIRST, SECOND)):
        metal.SetRuntimeArgs(program, kernel, core, [number])
    launched(mesh, program)


@mistake(
    Told.WARNING,
    "writes page 0 of the DRAM buffer",
    "neither has waited for the other",
    symptom="The page holds what the slower core wrote, which is another one on each run.",
    mend="Give each core pages of its own.",
)
def two_cores_write_one_page(mesh):
    copied_by_two(mesh, lambda me: 0)


@right
def two_cores_write_a_page_each(mesh):
    copied_by_two(mesh, lambda me: me)


def copied(mesh, source):
    target = tiles(mesh, 0.0)
    places = source.buffer_address(), target.buffer_address()

    def copy():
        cb_reserve_back(0, 1)
        bring(places[0], 0)
        store(places[1], 0, get_write_ptr(0))

    program = program_on(FIRST)
    metal.CreateKernel(program, copy, FIRST, metal.WriterDataMovementConfig())
    launched(mesh, program)


@mistake(
    Told.WARNING,
    "is read, and nobody has ever written to it",
    symptom="The kernel works on what the memory held before.",
    mend="Write the tensor before the launch, or make it with ttnn.zeros.",
)
def a_kernel_reads_empty_memory(mesh):
    copied(mesh, ttnn.empty((64, 64), ttnn.bfloat16, ttnn.TILE_LAYOUT, mesh))


@right
def a_kernel_reads_what_was_written(mesh):
    copied(mesh, tiles(mesh))


def written_then_read(mesh, *, signals):
    """One core writes a page that another one reads."""
    source, target = tiles(mesh), tiles(mesh, 0.0)
    places = source.buffer_address(), target.buffer_address()
    there = mesh.worker_core_from_logical_core(SECOND)

    def writer():
        cb_reserve_back(0, 1)
        bring(places[0], 0)
        store(places[1], 0, get_write_ptr(0))
        if signals:
            noc_semaphore_inc(get_noc_addr(there.x, there.y, get_semaphore(0)), 1)
            noc_async_atomic_barrier()

    def reader():
        if signals:
            noc_semaphore_wait(get_semaphore(0), 1)
        cb_reserve_back(0, 1)
        bring(places[1], 0)

    program = program_on(PAIR)
    metal.CreateSemaphore(program, PAIR, 0)
    metal.CreateKernel(program, writer, FIRST, metal.WriterDataMovementConfig())
    metal.CreateKernel(program, reader, SECOND, metal.WriterDataMovementConfig())
    launched(mesh, program)


@mistake(
    Told.WARNING,
    "reads page 0 of the DRAM buffer",
    "neither has waited for the other",
    symptom="The reader gets the page as it was before, or half of each.",
    mend="Let the reader wait for a semaphore that the writer raises behind its write barrier.",
)
def a_page_is_read_while_another_core_writes_it(mesh):
    written_then_read(mesh, signals=False)


@right
def a_page_is_read_once_the_writer_has_signalled(mesh):
    written_then_read(mesh, signals=True)


# -- circular buffers --------------------------------------------------------------------------------


def moved(mesh, pushed, taken, *, read_barrier=True, write_barrier=True):
    source, target = tiles(mesh), tiles(mesh, 0.0)
    places = source.buffer_address(), target.buffer_address()

    def reader():
        for page in range(pushed):
            cb_reserve_back(0, 1)
            noc_async_read_tile(page, InterleavedAddrGen(places[0], BYTES), get_write_ptr(0))
            if read_barrier:
                noc_async_read_barrier()
            cb_push_back(0, 1)
        noc_async_read_barrier()

    def writer():
        for page in range(taken):
            cb_wait_front(0, 1)
            noc_async_write_tile(page, InterleavedAddrGen(places[1], BYTES), get_read_ptr(0))
            if write_barrier:
                noc_async_write_barrier()
            cb_pop_front(0, 1)

    program = program_on(FIRST, pages=4)
    metal.CreateKernel(program, reader, FIRST, metal.ReaderDataMovementConfig())
    metal.CreateKernel(program, writer, FIRST, metal.WriterDataMovementConfig())
    launched(mesh, program)


@mistake(
    Told.WARNING,
    "The program ends with 1 of 3 pages in circular buffer 0",
    "nobody waited for",
    symptom="The last tile is missing, and nothing says so: the next program begins with an empty buffer.",
    mend="Take as many pages as are pushed: a loop of one of the two is too short.",
)
def a_circular_buffer_is_left_undrained(mesh):
    moved(mesh, 3, 2)


@right
def all_pages_are_taken(mesh):
    moved(mesh, 3, 3)


@mistake(
    Told.WARNING,
    "publishes bytes that",
    "bringing",
    symptom="The consumer works on what the page held before, now and then.",
    mend="Call noc_async_read_barrier() before cb_push_back.",
)
def pages_are_pushed_before_the_read_barrier(mesh):
    moved(mesh, 2, 2, read_barrier=False)


@mistake(
    Told.WARNING,
    "noc_async_write",
    "noc_async_write_barrier()",
    symptom="The program counts as done before its last bytes are in DRAM.",
    mend="Call noc_async_write_barrier() before pages are given back, and at the end.",
)
def a_kernel_ends_without_a_write_barrier(mesh):
    moved(mesh, 2, 2, write_barrier=False)


@right
def a_constant_is_waited_for_and_stays(mesh):
    """A page that the consumer keeps for the whole program, as scalers of reductions are."""

    def reader():
        cb_reserve_back(0, 1)
        cb_push_back(0, 1)

    program = program_on(FIRST)
    metal.CreateKernel(program, reader, FIRST, metal.ReaderDataMovementConfig())
    metal.CreateKernel(program, lambda: cb_wait_front(0, 1), FIRST, metal.WriterDataMovementConfig())
    launched(mesh, program)


# -- global semaphores -------------------------------------------------------------------------------


def signalled(mesh, *, by_host=False, by_kernel=False):
    """Two launches, in each of which one core signals to another."""
    semaphore = ttnn.create_global_semaphore(mesh, PAIR, 0)
    address = ttnn.get_global_semaphore_address(semaphore)
    there = mesh.worker_core_from_logical_core(SECOND)

    def sender():
        noc_semaphore_inc(get_noc_addr(there.x, there.y, address), 1)
        noc_async_atomic_barrier()

    def receiver():
        noc_semaphore_wait_min(address, 1)
        if by_kernel:
            noc_semaphore_set(address, 0)

    for _ in range(2):
        program = metal.CreateProgram()
        metal.CreateKernel(program, receiver, SECOND, metal.WriterDataMovementConfig())
        metal.CreateKernel(program, sender, FIRST, metal.WriterDataMovementConfig())
        launched(mesh, program)
        if by_host:
            ttnn.reset_global_semaphore_value(semaphore, 0)


@mistake(
    Told.WARNING,
    "stood at 1 when the program began",
    "ttnn.reset_global_semaphore_value(semaphore, 0)",
    symptom="From the second launch on nobody waits: old data is read, or the program hangs.",
    mend="Set the semaphore back behind the wait, or from the host between launches.",
)
def a_global_semaphore_is_not_set_back_between_launches(mesh):
    signalled(mesh)


@right
def a_global_semaphore_is_set_back_by_the_host(mesh):
    signalled(mesh, by_host=True)


@right
def a_global_semaphore_is_set_back_by_the_kernel(mesh):
    signalled(mesh, by_kernel=True)


@right
def one_program_signals_to_the_next(mesh):
    """What one program raises, a later one waits for, once."""
    semaphore = ttnn.create_global_semaphore(mesh, PAIR, 0)
    address = ttnn.get_global_semaphore_address(semaphore)
    for kernel in (lambda: noc_semaphore_set(address, 1), lambda: noc_semaphore_wait(address, 1)):
        program = metal.CreateProgram()
        metal.CreateKernel(program, kernel, FIRST, metal.WriterDataMovementConfig())
        launched(mesh, program)
