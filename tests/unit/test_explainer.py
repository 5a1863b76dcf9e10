"""The hang explainer: what made-up states of ranks prove, when it is said, and in which words."""

import io
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmesh.processes import program_location
from softmesh.processes.explainer import Explainer
from softmesh.processes.hang_verdict import Cause, Doing, RankState, explained, needs, stuck_ranks, verdict
from softmesh.processes.job_state import JobState
from softmesh.processes.rank_reporter import Reporter, finished, raised, split_address
from softmesh.processes.wait_report import Site, WaitKind, WaitReport

TIMEOUT = 30.0
SECONDS = 20.0  # for things that take well under one, on a machine that may be busy
FINISHED = RankState(Doing.FINISHED, last="all_reduce number 16 of world")
COMPUTING = RankState(Doing.COMPUTING, site=Site("train.py", 88, "loss"))
SILENT = RankState()


def waits(wait, waited=1.0):
    return RankState(Doing.WAITING, wait, waited, wait.site)


def collective(op="all_reduce", sequence=17, line=41, *, members=range(8), group="world", of="bfloat16", waited=1.0):
    site = Site("train.py", line, "step")
    wait = WaitReport(op, WaitKind.COLLECTIVE, group, tuple(members), sequence=sequence, fingerprint=of, site=site)
    return waits(wait, waited)


def message(kind, peer, tag=0, line=7, group="world"):
    site = Site("stage.py", line, "exchange")
    return waits(WaitReport(kind.value, kind, group, (0, 1, 2, 3), peer=peer, tag=tag, site=site))


def receive(peer, tag=0):
    return message(WaitKind.RECEIVE, peer, tag)


def send(peer, tag=0):
    return message(WaitKind.SEND, peer, tag)


def counted(state, **messages):
    """With how many messages were sent or taken on the channels of some tags."""
    return replace(state, messages={f"world/{tag[3:]}": count for tag, count in messages.items()})


def asks_for(number, peer, tag=0):
    state = receive(peer, tag)
    return waits(replace(state.wait, sequence=number))


def everyone(state, count=8, **others):
    """`rank5=...` replaces one."""
    states = dict.fromkeys(range(count), state)
    return states | {int(name[4:]): other for name, other in others.items()}


def found(states):
    return verdict(states, TIMEOUT)


# what is no hang


@pytest.mark.parametrize(
    "states",
    [
        everyone(SILENT),
        everyone(COMPUTING),
        everyone(FINISHED),
        everyone(collective()),
        everyone(collective(), rank5=COMPUTING),
        everyone(collective(), rank5=SILENT),
        everyone(COMPUTING, rank5=FINISHED),
    ],
)
def test_ranks_that_may_still_meet_are_left_alone(states):
    assert found(states) is None


def test_a_rank_that_left_a_collective_early_is_not_missing_from_it():
    states = everyone(collective(sequence=17), rank0=collective(sequence=18))
    assert found(states) is None


def test_a_chain_that_ends_at_a_computing_rank_may_still_dissolve():
    states = {0: receive(1), 1: receive(2), 2: receive(3), 3: COMPUTING}
    assert found(states) is None


def test_a_send_and_its_receive_are_about_to_meet():
    assert found({0: send(1), 1: receive(0), 2: FINISHED, 3: FINISHED}) is None
    exchange = {0: message(WaitKind.EXCHANGE, 1), 1: message(WaitKind.EXCHANGE, 0)}
    assert found(exchange) is None


def test_two_groups_may_be_in_collectives_of_their_own():
    left = collective(members=range(4), group="world/split0:0", op="all_gather")
    right = collective(members=range(4, 8), group="world/split0:1")
    assert found({rank: left if rank < 4 else right for rank in range(8)}) is None


# collectives


def test_the_minority_in_another_collective_is_odd():
    result = found(everyone(collective(), rank5=collective("all_gather", line=52)))
    assert (result.cause, result.odd) == (Cause.MISMATCH, (5,))
    assert result.stuck == tuple(range(8))
    assert result.call.op == "all_reduce"


