"""`softmesh bench collectives` counts, checks and shows what it says; how fast anything is, is not tested."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import pytest
import torch

from softmesh.bench import collectives, peer_process
from softmesh.bench.collectives import JAX, MPI, OURS, TORCH, Row, Summary, measure, takes
from softmesh.bench.collectives_workload import (
    COLLECTIVES,
    CollectivePeer,
    MeshWork,
    Work,
    by_hand,
    copying,
    mpi_process,
)
from softmesh.bench.harness import Timing, connected_mesh
from softmesh.bench.peer_process import PeerMissing, PeerProcess, interpreted, peer_or_note

KIB, MIB = 1 << 10, 1 << 20
ABSENT = ["--jax-python", "no-such-python", "--mpi-python", "no-such-python"]
TINY = replace(collectives.QUICK, rounds=1)

pytestmark = pytest.mark.usefixtures("idle_machine")  # a fabric is set while nothing is open

# -- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "written"),
    [("all_reduce", MIB), ("all_gather", 8 * MIB), ("reduce_scatter", MIB)],
)
def test_each_input_is_read_once_and_each_distinct_output_written_once(collective, written):
    work = Work(collective, 8, MIB, "float32")
    assert work.bytes_read == 8 * MIB
    assert work.bytes_written == written
    assert work.bytes_moved == 8 * MIB + written


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [4 * KIB, 64 * KIB, MIB, 16 * MIB])
def test_a_piece_has_the_bytes_asked_for_and_whole_tiles(size, dtype):
    work = Work("all_reduce", 8, size, dtype)
    assert work.rows * work.columns * getattr(torch, dtype).itemsize == size
    assert work.rows % 32 == work.columns % 32 == 0


def test_the_copy_touches_as_many_bytes_as_the_work():
    copied = copying(1000)()
    assert copied.nbytes == 500
    assert bool((copied == 1).all())


def test_the_copy_writes_where_it_wrote_before():
    copy = copying(1 << 16)
    assert copy().data_ptr() == copy().data_ptr()


# -- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_mesh_and_the_expression_by_hand_give_what_is_expected_and_store_it_once(collective, dtype):
    work = Work(collective, 8, 4 * KIB, dtype)
    with connected_mesh(1, 8) as mesh:
        operand = work.operand()
        ours = MeshWork(work, mesh, operand)
        expected = work.expected(operand)
        assert ours.gives(expected)
        assert torch.equal(by_hand(work, ours.stacked)().reshape(expected.shape), expected)
        assert ours.bytes_stored() == work.bytes_written


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_expected_is_right_for_two_devices(collective):
    work = Work(collective, 2, 4 * KIB, "float32")
    operand = work.operand()
    a, b = operand[: work.rows], operand[work.rows :]
    assert not torch.equal(a, b)
    half = work.columns // 2
    assert torch.equal(
        work.expected(operand),
        {
            "all_reduce": a + b,
            "all_gather": torch.hstack([a, b]),
            "reduce_scatter": torch.vstack([(a + b)[:, :half], (a + b)[:, half:]]),
        }[collective],
    )


def test_a_sum_over_32_devices_is_exact_even_in_bfloat16():
    work = Work("all_reduce", 32, 4 * KIB, "bfloat16")
    pieces = work.operand().chunk(32)
    assert torch.equal(sum(pieces[1:], pieces[0]), sum(piece.double() for piece in pieces).bfloat16())


def test_a_wrong_result_is_seen():
    work = Work("all_reduce", 8, 4 * KIB, "float32")
    with connected_mesh(1, 8) as mesh:
        ours = MeshWork(work, mesh, work.operand())
        expected = work.expected(work.operand())
        expected[0, 0] += 1
        assert not ours.gives(expected)


def test_the_fabric_is_taken_down_again():
    with connected_mesh(1, 8):
        pass
    with connected_mesh(1, 32) as mesh:
        assert tuple(mesh.shape) == (1, 32)


# -- peers ---------------------------------------------------------------------------------------

_WORKER = """
import json, sys
import numpy as np
folder = sys.argv[1]
print(json.dumps({"ready": "0.0, 8 devices"}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "prepare" in order:
        pieces = np.split(np.load(f"{folder}/operand.npy"), order["devices"])
        assert list(pieces[0].shape) == order["shape"]
        np.save(f"{folder}/result.npy", OFFSET + np.concatenate(pieces, axis=1))
    print(json.dumps({"seconds": 0.5, "did": order}), flush=True)
"""


def pretender(offset=0):
    """A peer that gathers, with an offset."""
    return CollectivePeer([sys.executable, "-c", _WORKER.replace("OFFSET", str(offset))])


def test_a_peer_in_a_process_of_its_own_takes_its_turn_and_is_checked():
    work = Work("all_gather", 8, 4 * KIB, "float32")
    with pretender() as process, connected_mesh(1, 8) as mesh:
        row = measure(work, TINY, mesh, {JAX: process, MPI: None})
        assert not (process.folder / "operand.npy").exists()
    assert row.wrong == []
    assert row.microseconds[JAX] == 500_000
    assert set(row.over_softmesh) == {JAX}


def test_a_peer_that_is_wrong_is_named():
    work = Work("all_gather", 8, 4 * KIB, "bfloat16")
    with pretender(offset=1) as process, connected_mesh(1, 8) as mesh:
        row = measure(work, TINY, mesh, {JAX: None, MPI: process})
    assert row.wrong == [MPI]
    assert collectives.table_rows([row])[0][0] == "all_gather (!) MPI"


def test_peers_have_8_workers_and_mpi_adds_no_bfloat16():
    assert takes(JAX, Work("all_reduce", 8, KIB, "bfloat16"))
    assert not takes(JAX, Work("all_reduce", 32, KIB, "float32"))
    assert takes(MPI, Work("reduce_scatter", 8, KIB, "float32"))
    assert not takes(MPI, Work("reduce_scatter", 8, KIB, "bfloat16"))
    assert takes(MPI, Work("all_gather", 8, KIB, "bfloat16"))


def test_a_peer_and_its_files_are_gone_afterwards():
    with pretender() as process:
        worker, folder = process._process, process.folder
    assert worker.poll() == 0
    assert not os.path.exists(folder)


def test_an_interpreter_without_what_it_takes_is_named_with_what_it_said():
    def start():
        return PeerProcess([sys.executable, "-c", "import no_such_module"])

    with peer_or_note(JAX, start, **interpreted(JAX, "this-python", "jax")) as (peer, note):
        assert peer is None
    assert "JAX is left out: this-python does not run it (ModuleNotFoundError: No module named" in note
    assert "pip install jax, or name an interpreter that has it: --jax-python PATH" in note


def test_a_peer_that_ends_in_the_middle_says_why():
    dying = "print('{\"ready\": \"1\"}', flush=True); input(); raise ValueError('no more')"
    with PeerProcess([sys.executable, "-c", dying]) as process, pytest.raises(PeerMissing, match="no more"):
        process.ask(repeat=1)


def test_a_peer_that_says_something_else_is_quoted():
    with (
        pytest.raises(PeerMissing, match="answered 'hello'"),
        PeerProcess([sys.executable, "-c", "print('hello')"]),
    ):
        pass


def test_a_peer_that_does_not_answer_in_time_is_ended(monkeypatch):
    monkeypatch.setattr(peer_process, "_DEADLINE", 0.2)
    silent = PeerProcess([sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(PeerMissing, match="gave no answer"), silent:
        pass
    assert silent._process.poll() is not None


def test_a_peer_that_does_not_leave_is_ended(monkeypatch):
    monkeypatch.setattr(peer_process, "_PATIENCE", 0.2)
    staying = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        'print(\'{"ready": "1"}\', flush=True); time.sleep(600)'
    )
    with PeerProcess([sys.executable, "-c", staying]) as process:
        pass
    assert process._process.poll() is not None


# -- MPI -----------------------------------------------------------------------------------------


def programs(folder, *names):
    for name in names:
        path = folder / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return folder


def test_the_mpirun_beside_the_interpreter_comes_before_the_one_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "path").mkdir()
    own = programs(tmp_path / "own", "python", "mpirun")
    elsewhere = programs(tmp_path / "path", "python", "mpirun")
    monkeypatch.setenv("PATH", str(elsewhere))
    assert peer_process.launcher(str(own / "python")) == str(own / "mpirun")
    (own / "mpirun").unlink()
    assert peer_process.launcher(str(own / "python")) == str(elsewhere / "mpirun")
    assert peer_process.launcher("python") == str(elsewhere / "mpirun")


def test_a_machine_without_mpirun_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(programs(tmp_path, "python")))
    with pytest.raises(PeerMissing, match="there is no mpirun beside python or on the PATH"):
        peer_process.launcher("python")


def test_mpi_runs_8_processes_that_share_the_cores(tmp_path):
    command = mpi_process(str(programs(tmp_path, "python", "mpirun") / "python"))._command
    assert command[1:3] == ["-n", "8"]
    assert "--oversubscribe" in command


# -- shown ---------------------------------------------------------------------------------------


def test_quick_measures_each_collective_in_each_dtype_and_says_which_peers_are_left_out(capsys):
    assert collectives.main(["--quick", "--json", *ABSENT]) == 0
    shown = json.loads(capsys.readouterr().out)
    rows = shown["rows"]
    asked = {
        (collective, 8, size, dtype)
        for collective in COLLECTIVES
        for size in (4 * KIB, MIB)
        for dtype in ("float32", "bfloat16")
    } | {("all_reduce", 1024, 4 * KIB, dtype) for dtype in ("float32", "bfloat16")}
    seen = [(r["collective"], r["devices"], r["bytes_per_device"], r["dtype"]) for r in rows]
    assert len(seen) == len(asked)
    assert set(seen) == asked
    for row in rows:
        assert row["wrong"] == []
        assert row["bytes_stored"] == row["bytes_of_result"]
        assert set(row["microseconds"]) == {"softmesh", "torch", "machine", "copy"}
        assert row["percent_of_machine"] > 0
        assert row["percent_of_copy"] > 0
        assert row["over_softmesh"] == {}
    assert shown["summary"]["lowest_percent_of_copy"] > 0
    assert shown["summary"]["mean_jax_over_softmesh"] is None
    for name, note in zip((JAX, MPI), shown["notes"], strict=True):
        assert f"{name} is left out: no-such-python does not run it (cannot start no-such-python" in note
    assert torch.__version__ in shown["machine"]


def test_a_table_is_shown_with_the_worst_of_it_in_words(capsys, monkeypatch):
    monkeypatch.setattr(collectives, "QUICK", replace(TINY, bytes_per_device=(4 * KIB,)))
    assert collectives.main(["--quick", *ABSENT]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "MPI is left out" in shown
    assert "% of copy" in shown
    assert "us above the bare torch expression." in shown


def row(size=MIB, devices=8, percent=90.0, above=5.0, jax=None, mpi=None, wrong=()):
    over = {name: ratio for name, ratio in ((JAX, jax), (MPI, mpi)) if ratio is not None}
    times = {"softmesh": 100.0, "torch": 95.0, "copy": 90.0}
    work = ("all_reduce", devices, size, "float32")
    return Row(*work, 9 * size, size, size, times, above, percent + 1, percent, over, list(wrong))


def test_the_summary_takes_the_worst_and_the_geometric_mean():
    rows = [
        row(jax=2.0, mpi=3.0, percent=85.0, above=1000.0),
        row(size=64 * KIB, jax=8.0, above=12.0, percent=10.0),
        row(size=64 * KIB, devices=1024, percent=81.0, above=500.0),
    ]
    summary = Summary.of(rows)
    assert summary.lowest_percent_of_machine == 82.0
    assert summary.lowest_percent_of_copy == 81.0
    assert summary.highest_above_torch_us == 12.0
    assert summary.lowest_jax_over_softmesh == 2.0
    assert summary.mean_jax_over_softmesh == pytest.approx(4.0)
    assert summary.lowest_mpi_over_softmesh == 3.0


def test_a_summary_of_nothing_says_nothing():
    assert collectives.in_words(Summary.of([])) == []


def test_a_row_shows_time_rate_and_ratios():
    assert collectives.table_rows([row(jax=4.21, mpi=1.5), row(size=64 * KIB)]) == [
        ["all_reduce", "float32", "8", "1 MiB", "100", "94.4", "91", "90", "", "4.2", "1.5"],
        ["all_reduce", "float32", "8", "64 KiB", "100", "5.9", "91", "90", "+5.0", "", ""],
    ]


def test_ratios_are_medians_of_what_each_round_saw():
    seen = {
        OURS: Timing((1e-6, 2e-6, 4e-6)),
        TORCH: Timing((1e-6, 1e-6, 1e-6)),
        "machine": Timing((2e-6, 4e-6, 8e-6)),
        "copy": Timing((0.9e-6, 1.8e-6, 4e-6)),
        JAX: Timing((5e-6, 10e-6, 12e-6)),
    }
    made = collectives.row_of(Work("all_reduce", 8, MIB, "float32"), seen, 18 * MIB, MIB, [])
    assert made.above_torch_us == pytest.approx(1.0)
    assert made.percent_of_machine == pytest.approx(100.0)  # half the bytes in half the time
    assert made.percent_of_copy == pytest.approx(90.0)
    assert made.over_softmesh == {JAX: pytest.approx(5.0)}


def test_a_wrong_result_makes_the_command_fail(monkeypatch, capsys):
    monkeypatch.setattr(collectives, "measured_with_peers", lambda *_: ([row(wrong=[TORCH])], []))
    assert collectives.main(["--quick"]) == 1
    assert "(!) has a wrong result." in capsys.readouterr().out


def test_a_peer_that_goes_away_during_the_run_is_reported(monkeypatch, capsys):
    def leave(*_):
        raise PeerMissing("it fell over")

    monkeypatch.setattr(collectives, "measured_with_peers", leave)
    assert collectives.main(["--quick"]) == 1
    assert "A peer went away during the run: it fell over" in capsys.readouterr().err


def test_an_unknown_option_is_a_usage_error():
    with pytest.raises(SystemExit) as stopped:
        collectives.main(["--slowly"])
    assert stopped.value.code == 2
