"""Kernels: pages of circular buffers, inside and outside of their windows."""

from catalogue import Told, mistake, right
from kernel_launches import BYTES, copied, fill, launched, pages_of, tiles

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
    copy_tile,
    copy_tile_init,
    get_read_ptr,
    get_remote_receiver_cb_interface,
    get_write_ptr,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write_barrier,
    noc_async_write_tile,
    pack_tile,
    remote_cb_pop_front,
    remote_cb_push_back_and_write_pages,
    remote_cb_reserve_back,
    remote_cb_wait_front,
    tile_regs_acquire,
    tile_regs_commit,
    tile_regs_release,
    tile_regs_wait,
    unary_op_init_common,
)


@mistake(
    Told.WARNING,
    "page 0 of circular buffer 0",
    "between cb_wait_front and cb_pop_front",
    symptom="Tiles are old ones or halves of two, as the two kernels happen to be fast.",
    mend="Call cb_wait_front before the page is read.",
)
def a_page_is_read_before_it_is_waited_for(mesh):
    def store(page, target):
        noc_async_write_tile(page, pages_of(target), get_read_ptr(0))
        noc_async_write_barrier()
        cb_wait_front(0, 1)
        cb_pop_front(0, 1)

    copied(mesh, write=store)


@mistake(
    Told.WARNING,
    "page 0 of circular buffer 0",
    "between cb_wait_front and cb_pop_front",
    symptom="Tiles are those that the reader brought afterwards, now and then.",
    mend="Call cb_pop_front behind the last use of the page.",
)
def a_page_is_read_after_it_was_popped(mesh):
    def store(page, target):
        cb_wait_front(0, 1)
        start = get_read_ptr(0)
        cb_pop_front(0, 1)
        noc_async_write_tile(page, pages_of(target), start)
        noc_async_write_barrier()

    copied(mesh, write=store)


@mistake(
    Told.WARNING,
    "circular buffer 0",
    "cb_reserve_back",
    symptom="The reader overwrites tiles that are still being stored.",
    mend="Call cb_reserve_back before the page is written.",
)
def a_page_is_written_before_it_is_reserved(mesh):
    def bring(page, source):
        noc_async_read_tile(page, pages_of(source), get_write_ptr(0))
        noc_async_read_barrier()
        cb_reserve_back(0, 1)
        cb_push_back(0, 1)

    copied(mesh, read=bring)


@mistake(
    Told.WARNING,
    "circular buffer 0",
    "cb_reserve_back",
    symptom="The consumer has a part of the old page and a part of the new one.",
    mend="Write the whole page before cb_push_back.",
)
def a_page_is_written_after_it_was_pushed(mesh):
    def bring(page, source):
        cb_reserve_back(0, 1)
        start = get_write_ptr(0)
        cb_push_back(0, 1)
        noc_async_read_tile(page, pages_of(source), start)
        noc_async_read_barrier()

    copied(mesh, read=bring)


@right
def pages_are_moved_inside_of_their_windows(mesh):
    copied(mesh)


@right
def two_pages_are_used_in_one_window(mesh):
    """A window of two pages, waited for one by one and popped together."""
    target = tiles(mesh)

    def writer():
        for page in range(2):
            cb_wait_front(0, page + 1)
            noc_async_write_tile(page, pages_of(target), get_read_ptr(0) + page * BYTES)
        noc_async_write_barrier()
        cb_pop_front(0, 2)

    launched(mesh, lambda: [fill() for _ in range(2)], writer)


def taken_in_pairs(mesh, waited):
    """Pages of which two are stored at a time."""
    target = tiles(mesh, 0.0)

    def writer():
        for page in (0, 2):
            cb_wait_front(0, waited)
            for i in range(2):
                noc_async_write_tile(page + i, pages_of(target), get_read_ptr(0) + i * BYTES)
            noc_async_write_barrier()
            cb_wait_front(0, 2)
            cb_pop_front(0, 2)

    launched(mesh, lambda: [fill() for _ in range(4)], writer)