def test_the_same_op_with_another_fingerprint_is_a_mismatch():
    result = found(everyone(collective(of="float32 axis 1"), rank2=collective(of="float32 axis 0")))
    assert (result.cause, result.odd) == (Cause.MISMATCH, (2,))


def test_a_rank_that_left_a_collective_with_another_fingerprint_is_the_odd_one():
    left = RankState(Doing.FINISHED, done=collective(of="float32 [64]").wait)
    result = found(everyone(collective(of="float32 [32]"), rank3=left))
    assert (result.cause, result.odd) == (Cause.MISMATCH, (3,))
    assert "rank 3 was in another call than the rest" in explained(result)


def test_a_rank_that_left_the_last_collective_and_finished_is_not_missing_from_it():
    assert found(everyone(collective(), rank3=RankState(Doing.FINISHED, done=collective().wait))) is None
    earlier = RankState(Doing.FINISHED, done=collective(sequence=16).wait)
    assert found(everyone(collective(), rank3=earlier)).odd == (3,)


def test_a_mismatch_is_known_while_other_ranks_still_compute():
    states = everyone(COMPUTING, rank1=collective(), rank2=collective(), rank3=collective("barrier"))
    assert found(states).odd == (3,)


def test_of_two_ranks_that_differ_the_higher_is_called_odd():
    members = range(2)
    states = {0: collective(members=members), 1: collective("barrier", members=members)}
    assert found(states).odd == (1,)


def test_a_rank_that_finished_is_missing_from_the_collective():
    result = found(everyone(collective(), rank5=FINISHED))
    assert (result.cause, result.odd) == (Cause.MISSING, (5,))
    assert result.stuck == (0, 1, 2, 3, 4, 6, 7)


def test_a_rank_in_another_groups_collective_is_missing():
    other = collective("barrier", group="world/split0:1", members=(4, 5))
    result = found(everyone(collective(), rank5=other))
    assert (result.cause, result.odd) == (Cause.MISSING, (5,))


def test_a_rank_that_waits_for_a_message_of_the_others_is_missing():
    result = found(everyone(collective(), rank5=receive(2)))
    assert (result.cause, result.odd) == (Cause.MISSING, (5,))


def test_a_rank_alone_in_a_collective_is_odd():
    states = {0: collective("barrier", members=range(4)), 1: receive(0), 2: receive(0), 3: receive(0)}
    result = found(states)
    assert (result.cause, result.odd) == (Cause.MISSING, (0,))
    assert "only rank 0 is in barrier" in explained(result)


# messages


def test_a_rank_that_makes_one_call_more_than_all_that_finished_is_the_odd_one():
    result = found(everyone(FINISHED, rank5=collective()))
    assert (result.cause, result.odd, result.stuck) == (Cause.MISSING, (5,), (5,))
    assert explained(result).startswith("softmesh: hang: only rank 5 is in all_reduce number 17 of world")


@pytest.mark.parametrize("kind", [send, receive])
def test_two_ranks_that_do_the_same_first_block_each_other(kind):
    result = found({0: kind(1), 1: kind(0), 2: COMPUTING, 3: COMPUTING})
    assert (result.cause, result.odd, result.stuck) == (Cause.CYCLE, (0, 1), (0, 1))


def test_crossed_tags_block_each_other():
    result = found({0: send(1, tag=1), 1: receive(0, tag=2)})
    assert (result.cause, result.odd) == (Cause.CYCLE, (0, 1))


def test_a_ring_of_receives_is_named_in_order_without_its_followers():
    states = {0: receive(1), 1: receive(3), 3: receive(2), 2: receive(1)}
    result = found(states)
    assert (result.cause, result.odd, result.stuck) == (Cause.CYCLE, (1, 3, 2), (0, 1, 2, 3))


@pytest.mark.parametrize("kind", [send, receive])
def test_a_partner_that_finished_is_missing(kind):
    result = found({0: kind(1), 1: FINISHED, 2: FINISHED, 3: COMPUTING})
    assert (result.cause, result.odd, result.stuck) == (Cause.MISSING, (1,), (0,))
    assert "rank 0 waits in" in explained(result)
    assert "rank 1 never makes the other half" in explained(result)


