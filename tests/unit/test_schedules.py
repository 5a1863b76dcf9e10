"""Schedules as data: how they look, what they send, and that broken ones are found out."""

from __future__ import annotations

import doctest
import importlib
import re
from dataclasses import replace

import pytest
from schedule_bytes import bytes_per_pair, total_bytes

from softmesh import collectives
from softmesh.collectives.schedules.checker import neighbours, violations
from softmesh.collectives.schedules.chip_assignment import on_system
from softmesh.collectives.schedules.generators import schedule_for
from softmesh.collectives.schedules.language import Action, Held, Schedule, Send, part_sizes
from softmesh.collectives.schedules.link_traffic import (
    Lane,
    busiest_link,
    bytes_per_link,
    bytes_per_step,
    piece_sizes,
)
from softmesh.errors import ArgumentError, ArgumentValueError, MeshError

ADD, STORE = Action.ADD, Action.STORE
ZERO = frozenset({0})


@pytest.mark.parametrize("module", ["language", "generators", "checker", "link_traffic", "executor", "chip_assignment"])
def test_examples_in_docstrings_are_true(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"softmesh.collectives.schedules.{module}"))
    assert outcome.attempted
    assert not outcome.failed


def hops(schedule: Schedule) -> list[list[tuple[int, int, int]]]:
    return [[(send.sender, send.receiver, send.slot) for send in step] for step in schedule.steps]


def test_public_names_are_told_and_found() -> None:
    assert {"draw", "on_system", "reduce_scatter", "busiest_link", "violations"} <= set(collectives.__all__)
    assert set(collectives.__all__) <= set(dir(collectives))
    everything: dict[str, object] = {}
    exec("from softmesh.collectives import *", everything)
    assert set(collectives.__all__) <= set(everything)
    with pytest.raises(AttributeError, match="has no attribute 'drawn'"):
        collectives.drawn


# How they look


def test_all_gather_on_a_line_passes_each_piece_on_to_both_ends() -> None:
    assert hops(schedule_for("all_gather", (3,))) == [
        [(0, 1, 0), (1, 0, 1), (1, 2, 1), (2, 1, 2)],
        [(1, 0, 2), (1, 2, 0)],
    ]


def test_reduce_scatter_is_an_all_gather_backwards() -> None:
    assert hops(schedule_for("reduce_scatter", (3,))) == [
        [(0, 1, 2), (2, 1, 0)],
        [(0, 1, 1), (1, 0, 0), (1, 2, 2), (2, 1, 1)],
    ]
    assert {send.action for _, send in schedule_for("reduce_scatter", (3,)).sends()} == {ADD}


def test_ring_of_one_direction_starts_each_piece_just_after_its_owner() -> None:
    reduce_scatter = schedule_for("reduce_scatter", (4,), wraps=True, directions=1)
    assert hops(reduce_scatter)[0] == [(0, 1, 3), (1, 2, 0), (2, 3, 1), (3, 0, 2)]
    assert [len(step) for step in reduce_scatter.steps] == [4, 4, 4]


def test_even_ring_sends_the_halves_of_the_opposite_piece_both_ways() -> None:
    last = schedule_for("all_gather", (4,), wraps=True).steps[-1]
    to_device_2 = [(send.sender, send.slot) for send in last if send.receiver == 2]
    assert to_device_2 == [(1, 0), (3, 1)]  # the halves of piece 0


@pytest.mark.parametrize("devices", [3, 4, 7, 8, 12])
def test_ring_takes_half_the_steps_of_a_line_and_uses_both_directions_alike(devices: int) -> None:
    ring = schedule_for("all_gather", (devices,), wraps=True)
    assert len(ring.steps) == devices // 2
    assert len(schedule_for("all_gather", (devices,)).steps) == devices - 1
    carried = bytes_per_pair(ring, 1000)
    assert set(carried) == {(d, (d + way) % devices) for d in range(devices) for way in (1, -1)}
    assert len(set(carried.values())) == 1


