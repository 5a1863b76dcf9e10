"""One suite for every driver: what a mesh may rely on, whatever drives a card."""

from __future__ import annotations

import pytest
from driver_cases import CASES, PAGE, fresh_machine, increased, marked

from softmesh.drivers.protocol import CircularBuffer, Fabric, ProgramSpec, Scalar, Traces
from softmesh.errors import ArgumentValueError, MeshError

SOME = bytes(range(256)) * 16 * 11  # eleven pages: more than there are banks
ALL = sorted(CASES)
CABLED = sorted(name for name, case in CASES.items() if case.is_cabled)


@pytest.fixture(params=ALL)
def case(request):
    with fresh_machine():
        yield CASES[request.param]


@pytest.fixture
def card(case):
    driver = case.cards(2)(0)
    yield driver
    driver.close()


@pytest.fixture(params=CABLED)
def cabled(request):
    """Two cards with a cable between port `a` of the first and port `b` of the second."""
    with fresh_machine():
        cards = [CASES[request.param].cards(2)] * 2
        pair = [open_card(index) for index, open_card in enumerate(cards)]
        yield pair
        for driver in pair:
            driver.close()


def filled(card, data=SOME):
    handle = card.alloc(len(data), page_size=PAGE)
    card.write(handle, data)
    return handle


def program(case, function, **options):
    return ProgramSpec(case.kernels(function), name=function.__name__, **options)


def test_a_card_says_what_it_is(card):
    info = card.info
    assert (info.index, info.serial, info.arch) == (0, "SM-0000", "blackhole")
    assert (info.dram_banks, info.dram_align) == (8, 64)
    assert info.num_cores == len(card.cores)
    assert info.max_page >= PAGE


def test_what_is_written_is_read(card):
    assert bytes(card.read(filled(card))) == SOME


def test_part_of_a_buffer_is_written_and_read_alone(card):
    handle = filled(card)
    card.write(handle, b"abcde", offset=PAGE * 3 - 2)
    assert (
        bytes(card.read(handle, offset=PAGE * 3 - 4, size=9))
        == SOME[PAGE * 3 - 4 : PAGE * 3 - 2] + b"abcde" + b"\x03\x04"
    )
    card.write(handle, b"", offset=5)
    assert bytes(card.read(handle, size=0)) == b""
    expected = SOME[: PAGE * 3 - 2] + b"abcde" + SOME[PAGE * 3 + 3 :]
    assert bytes(card.read(handle)) == expected


def test_a_read_fills_memory_of_the_caller(card):
    out = bytearray(len(SOME))
    card.read(filled(card), out)
    assert bytes(out) == SOME


def test_written_bytes_were_copied_when_write_returns(card):
    data = bytearray(SOME)
    handle = card.alloc(len(data), page_size=PAGE)
    card.write(handle, data)
    data[:] = bytes(len(data))
    assert bytes(card.read(handle)) == SOME


def test_an_access_outside_a_buffer_is_refused(card):
    handle = filled(card)
    with pytest.raises(ArgumentValueError, match="do not lie in a buffer"):
        card.write(handle, b"abc", offset=handle.size - 2)
    with pytest.raises(ArgumentValueError, match="do not lie in a buffer"):
        card.read(handle, offset=-1, size=2)


def test_a_buffer_lies_where_it_was_asked_to(card):
    first = card.alloc(5 * PAGE, page_size=PAGE)
    address = first.address + 16 * PAGE
    second = card.alloc(9 * PAGE, page_size=PAGE, address=address)
    assert (second.address, second.size, second.page_size) == (address, 9 * PAGE, PAGE)
    card.write(second, bytes([7]) * second.size)
    card.write(first, bytes([8]) * first.size)
    assert set(card.read(second)) == {7}


def test_an_address_that_is_taken_is_a_memory_error(card):
    handle = card.alloc(PAGE, page_size=PAGE)
    with pytest.raises(MemoryError, match=hex(handle.address)):
        card.alloc(PAGE, page_size=PAGE, address=handle.address)


def test_freed_memory_is_given_again(card):
    handle = card.alloc(PAGE, page_size=PAGE)
    card.free(handle)
    card.free(handle)
    assert card.alloc(PAGE, page_size=PAGE, address=handle.address).address == handle.address


def test_a_freed_buffer_cannot_be_read(card):
    handle = filled(card)
    card.free(handle)
    with pytest.raises(MeshError, match="it was freed"):
        card.read(handle)


def test_a_program_changes_memory_in_the_order_of_submission(case, card):
    handle = filled(card)
    image = card.compile(program(case, increased, cores=3))
    for step in (1, 2, 3):
        card.submit(image, [handle.address, 11, step])
    card.write(handle, b"\xff", offset=0)
    expected = bytes([255]) + bytes((value + 6) % 256 for value in SOME[1:])
    assert bytes(card.read(handle)) == expected