@pytest.mark.parametrize("sender", [FINISHED, collective("barrier", members=(0, 1))])
def test_a_sender_that_went_on_one_message_short_is_odd(sender):
    states = {0: counted(sender, tag5=2), 1: counted(asks_for(3, 0, tag=5), tag5=2)}
    said = found(states)
    assert (said.cause, said.odd) == (Cause.SHORT, (0,))
    assert explained(said).startswith("softmesh: hang: rank 0 sent 2 messages to rank 1 and ")
    assert "rank 1 took 2 and waits for one more in receive from rank 0 of the world (message 3, tag 5)" in explained(
        said
    )


@pytest.mark.parametrize(
    "sender",
    [
        counted(FINISHED, tag5=3),  # it is on its way
        FINISHED,  # it did not count
        replace(counted(FINISHED, tag5=2), error="exit code 3"),  # it left for a reason of its own
        counted(asks_for(1, 1, tag=6), tag5=2),  # which of the two should be first nobody knows
        counted(COMPUTING, tag5=2),
    ],
)
def test_a_sender_is_not_called_short_where_the_counts_do_not_say_so(sender):
    said = found({0: sender, 1: counted(asks_for(3, 0, tag=5), tag5=2)})
    assert said is None or said.cause is not Cause.SHORT


def test_a_hang_far_behind_the_partner_that_finished_is_traced_to_it():
    result = found({0: receive(1), 1: receive(2), 2: receive(3), 3: FINISHED})
    assert (result.odd, result.stuck) == ((3,), (0, 1, 2))


# ends


def test_the_first_rank_that_raised_is_the_cause():
    states = everyone(
        collective(),
        rank3=RankState(Doing.RAISED, error="ValueError: late", order=9.0),
        rank6=RankState(Doing.RAISED, error="ValueError: no weights", order=5.0),
    )
    result = found(states)
    assert (result.cause, result.odd) == (Cause.RAISED, (6,))
    assert explained(result).startswith("softmesh: rank 6 raised ValueError: no weights\n")


def test_a_rank_that_died_is_told_with_its_last_op():
    dead = RankState(Doing.DIED, error="exited on signal 9", last="all_gather number 3 of world", order=1.0)
    result = found(everyone(collective(), rank4=dead))
    assert (result.cause, result.odd) == (Cause.DIED, (4,))
    text = explained(result)
    assert text.startswith("softmesh: rank 4 died: exited on signal 9\n")
    assert "last completed: all_gather number 3 of world" in text


def test_a_rank_that_computes_is_given_time_until_the_deadline():
    assert found(everyone(collective(waited=TIMEOUT - 1), rank5=COMPUTING)) is None
    result = found(everyone(collective(waited=TIMEOUT), rank5=COMPUTING))
    assert (result.cause, result.odd) == (Cause.DEADLINE, (5,))
    assert "computing\n      at train.py:88 in loss" in explained(result)


def test_ranks_that_start_are_given_more_time():
    start = WaitReport("init_distributed_context", members=(0, 1), sequence=0, patience=60.0)
    assert found({0: waits(start, TIMEOUT + 59), 1: SILENT}) is None
    assert found({0: waits(start, TIMEOUT + 60), 1: SILENT}).odd == (1,)


def test_a_rank_that_does_not_answer_is_told_with_the_time_since_it_did():
    late = everyone(collective(waited=TIMEOUT), rank5=replace(COMPUTING, quiet=29.0))
    assert "rank 5 last seen computing, 29 s ago\n      at train.py:88" in explained(found(late))
    sampled = late | {5: replace(late[5], sampled=True)}
    assert "rank 5 computing, without an answer for 29 s: this call lets" in explained(found(sampled))


def test_the_deadline_names_the_rank_at_the_end_of_the_chain():
    late = RankState(Doing.WAITING, receive(1).wait, TIMEOUT + 1)
    assert found({0: late, 1: receive(2), 2: SILENT}).odd == (2,)


