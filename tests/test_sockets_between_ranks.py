"""Sockets between real processes: few jobs, each bounded in time, none leaving anything behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_ranks import Job

from softmesh.processes.hang_verdict import Cause

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = str(Path(__file__).parent / "fixtures" / "sockets" / "jobs.py")


def test_tensors_travel_between_ranks() -> None:
    job = Job(2, PROGRAM, "transfers")
    assert job.output.count("transfers done") == 2, job.output
    assert (job.code, job.verdict, job.left) == (0, None, [])


def test_sub_contexts_have_sockets_of_their_own() -> None:
    sizes = ["-x", "TT_RUN_SUBCONTEXT_SIZES=2,2"]
    parts = [["-n", "2", *sizes, "-x", f"TT_RUN_SUBCONTEXT_ID={id}"] for id in range(2)]
    job = Job(4, PROGRAM, "two_parts", parts=parts, environ={"SOFTMESH_MESH_IDS": "0,1,0,1"})
    assert job.output.count("two_parts done") == 4, job.output
    assert (job.code, job.verdict, job.left) == (0, None, [])


DIFFERENCES = {
    "number of socket connections": ("There are 1 here and 2 on the other end", "There are 2 here and 1"),
    "socket connections": (
        "The receiver device of connection 0 is [0, 0] here and [0, 1]",
        "is [0, 1] here and [0, 0]",
    ),
    "socket storage type": ("L1 here and BufferType.DRAM", "DRAM here and BufferType.L1"),
    "socket FIFO size": ("4096 here and 8192", "8192 here and 4096"),
    "sender sub-device": ("None here and 0", "0 here and None"),
    "receiver sub-device": ("None here and 0", "0 here and None"),
    "per core allocation": ("False here and True", "True here and False"),
    "sender rank": ("0 here and 1", "1 here and 0"),
    "fabric config": (
        "FABRIC_2D here and FabricConfig.FABRIC_2D_TORUS_Y",
        "TORUS_Y here and FabricConfig.FABRIC_2D",
    ),
}


def test_ends_that_differ_are_an_error_on_both_sides_that_names_the_field() -> None:
    job = Job(2, PROGRAM, "mismatches")
    assert job.output.count("mismatches done") == 2, job.output
    for rank in range(2):
        said = re.findall(rf"<rank {rank}: Mismatch in (.*?) during handshake (.*?)>", job.output)
        assert [field for field, _ in said] == list(DIFFERENCES), job.output
        for field, details in said:
            assert DIFFERENCES[field][rank] in details
    assert (job.code, job.left) == (0, [])


def test_two_sends_that_wait_for_each_others_receive_are_found_as_a_cycle() -> None:
    job = Job(2, PROGRAM, "crossed_sends")
    assert job.verdict is not None, job.output
    assert (job.verdict.cause, job.verdict.odd) == (Cause.CYCLE, (0, 1))
    assert (job.code != 0, job.left) == (True, [])


def test_a_send_whose_receiver_has_gone_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    job = Job(2, PROGRAM, "a_missing_receiver")
    assert job.verdict is not None, job.output
    assert (job.verdict.cause, job.verdict.odd, job.verdict.stuck) == (Cause.MISSING, (1,), (0,))
    report = capfd.readouterr().err
    assert "send_async to rank 1" in report
    assert "jobs.py:" in report
    assert (job.code != 0, job.left) == (True, [])


def test_a_message_that_nobody_received_is_told_when_the_programs_have_ended() -> None:
    job = Job(2, PROGRAM, "a_message_is_left")
    assert re.search(r"jobs\.py:\d+: SoftmeshWarning: .*1 sent to rank 1 by send_async .*never received", job.output)
    assert (job.code, job.verdict, job.left) == (0, None, [])


def test_messages_that_nobody_received_are_told_where_ranks_share_no_memory_by_whoever_ends_later() -> None:
    job = Job(2, PROGRAM, "messages_are_left_both_ways", environ={"SOFTMESH_SHARED_MEMORY": "0"})
    left = r"Warning: the end of the program: 1 sent (\w+ rank \d) .*send_async \(jobs\.py:\d+\) and never received"
    assert sorted(re.findall(left, job.output)) == ["by rank 0", "to rank 0"], job.output
    assert (job.code, job.verdict, job.left) == (0, None, [])


def test_a_receive_that_waits_at_the_exit_is_told_with_the_line_that_asked_for_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    job = Job(2, PROGRAM, "a_receive_is_left")
    assert job.verdict is not None, job.output
    assert (job.verdict.odd, job.verdict.stuck) == ((0,), (1,))
    assert re.search(r"jobs\.py:\d+ in a_receive_is_left", capfd.readouterr().err)
    assert (job.code != 0, job.left) == (True, [])


def test_processes_that_share_meshes_send_what_each_of_them_holds() -> None:
    graph = Path(PROGRAM).with_name("two_shared_meshes.textproto")
    parts = [
        ["-n", "1", "-x", f"TT_MESH_ID={mesh}", "-x", f"TT_MESH_HOST_RANK={host}"]
        for mesh in range(2)
        for host in range(2)
    ]
    environ = {"TT_MESH_GRAPH_DESC_PATH": str(graph), "SOFTMESH_MESH_IDS": "0,0,1,1"}
    job = Job(4, PROGRAM, "shared_meshes", parts=parts, environ=environ)
    assert job.output.count("shared_meshes done") == 4, job.output
    assert (job.code, job.verdict, job.left) == (0, None, [])