def test_pages_lie_in_banks_by_the_common_rule(case, card):
    """Page 9 of eight banks is the second of bank 1; a kernel sees it there, whoever wrote it."""
    handle = filled(card)
    assert handle.locate(9) == (1, handle.address + PAGE)
    image = card.compile(program(case, increased, cores=1))
    card.wait(card.submit(image, [handle.address + PAGE, 3, 1]), 5)
    expected = bytearray(SOME)
    expected[8 * PAGE : 11 * PAGE] = bytes((value + 1) % 256 for value in SOME[8 * PAGE : 11 * PAGE])
    assert bytes(card.read(handle)) == bytes(expected)


@pytest.mark.parametrize("name", [name for name in ALL if CASES[name].cores_differ])
def test_arguments_may_be_one_list_for_each_core_or_a_function(name):
    with fresh_machine():
        case = CASES[name]
        card = case.cards(1)(0)
        handle = filled(card)
        image = card.compile(program(case, marked, cores=2))
        card.submit(image, [[handle.address, 11], [handle.address, 12]])
        assert bytes(card.read(handle))[PAGE : PAGE + 3] == bytes([1, 12, 2])
        card.submit(image, lambda index, xy, n: [handle.address, 20 + index + n])
        assert bytes(card.read(handle))[:3] == bytes([0, 22, 2])
        with pytest.raises(ArgumentValueError, match="arguments for 3 cores"):
            card.submit(image, [[1], [2], [3]])
        card.close()


def test_an_argument_that_is_no_u32_is_refused(case, card):
    image = card.compile(program(case, marked, cores=1))
    with pytest.raises(ArgumentValueError, match="must fit 32 bits"):
        card.submit(image, [2**32, 0])


def test_cores_can_be_chosen_for_one_launch(case, card):
    handle = filled(card)
    image = card.compile(program(case, marked))
    card.wait(card.submit(image, [handle.address, 5], cores=4), 5)
    found = bytes(card.read(handle))
    assert [found[PAGE * i : PAGE * i + 3] for i in range(5)] == [
        *(bytes([i, 5, 4]) for i in range(4)),
        SOME[:3],
    ]
    with pytest.raises(ArgumentValueError, match="cores"):
        card.submit(image, [handle.address, 5], cores=1000)


def test_events_are_answered_and_sync_waits_for_all(case, card):
    handle = filled(card)
    image = card.compile(program(case, increased, cores=1))
    events = [card.submit(image, [handle.address, 1, 1]) for _ in range(3)]
    card.sync(5)
    assert [card.query(event) for event in events] == [True] * 3
    card.wait(events[1])


def test_a_program_without_kernels_is_refused(card):
    with pytest.raises(ArgumentValueError, match="no kernels"):
        card.compile(ProgramSpec({}))


def test_kernels_of_another_kind_are_refused_when_compiled(card):
    with pytest.raises((TypeError, ValueError), match="program 'wrong'"):
        card.compile(ProgramSpec({"compute": 7}, name="wrong"))


def test_a_trace_runs_again_with_other_named_values(case, card):
    assert isinstance(card, Traces)
    handle = filled(card, bytes(PAGE))
    image = card.compile(program(case, increased, cores=1))
    card.begin_trace()
    for _ in range(2):
        card.submit(image, [handle.address, 1, Scalar("step", 1)])
    trace = card.end_trace()
    assert set(card.read(handle)) == {0}
    card.wait(card.replay(trace), 5)
    assert set(card.read(handle)) == {2}
    card.wait(card.replay(trace, {"step": 10}), 5)
    assert set(card.read(handle)) == {22}


def test_a_replay_refuses_names_and_values_that_the_trace_cannot_take(case, card):
    handle = filled(card, bytes(PAGE))
    card.begin_trace()
    card.submit(card.compile(program(case, increased, cores=1)), [handle.address, 1, Scalar("step", 1)])
    trace = card.end_trace()
    with pytest.raises(KeyError, match="'stop'"):
        card.replay(trace, {"stop": 1})
    with pytest.raises(ArgumentValueError, match="32 bits"):
        card.replay(trace, {"step": -1})
    with pytest.raises(MeshError, match="no trace is being recorded"):
        card.end_trace()


def test_reset_leaves_a_card_that_works_and_forgets_its_buffers(card):
    handle = filled(card)
    card.reset()
    with pytest.raises(MeshError, match="it was freed"):
        card.read(handle)
    assert bytes(card.read(filled(card))) == SOME


def test_close_is_idempotent_and_final(card):
    card.close()
    card.close()
    with pytest.raises(MeshError, match="is closed"):
        card.alloc(PAGE)


@pytest.mark.parametrize("name", [name for name in ALL if not CASES[name].has_l1])
def test_a_card_without_buffers_in_l1_says_so(name):
    with fresh_machine():
        card = CASES[name].cards(1)(0)
        with pytest.raises(ArgumentValueError, match="buffers in DRAM"):
            card.alloc(PAGE, mem="l1", page_size=PAGE)
        card.close()