def test_a_transfer_that_never_ends_meets_the_deadline_too():
    late = RankState(Doing.WAITING, receive(1).wait, TIMEOUT + 1)
    result = found({0: late, 1: send(0)})
    assert (result.cause, result.odd, result.stuck) == (Cause.DEADLINE, (), (0,))
    assert "rank 0 waits since 31 s" in explained(result)


# words


def test_a_report_reads_from_the_odd_rank_to_the_remedy():
    assert explained(found(everyone(collective(), rank5=FINISHED))) == (
        "softmesh: hang: rank 5 is missing from all_reduce number 17 of world (bfloat16)\n"
        "  rank 5 finished its program; last completed: all_reduce number 16 of world\n"
        "  ranks 0-4, 6-7 waiting, for rank 5 in all_reduce number 17 of world (bfloat16)\n"
        "      at train.py:41 in step\n"
        "  remedy: every rank of a group makes the same calls in the same order; look for a branch, an early "
        "return or a loop that is shorter on rank 5"
    )


def test_a_mismatch_shows_both_lines():
    text = explained(found(everyone(collective(), rank5=collective("all_gather", line=52))))
    assert text.index("rank 5 waiting in all_gather number 17") < text.index("at train.py:52 in step")
    assert text.index("ranks 0-4, 6-7 waiting in all_reduce number 17") < text.index("at train.py:41 in step")


def test_a_cycle_is_told_as_who_waits_for_whom():
    text = explained(found({0: receive(1), 1: receive(0)}))
    assert "hang: rank 0 waits for rank 1, rank 1 waits for rank 0: nobody can go on" in text


def test_a_report_of_a_thousand_places_stays_short():
    states = {rank: collective(line=rank + 1, members=range(1001)) for rank in range(1000)}
    text = explained(found(states | {1000: FINISHED}))
    assert "... and 981 more places" in text
    assert len(text.splitlines()) < 60


# any states at all

ANY_WAIT = st.builds(
    lambda kind, peer, tag, group, sequence, op, members: waits(
        WaitReport(op, kind, group, tuple(members), peer=peer, tag=tag, sequence=sequence)
    ),
    st.sampled_from(WaitKind),
    st.integers(0, 4),
    st.integers(0, 1),
    st.sampled_from(["world", "row"]),
    st.one_of(st.none(), st.integers(1, 2)),
    st.sampled_from(["all_reduce", "barrier"]),
    st.sets(st.integers(0, 4)),
)
ANY_STATES = st.lists(st.one_of(ANY_WAIT, st.sampled_from([SILENT, COMPUTING, FINISHED])), min_size=5, max_size=5)


@settings(max_examples=40, deadline=None)
@given(ANY_STATES)
def test_any_states_give_a_report_or_none(states):
    states = dict(enumerate(states))
    result = found(states)
    if result is not None:
        assert set(result.odd) | set(result.stuck) <= set(states)
        assert explained(result).startswith("softmesh: ")


@settings(max_examples=40, deadline=None)
@given(ANY_STATES, st.integers(0, 4))
def test_a_rank_that_could_still_come_never_makes_more_ranks_stuck(states, rank):
    gone, present = dict(enumerate(states)), dict(enumerate(states))
    gone[rank], present[rank] = FINISHED, COMPUTING
    assert stuck_ranks(present) <= stuck_ranks(gone)


@settings(max_examples=40, deadline=None)
@given(ANY_STATES)
def test_ranks_are_stuck_only_where_somebody_cannot_come(states):
    states = {rank: COMPUTING if state is FINISHED else state for rank, state in enumerate(states)}
    for rank in stuck_ranks(states):
        others = needs(rank, states) & stuck_ranks(states)
        same_call = [
            other
            for other in stuck_ranks(states) - {rank}
            if (states[other].wait.group, states[other].wait.sequence)
            == (states[rank].wait.group, states[rank].wait.sequence)
            and states[other].wait.signature != states[rank].wait.signature
        ]
        assert others or same_call


