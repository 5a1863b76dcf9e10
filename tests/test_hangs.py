"""No silent hang: jobs that cannot go on say who is missing and where, end soon, and leave nothing behind."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from marked_jobs import PROGRAMS, Ended, line_of_ranks, line_with, run_job
from warm_python import warm_python, warm_tt_run

pytestmark = pytest.mark.usefixtures("mpi")

MPIRUN = Path(sys.executable).with_name("mpirun")
FAR = "300"  # seconds: longer than a job may take here, so none of them ends by its deadline
SOON = "4"


def traced_by_all(count: int, job: Ended) -> Ended:
    """Only then is it known that nothing was left."""
    assert job.traced == count, job.output
    return job


@pytest.fixture
def on_a_line(tmp_path):
    """Runs a program as so many ranks that hold one mesh."""

    def run(count: int, program: str, *arguments: str) -> Ended:
        binding = ["--rank-binding", str(line_of_ranks(count, tmp_path))]
        command = [*warm_tt_run(), *binding, "--", sys.executable, str(PROGRAMS / program), *arguments]
        return traced_by_all(count, run_job(command, tmp_path, SOFTMESH_TIMEOUT=FAR))

    return run


@pytest.fixture
def apart(tmp_path):
    """Runs a program as so many ranks that hold nothing together."""

    def run(count: int, program: str, *arguments: str, timeout: str = FAR) -> Ended:
        launch = [sys.executable, "-m", "softmesh", "run", "-n", str(count)]
        command = [*launch, str(PROGRAMS / program), *arguments]
        return traced_by_all(count, run_job(command, tmp_path, SOFTMESH_TIMEOUT=timeout))

    return run


def test_a_rank_that_skips_one_of_eight_all_reduces_is_named_with_both_lines(on_a_line):
    job = on_a_line(8, "skipped_all_reduce.py", "5")
    assert "softmesh: hang: rank 5 is missing from all_reduce" in job.output, job.output
    doing, line = job.place("ranks 0-4, 6-7")
    assert doing.startswith("waiting, for rank 5 in all_reduce")
    assert line == line_with("the others", "skipped_all_reduce.py")
    doing, line = job.place("rank 5")
    assert doing.startswith("waiting, for ranks 0-4, 6-7 in barrier")
    assert line == line_with("the odd one", "skipped_all_reduce.py")
    assert (job.code != 0, job.left) == (True, {})


@pytest.mark.parametrize(("first", "op"), [("receives", "recv_async"), ("sends", "send_async")])
def test_two_ranks_that_begin_with_the_same_half_of_an_exchange_are_told_as_a_ring(apart, first, op):
    job = apart(2, "crossed_messages.py", first)
    assert "hang: rank 0 waits for rank 1, rank 1 waits for rank 0" in job.output, job.output
    for rank in range(2):
        doing, line = job.place(f"rank {rank}")
        assert doing.startswith(f"waiting, for rank {1 - rank} in {op}")
        assert line == line_with(f"both wait for these {first}", "crossed_messages.py")
    assert (job.code != 0, job.left) == (True, {})


def test_a_sender_that_is_one_message_short_is_named_with_what_both_ends_counted(apart):
    """The receiver is the one that misses the barrier, and the sender is to blame."""
    job = apart(2, "crossed_messages.py", "short")
    told = "hang: rank 0 sent 2 messages to rank 1 and waits in barrier"
    assert told in job.output, job.output
    assert "rank 1 took 2 and waits for one more in recv_async" in job.output
    _, line = job.place("rank 1")
    assert line == line_with("the last of these has no send", "crossed_messages.py")
    _, line = job.place("rank 0")
    assert line == line_with("the sender has gone on", "crossed_messages.py")
    assert "remedy: send on rank 0 once for each message that is received" in job.output
    assert (job.code != 0, job.left) == (True, {})


def test_a_send_that_nobody_receives_is_told_with_where_its_receiver_went(apart):
    job = apart(2, "crossed_messages.py", "missing")
    assert "hang: rank 0 waits in send_async to rank 1" in job.output, job.output
    assert "  rank 1 finished its program" in job.output
    doing, line = job.place("rank 0")
    assert doing.startswith("waiting, for rank 1 in send_async to rank 1")
    assert line == line_with("the receiver has gone", "crossed_messages.py")
    assert (job.code != 0, job.left) == (True, {})


def test_a_rank_that_raises_ends_the_job_with_its_own_message_and_last_op(on_a_line):
    job = on_a_line(2, "raising.py")
    own, report = (
        job.output.find("ValueError: the weights"),
        job.output.find("softmesh: rank 1 raised ValueError"),
    )
    assert 0 <= own < report, job.output
    doing, line = job.place("rank 1")
    assert (doing, line) == ("raised", line_with("rank 1", "raising.py"))
    assert "raising.py" in job.output
    assert "\0" not in job.output  # mpirun writes some
    assert "last completed: all_reduce" in job.output[report:]
    assert (job.code != 0, job.left) == (True, {})


def test_a_rank_that_is_killed_in_a_collective_is_told_with_that_collective(on_a_line):
    job = on_a_line(2, "killed.py")
    assert "softmesh: rank 1 died: killed by signal 9 (SIGKILL)" in job.output, job.output
    doing, line = job.place("rank 1")
    assert doing.startswith("ended, last seen waiting in all_reduce")
    assert line == line_with("rank 1 dies here", "killed.py")
    assert (job.code, job.left) == (128 + signal.SIGKILL, {})


def test_ranks_that_never_come_meet_the_deadline_and_are_found_where_they_are(apart):
    job = apart(3, "endless.py", timeout=SOON)
    assert "softmesh: deadline: rank 0 waits for ranks 1-2 since" in job.output, job.output
    doing, line = job.place("rank 1")
    assert doing == "computing"
    assert line in (line_with("the loop", "endless.py"), line_with("the loop", "endless.py") - 1)
    doing, line = job.place("rank 2")
    assert doing.startswith("computing, without an answer for")
    assert line == line_with("the function", "endless.py")
    doing, line = job.place("rank 0")
    assert doing.startswith("waiting, for ranks 1-2 in barrier")
    assert line == line_with("the wait", "endless.py")
    assert (job.code != 0, job.left) == (True, {})


def test_ranks_that_disagree_on_shape_or_op_are_told_from_the_rest(on_a_line):
    job = on_a_line(4, "different_calls.py")
    assert "softmesh: hang: ranks 1-2" in job.output, job.output
    doing, line = job.place("rank 2")
    assert "in all_gather" in doing
    assert line == line_with("rank 2", "different_calls.py")
    doing, line = job.place("ranks 0, 3")
    assert "in all_reduce" in doing
    assert line == line_with("ranks 0, 1 and 3", "different_calls.py")
    assert (job.code != 0, job.left) == (True, {})


def test_under_plain_mpirun_every_rank_meets_its_deadline_with_a_report_of_its_own(tmp_path):
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [str(MPIRUN), "--oversubscribe", "--bind-to", "none", "-n", "2"]
    program = [*warm_python(), "-m", "softmesh", "run", str(PROGRAMS / "crossed_messages.py"), "receives"]
    job = run_job([*command, *program], tmp_path, SOFTMESH_TIMEOUT="2", **as_root)
    line = line_with("both wait for these receives", "crossed_messages.py")
    for rank in range(2):
        assert f"recv_async timed out after 2 s: rank {rank} waits in recv_async from rank {1 - rank}" in job.output
    assert job.output.count(f"at {PROGRAMS / 'crossed_messages.py'}:{line}, waited for at ") == 2, job.output
    assert (job.code != 0, job.left) == (True, {})
