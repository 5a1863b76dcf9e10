"""Kernels: the memory of other cores."""

import torch
from catalogue import Told, mistake, right
from kernel_launches import BYTES, fill, launched, line, pages_of, right_of, tiles

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    L1Pointer,
    cb_pop_front,
    cb_push_back,
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
    noc_async_read_tile,
    noc_async_write,
    noc_async_write_barrier,
    noc_async_write_multicast,
    noc_async_write_tile,
    noc_async_writes_flushed,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_set_multicast,
    noc_semaphore_set_remote,
    noc_semaphore_wait,
    noc_semaphore_wait_min,
)


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
def a_page_of_a_buffer_in_l1_is_scratch_of_another_core(mesh):
    """A buffer takes its addresses in all banks; those without a page of it are free to be used."""
    source, target = tiles(mesh), tiles(mesh, 0.0)
    local = metal.DeviceLocalBufferConfig(page_size=BYTES, buffer_type=ttnn.BufferType.L1)
    buffer = metal.MeshBuffer.create(metal.ReplicatedBufferConfig(BYTES), local, mesh)
    scratch = buffer.address()

    def kernel():
        for page in range(4):
            noc_async_read_tile(page, pages_of(source), scratch)
            noc_async_read_barrier()
            noc_async_write_tile(page, pages_of(target), scratch)
            noc_async_write_barrier()

    launched(mesh, kernel)
    assert torch.equal(ttnn.to_torch(ttnn.get_device_tensors(target)[0]), torch.ones(64, 64).bfloat16())


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


@right
def partial_results_are_gathered(mesh):
    """Three cores each write a page for the first one, which pushes them once all are there."""
    target = tiles(mesh, 0.0)

    def kernel():
        me = get_absolute_logical_x()
        if me:
            fill()
            cb_wait_front(0, 1)
            noc_async_write(get_read_ptr(0), right_of(get_write_ptr(1) + (me - 1) * BYTES, -me), BYTES)
            noc_async_write_barrier()
            noc_semaphore_inc(right_of(get_semaphore(0), -me), 1)
            noc_async_atomic_barrier()
            cb_pop_front(0, 1)
        else:
            cb_reserve_back(1, 3)
            noc_semaphore_wait(get_semaphore(0), 3)
            cb_push_back(1, 3)

    def writer():
        if get_absolute_logical_x() == 0:
            cb_wait_front(1, 3)
            for page in range(3):
                noc_async_write(get_read_ptr(1) + page * BYTES, pages_of(target).get_noc_addr(page), BYTES)
            noc_async_write_barrier()
            cb_pop_front(1, 3)

    launched(mesh, kernel, writer, cores=4, pages=3, indexes=(0, 1), semaphores=(4,))


@right
def a_ring_of_cores_gives_credits_back(mesh):
    """Each core writes into the next one's inbox, once that one has read what was there."""

    def kernel():
        me, cores = get_absolute_logical_x(), 4
        following, before = (me + 1) % cores - me, (me - 1) % cores - me
        data, credit, inbox = get_semaphore(0), get_semaphore(1), get_write_ptr(1)
        cb_reserve_back(0, 1)
        for turn in range(1, 4):
            L1Pointer(get_write_ptr(0))[0 : BYTES // 4] = me
            noc_semaphore_wait_min(credit, turn - 1)
            noc_async_write(get_write_ptr(0), right_of(inbox, following), BYTES)
            noc_async_write_barrier()
            noc_semaphore_inc(right_of(data, following), 1)
            noc_semaphore_wait_min(data, turn)
            L1Pointer(inbox)[0:8]
            noc_semaphore_inc(right_of(credit, before), 1)
        noc_async_atomic_barrier()

    launched(mesh, kernel, cores=4, indexes=(0, 1), semaphores=(4, 4))


@right
def cores_send_to_all_others_in_turn(mesh):
    """As blocks of a product do: the flag is sent from a word of its own, which stays."""
    source = tiles(mesh)

    def kernel():
        me, cores = get_absolute_logical_x(), 4
        ready, sent, valid = (get_semaphore(i) for i in range(3))
        all_cores = my_x[0] - me, my_y[0], my_x[0] - me + cores - 1, my_y[0]
        noc_semaphore_set(valid, 1)
        for sender in range(cores):
            cb_reserve_back(0, 1)
            noc_semaphore_set(sent, 0)
            if sender == me:
                noc_async_read_tile(me, pages_of(source), get_write_ptr(0))
                noc_async_read_barrier()
                noc_semaphore_wait(ready, cores - 1)
                noc_semaphore_set(ready, 0)
                window = get_write_ptr(0)
                noc_async_write_multicast(window, get_noc_multicast_addr(*all_cores, window), BYTES, cores - 1)
                noc_semaphore_set_multicast(valid, get_noc_multicast_addr(*all_cores, sent), cores - 1)
            else:
                noc_semaphore_inc(right_of(ready, sender - me), 1)
                noc_semaphore_wait(sent, 1)
            cb_push_back(0, 1)
        noc_async_write_barrier()
        noc_async_atomic_barrier()

    def consumer():
        for _ in range(4):
            cb_wait_front(0, 1)
            L1Pointer(get_read_ptr(0))[0:8]
            cb_pop_front(0, 1)

    launched(mesh, kernel, consumer, cores=4, semaphores=(4, 4, 4))


@right
def packets_bring_their_flag_along(mesh):
    """The last number of a packet tells that it is there, and an answer tells the sender as much."""

    def sender():
        packet, answers = L1Pointer(get_write_ptr(0)), get_semaphore(0)
        for turn in range(1, 4):
            noc_semaphore_wait_min(answers, turn)
            packet[0:16] = turn
            noc_async_write(packet, right_of(get_write_ptr(1)), 64)
        noc_semaphore_wait_min(answers, 4)
        noc_async_write_barrier()

    def receiver():
        packet = L1Pointer(get_write_ptr(1))
        packet[15] = 0
        for turn in range(4):
            while packet[15] != turn:
                pass
            if turn:
                assert packet[0:8] == [turn] * 8
            noc_semaphore_inc(right_of(get_semaphore(0), -1), 1)
        noc_async_atomic_barrier()

    def kernel():
        receiver() if get_absolute_logical_x() else sender()

    launched(mesh, kernel, cores=2, indexes=(0, 1), semaphores=(2,))