def test_a_rank_outside_of_the_job_is_waited_for_in_vain_but_breaks_nothing():
    assert found({0: receive(9), 1: collective(members=(1, 12))}) is None


# when it is said


def heard(wait, serial=1, polls=0, seconds=1.0):
    data = {**wait.wait.as_data(), "serial": serial, "polls": polls, "seconds": seconds}
    return {"state": "waiting", "wait": data}


def board_with_a_finished_rank():
    board = JobState(3, TIMEOUT)
    for rank in (0, 1):
        board.update(rank, heard(collective(members=range(3)), polls=10), 100.0)
    board.update(2, {"state": "finished"}, 100.0)
    return board


def test_a_hang_is_believed_once_every_stuck_rank_looked_again():
    board = board_with_a_finished_rank()
    assert board.decide(100.0) is None
    assert board.suspicious
    assert board.decide(101.0) is None, "nobody has looked since"
    board.update(0, heard(collective(members=range(3)), polls=20), 101.0)
    assert board.decide(101.0) is None, "rank 1 has not looked since"
    board.update(1, heard(collective(members=range(3)), polls=20), 101.0)
    assert board.decide(101.0).odd == (2,)


def test_a_rank_that_moved_on_meanwhile_begins_a_new_suspicion():
    board = board_with_a_finished_rank()
    board.decide(100.0)
    board.update(0, heard(collective(members=range(3)), serial=2, polls=20), 101.0)
    board.update(1, heard(collective(members=range(3)), polls=20), 101.0)
    assert board.decide(101.0) is None


def test_a_suspicion_ends_when_the_wait_does():
    board = board_with_a_finished_rank()
    board.decide(100.0)
    board.update(0, {"state": "computing"}, 101.0)
    board.update(1, {"state": "computing"}, 101.0)
    assert board.decide(101.0) is None
    assert not board.suspicious


def test_time_counts_on_while_a_rank_says_nothing():
    board = JobState(2, TIMEOUT)
    board.update(0, heard(collective(members=range(2)), seconds=2.0), 100.0)
    board.update(1, {"state": "computing", "site": ["train.py", 88, "loss"]}, 100.0)
    assert board.decide(127.0) is None
    assert board.decide(128.5).cause is Cause.DEADLINE


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"state": "sleeping"},
        {"state": "waiting"},
        {"state": "waiting", "wait": []},
        {"state": "waiting", "wait": {"op": 5}},
        {"state": "waiting", "wait": {**collective().wait.as_data(), "members": "0-99999999999"}},
        {"state": "computing", "site": [1, 2, 3]},
        [],
        "computing",
        None,
    ],
)
def test_messages_without_sense_change_nothing(message):
    board = JobState(2, TIMEOUT)
    board.update(0, message, 1.0)
    board.update(7, {"state": "finished"}, 1.0)
    assert board.states == {0: RankState(), 1: RankState()}


def test_a_line_that_closes_is_a_death_only_once_the_job_failed():
    board = JobState(3, TIMEOUT)
    for rank in range(3):
        board.update(rank, {"state": "computing", "last": "barrier number 4 of world"}, 1.0)
    for rank, when in ((1, 5.0), (0, 5.1), (2, 5.1)):
        board.connection_closed(rank, when)
    assert board.decide(6.0) is None
    result = board.decide_at_end(6.0)
    assert (result.cause, result.odd) == (Cause.DIED, (1,))
    assert "ranks 0, 2 ended with the job" in explained(result)


def test_a_job_that_ended_in_order_has_no_verdict():
    board = JobState(2, TIMEOUT)
    for rank in range(2):
        board.update(rank, {"state": "finished"}, 1.0)
        board.connection_closed(rank, 2.0)
    assert board.decide_at_end(3.0) is None


def test_a_rank_that_raised_may_end_the_job_itself_before_it_is_reported():
    board = JobState(2, TIMEOUT)
    board.update(1, {"state": "raised", "error": "ValueError: no weights"}, 1.0)
    assert board.decide(1.5) is None
    assert board.decide(9.0).odd == (1,)
    assert board.decide_at_end(1.5).odd == (1,)