def test_ring_of_two_is_a_line() -> None:
    assert schedule_for("all_reduce", (2,), wraps=True, num_links=2) == schedule_for("all_reduce", (2,), num_links=2)


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "barrier"])
@pytest.mark.parametrize("wraps", [False, True])
def test_one_device_alone_has_nothing_to_send(name: str, wraps: bool) -> None:
    alone = schedule_for(name, (1,), wraps)
    assert alone.steps == ()
    assert violations(alone, neighbours((1,), wraps)) == []


def test_pieces_are_cut_for_the_links_side_by_side() -> None:
    schedule = schedule_for("broadcast", (3,), num_links=3, root=0)
    assert schedule.splits == 3
    assert [send.link for send in schedule.steps[0]] == [0, 1, 2]


def test_point_to_point_takes_the_shorter_way_round() -> None:
    assert hops(schedule_for("point_to_point", (5,), wraps=True, src=1, dst=4)) == [[(1, 0, 0)], [(0, 4, 0)]]
    assert hops(schedule_for("point_to_point", (5,), src=1, dst=3)) == [[(1, 2, 0)], [(2, 3, 0)]]


def test_point_to_point_in_a_grid_goes_down_the_rows_first() -> None:
    assert hops(schedule_for("point_to_point", (2, 3), src=0, dst=5)) == [
        [(0, 3, 0)],
        [(3, 4, 0)],
        [(4, 5, 0)],
    ]


def test_point_to_point_takes_north_and_east_where_both_ways_are_equal() -> None:
    route = hops(schedule_for("point_to_point", (4, 4), wraps=True, src=0, dst=10))
    assert route == [[(0, 12, 0)], [(12, 8, 0)], [(8, 9, 0)], [(9, 10, 0)]]


def test_point_to_point_to_oneself_is_done_at_once() -> None:
    schedule = schedule_for("point_to_point", (4,), src=2, dst=2)
    assert schedule.steps == ()
    assert violations(schedule) == []


def test_grid_gathers_columns_first_and_moves_them_along_rows_in_bundles() -> None:
    steps = hops(schedule_for("all_gather", (2, 2)))
    assert steps == [
        [(0, 2, 0), (1, 3, 1), (2, 0, 2), (3, 1, 3)],
        [(0, 1, 0), (0, 1, 2), (1, 0, 1), (1, 0, 3), (2, 3, 0), (2, 3, 2), (3, 2, 1), (3, 2, 3)],
    ]


def test_grid_sums_down_columns_first() -> None:
    first = schedule_for("reduce_scatter", (2, 4)).steps[0]
    assert {abs(send.sender - send.receiver) for send in first} == {4}


def test_extents_of_one_change_nothing() -> None:
    row, line = schedule_for("all_reduce", (1, 5, 1)), schedule_for("all_reduce", (5,))
    assert (row.steps, row.start, row.goal) == (line.steps, line.start, line.goal)


def test_direct_all_reduce_adds_up_in_the_memory_of_each_device() -> None:
    schedule = schedule_for("all_reduce_direct", (3,))
    assert all(send.is_local and send.action is ADD for send in schedule.steps[-1])
    assert bytes_per_link(schedule, 10) == bytes_per_link(schedule_for("all_gather", (3,)), 10)


def test_nobody_leaves_a_barrier_without_a_token_from_everyone() -> None:
    schedule = schedule_for("barrier", (2, 3), num_links=4)
    assert schedule.splits == 1
    for device in range(6):
        assert {d for (at, _), held in schedule.goal.items() if at == device for d in held} == set(range(6))
    assert total_bytes(schedule, piece_bytes=0) == 0


def test_same_question_gives_the_same_object() -> None:
    assert schedule_for("all_gather", [2, 4], (False, True)) is schedule_for("all_gather", (2, 4), [False, True])


