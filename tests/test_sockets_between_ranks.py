"""Sockets between real processes: few jobs, each bounded in time, none leaving anything behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_ranks import Job, nothing_is_left_in_shared_memory  # noqa: F401

from softmesh.processes.verdict import Cause

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = str(Path(__file__).parent / "fixtures" / "sockets" / "jobs.py")


@pytest.mark.parametrize(("program", "ranks"), [("two_stages", 2), ("transfers", 2), ("pipeline", 4)])
def test_tensors_travel_between_ranks(program: str, ranks: int) -> None:
    job = Job(ranks, PROGRAM, program)
    assert job.output.count(f"{program} done") == ranks, job.output
    assert (job.code, job.verdict, job.left) == (0, None, [])


def test_sub_contexts_have_sockets_of_their_own() -> None:
    sizes = ["-x", "TT_RUN_SUBCONTEXT_SIZES=2,2"]
    parts = [["-n", "2", *sizes, "-x", f"TT_RUN_SUBCONTEXT_ID={id}"] for id in range(2)]
    job = Job(4, PROGRAM, "two_parts", parts=parts)
    assert job.output.count("two_parts done") == 4, job.output


def test_ends_that_differ_are_an_error_on_both_sides() -> None:
    job = Job(2, PROGRAM, "mismatches")
    assert job.output.count("mismatches done") == 2, job.output
    for rank in range(2):
        assert f"<rank {rank}: Mismatch in number of socket connections during handshake>" in job.output
        assert f"<rank {rank}: Mismatch in socket storage type during handshake>" in job.output
        assert f"<rank {rank}: Mismatch in socket FIFO size during handshake>" in job.output


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