def test_the_exit_code_tells_how_the_first_rank_died():
    board = JobState(2, TIMEOUT)
    board.update(0, {"state": "computing"}, 1.0)
    board.connection_closed(0, 2.0)
    result = board.decide_at_end(3.0, "killed by signal 9 (SIGKILL)")
    assert explained(result).startswith("softmesh: rank 0 died: killed by signal 9 (SIGKILL)\n")


def test_last_words_are_not_taken_back_by_an_answer_that_was_on_its_way():
    board = JobState(1, TIMEOUT)
    board.update(0, {"state": "finished"}, 1.0)
    board.update(0, {"state": "computing"}, 1.1)
    assert board.states[0].doing is Doing.FINISHED


def test_a_rank_that_never_joined_is_the_odd_one_of_a_failed_job():
    board = JobState(3, TIMEOUT)
    for rank in (0, 2):
        board.update(rank, heard(collective("init_distributed_context", 0, members=range(3))), 1.0)
        board.connection_closed(rank, 2.0)
    result = board.decide_at_end(3.0)
    assert (result.cause, result.odd) == (Cause.MISSING, (1,))
    assert "never heard of" in explained(result)


@pytest.mark.parametrize("told", ["killed by signal 1 (SIGHUP)", "exit code 129 without the end of its program", ""])
def test_a_rank_that_a_signal_ended_before_it_joined_died_and_is_no_hang(told):
    board = JobState(3, TIMEOUT)
    board.update(0, heard(collective("init_distributed_context", 0, members=range(3))), 1.0)
    board.connection_closed(0, 2.0)
    if told:
        board.process_exited(2, told)
    board.process_exited(0, "killed by signal 15 (SIGTERM)")  # by mpirun, because of the other
    board.process_exited(1, "killed by signal 15 (SIGTERM)")
    result = board.decide_at_end(3.0, "killed by signal 1 (SIGHUP)")
    assert explained(result).startswith("softmesh: rank 2 died: killed by signal 1 (SIGHUP)\n")


def test_ranks_that_mpirun_ended_are_not_to_blame():
    board = JobState(2, TIMEOUT)
    assert not board.was_ended_from_outside  # nothing is known of their ends
    for rank in range(2):
        board.update(rank, {"state": "computing"}, 1.0)
        board.process_exited(rank, "killed by signal 15 (SIGTERM)")
    assert board.was_ended_from_outside
    board.process_exited(1, "exit code 3 without the end of its program, as by os._exit")
    assert not board.was_ended_from_outside
    board.process_exited(1, "killed by signal 15 (SIGTERM)")
    board.update(1, {"state": "raised", "error": "ValueError"}, 2.0)
    assert not board.was_ended_from_outside


def test_nothing_is_heard_of_ranks_that_neither_join_nor_end():
    board = JobState(2, TIMEOUT)
    assert board.has_heard_nothing
    board.process_exited(1, "exit code 1 without the end of its program, as by os._exit")
    assert not board.has_heard_nothing


def test_a_death_that_the_launcher_saw_is_said_at_once():
    board = JobState(2, TIMEOUT)
    board.process_died(1, "exited on signal 9 (Killed)", 1.0)
    assert board.decide(1.0).odd == (1,)


# over sockets


class Ranks:
    """Ranks that report to an explainer, all in this process."""

    def __init__(self, explainer, count):
        self.doing = {rank: {"state": "computing"} for rank in range(count)}
        self.looks = 0
        self.lines = [
            Reporter(explainer.address, rank, count, lambda rank=rank: self.say(rank)) for rank in range(count)
        ]

    def say(self, rank):
        self.looks += 1
        doing = self.doing[rank]
        return heard(doing, polls=self.looks) if isinstance(doing, RankState) else doing

    def all_do(self, doing):
        self.doing |= doing
        for rank, line in enumerate(self.lines):
            line.send(lambda rank=rank: self.say(rank))


