"""Kernels take turns as plain functions do: they block, wake each other, and say why when they cannot go on."""

from __future__ import annotations

import pytest
from kernel_programs import CORE, program_of, run

import softmesh as ttnn
from softmesh import metal
from softmesh.kernels import (
    L1Pointer,
    cb_pages_available_at_front,
    cb_pop_front,
    cb_push_back,
    cb_reserve_back,
    cb_wait_front,
    get_absolute_logical_x,
    get_noc_addr,
    get_semaphore,
    noc_semaphore_inc,
    noc_semaphore_set,
    noc_semaphore_wait,
    noc_semaphore_wait_min,
)
from softmesh.kernels.engine.scheduler import KernelsStuck

TWO = ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(1, 0))


def test_a_consumer_waits_for_its_producer_and_the_producer_for_room(device):
    told = []

    def producer():
        for i in range(4):
            cb_reserve_back(0, 1)
            told.append(f"push {i}")
            cb_push_back(0, 1)

    def consumer():
        for i in range(4):
            cb_wait_front(0, 1)
            told.append(f"pop {i}")
            cb_pop_front(0, 1)

    run(device, program_of(reader=producer, writer=consumer, cbs=[0]))
    assert told == ["push 0", "push 1", "pop 0", "pop 1", "push 2", "push 3", "pop 2", "pop 3"]


def test_every_run_takes_turns_in_the_same_order(device):
    def order_of_turns():
        told = []

        def ping():
            for i in range(3):
                noc_semaphore_wait(get_semaphore(0), 2 * i)
                told.append((get_absolute_logical_x(), i))
                noc_semaphore_set(get_semaphore(0), 2 * i + 1)

        def pong():
            for i in range(3):
                noc_semaphore_wait(get_semaphore(0), 2 * i + 1)
                told.append((get_absolute_logical_x(), -i))
                noc_semaphore_set(get_semaphore(0), 2 * i + 2)

        program = program_of(reader=ping, writer=pong, cores=TWO)
        metal.CreateSemaphore(program, TWO, 0)
        run(device, program)
        return told

    first = order_of_turns()
    assert len(first) == 12
    assert order_of_turns() == first


def test_a_stuck_program_names_device_core_thread_call_and_line_of_all_that_wait(mesh):
    def reader():
        cb_reserve_back(0, 2)
        cb_push_back(0, 2)
        cb_reserve_back(0, 1)  # nobody pops

    def writer():
        noc_semaphore_wait(get_semaphore(0), 3)

    program = program_of(reader=reader, writer=writer, cores=TWO, cbs=[0])
    metal.CreateSemaphore(program, TWO, 1)
    with pytest.raises(KernelsStuck) as caught:
        run(mesh, program)
    line = reader.__code__.co_firstlineno
    text = str(caught.value)
    assert text.startswith("The program is stuck: no kernel can go on.")
    assert "devices (0, 0) to (1, 3), cores {[0-0 - 1-0]}, reader (NCRISC): cb_reserve_back(0, 1), 2 of 2" in text
    assert f"it has no consumer yet [test_kernel_scheduling.py:{line + 3}]" in text
    assert f"writer (BRISC): noc_semaphore_wait(semaphore 0, 3), it is 1 [test_kernel_scheduling.py:{line + 6}]" in text
    assert [(one.core, one.thread) for one in caught.value.blocked] == [
        (ttnn.CoreCoord(x, 0), thread) for thread in ("reader (NCRISC)", "writer (BRISC)") for x in (0, 1)
    ]


def test_the_report_says_that_a_producer_has_ended(device):
    def reader():
        cb_reserve_back(0, 1)
        cb_push_back(0, 1)

    def writer():
        cb_wait_front(0, 2)

    with pytest.raises(
        KernelsStuck, match=r"cb_wait_front\(0, 2\), 1 of 2 pages are full; its producer reader has ended"
    ):
        run(device, program_of(reader=reader, writer=writer, cbs=[0]))


def test_a_loop_that_polls_lets_others_go_first(device):
    def reader():
        cb_reserve_back(0, 1)
        cb_push_back(0, 1)
        noc_semaphore_wait(get_semaphore(0), 1)

    def writer():
        while not cb_pages_available_at_front(0, 1):
            pass
        cb_wait_front(0, 1)
        cb_pop_front(0, 1)
        noc_semaphore_set(get_semaphore(0), 1)

    program = program_of(reader=reader, writer=writer, cbs=[0])
    metal.CreateSemaphore(program, CORE, 0)
    run(device, program)


