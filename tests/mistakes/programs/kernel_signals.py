"""Kernels: the memory of other cores, and semaphores."""

import torch
from catalogue import Told, mistake, right
from kernel_launches import BYTES, fill, launched, line, pages_of, right_of, tiles

import softmesh as ttnn
from softmesh.kernels import (
    L1Pointer,
    Semaphore,
    cb_reserve_back,
    cb_wait_front,
    get_absolute_logical_x,
    get_noc_addr,
    get_noc_multicast_addr,
    get_read_ptr,
    get_semaphore,
    get_write_ptr,
    my_x,
    my_y,
    noc_async_atomic_barrier,
    noc_async_read,
    noc_async_read_barrier,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_write_multicast,
    noc_async_writes_flushed,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_set_multicast,
    noc_semaphore_set_remote,
    noc_semaphore_wait,
    noc_semaphore_wait_min,
)

# -- other cores' memory ----------------------------------------------------------------------------


def gathered(mesh, place_of, *, signals=2):
    """Two cores write into the L1 of the third, which waits for signals and stores what it has."""
    target = tiles(mesh, 0.0)

    def sender(me):
        fill()
        noc_async_write(get_read_ptr(0), right_of(get_read_ptr(1) + place_of(me) * BYTES, 2 - me), BYTES)
        noc_async_write_barrier()
        noc_semaphore_inc(right_of(get_semaphore(0), 2 - me), 1)
        noc_async_atomic_barrier()
        cb_wait_front(0, 1)

    def receiver():
        cb_reserve_back(1, 2)
        if signals:
            noc_semaphore_wait_min(get_semaphore(0), signals)
        for page in sorted({place_of(0), place_of(1)}):
            noc_async_write(get_write_ptr(1) + page * BYTES, pages_of(target).get_noc_addr(page), BYTES)
        noc_async_write_barrier()

    def kernel():
        me = get_absolute_logical_x()
        sender(me) if me < 2 else receiver()

    launched(mesh, kernel, cores=3, indexes=(0, 1), semaphores=(3,))


@mistake(
    Told.WARNING,
    "writes page 0 of circular buffer 1 on core 2-0",
    "neither has waited for the other",
    symptom="The page holds what the slower core wrote, which is another one on each run.",
    mend="Give each sender a page of its own.",
)
def two_cores_write_one_page_of_a_third(mesh):
    gathered(mesh, lambda me: 0)


@right
def two_cores_write_a_page_each_of_a_third(mesh):
    gathered(mesh, lambda me: me)


@mistake(
    Told.WARNING,
    "page 0 of circular buffer 1 on core 2-0",
    "neither has waited for the other",
    symptom="What is stored is the page before the other core wrote it, or half of it.",
    mend="Let the owner wait for a semaphore that the sender raises behind its write barrier.",
)
def a_page_is_read_while_another_core_writes_to_it(mesh):
    gathered(mesh, lambda me: me, signals=0)


@mistake(
    Told.WARNING,
    "page 1 of circular buffer 1 on core 2-0",
    "neither has waited for the other",
    symptom="The page of the slower core is stored as it was before.",
    mend="Wait for as many signals as there are senders.",
)
def two_cores_write_and_one_signal_is_waited_for(mesh):
    gathered(mesh, lambda me: me, signals=1)


def flagged(mesh, first_value):
    """The first core writes a tile for the second one, and sets its flag."""

    def first():
        fill()
        noc_async_write(get_read_ptr(0), right_of(get_write_ptr(0)), BYTES)
        noc_semaphore_set(get_semaphore(0), 1)
        noc_semaphore_set_remote(get_semaphore(0), right_of(get_semaphore(0)))
        noc_async_write_barrier()
        cb_wait_front(0, 1)

    def second():
        noc_semaphore_wait(get_semaphore(0), 1)
        cb_reserve_back(0, 2)
        L1Pointer(get_write_ptr(0) + BYTES)[0:16]

    kernel = lambda: second() if get_absolute_logical_x() else first()  # noqa: E731
    launched(mesh, kernel, cores=2, semaphores=(2,), first_value=first_value)


@mistake(
    Told.WARNING,
    "page 1 of circular buffer 0 on core 1-0",
    "neither has waited for the other",
    symptom="Nobody waits: the page is read before it was written.",
    mend="Create the semaphore with 0, and let the sender set it to 1.",
)
def a_semaphore_has_its_last_value_from_the_start(mesh):
    flagged(mesh, 1)


@right
def a_semaphore_begins_with_another_value(mesh):
    flagged(mesh, 0)


