"""Kernels: transfers that are still under way."""

import torch
from catalogue import Told, mistake, right
from kernel_launches import BYTES, copied, fill, launched, pages_of, right_of, tiles

import softmesh as ttnn
from softmesh.kernels import (
    InterleavedAddrGen,
    L1Pointer,
    cb_pop_front,
    cb_reserve_back,
    cb_wait_front,
    get_absolute_logical_x,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    noc_async_atomic_barrier,
    noc_async_read,
    noc_async_read_barrier,
    noc_async_read_tile,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_write_tile,
    noc_async_writes_flushed,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_set_remote,
    noc_semaphore_wait,
)


def first_number(mesh, *, before, behind):
    """A tile is brought, and its first number read."""
    source = tiles(mesh)

    def reader():
        cb_reserve_back(0, 1)
        noc_async_read_tile(0, pages_of(source), get_write_ptr(0))
        before()
        L1Pointer(get_write_ptr(0))[0]
        behind()

    launched(mesh, reader)


@mistake(
    Told.WARNING,
    "noc_async_read",
    "call noc_async_read_barrier() before",
    symptom="The number is the one that was there before.",
    mend="Call noc_async_read_barrier() before what was read is used.",
)
def a_number_is_read_before_the_read_barrier(mesh):
    first_number(mesh, before=lambda: None, behind=noc_async_read_barrier)


@right
def a_number_is_read_behind_the_read_barrier(mesh):
    first_number(mesh, before=noc_async_read_barrier, behind=lambda: None)


@mistake(
    Told.WARNING,
    "The kernel ends while",
    "noc_async_read_barrier()",
    symptom="The bytes land in the memory of the next program.",
    mend="Call noc_async_read_barrier() before the kernel ends.",
)
def a_kernel_ends_without_a_read_barrier(mesh):
    source = tiles(mesh)
    launched(mesh, lambda: noc_async_read_tile(0, pages_of(source), get_write_ptr(0)))