@pytest.mark.parametrize("name", [name for name in ALL if CASES[name].has_l1])
def test_buffers_in_l1_are_dealt_to_the_cores(name):
    card = CASES[name].cards(1)(0)
    handle = card.alloc(200 * 32, mem="l1", page_size=32)
    data = bytes(i % 251 for i in range(handle.size))
    card.write(handle, data)
    assert bytes(card.read(handle)) == data
    assert handle.locate(131) == (1, handle.address + 32)
    card.close()


def test_both_ends_of_a_cable_tell_of_each_other(cabled):
    for near, far in (cabled, cabled[::-1]):
        assert isinstance(near, Fabric)
        ((port, (serial, far_port)),) = near.peers().items()
        assert serial == far.info.serial
        assert far.peers()[far_port] == (near.info.serial, port)


def test_bytes_cross_a_cable_both_ways_once_both_ends_have_posted(cabled):
    texts = [bytes([3 + i]) * 5 * PAGE for i in range(2)]
    sent = [filled(card, text) for card, text in zip(cabled, texts, strict=True)]
    rooms = [filled(card, bytes(6 * PAGE)) for card in cabled]
    events = []
    for card, source, room in zip(cabled, sent, rooms, strict=True):
        (port,) = card.peers()
        events.append((card, card.recv(port, room, PAGE, 5 * PAGE)))
        events.append((card, card.send(port, source, 0, 5 * PAGE)))
    for card, event in events:
        card.wait(event, 5)
    for card, room, text in zip(cabled, rooms, texts[::-1], strict=True):
        assert bytes(card.read(room)) == bytes(PAGE) + text


def test_a_port_without_a_cable_is_refused(cabled):
    handle = filled(cabled[0])
    with pytest.raises(MeshError, match="port 5"):
        cabled[0].recv(5, handle, 0, PAGE)


def test_a_circular_buffer_carries_pages_between_kernels_that_wait_for_each_other():
    card = CASES["bytearray"].cards(1)(0)
    handle = filled(card)

    def read(core):
        for page in range(11):
            core.cb(0).push(core.pages(core.args[0], PAGE)[page])

    def compute(core):
        for _ in range(11):
            core.cb(16).push(bytes(255 - value for value in core.cb(0).pop()))

    def write(core):
        for page in range(11):
            core.pages(core.args[0], PAGE)[page] = core.cb(16).pop()

    cbs = [CircularBuffer(0, PAGE), CircularBuffer(16, PAGE)]
    spec = ProgramSpec({"writer": write, "reader": read, "compute": compute}, cores=1, cbs=cbs)
    card.wait(card.submit(card.compile(spec), [handle.address]), 5)
    assert bytes(card.read(handle)) == bytes(255 - value for value in SOME)
    card.close()


def test_semaphores_order_the_cores_of_a_program():
    card = CASES["virtual"].cards(1)(0)
    handle = filled(card, bytes(PAGE))

    def in_turn(core):
        if core.index < 3:
            core.semaphore(0).wait(1)
        pages = core.pages(core.args[0], PAGE)
        (last,) = pages[0][:1]
        pages[0] = bytes([last * 10 % 256 + core.index])
        if core.index:
            core.semaphore(0, (core.index - 1, 0)).add()

    spec = ProgramSpec({"writer": in_turn}, cores=4, semaphores=1)
    card.wait(card.submit(card.compile(spec), [handle.address]), 5)
    assert card.read(handle, size=1)[0] == ((3 * 10 + 2) * 10 + 1) * 10 % 256
    card.close()


def test_a_program_in_which_all_wait_is_an_error_that_names_them():
    card = CASES["virtual"].cards(1)(0)
    spec = ProgramSpec({"reader": lambda core: core.cb(3).pop()}, cores=2, cbs=[CircularBuffer(3, 32)])
    event = card.submit(card.compile(spec))
    with pytest.raises(MeshError, match=r"stands still: reader on core \(0, 0\) waits for a page in circular buffer 3"):
        card.wait(event, 5)
    card.close()


def test_circular_buffers_must_fit_into_l1():
    card = CASES["virtual"].cards(1)(0)
    with pytest.raises(MeshError, match="beyond max L1 size"):
        card.compile(ProgramSpec({"reader": increased}, cbs=[CircularBuffer(0, 1 << 20, pages=2)]))
    card.close()


def test_an_error_that_nobody_waited_for_comes_with_the_next_read():
    card = CASES["bytearray"].cards(1)(0)
    handle = filled(card)

    def broken(core):
        raise ZeroDivisionError("by nought")

    card.submit(card.compile(ProgramSpec({"writer": broken}, cores=1)))
    with pytest.raises(
        MeshError, match=r"writer of program 'program' on core \(0, 0\) raised ZeroDivisionError: by nought"
    ):
        card.read(handle)
    assert bytes(card.read(handle)) == SOME
    card.close()