@mistake(
    Told.WARNING,
    "page 1 of circular buffer 0",
    "no more of them than was asked for",
    symptom="The second page of each pair is an old one where the reader is slow.",
    mend="Wait for as many pages as are read.",
)
def more_pages_are_read_than_were_waited_for(mesh):
    taken_in_pairs(mesh, 1)


@right
def as_many_pages_are_read_as_were_waited_for(mesh):
    taken_in_pairs(mesh, 2)


def popped_unseen(mesh, waits):
    def writer():
        waits()
        cb_pop_front(0, 1)

    launched(mesh, lambda: (fill(0), fill(1)), writer, indexes=(0, 1))


@mistake(
    Told.WARNING,
    "cb_pop_front(0, 1) gives back more than the 0 pages",
    "cb_wait_front(0, 1)",
    symptom="Where the reader is slow the count of pages goes wrong, and the next wait never ends.",
    mend="Call cb_wait_front before cb_pop_front, also for pages that are skipped.",
)
def a_page_is_popped_that_was_not_waited_for(mesh):
    popped_unseen(mesh, lambda: None)


@right
def a_page_is_waited_for_and_skipped(mesh):
    popped_unseen(mesh, lambda: (cb_wait_front(0, 1), cb_wait_front(1, 1)))


@mistake(
    Told.WARNING,
    "circular buffer 0",
    "nobody has written",
    symptom="The consumer works on what an earlier program left there.",
    mend="Fill the page between cb_reserve_back and cb_push_back.",
)
def a_page_is_pushed_empty(mesh):
    def bring(page, source):
        cb_reserve_back(0, 1)
        cb_push_back(0, 1)

    copied(mesh, read=bring)


@right
def an_empty_page_is_a_signal(mesh):
    """Nobody reads it."""

    def reader():
        cb_reserve_back(0, 1)
        cb_push_back(0, 1)

    launched(mesh, reader, lambda: (cb_wait_front(0, 1), cb_pop_front(0, 1)))


@mistake(
    Told.ERROR,
    "The program is stuck",
    "cb_wait_front(0, 1)",
    "its producer fill has ended",
    symptom="The program never ends.",
    mend="Let the loops of both kernels have the same count.",
)
def a_page_is_waited_for_that_nobody_pushes(mesh):
    launched(mesh, fill, lambda: [(cb_wait_front(0, 1), cb_pop_front(0, 1)) for _ in range(2)])


@mistake(
    Told.ERROR,
    "has no circular buffer 1",
    "its indexes: 0",
    symptom="The kernel counts pages in memory that is not its own.",
    mend="Let the cores of CreateCircularBuffer contain all that use it.",
)
def a_circular_buffer_of_another_index_is_used(mesh):
    launched(mesh, lambda: fill(1))


@right
def pages_are_asked_for_again_and_again(mesh):
    """Instead of blocking calls."""

    def reader():
        for _ in range(4):
            while not cb_pages_reservable_at_back(0, 1):
                pass
            fill()

    def writer():
        for _ in range(4):
            while not cb_pages_available_at_front(0, 1):
                pass
            L1Pointer(get_read_ptr(0))[0:8]
            cb_wait_front(0, 1)
            cb_pop_front(0, 1)

    launched(mesh, reader, writer)


# -- global circular buffers -------------------------------------------------------------------------

REMOTE = 31