def sent_twice(mesh, between):
    """One page of L1 is the source of two tiles."""
    target = tiles(mesh, 0.0)

    def reader():
        cb_reserve_back(0, 1)
        for page in range(2):
            L1Pointer(get_write_ptr(0))[0 : BYTES // 4] = page
            noc_async_write_tile(page, pages_of(target), get_write_ptr(0))
            between()
        noc_async_write_barrier()

    launched(mesh, reader)


@mistake(
    Told.WARNING,
    "noc_async_write",
    "noc_async_writes_flushed() or noc_async_write_barrier() before",
    symptom="The first tile has numbers of the second.",
    mend="Call noc_async_writes_flushed() before the source is overwritten.",
)
def the_source_of_a_write_is_overwritten(mesh):
    sent_twice(mesh, lambda: None)


@right
def the_source_of_a_write_is_overwritten_once_it_has_left(mesh):
    sent_twice(mesh, noc_async_writes_flushed)


def given_back(mesh, flush):
    """Pages are popped while they are sent, and the reader brings the next."""

    def store(page, target):
        cb_wait_front(0, 1)
        noc_async_write_tile(page, pages_of(target), get_read_ptr(0))
        flush()
        cb_pop_front(0, 1)
        if page == 3:
            noc_async_write_barrier()

    copied(mesh, write=store)


@mistake(
    Told.WARNING,
    "noc_async_write",
    "noc_async_writes_flushed() or noc_async_write_barrier() before",
    symptom="A tile of the output is one of the next ones, where DRAM is busy.",
    mend="Call noc_async_writes_flushed() before cb_pop_front.",
)
def pages_are_popped_before_they_have_left(mesh):
    given_back(mesh, lambda: None)


@right
def pages_are_popped_once_they_have_left(mesh):
    given_back(mesh, noc_async_writes_flushed)


def read_back(mesh, between):
    target = tiles(mesh, 0.0)

    def reader():
        fill()
        noc_async_write_tile(0, pages_of(target), get_read_ptr(0))
        between()
        cb_reserve_back(0, 1)
        noc_async_read_tile(0, pages_of(target), get_write_ptr(0))
        noc_async_read_barrier()
        noc_async_write_barrier()

    launched(mesh, reader, lambda: cb_wait_front(0, 1))


@mistake(
    Told.WARNING,
    "may still be under way",
    "call noc_async_write_barrier() before",
    symptom="What is read back is the tile as it was before the write.",
    mend="Call noc_async_write_barrier() before a page is read back.",
)
def a_page_is_read_back_before_the_write_barrier(mesh):
    read_back(mesh, lambda: None)


@right
def a_page_is_read_back_behind_the_write_barrier(mesh):
    read_back(mesh, noc_async_write_barrier)


def handed_over(mesh, *, before, behind, by_word=False, to_dram=False):
    """The first core writes a tile for the second one, and signals to it."""
    target = tiles(mesh, 0.0)

    def first():
        fill()
        place = pages_of(target).get_noc_addr(0) if to_dram else right_of(get_write_ptr(0))
        noc_async_write(get_read_ptr(0), place, BYTES)
        before()
        if by_word:
            noc_semaphore_set(get_semaphore(0), 1)
            noc_semaphore_set_remote(get_semaphore(0), right_of(get_semaphore(0)))
        else:
            noc_semaphore_inc(right_of(get_semaphore(0)), 1)
            noc_async_atomic_barrier()
        behind()
        cb_wait_front(0, 1)

    def second():
        cb_reserve_back(0, 2)
        noc_semaphore_wait(get_semaphore(0), 1)
        start = get_write_ptr(0)
        if to_dram:
            noc_async_read_tile(0, pages_of(target), start)
            noc_async_read_barrier()
        L1Pointer(start + (0 if to_dram else BYTES))[0:16]

    launched(mesh, lambda: second() if get_absolute_logical_x() else first(), cores=2, semaphores=(2,))


@mistake(
    Told.WARNING,
    "noc_async_write",
    "noc_async_write_barrier() before",
    symptom="The other core reads what was there before, now and then.",
    mend="Call noc_async_write_barrier() before noc_semaphore_inc.",
)
def a_semaphore_is_raised_before_the_write_barrier(mesh):
    handed_over(mesh, before=lambda: None, behind=noc_async_write_barrier)


@right
def a_semaphore_is_raised_behind_the_write_barrier(mesh):
    handed_over(mesh, before=noc_async_write_barrier, behind=lambda: None)


@right
def a_word_follows_the_data_on_its_way(mesh):
    """What is written to one core keeps its order, also without a barrier between."""
    handed_over(mesh, before=lambda: None, behind=noc_async_write_barrier, by_word=True)


@mistake(
    Told.WARNING,
    "reads page 0 of the DRAM buffer",
    symptom="The other core reads the tile before it is in DRAM.",
    mend="Call noc_async_write_barrier() before any signal: only words to the same core keep their order.",
)
def a_tile_in_dram_is_announced_before_the_write_barrier(mesh):
    handed_over(mesh, before=lambda: None, behind=noc_async_write_barrier, by_word=True, to_dram=True)


@right
def a_tile_in_dram_is_announced_behind_the_write_barrier(mesh):
    handed_over(mesh, before=noc_async_write_barrier, behind=lambda: None, by_word=True, to_dram=True)


def half_a_tile(mesh, page_size):
    """The first half of a tile, from a tensor of more tiles than there are banks."""
    source = ttnn.from_torch(torch.ones(32, 32 * 16).bfloat16(), layout=ttnn.TILE_LAYOUT, device=mesh)

    def reader():
        place = InterleavedAddrGen(source.buffer_address(), page_size)
        cb_reserve_back(0, 1)
        noc_async_read(place.get_noc_addr(15), get_write_ptr(0), BYTES // 2)
        noc_async_read_barrier()

    launched(mesh, reader)


@mistake(
    Told.STRICT,
    "Page 15 of 1024 bytes is not page 15 of the buffer",
    symptom="The kernel works on another tile than it thinks.",
    mend="Give the accessor the page size of the tensor, and the transfer how many bytes to move.",
)
def an_accessor_has_pages_of_another_size(mesh):
    half_a_tile(mesh, BYTES // 2)


@right
def a_part_of_a_page_is_read(mesh):
    half_a_tile(mesh, BYTES)