def sharded(mesh):
    """A tile in the L1 of each of two cores."""
    config = ttnn.create_sharded_memory_config(
        (32, 32), line(2), ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    return ttnn.from_torch(torch.ones(64, 32).bfloat16(), layout=ttnn.TILE_LAYOUT, device=mesh, memory_config=config)


def swapped(mesh, *, waits):
    """Two cores exchange their shards: each reads the other's, and writes it over its own."""
    shards = sharded(mesh)
    address = shards.buffer_address()

    def kernel():
        other = right_of(address, -1 if get_absolute_logical_x() else 1)
        cb_reserve_back(0, 1)
        noc_async_read(other, get_write_ptr(0), BYTES)
        noc_async_read_barrier()
        if waits:
            noc_semaphore_inc(other - address + get_semaphore(0), 1)
            noc_async_atomic_barrier()
            noc_semaphore_wait(get_semaphore(0), 1)
        noc_async_write(get_write_ptr(0), get_noc_addr(address), BYTES)
        noc_async_write_barrier()

    launched(mesh, kernel, cores=2, semaphores=(2,))


@mistake(
    Told.WARNING,
    "the L1 buffer at",
    "neither has waited for the other",
    symptom="Both shards are the same one, as soon as one core is faster.",
    mend="Let each core tell the other that it has read, and wait for that before it writes.",
)
def two_cores_swap_shards_without_waiting(mesh):
    swapped(mesh, waits=False)


@right
def two_cores_swap_shards_and_wait(mesh):
    swapped(mesh, waits=True)


def multicast(mesh, *, asks=True, clears_late=False, blocks=3):
    """The first core sends blocks to two others, which use each one before they ask for the next."""
    target = tiles(mesh, 0.0)

    def sender():
        def others(address):
            return get_noc_multicast_addr(my_x[0] + 1, my_y[0], my_x[0] + 2, my_y[0], address)

        ready, sent = get_semaphore(0), get_semaphore(1)
        noc_semaphore_set(sent, 1)
        for _ in range(blocks):
            cb_reserve_back(0, 1)
            L1Pointer(get_write_ptr(0))[0 : BYTES // 4] = 3
            if asks:
                noc_semaphore_wait(ready, 2)
                noc_semaphore_set(ready, 0)
            noc_async_write_multicast(get_write_ptr(0), others(get_write_ptr(0)), BYTES, 2)
            noc_semaphore_set_multicast(sent, others(sent), 2)
            noc_async_writes_flushed()
        noc_async_write_barrier()

    def receiver(me):
        ready, sent = get_semaphore(0), get_semaphore(1)
        for _ in range(blocks):
            if asks:
                if not clears_late:
                    noc_semaphore_set(sent, 0)
                noc_semaphore_inc(right_of(ready, -me), 1)
                noc_async_atomic_barrier()
                if clears_late:
                    noc_semaphore_set(sent, 0)
            noc_semaphore_wait(sent, 1)
            if me == 1:
                noc_async_write(get_write_ptr(0), pages_of(target).get_noc_addr(0), BYTES)
                noc_async_write_barrier()
            if not asks:
                break

    def kernel():
        me = get_absolute_logical_x()
        receiver(me) if me else sender()

    launched(mesh, kernel, cores=3, semaphores=(3, 3))


@mistake(
    Told.WARNING,
    "page 0 of circular buffer 0 on core 1-0",
    "neither has waited for the other",
    symptom="Receivers work on a block that the next one is already overwriting.",
    mend="Let the sender wait for a semaphore that each receiver raises when it has room.",
)
def a_multicast_does_not_wait_for_its_receivers(mesh):
    multicast(mesh, asks=False)


@mistake(
    Told.WARNING,
    "the signal may be overwritten",
    symptom="The program hangs on some runs: the data was there before the flag was set back.",
    mend="Set the flag back first, and ask for data then.",
)
def a_flag_is_set_back_after_asking(mesh):
    multicast(mesh, clears_late=True)


@right
def a_multicast_waits_for_its_receivers(mesh):
    multicast(mesh)


# -- semaphores -------------------------------------------------------------------------------------


def counted(mesh, receiver, sender):
    """Two cores signal to the first one, twice each."""

    def kernel():
        if get_absolute_logical_x():
            sender(right_of(get_semaphore(0), -get_absolute_logical_x()))
        else:
            receiver(get_semaphore(0))

    launched(mesh, kernel, cores=3, semaphores=(3, 3))


def raised_twice(place):
    for _ in range(2):
        noc_semaphore_inc(place, 1)
        noc_async_atomic_barrier()


@mistake(
    Told.WARNING,
    "waits until semaphore 0 is 1",
    "noc_semaphore_wait_min",
    symptom="The program hangs on some runs: two signals come at once, and the value is never 1.",
    mend="Wait with noc_semaphore_wait_min, or for the last value only.",
)
def a_value_is_waited_for_that_may_be_passed_over(mesh):
    def receiver(semaphore):
        for value in range(1, 3):
            noc_semaphore_wait(semaphore, value)

    def sender(place):
        if get_absolute_logical_x() == 1:
            noc_semaphore_wait(get_semaphore(1), 1)  # the second signal comes behind the first
        noc_semaphore_inc(place, 1)
        if get_absolute_logical_x() == 2:
            noc_semaphore_inc(right_of(get_semaphore(1), -1), 1)
        noc_async_atomic_barrier()

    counted(mesh, receiver, sender)


@right
def the_last_value_is_waited_for(mesh):
    counted(mesh, lambda semaphore: noc_semaphore_wait(semaphore, 4), raised_twice)


@right
def at_least_a_value_is_waited_for(mesh):
    counted(mesh, lambda semaphore: [noc_semaphore_wait_min(semaphore, i) for i in range(1, 5)], raised_twice)


@mistake(
    Told.WARNING,
    "sets semaphore 0 of core 0-0",
    "the signal may be overwritten",
    symptom="The program hangs on some runs: a signal came before the semaphore was set to 0.",
    mend="Create the semaphore with its first value, and let nobody set it while others may raise it.",
)
def a_semaphore_is_cleared_while_others_raise_it(mesh):
    def receiver(semaphore):
        noc_semaphore_set(semaphore, 0)
        noc_semaphore_wait_min(semaphore, 4)

    counted(mesh, receiver, raised_twice)


@right
def signals_are_taken_off_one_by_one(mesh):
    counted(mesh, lambda semaphore: [Semaphore(0).down(1) for _ in range(4)], raised_twice)


@mistake(
    Told.ERROR,
    "The program is stuck",
    "noc_semaphore_wait_min(semaphore 0, 5), it is 4",
    symptom="The program never ends.",
    mend="Wait for as many signals as are sent.",
)
def more_signals_are_waited_for_than_are_sent(mesh):
    counted(mesh, lambda semaphore: noc_semaphore_wait_min(semaphore, 5), raised_twice)


def signalled_elsewhere(mesh, cores):
    def kernel():
        if get_absolute_logical_x() == 0:
            noc_semaphore_inc(right_of(get_semaphore(0)), 1)
            noc_async_atomic_barrier()

    launched(mesh, kernel, cores=2, semaphores=(cores, 2))


@mistake(
    Told.WARNING,
    "of core 1-0, which has no semaphore there",
    "CreateSemaphore",
    symptom="The signal lands in memory of something else.",
    mend="Let the cores of CreateSemaphore contain all that are signalled to.",
)
def a_signal_goes_to_a_core_without_the_semaphore(mesh):
    signalled_elsewhere(mesh, 1)


@right
def a_signal_goes_to_a_core_with_the_semaphore(mesh):
    signalled_elsewhere(mesh, 2)


def told_twice(mesh, between):
    """The first core sends two flags to the second, from one word."""

    def first():
        own = get_semaphore(0)
        for value in range(1, 3):
            noc_semaphore_set(own, value)
            noc_semaphore_set_remote(own, right_of(get_semaphore(value)))
            between()
        noc_async_write_barrier()

    def second():
        for value in range(1, 3):
            noc_semaphore_wait(get_semaphore(value), value)

    launched(mesh, lambda: second() if get_absolute_logical_x() else first(), cores=2, semaphores=(2, 2, 2))


@mistake(
    Told.WARNING,
    "semaphore 0 is set to 2 while it may still be on its way",
    "noc_async_writes_flushed()",
    symptom="The first flag arrives as the second one: whoever waits for it hangs.",
    mend="Call noc_async_writes_flushed() before the word is set again, or send a word that stays.",
)
def a_flag_is_changed_while_it_is_sent(mesh):
    told_twice(mesh, lambda: None)


@right
def a_flag_is_changed_once_it_has_left(mesh):
    told_twice(mesh, noc_async_writes_flushed)


@right
def a_flag_is_changed_once_it_was_answered(mesh):
    def kernel():
        own, answer = get_semaphore(0), get_semaphore(1)
        if get_absolute_logical_x():
            for value in range(1, 3):
                noc_semaphore_wait(own, value)
                noc_semaphore_inc(right_of(answer, -1), 1)
            noc_async_atomic_barrier()
        else:
            for value in range(1, 3):
                noc_semaphore_set(own, value)
                noc_semaphore_set_remote(own, right_of(own))
                noc_semaphore_wait(answer, value)

    launched(mesh, kernel, cores=2, semaphores=(2, 2))


def raised_last(mesh, end):
    def first():
        noc_semaphore_inc(right_of(get_semaphore(0)), 1)
        end()

    def second():
        noc_semaphore_wait(get_semaphore(0), 1)

    launched(mesh, lambda: second() if get_absolute_logical_x() else first(), cores=2, semaphores=(2,))


@mistake(
    Told.STRICT,
    "a semaphore that it raised on another core may still be on its way",
    symptom="The signal comes when the next program has begun, once in a long time.",
    mend="Call noc_async_atomic_barrier() at the end, unless the kernel waits for an answer.",
)
def a_kernel_ends_without_an_atomic_barrier(mesh):
    raised_last(mesh, lambda: None)


@right
def a_kernel_ends_with_an_atomic_barrier(mesh):
    raised_last(mesh, noc_async_atomic_barrier)