@pytest.fixture
def said():
    return io.StringIO()


def wait_for(event):
    assert event.wait(SECONDS), "nothing was decided"


def test_ranks_over_sockets_are_heard_and_one_report_is_printed(said):
    decided = threading.Event()
    with Explainer(3, timeout=TIMEOUT, stream=said, on_verdict=lambda _: decided.set()) as explainer:
        ranks = Ranks(explainer, 3)
        stuck = collective(members=range(3))
        ranks.all_do({0: stuck, 1: finished("barrier"), 2: stuck})
        wait_for(decided)
        assert explainer.job_ended(failed=True) is explainer.verdict
    assert (explainer.verdict.cause, explainer.verdict.odd) == (Cause.MISSING, (1,))
    assert said.getvalue() == explained(explainer.verdict) + "\n"


def test_a_rank_that_raised_and_lives_on_is_reported(said):
    decided = threading.Event()
    with Explainer(2, timeout=TIMEOUT, stream=said, on_verdict=lambda _: decided.set()) as explainer:
        ranks = Ranks(explainer, 2)
        ranks.lines[1].send(raised("ValueError: no weights", ["train.py", 3, "main"], "barrier number 1 of world"))
        wait_for(decided)
    assert "rank 1 raised ValueError: no weights" in said.getvalue()
    assert "at train.py:3 in main; last completed: barrier number 1 of world" in said.getvalue()


def test_a_reader_that_went_away_does_not_keep_the_job_alive(said):
    decided = threading.Event()
    said.close()
    with Explainer(1, timeout=TIMEOUT, stream=said, on_verdict=lambda _: decided.set()) as explainer:
        explainer.process_died(0, "exited on signal 9 (Killed)")
        wait_for(decided)
    assert explainer.verdict.cause is Cause.DIED


def test_strangers_and_nonsense_are_hung_up_on(said):
    with Explainer(2, timeout=TIMEOUT, stream=said) as explainer:
        host, port, token = split_address(explainer.address)
        for words in (
            b'{"rank": 0, "token": "guess"}\n{"state": "raised"}\n',
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff\xfe\n",
            b"[]\n",
            b"[" * 30_000 + b"\n",
            b"x" * 200_000,
            b'{"rank": 99, "token": "' + token.encode() + b'"}\n{"state": "raised"}\nnonsense\n',
        ):
            with socket.create_connection((host, port), SECONDS) as line:
                line.settimeout(SECONDS)
                try:
                    line.sendall(words)
                    while line.recv(4096):
                        pass
                except ConnectionError:
                    pass
        assert explainer.verdict is None
    assert said.getvalue() == ""


def test_closing_frees_the_port_and_the_thread(said):
    explainer = Explainer(1, timeout=TIMEOUT, stream=said)
    host, port, _ = split_address(explainer.address)
    explainer.close()
    explainer.close()
    assert not explainer._thread.is_alive()
    with pytest.raises(OSError, match=r"."):
        socket.create_connection((host, port), 1.0)


def test_a_job_that_the_user_stopped_has_no_verdict(said):
    with Explainer(2, timeout=TIMEOUT, stream=said) as explainer:
        Ranks(explainer, 2)
        end = time.monotonic() + SECONDS
        while explainer._job.states[1].doing is Doing.SILENT and time.monotonic() < end:
            time.sleep(0.01)
        assert explainer.job_ended(failed=False) is None
    assert said.getvalue() == ""


def test_a_process_that_is_none_of_ours_gets_no_signal():
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not program_location.request_stack(other.pid, "127.0.0.1:1#secret")
        assert not program_location.request_stack(2**22 + 1, "127.0.0.1:1#secret")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_of_too_many_strangers_those_go_that_came_first(said):
    with Explainer(1, timeout=TIMEOUT, stream=said) as explainer:
        host, port, _ = split_address(explainer.address)
        lines = [socket.create_connection((host, port), SECONDS) for _ in range(300)]
        lines[0].settimeout(SECONDS)
        assert lines[0].recv(1) == b""
        for line in lines:
            line.close()