# What people may ask for


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("all_gathr", (4,), {}, "Did you mean 'all_gather'"),
        ("all_gather", (), {}, "one entry for each axis"),
        ("all_gather", (2, 4), {"wraps": [True]}, "one entry for each axis"),
        ("all_gather", (0,), {}, "at least one device"),
        ("all_gather", (4,), {"num_links": 0}, "num_links must be greater than 0"),
        ("all_gather", (4,), {"wraps": True, "directions": 3}, "directions=1 or directions=2, got 3"),
        ("all_gather", (4,), {"root": 1}, "takes no device numbers, got root"),
        ("broadcast", (4,), {}, "broadcast takes root, got none"),
        ("broadcast", (4,), {"root": 4}, "root must be a device of the group, 0 to 3, got 4"),
        ("broadcast", (2, 2), {"root": -1}, "root must be a device of the group, 0 to 3, got -1"),
        ("point_to_point", (4,), {"src": 1}, "takes src and dst, got src"),
        ("point_to_point", (2, 2), {"src": 1, "dst": 9}, "dst must be a device of the group, 0 to 3, got 9"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    name: str, shape: tuple[int, ...], options: dict[str, int], message: str
) -> None:
    with pytest.raises(ArgumentValueError, match=message):
        schedule_for(name, shape, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, (4,)), "name must be a string such as 'all_gather', got 3"),
        (("all_reduce", 8), "shape must be a list of ints, got 8"),
        (("all_reduce", "8"), "shape must be a list of ints, got '8'"),
        (("all_reduce", (2.0, 4)), r"shape\[0\] must be an int, got 2.0"),
        (("all_reduce", (8,), "yes"), "wraps must be a list of bools, got 'yes'"),
        (("all_reduce", (8,), (1,)), r"wraps\[0\] must be one of the bools, got 1"),
        (("all_reduce", (8,), True, 1.5), "num_links must be an int, got 1.5"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        schedule_for(*arguments)  # type: ignore[arg-type]


def test_device_numbers_and_directions_are_ints() -> None:
    with pytest.raises(ArgumentError, match="root must be an int, got 'a'"):
        schedule_for("broadcast", (4,), root="a")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="directions must be an int, got '2'"):
        schedule_for("all_gather", (4,), True, directions="2")  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="got 0"):
        schedule_for("all_gather", (4,), directions=0)