def handed_on(mesh, receive):
    """Four pages go from one core into the L1 of another, which has room for two."""
    target = tiles(mesh, 0.0)
    first, second = (ttnn.CoreRangeSet([ttnn.CoreRange((x, 0), (x, 0))]) for x in range(2))
    shared = ttnn.create_global_circular_buffer(mesh, [(ttnn.CoreCoord(0, 0), second)], 2 * BYTES)

    def sender():
        for _ in range(4):
            fill()
            cb_wait_front(0, 1)
            remote_cb_reserve_back(REMOTE, 1)
            remote_cb_push_back_and_write_pages(REMOTE, get_read_ptr(0), 1, 1, 1, BYTES)
            cb_pop_front(0, 1)

    def receiver():
        for page in range(4):
            receive(page, target)

    program = metal.CreateProgram()
    own = metal.CircularBufferConfig(2 * BYTES, {0: ttnn.bfloat16}).set_page_size(0, BYTES)
    metal.CreateCircularBuffer(program, first, own)
    for cores, kernel in ((first, sender), (second, receiver)):
        config = metal.CircularBufferConfig(shared.size())
        config.remote_index(REMOTE).set_data_format(ttnn.bfloat16).set_page_size(BYTES)
        metal.CreateCircularBuffer(program, cores, config, shared)
        metal.CreateKernel(program, kernel, cores, metal.WriterDataMovementConfig())
    workload = metal.MeshWorkload()
    workload.add_program(ttnn.MeshCoordinateRange(mesh.shape), program)
    metal.EnqueueMeshWorkload(mesh.mesh_command_queue(), workload, blocking=True)


def store_remote(page, target):
    noc_async_write_tile(page, pages_of(target), get_remote_receiver_cb_interface(REMOTE).fifo_rd_ptr)
    noc_async_write_barrier()


@mistake(
    Told.WARNING,
    "the L1 buffer at",
    "neither has waited for the other",
    symptom="Pages are half of one and half of the next one but one.",
    mend="Call remote_cb_pop_front behind the last use of the page.",
)
def a_page_of_another_core_is_read_after_it_was_popped(mesh):
    def receive(page, target):
        remote_cb_wait_front(REMOTE, 1)
        start = get_remote_receiver_cb_interface(REMOTE).fifo_rd_ptr
        remote_cb_pop_front(REMOTE, 1)
        noc_async_write_tile(page, pages_of(target), start)
        noc_async_write_barrier()

    handed_on(mesh, receive)


@mistake(
    Told.WARNING,
    "the L1 buffer at",
    "neither has waited for the other",
    symptom="Pages are those of an earlier turn, where the sender is slow.",
    mend="Call remote_cb_wait_front before the page is read.",
)
def a_page_of_another_core_is_read_before_it_is_waited_for(mesh):
    def receive(page, target):
        store_remote(page, target)
        remote_cb_wait_front(REMOTE, 1)
        remote_cb_pop_front(REMOTE, 1)

    handed_on(mesh, receive)


@right
def pages_of_another_core_are_read_inside_of_their_windows(mesh):
    def receive(page, target):
        remote_cb_wait_front(REMOTE, 1)
        store_remote(page, target)
        remote_cb_pop_front(REMOTE, 1)

    handed_on(mesh, receive)


# -- tile registers ----------------------------------------------------------------------------------


def computed(mesh, release):
    def compute():
        unary_op_init_common(0, 1)
        copy_tile_init(0)
        cb_wait_front(0, 1)
        tile_regs_acquire()
        copy_tile(0, 0, 0)
        tile_regs_commit()
        cb_pop_front(0, 1)
        cb_reserve_back(1, 1)
        tile_regs_wait()
        pack_tile(0, 1)
        release()
        cb_push_back(1, 1)

    def writer():
        cb_wait_front(1, 1)
        cb_pop_front(1, 1)

    launched(mesh, fill, writer, compute, indexes=(0, 1))


@mistake(
    Told.WARNING,
    "tile_regs_release()",
    symptom="The next program that computes on this core hangs.",
    mend="Call tile_regs_release() behind the last pack_tile.",
)
def tile_registers_are_kept(mesh):
    computed(mesh, lambda: None)


@right
def tile_registers_are_released(mesh):
    computed(mesh, tile_regs_release)
