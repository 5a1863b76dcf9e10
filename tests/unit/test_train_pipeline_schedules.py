"""Schedules of pipelines: the laws of the three that have names, and what the check says of any other."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.errors import MeshError, SoftmeshError
from softmesh.train.pipeline import (
    Backward,
    Connection,
    Forward,
    RecvActivation,
    Schedule,
    SendActivation,
    bubble_share,
    check,
    cut,
    deadlock,
    gpipe,
    interleaved,
    live_activations,
    one_forward_one_backward,
    picture,
    schedule_named,
    scheduled,
    smallest_fifo,
    unhindered_fifo,
    violations,
)

SEVERAL = settings(max_examples=40, deadline=None)
stages, micro_batches, chunks, times = (st.integers(1, most) for most in (5, 8, 3, 3))
names = st.sampled_from(["1f1b", "gpipe", "interleaved"])
schedules = st.builds(schedule_named, names, stages, micro_batches, chunks)


@SEVERAL
@given(schedules)
def test_every_named_schedule_keeps_the_rules_and_gets_through(schedule):
    assert violations(schedule) == []
    assert deadlock(schedule) is None


@SEVERAL
@given(stages, micro_batches, times, times)
def test_bubbles_of_gpipe_and_1f1b_are_those_of_the_formula_whatever_passes_take(p, m, forward, backward):
    for schedule in (gpipe(p, m), one_forward_one_backward(p, m)):
        assert bubble_share(schedule, forward, backward) == Fraction(p - 1, m + p - 1)


@SEVERAL
@given(stages, st.integers(1, 3), chunks, times, times)
def test_interleaving_makes_bubbles_shorter_by_the_number_of_chunks(p, groups, v, forward, backward):
    m = groups * p
    assert bubble_share(interleaved(p, m, v), forward, backward) == Fraction(p - 1, v) / (m + Fraction(p - 1, v))


@SEVERAL
@given(st.integers(2, 5), micro_batches, chunks)
def test_a_smaller_last_group_takes_no_longer_than_a_full_one(p, m, v):
    full = -(-m // p) * p
    busy, busy_when_full = (m * v / (1 - bubble_share(interleaved(p, n, v))) * n / m for n in (m, full))
    assert busy <= busy_when_full


@SEVERAL
@given(stages, micro_batches)
def test_gpipe_keeps_every_micro_batch_and_1f1b_only_as_many_as_stages_are_ahead(p, m):
    assert live_activations(gpipe(p, m)) == (m,) * p
    assert live_activations(one_forward_one_backward(p, m)) == tuple(min(p - s, m) for s in range(p))


@SEVERAL
@given(schedules)
def test_the_smallest_fifos_are_safe_and_none_can_be_smaller(schedule):
    smallest = smallest_fifo(schedule)
    assert deadlock(schedule, smallest) is None
    for connection, room in smallest.items():
        if room > 0:
            assert deadlock(schedule, {**smallest, connection: room - 1}) is not None


@SEVERAL
@given(schedules, times, times)
def test_with_room_enough_no_send_costs_any_time(schedule, forward, backward):
    room = unhindered_fifo(schedule, forward, backward)
    assert bubble_share(schedule, forward, backward, room) == bubble_share(schedule, forward, backward)


@SEVERAL
@given(schedules, st.integers(0, 2))
def test_more_room_never_brings_a_deadlock(schedule, room):
    if deadlock(schedule, room) is None:
        assert deadlock(schedule, room + 1) is None


@SEVERAL
@given(st.builds(schedule_named, names, st.integers(2, 4), st.integers(1, 4), st.integers(1, 2)), st.data())
def test_a_schedule_without_one_of_its_actions_breaks_a_rule_of_that_stage(schedule, data):
    stage = data.draw(st.integers(0, len(schedule.stages) - 1))
    number = data.draw(st.integers(0, len(schedule.stages[stage]) - 1))
    actions = list(schedule.stages[stage])
    lost = actions.pop(number)
    broken = [actions if s == stage else each for s, each in enumerate(schedule.stages)]
    assert f"stage {stage}: {lost} is missing" in violations(replace(schedule, stages=broken))


def test_1f1b_needs_room_for_one_activation_and_gpipe_for_none():
    assert set(smallest_fifo(gpipe(4, 8)).values()) == {0}
    needs = smallest_fifo(one_forward_one_backward(4, 8))
    assert {need for connection, need in needs.items() if connection.carries == "activations"} == {1}
    assert {need for connection, need in needs.items() if connection.carries == "gradients"} == {0}


def test_a_deadlock_is_told_with_its_stages_what_each_waits_for_and_what_would_help():
    report = check(one_forward_one_backward(3, 4), fifo=0)
    assert not report.is_safe
    assert str(report.deadlock).splitlines() == [
        "deadlock: stage 1 -> stage 2 -> stage 1",
        "  stage 0 waits to send the activations of micro-batch 2 (chunk 0) to stage 1, whose FIFO holds 0 messages "
        "and is full",
        "  stage 1 waits to send the activations of micro-batch 1 (chunk 0) to stage 2, whose FIFO holds 0 messages "
        "and is full",
        "  stage 2 waits to send the gradients of micro-batch 0 (chunk 0) to stage 1, whose FIFO holds 0 messages "
        "and is full",
        "  remedy: give the FIFOs more room: 1 message for activations from stage 1 to stage 2.",
    ]
    with pytest.raises(MeshError, match="The schedule cannot run"):
        report.raise_if_unsafe()


def test_an_order_that_no_fifo_can_save_is_told_as_such():
    """Stage 0 wants the gradient of micro-batch 0 before it sends micro-batch 1, stage 1 the other way round."""
    first = [Forward(0), Backward(0), Forward(1), Backward(1)]
    second = [Forward(0), Forward(1), Backward(0), Backward(1)]
    own = scheduled("mine", 2, 1, [first, second])
    assert violations(own) == []
    found = check(own).deadlock
    assert found is not None
    assert found.cycle == (0, 1)
    assert found.waits == {
        0: "for the gradients of micro-batch 0 (chunk 0) from stage 1",
        1: "for the activations of micro-batch 1 (chunk 0) from stage 0",
    }
    assert "no FIFO is large enough" in found.remedy


def test_a_backward_before_its_forward_and_crossed_messages_are_named():
    assert violations(Schedule("mine", 1, 1, [[Backward(0), Forward(0)]])) == [
        "stage 0: Backward(micro_batch=0, chunk=0) comes before Forward(micro_batch=0, chunk=0)"
    ]
    order, other = [0, 1], [1, 0]
    passes = [[Forward(m) for m in order] + [Backward(m) for m in order], *[[]]]
    passes[1] = [Forward(m) for m in other] + [Backward(m) for m in order]
    assert violations(scheduled("mine", 2, 1, passes)) == [
        "activations from stage 0 to stage 1: message 0 is sent for micro-batch 0 between parts 0 and 1 and received "
        "for micro-batch 1 between parts 0 and 1"
    ]


def test_messages_to_nowhere_twice_and_out_of_range_are_named():
    good = gpipe(2, 1)
    first = [*good.stages[0], SendActivation(0, 0, 1), Forward(3), Forward(0, 2), RecvActivation(0, 0, 1)]
    assert violations(replace(good, stages=[first, good.stages[1]])) == [
        "stage 0: SendActivation(micro_batch=0, chunk=0, peer=1) comes twice, as actions 1 and 4",
        "stage 0: Forward(micro_batch=3, chunk=0), action 5, has no place there: the micro-batches are 0 to 0",
        "stage 0: Forward(micro_batch=0, chunk=2), action 6, has no place there: the chunks are 0 to 0",
        "stage 0: RecvActivation(micro_batch=0, chunk=0, peer=1), action 7, has no place there: activations go from a "
        "part of the model to the next, gradients the other way",
    ]


def test_the_picture_shows_passes_waits_and_the_share_of_bubbles():
    assert picture(one_forward_one_backward(2, 2)).splitlines() == [
        "1f1b: 2 stages, 2 micro-batches",
        "stage 0  F0 F1  .  . B0 --  . B1 --   waits 0 to fill, 3 between, 0 to drain; keeps 2 activations",
        "stage 1   . F0 B0 -- F1 B1 --  .  .   waits 1 to fill, 0 between, 2 to drain; keeps 1 activation",
        "6 of 18 units are bubbles: 1/3, 33.3%",
    ]
    assert picture(interleaved(2, 2, 2), backward=1).splitlines() == [
        "interleaved: 2 stages, 2 micro-batches, 2 chunks to a stage",
        "stage 0  F0a F1a F0b F1b   . B0b   . B1b B0a B1a   "
        "waits 0 to fill, 2 between, 0 to drain; keeps 4 activations",
        "stage 1    . F0a F1a F0b B0b F1b B1b B0a B1a   .   "
        "waits 1 to fill, 0 between, 1 to drain; keeps 3 activations",
        "4 of 20 units are bubbles: 1/5, 20.0%",
    ]


def test_the_report_tells_figures_and_bytes():
    report = check(one_forward_one_backward(2, 4), message_bytes=8192)
    assert str(report).splitlines() == [
        "1f1b: 2 stages, 4 micro-batches",
        "  bubbles: 1/5 of the time, 20.0%",
        "  live activations, by stage: 2, 1",
        "  FIFO for activations from stage 0 to stage 1: 1 message (8192 bytes); 1 so that none waits",
        "  FIFO for gradients from stage 1 to stage 0: 0 messages (4096 bytes); 1 so that none waits",
    ]
    assert report.fifo_bytes() == {
        Connection(0, 1, "activations"): 8192,
        Connection(1, 0, "gradients"): 4096,
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: gpipe(0, 4), "stages must be at least 1, got 0"),
        (lambda: interleaved(2, 2.5), "micro_batches must be an int, got 2.5"),
        (lambda: schedule_named("1b1f", 2, 2), "the schedules are '1f1b', 'gpipe', 'interleaved'"),
        (lambda: schedule_named("gpip", 2, 2), "Did you mean 'gpipe'"),
        (lambda: Schedule("mine", 1, 1, [["F0"]]), r"stages\[0\]\[0\] must be one of"),
        (lambda: Schedule("mine", 1, 1, []), "stages must be at least 1"),
        (lambda: scheduled("mine", 1, 1, [[SendActivation(0, 0, 1)]]), r"passes\[0\]\[0\] must be one of"),
        (lambda: check("gpipe"), "schedule must be a Schedule"),
        (lambda: check(gpipe(2, 2), fifo={Connection(0, 3, "activations"): 1}), "is no connection"),
        (lambda: check(gpipe(2, 2), fifo=-1), "have room for -1 messages"),
        (lambda: check(gpipe(2, 2)).fifo_bytes(), "message_bytes"),
        (lambda: picture(gpipe(2, 2), forward=0), "forward must be at least 1"),
        (lambda: picture("gpipe"), "schedule must be a Schedule"),
        (
            lambda: bubble_share(gpipe(2, 2), backward=0.5),
            "backward: a pass takes a positive int or Fraction",
        ),
        (
            lambda: deadlock(Schedule("mine", 1, 1, [[RecvActivation(0, 0, 7)]])),
            "has no place there.*and 2 more",
        ),
        (lambda: cut([1, 2], 3), "every part needs at least one"),
        (lambda: cut([1, 2, 3], [1, 1]), "3 layers cannot be dealt out as"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_in_words(wrong, message):
    with pytest.raises(SoftmeshError, match=message):
        wrong()


def test_layers_are_dealt_out_evenly_or_as_one_says():
    assert cut("abcdefg", 3) == [["a", "b", "c"], ["d", "e"], ["f", "g"]]
    assert cut("abcdefg", [1, 5, 1]) == [["a"], ["b", "c", "d", "e", "f"], ["g"]]