def test_a_send_is_checked_where_it_is_put_into_a_schedule() -> None:
    good = schedule_for("broadcast", (2,), root=0)
    for send, message in (
        (
            Send(0, 1, 0, "store", 0),
            r"action must be Action\.STORE or Action\.ADD, got 'store' in steps\[0\]",
        ),
        (Send(0, 1.5, 0, STORE, 0), r"receiver of a Send in steps\[0\] must be an int, got 1.5"),
        ((0, 1, 0, STORE, 0), r"steps\[0\] must hold Sends"),
    ):
        with pytest.raises(ArgumentError, match=message):
            replace(good, steps=((send,),))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"steps\[0\] must be a tuple of Sends"):
        replace(good, steps=(Send(0, 1, 0, STORE, 0),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", 3, "name must be a string, got 3"),
        ("devices", "2", "devices must be an int, got '2'"),
        ("splits", 1.0, "splits must be an int, got 1.0"),
        ("steps", 3, "steps must be a tuple of steps, got 3"),
        ("start", [0], r"start must be a dict from \(device, slot\) to device numbers, got \[0\]"),
        ("goal", {(0, 0): 0}, r"goal must be a dict .* got \(0, 0\): 0"),
        ("start", {("a", 0): ZERO}, "a device or slot of the start must be an int, got 'a'"),
        ("goal", {(0, 0): frozenset({"a"})}, "a device whose value the goal holds must be an int, got 'a'"),
        ("goal", {(0, 0): frozenset()}, r"goal\[\(0, 0\)\] is empty: name a device, or leave the place out"),
    ],
)
def test_the_parts_of_a_schedule_are_checked(field: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        replace(schedule_for("broadcast", (2,), root=0), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="pieces must be 1 or more, got 0"):
        replace(schedule_for("broadcast", (2,), root=0), pieces=0)


def test_only_a_schedule_can_be_checked_and_counted() -> None:
    for call in (violations, lambda it: bytes_per_link(it, 8), lambda it: bytes_per_step(it, 8)):
        with pytest.raises(ArgumentError, match=r"schedule must be a Schedule, such as .* got 3"):
            call(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="joined must be a function of two device numbers, got 4"):
        violations(schedule_for("all_gather", (4,)), 4)  # type: ignore[arg-type]


def test_bytes_are_whole_and_not_negative() -> None:
    ring = schedule_for("all_gather", (4,), wraps=True)
    for call in (bytes_per_link, bytes_per_step, busiest_link):
        with pytest.raises(ArgumentValueError, match="piece_bytes must be 0 or more, got -1"):
            call(ring, -1)
        with pytest.raises(ArgumentValueError, match="a size for each of the 4 pieces, 0 or more, got"):
            call(ring, [1, 2])
        with pytest.raises(ArgumentError, match=r"piece_bytes must be an int, got 1.5"):
            call(ring, 1.5)  # type: ignore[arg-type]


# What they send


def test_parts_are_near_equal_and_may_be_empty() -> None:
    assert part_sizes(10, 4) == [3, 3, 2, 2]
    assert part_sizes(1, 3) == [1, 0, 0]


def test_line_carries_every_piece_that_passes() -> None:
    n = 6
    gather = bytes_per_pair(schedule_for("all_gather", (n,)), 10)
    scatter = bytes_per_pair(schedule_for("reduce_scatter", (n,)), 10)
    for i in range(n - 1):
        assert gather[i, i + 1] == scatter[i + 1, i] == 10 * (i + 1)
        assert gather[i + 1, i] == scatter[i, i + 1] == 10 * (n - 1 - i)


def test_links_side_by_side_share_the_bytes() -> None:
    carried = bytes_per_link(schedule_for("all_gather", (4,), wraps=True, num_links=2), piece_bytes=8)
    assert set(carried.values()) == {6}
    assert {lane.link for lane in carried} == {0, 1}


def test_pieces_may_differ_in_size() -> None:
    line = schedule_for("all_gather", (3,))
    carried = bytes_per_link(line, [5, 7, 11])
    assert [carried[Lane(*ends)] for ends in ((0, 1), (1, 2), (2, 1), (1, 0))] == [5, 12, 11, 18]
    assert bytes_per_link(line, [4] * 3) == bytes_per_link(line, 4)
    assert piece_sizes(schedule_for("all_reduce", (3,)), 10) == [4, 3, 3]
    assert piece_sizes(line, 10) == [10, 10, 10]
    assert piece_sizes(schedule_for("all_to_all", (2,)), 3) == [2, 1, 2, 1]


def test_busiest_link_of_a_line_is_the_last_one() -> None:
    assert busiest_link(schedule_for("all_gather", (4,)), 10) == (Lane(1, 0, 0), 30)
    assert busiest_link(schedule_for("all_gather", (1,)), 10) is None


def test_bytes_of_the_steps_add_up() -> None:
    schedule = schedule_for("all_reduce", (2, 3), wraps=(False, True))
    assert sum(sum(step.values()) for step in bytes_per_step(schedule, 12)) == total_bytes(schedule, 12)
    assert len(bytes_per_step(schedule, 12)) == len(schedule.steps)


# Broken schedules. Each breaks one rule of a schedule that keeps them all: device 0's value goes down a line.

PASSED_ON = Schedule(
    name="pass it on",
    devices=3,
    pieces=2,
    splits=1,
    steps=((Send(0, 1, 0, STORE, 0),), (Send(1, 2, 0, STORE, 0),)),
    start={(0, 0): ZERO, (1, 1): frozenset({1}), (2, 1): frozenset({2})},
    goal={(device, 0): ZERO for device in range(3)},
)
LINE = neighbours((3,))
UNJOINED = "but no link joins them; send it hop by hop, over devices that are joined"


def with_first_step(*sends: Send) -> Schedule:
    return replace(PASSED_ON, steps=((*PASSED_ON.steps[0], *sends), *PASSED_ON.steps[1:]))


def test_schedule_of_ones_own_passes_if_it_keeps_the_rules() -> None:
    assert violations(PASSED_ON, LINE, links_between=lambda a, b: 1, one_send_per_link=True) == []


def test_sending_what_is_not_there_yet_is_found() -> None:
    early = replace(PASSED_ON, steps=PASSED_ON.steps[::-1])
    assert violations(early, LINE)[0] == (
        "step 1: device 1 sends slot 0 to 2, but device 1 has nothing there yet: "
        "step 2 brings something; send it on after that"
    )
    never = replace(PASSED_ON, steps=PASSED_ON.steps[1:])
    assert "no step brings anything; send something there first" in violations(never, LINE)[0]


def test_arriving_and_leaving_in_the_same_step_is_too_early() -> None:
    assert "has nothing there yet" in violations(with_first_step(*PASSED_ON.steps[1]), LINE)[0]


def test_adding_to_nothing_is_found() -> None:
    adding = replace(PASSED_ON, steps=((Send(0, 1, 0, ADD, 0),), PASSED_ON.steps[1]))
    assert violations(adding, LINE) == [
        "step 1: device 0 sends slot 0 to 1, to be added to slot 0, but device 1 has nothing there; "
        "let it store, or start with something there"
    ]


def test_adding_a_value_twice_is_found() -> None:
    twice = replace(PASSED_ON, steps=(*PASSED_ON.steps, (Send(0, 1, 0, ADD, 0),)))
    assert violations(twice, LINE) == [
        "step 3: device 0 sends slot 0 to 1, which adds the value of device 0 a second time to slot 0; "
        "leave this send out, or let it store"
    ]


def test_goal_that_is_not_reached_is_found() -> None:
    short = replace(PASSED_ON, steps=PASSED_ON.steps[:1])
    assert violations(short, LINE) == [
        "in the end device 2 should have the value of device 0 in slot 0, but has nothing there: device 1 has it "
        "since step 1, and no later step sends slot 0 to slot 0 of device 2; add a send after step 1"
    ]


def test_a_step_that_sends_too_soon_is_named() -> None:
    """A sum that leaves before all of it has come."""
    start: Held = {(device, 0): frozenset({device}) for device in range(3)}
    steps = ((Send(1, 2, 0, ADD, 0),), (Send(0, 1, 0, ADD, 0),))
    relay = Schedule("relay", 3, 1, 1, steps, start, {(2, 0): frozenset({0, 1, 2})})
    assert violations(relay) == [
        "in the end device 2 should have the values of devices 0, 1, 2 in slot 0, but the value of device 0 never "
        "came: device 1 has it since step 2, but step 1 sends slot 0 on before; send it after step 2"
    ]


def test_a_value_that_is_stored_over_is_told_of() -> None:
    lost = replace(PASSED_ON, steps=(*PASSED_ON.steps, (Send(2, 1, 1, STORE, 0),)))
    assert "step 3 stores over what was there; let it add, or store into another slot" in violations(lost)[0]
    goal: Held = {(2, 0): frozenset({1})}
    one: Held = {(0, 0): ZERO, (1, 0): frozenset({1})}
    gone = Schedule("gone", 3, 1, 1, PASSED_ON.steps, one, goal)
    assert "step 1 stores over the last of it, in slot 0 of device 1; send it on before" in violations(gone)[0]
    nobody = replace(PASSED_ON, goal={(0, 0): frozenset({2, 0})}, start={(0, 0): ZERO})
    assert "no device starts with it; name it in the start" in violations(nobody)[0]


def test_one_who_got_it_in_another_slot_is_told_of() -> None:
    aside = replace(PASSED_ON, start={(0, 1): ZERO}, steps=())
    assert "slot 1 of device 0 has it from the start, and no step sends slot 1 to slot 0" in violations(aside)[0]


def test_pieces_are_named_with_all_their_splits() -> None:
    whole: Held = {(0, 0): ZERO, (0, 1): ZERO}
    for part in (0, 1):
        partly = Schedule("partly", 1, 1, 2, (), whole, {(0, part): ZERO})
        assert violations(partly) == [
            f"the goal names slot {part} of device 0 without slot {1 - part}, another split of piece 0; "
            "name all 2 splits of a piece"
        ]
    assert violations(Schedule("x", 1, 1, 2, (), {(0, 0): ZERO}, {}))[0].startswith("the start names slot 0")


def test_sum_that_lacks_a_value_is_found() -> None:
    goal: Held = {(1, 1): frozenset({0, 1, 2})}
    sum_of_two = replace(PASSED_ON, steps=((Send(2, 1, 1, ADD, 1),),), goal=goal)
    assert violations(sum_of_two, LINE) == [
        "in the end device 1 should have the values of devices 0, 1, 2 in slot 1, but the value of device 0 never came"
        ": slot 0 of device 0 has it from the start, and no step sends slot 0 to slot 1 of device 1; add a send"
    ]


def test_sum_that_has_too_much_is_found() -> None:
    too_much = replace(PASSED_ON, steps=(*PASSED_ON.steps, (Send(2, 1, 1, ADD, 0),)))
    assert violations(too_much, LINE) == [
        "in the end device 1 should have the value of device 0 in slot 0, but has the value of device 2 there, too: "
        "step 3 brings it; leave that send out, or name it in the goal"
    ]


def test_writing_a_slot_twice_at_once_is_found() -> None:
    assert violations(with_first_step(Send(2, 1, 1, STORE, 0)), LINE)[0] == (
        "step 1: slot 0 of device 1 is written by device 0 and device 2 at once, so what it holds is undefined; "
        "let them come in different steps, or all add"
    )


def test_several_may_add_to_a_slot_at_once() -> None:
    goal: Held = {(1, 1): frozenset({0, 1, 2})}
    meeting = replace(PASSED_ON, steps=((Send(0, 1, 0, ADD, 1), Send(2, 1, 1, ADD, 1)),), goal=goal)
    assert violations(meeting, LINE) == []


@pytest.mark.parametrize(
    ("send", "message"),
    [
        (Send(0, 3, 0, STORE, 0), "device 0 sends slot 0 to 3, but there is no device 3; use devices 0 to 2"),
        (
            Send(-1, 0, 0, STORE, 0),
            "device -1 sends slot 0 to 0, but there is no device -1; use devices 0 to 2",
        ),
        (Send(0, 1, 2, STORE, 1), "device 0 sends slot 2 to 1, but there is no slot 2; use slots 0 to 1"),
        (Send(0, 1, 0, STORE, 2), "device 0 sends slot 0 to 1, but there is no slot 2; use slots 0 to 1"),
        (Send(0, 2, 0, STORE, 1), f"device 0 sends slot 0 to 2, {UNJOINED}"),
        (
            Send(0, 1, 0, STORE, 1, link=1),
            "device 0 sends slot 0 to 1 over link 1, but they have 1; use link 0",
        ),
        (
            Send(0, 1, 0, STORE, 1, link=-1),
            "device 0 sends slot 0 to 1 over link -1, but they have 1; use link 0",
        ),
    ],
)
def test_devices_slots_and_links_that_do_not_exist_are_found(send: Send, message: str) -> None:
    assert violations(with_first_step(send), LINE, links_between=lambda a, b: 1) == [f"step 1: {message}"]


def test_pair_without_links_is_not_joined() -> None:
    complaints = violations(PASSED_ON, links_between=lambda a, b: 0 if 2 in (a, b) else 1)
    assert complaints[0] == f"step 2: device 1 sends slot 0 to 2, {UNJOINED}"


def test_two_sends_over_one_link_at_once_are_found_if_asked_for() -> None:
    crowded = with_first_step(Send(0, 1, 0, STORE, 1))
    assert violations(crowded, LINE) == []
    assert violations(crowded, LINE, one_send_per_link=True) == [
        "step 1: link 0 from device 0 to 1 carries 2 sends at once; spread them over links or steps"
    ]


def test_what_lands_in_the_wrong_slot_is_found() -> None:
    """Contributions alone cannot see it: slots 0 and 1 both come from device 0."""
    start: Held = {(0, 0): ZERO, (0, 1): ZERO}
    goal: Held = {(1, 0): ZERO, (1, 1): ZERO}
    crossed = Schedule("x", 2, 2, 1, ((Send(0, 1, 0, STORE, 1), Send(0, 1, 1, STORE, 0)),), start, goal)
    assert violations(crossed)[0] == (
        "in the end slot 0 of device 1 has what was slot 1 of device 0, not the same slot; "
        "send it to the slot that it comes from, or ask with keeps_places=False"
    )
    assert violations(crossed, keeps_places=False) == []


def test_start_or_goal_beyond_the_devices_is_found() -> None:
    beyond = replace(PASSED_ON, start={**PASSED_ON.start, (7, 0): ZERO})
    assert violations(beyond) == [
        "the start speaks of slot 0 of device 7, but there is no device 7; use devices 0 to 2"
    ]
    foreign = replace(PASSED_ON, start={**PASSED_ON.start, (1, 1): frozenset({9})})
    assert violations(foreign) == [
        "the start speaks of slot 1 of device 1, but has the value of device 9 there, and there is none; "
        "use devices 0 to 2"
    ]
    assert violations(replace(PASSED_ON, goal={(5, 0): ZERO})) == [
        "the goal speaks of slot 0 of device 5, but there is no device 5; use devices 0 to 2"
    ]


def test_a_machine_says_who_is_joined_and_names_its_links() -> None:
    seats = on_system("T3000", (8,))
    ring = schedule_for("all_reduce", (8,), seats.wraps)
    assert seats.wraps == (True,)
    assert violations(ring, seats.joined, links_between=seats.links_between) == []
    carried = seats.bytes_per_link(ring, 1 << 20)
    assert set(carried.values()) == {7 << 20}
    assert all(re.fullmatch(r"chip \d ch \d+ → chip \d ch \d+", name) for name in carried)
    assert len(carried) == 16
    assert seats.links_between(0, 8) == 0


def test_what_a_machine_has_not_is_told() -> None:
    row = on_system("T3000", (4,))
    assert row.wraps == (False,)
    ring = schedule_for("all_reduce", (4,), wraps=True)
    assert "no link joins them" in violations(ring, row.joined)[0]
    with pytest.raises(MeshError, match="a line instead of a ring"):
        row.bytes_per_link(ring, 8)
    with pytest.raises(MeshError, match="no device 4 among the 4 chips"):
        row.bytes_per_link(schedule_for("all_gather", (8,)), 8)
    assert on_system("T3000", (8,), down=["link:0-4"]).wraps == (False,)
    with pytest.raises(ArgumentError, match="name must be the name of a machine such as 'T3000', got 3"):
        on_system(3, (4,))  # type: ignore[arg-type]


def test_neighbours_of_a_mesh_are_one_apart_along_one_axis() -> None:
    joined = neighbours((3, 4), wraps=(True, False))
    assert {other for other in range(12) if joined(0, other)} == {1, 4, 8}
    assert not joined(0, 0)


def test_line_schedule_for_a_ring_is_legal_but_not_the_other_way_round() -> None:
    assert violations(schedule_for("all_gather", (5,)), neighbours((5,), wraps=True)) == []
    wrapping = violations(schedule_for("all_gather", (5,), wraps=True), neighbours((5,)))
    assert f"step 1: device 0 sends slot 0 to 4, {UNJOINED}" in wrapping


def test_devices_outside_a_mesh_are_neighbours_of_nobody() -> None:
    joined = neighbours((4,), wraps=True)
    assert not any(joined(a, b) for a, b in ((3, 4), (4, 5), (-1, 0), (7, 0)))
    for wraps in (False, True):
        found = violations(schedule_for("all_reduce", (8,), wraps), neighbours((4,), wraps))
        assert any("device 4 sends" in line and "no link joins them" in line for line in found)
    with pytest.raises(ArgumentError, match="shape must be a list of ints, got 4"):
        neighbours(4)  # type: ignore[arg-type]


def test_a_schedule_stays_as_it_was_checked() -> None:
    start = {(0, 0): frozenset({0})}
    made = Schedule("keep", 1, 1, 1, (), start, {(0, 0): frozenset({0})})
    start.clear()
    assert made.start == {(0, 0): frozenset({0})}
    assert made == Schedule("keep", 1, 1, 1, (), dict(made.start), dict(made.goal))
    with pytest.raises(TypeError, match="does not support item assignment"):
        made.goal[0, 0] = frozenset({1})  # type: ignore[index]