def test_a_poll_that_nobody_answers_is_stuck_and_not_endless(device):
    def reader():
        while L1Pointer(get_semaphore(0))[0] != 7:
            pass

    program = program_of(reader=reader)
    metal.CreateSemaphore(program, CORE, 0)
    with pytest.raises(KernelsStuck, match=r"L1Pointer\(\d+\)\[0\], which is 0, asked again and again"):
        run(device, program)


def test_kernels_that_answer_each_other_by_polling_alone_get_on(device):
    """For more turns than polls may be idle."""

    def player(own, other):
        def kernel():
            for turn in range(1, 6001):
                while L1Pointer(get_semaphore(own))[0] < turn - own:
                    pass
                L1Pointer(get_semaphore(other))[0] = turn

        return kernel

    program = program_of(reader=player(1, 0), writer=player(0, 1))
    for _ in range(2):
        metal.CreateSemaphore(program, CORE, 0)
    run(device, program)


def test_a_loop_without_any_call_ends_at_the_deadline(device, monkeypatch):
    monkeypatch.setenv("TT_METAL_OPERATION_TIMEOUT_SECONDS", "0.2")

    def reader():
        while True:
            pass

    with pytest.raises(KernelsStuck, match=r"(?s)has run for 0.2 s.*reader \(NCRISC\): runs \[test_kernel_scheduling"):
        run(device, program_of(reader=reader))


def test_a_loop_of_kernels_that_only_busy_each_other_ends_at_the_deadline(device, monkeypatch):
    monkeypatch.setenv("TT_METAL_OPERATION_TIMEOUT_SECONDS", "0.2")

    def reader():
        while True:
            cb_reserve_back(0, 1)
            cb_push_back(0, 1)

    def writer():
        while True:
            cb_wait_front(0, 1)
            cb_pop_front(0, 1)

    with pytest.raises(KernelsStuck, match="which is all that TT_METAL_OPERATION_TIMEOUT_SECONDS allows"):
        run(device, program_of(reader=reader, writer=writer, cbs=[0]))


def test_a_deadline_that_is_no_number_is_refused(device, monkeypatch):
    monkeypatch.setenv("TT_METAL_OPERATION_TIMEOUT_SECONDS", "soon")
    with pytest.raises(ttnn.MeshError, match="give a number of seconds above 0"):
        run(device, program_of(reader=lambda: None))


def test_an_error_of_a_kernel_says_which_kernel_on_which_core_and_line(device):
    def reader():
        nothing = 0
        1 // nothing

    with pytest.raises(ttnn.MeshError, match=r"A kernel raised ZeroDivisionError: .*division") as caught:
        run(device, program_of(reader=reader))
    line = reader.__code__.co_firstlineno + 2
    place = f"[kernel reader (NCRISC) on core 0-0 of device (0, 0), test_kernel_scheduling.py:{line}]"
    assert place in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_other_kernels_leave_open_is_closed_when_one_fails(device):
    closed = []

    def reader():
        try:
            cb_wait_front(0, 1)
        finally:
            closed.append("reader")

    def writer():
        raise ValueError("enough")

    with pytest.raises(ttnn.MeshError, match="enough"):
        run(device, program_of(reader=reader, writer=writer, cbs=[0]))
    assert closed == ["reader"]


def test_kernel_calls_work_inside_kernels_only():
    with pytest.raises(ttnn.MeshError, match=r"cb_wait_front\(\) is a kernel call"):
        cb_wait_front(0, 1)


def test_semaphores_start_with_their_value_at_each_launch_and_count_up_over_the_noc(device):
    seen = []

    def reader():
        noc_semaphore_inc(get_noc_addr(get_semaphore(0)), 2)
        noc_semaphore_wait_min(get_semaphore(0), 7)
        seen.append(L1Pointer(get_semaphore(0))[0])

    program = program_of(reader=reader)
    metal.CreateSemaphore(program, CORE, 5)
    run(device, program)
    run(device, program)
    assert seen == [7, 7]


def test_a_semaphore_wraps_at_32_bits(device):
    def reader():
        noc_semaphore_inc(get_noc_addr(get_semaphore(0)), 3)
        noc_semaphore_wait(get_semaphore(0), 2)

    program = program_of(reader=reader)
    metal.CreateSemaphore(program, CORE, 0xFFFFFFFF)
    run(device, program)
