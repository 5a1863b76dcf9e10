"""Kernels: semaphores."""

from catalogue import Told, mistake, right
from kernel_launches import BYTES, launched, line, pages_of, right_of, tiles

import softmesh as ttnn
from softmesh.kernels import (
    L1Pointer,
    Noc,
    Semaphore,
    cb_reserve_back,
    get_absolute_logical_x,
    get_semaphore,
    get_write_ptr,
    my_x,
    my_y,
    noc_async_atomic_barrier,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_writes_flushed,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_set_remote,
    noc_semaphore_wait,
    noc_semaphore_wait_min,
)


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


def answered(mesh, *, lowers_first):
    """The second core signals twice, the second time once it has an answer; the first one takes signals off."""

    def receiver():
        count = L1Pointer(get_semaphore(0))
        for _ in range(2):
            noc_semaphore_wait_min(get_semaphore(0), 1)
            if lowers_first:
                count[0] = count[0] - 1
            noc_semaphore_inc(right_of(get_semaphore(1)), 1)
            if not lowers_first:
                count[0] = count[0] - 1
        noc_async_atomic_barrier()

    def sender():
        for answer in range(1, 3):
            noc_semaphore_inc(right_of(get_semaphore(0), -1), 1)
            noc_semaphore_wait_min(get_semaphore(1), answer)

    launched(mesh, lambda: sender() if get_absolute_logical_x() else receiver(), cores=2, semaphores=(2, 2))


@mistake(
    Told.WARNING,
    "sets semaphore 0 of core 0-0",
    "the signal may be overwritten",
    symptom="The program hangs on some runs: a signal came between the reading of the count and its writing.",
    mend="Lower the count before the other side is told to go on.",
)
def a_count_is_lowered_after_the_answer(mesh):
    answered(mesh, lowers_first=False)


@right
def a_count_is_lowered_before_the_answer(mesh):
    answered(mesh, lowers_first=True)


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


@right
def credits_are_counted_up_and_down(mesh):
    def kernel():
        full, empty, inbox = Semaphore(0), Semaphore(1), get_write_ptr(1)
        if get_absolute_logical_x():
            empty.up(Noc(), my_x[0] - 1, my_y[0], 2)
            for turn in range(4):
                full.down(1)
                L1Pointer(inbox + turn % 2 * BYTES)[0:8]
                empty.up(Noc(), my_x[0] - 1, my_y[0], 1)
        else:
            cb_reserve_back(0, 1)
            for turn in range(4):
                empty.down(1)
                L1Pointer(get_write_ptr(0))[0 : BYTES // 4] = turn
                noc_async_write(get_write_ptr(0), right_of(inbox + turn % 2 * BYTES), BYTES)
                noc_async_write_barrier()
                full.up(Noc(), my_x[0] + 1, my_y[0], 1)
        noc_async_atomic_barrier()

    launched(mesh, kernel, cores=2, indexes=(0, 1), semaphores=(2, 2))


def globally_signalled(mesh, cores):
    semaphore = ttnn.create_global_semaphore(mesh, cores, 0)
    address = ttnn.get_global_semaphore_address(semaphore)

    def kernel():
        if get_absolute_logical_x() == 0:
            noc_semaphore_inc(right_of(address), 1)
            noc_async_atomic_barrier()
        else:
            noc_semaphore_wait(address, 1)
            noc_semaphore_set(address, 0)

    launched(mesh, kernel, cores=2)


@mistake(
    Told.ERROR,
    "has no part on core 1-0",
    "ttnn.create_global_semaphore",
    symptom="The signal lands in memory of something else, and the wait ends when that is what it asks for.",
    mend="Let the cores of ttnn.create_global_semaphore contain all that wait for it or are signalled to.",
)
def a_global_semaphore_is_not_on_the_core_that_waits(mesh):
    globally_signalled(mesh, line(1))


@right
def a_global_semaphore_is_on_the_core_that_waits(mesh):
    globally_signalled(mesh, line(2))


def written_words(mesh, word_of):
    """Two cores write a word of the third, which nobody waits for."""

    def kernel():
        me = get_absolute_logical_x()
        cb_reserve_back(0, 1)
        if me < 2:
            L1Pointer(get_write_ptr(0))[0] = word_of(me)
            noc_async_write(get_write_ptr(0), right_of(get_write_ptr(0), 2 - me), 4)
            noc_async_write_barrier()

    launched(mesh, kernel, cores=3)


@mistake(
    Told.WARNING,
    "sets address",
    "neither has waited for the other",
    symptom="The word is that of the slower core, which is another one on each run.",
    mend="Give each core a word of its own, or count with noc_semaphore_inc.",
)
def two_cores_write_one_word(mesh):
    written_words(mesh, lambda me: me)


@right
def two_cores_set_the_same_flag(mesh):
    written_words(mesh, lambda me: 7)


def counted_up_to(mesh, value):
    """A tile for the neighbour, and a signal."""
    target = tiles(mesh, 0.0)

    def kernel():
        place = get_write_ptr(0)
        cb_reserve_back(0, 1)
        if get_absolute_logical_x() == 0:
            L1Pointer(place)[0 : BYTES // 4] = 1
            noc_async_write(place, right_of(place), BYTES)
            noc_async_write_barrier()
            noc_semaphore_inc(right_of(get_semaphore(0)), 1)
            noc_async_atomic_barrier()
        else:
            noc_semaphore_wait_min(get_semaphore(0), value)
            noc_async_write(place, pages_of(target).get_noc_addr(0), BYTES)
            noc_async_write_barrier()

    launched(mesh, kernel, cores=2, semaphores=(2,))


@mistake(
    Told.WARNING,
    "page 0 of circular buffer 0 on core 1-0",
    "neither has waited for the other",
    symptom="Nobody waits: what is stored is what the page held before.",
    mend="Count signals from 1: a semaphore is 0 from the start.",
)
def a_count_is_waited_for_that_is_there_from_the_start(mesh):
    counted_up_to(mesh, 0)


@right
def the_first_signal_is_waited_for(mesh):
    counted_up_to(mesh, 1)
