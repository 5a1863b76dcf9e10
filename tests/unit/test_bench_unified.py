"""`softmesh bench unified` measures the plan it says, checks every result and shows it; speed itself is not tested."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import softmesh as ttnn
from softmesh.bench import unified
from softmesh.bench.harness import connected_mesh
from softmesh.bench.peer_process import PeerMissing, worker
from softmesh.bench.unified import DTENSOR, HAND, JAX, OURS, Row, Summary, takes
from softmesh.bench.unified_workload import FORMS, MeshWork, UnifiedPeer, Work

NUMPY_WORKER = """
import json, pathlib, sys, numpy as np
folder = pathlib.Path(sys.argv[1])
print(json.dumps({"ready": "numpy"}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "prepare" in order:
        factors = np.load(folder / "factors.npz")
        np.save(folder / "result.npy", factors["a"] @ factors["b"] + ADDED)
        print(json.dumps({"prepared": True}), flush=True)
    else:
        print(json.dumps({"seconds": 0.5}), flush=True)
"""


def numpy_process(folder: Path, added: int = 0) -> UnifiedPeer:
    """A peer that any interpreter runs; with `added` it multiplies wrongly."""
    worker = folder / f"worker{added}.py"
    worker.write_text(NUMPY_WORKER.replace("ADDED", str(added)))
    return UnifiedPeer([sys.executable, str(worker)])


def missing() -> UnifiedPeer:
    raise PeerMissing("not today")


@pytest.mark.parametrize("devices", [8, 32])
@pytest.mark.parametrize("form", sorted(FORMS))
def test_the_unified_op_and_the_plan_by_hand_give_the_same_and_insert_the_same(idle_machine, form, devices):
    work = Work(form, devices, 32, 256, 256)
    a, b = work.factors()
    with connected_mesh(*work.mesh) as mesh:
        ours = MeshWork(work, mesh, a, b)
        assert ours.gives(a @ b)
        assert not ours.gives(a @ b + 1)
        assert ours.is_the_same_plan()


def test_sums_of_the_factors_are_exact_in_any_order():
    work = Work("row", 8, 512, 1024, 1024)
    a, b = work.factors()
    assert work.inner * a.abs().max() * b.abs().max() < 2**24
    assert torch.equal(a, a.round())


def test_a_peer_is_given_the_factors_and_its_result_is_checked(idle_machine, tmp_path):
    work = Work("row", 8, 32, 64, 64)
    with (
        numpy_process(tmp_path) as right,
        numpy_process(tmp_path, added=1) as wrong,
        connected_mesh(*work.mesh) as mesh,
    ):
        row = unified.measure(work, unified.QUICK, mesh, {JAX: right, DTENSOR: wrong})
    assert row.wrong == [DTENSOR]
    assert row.microseconds[JAX] == pytest.approx(0.5e6)
    assert row.same_plan


def test_dtensor_multiplies_what_it_is_given_where_it_is_asked_to(tmp_path, monkeypatch):
    work = Work("2-D", 8, 32, 64, 64)
    a, b = work.factors()
    np.savez(tmp_path / "factors.npz", a=a.numpy(), b=b.numpy())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a process group puts its own there, and leaves it
    monkeypatch.syspath_prepend(Path(worker("dtensor_unified.py")).parent)
    dtensor_unified = importlib.import_module("dtensor_unified")
    call = dtensor_unified.prepare(tmp_path, work.order())
    try:
        assert torch.equal(torch.from_numpy(np.load(tmp_path / "result.npy")), a @ b)
        assert list(call().placements) == dtensor_unified.placements(FORMS["2-D"].out)
    finally:
        dist.destroy_process_group()


def test_jax_is_asked_only_for_as_many_devices_as_it_has():
    assert takes(JAX, Work("row", 8, 1, 1, 1))
    assert not takes(JAX, Work("row", 32, 1, 1, 1))
    assert takes(DTENSOR, Work("row", 32, 1, 1, 1))


def row(form: str, rows: int, over_by_hand: float, wrong: tuple[str, ...] = (), **over: float) -> Row:
    seconds = {OURS: 100.0, HAND: 100.0 / over_by_hand}
    return Row(form, 8, rows, 64, 64, seconds, over_by_hand, dict(over), not wrong, list(wrong))


def test_a_summary_has_the_worst_of_each():
    rows = [row("row", 32, 1.1, JAX=9.0, DTensor=40.0), row("row", 512, 1.02, JAX=2.0, DTensor=3.0)]
    assert Summary.of(rows) == Summary(1.1, 2.0, 3.0, 9.0)
    assert Summary.of([]) == Summary(None, None, None, None)


def test_the_benchmark_shows_what_it_found_and_says_who_is_left_out(idle_machine, monkeypatch, capsys):
    monkeypatch.setattr(unified, "dtensor_process", missing)
    monkeypatch.setattr(unified, "jax_process", lambda python: missing())
    assert unified.main(["--quick"]) == 0
    shown = capsys.readouterr().out
    assert "JAX is left out" in shown
    assert "DTensor is left out" in shown
    assert all(form in shown for form in FORMS)
    assert unified.main(["--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [r["form"] for r in found["rows"]] == list(FORMS)
    assert found["summary"]["lowest_jax_over_unified"] is None


def test_a_wrong_result_is_marked_and_fails_the_run(monkeypatch, capsys):
    rows = [row("column", 32, 1.1, wrong=(OURS,))]
    monkeypatch.setattr(unified, "measured_with_peers", lambda effort, python: (rows, []))
    assert unified.main(["--quick"]) == 1
    shown = capsys.readouterr().out
    assert "column (another plan) (!) unified" in shown
    assert "(!) has a wrong result." in shown


def test_a_peer_that_goes_away_ends_the_run_with_a_word(monkeypatch, capsys):
    def gone(effort: object, python: str) -> None:
        raise PeerMissing("it fell over")

    monkeypatch.setattr(unified, "measured_with_peers", gone)
    assert unified.main(["--quick"]) == 1
    assert "it fell over" in capsys.readouterr().err


def test_nothing_stays_open_after_a_grid(idle_machine):
    with connected_mesh(1, 2):
        assert ttnn.get_fabric_config() is ttnn.FabricConfig.FABRIC_1D
    assert ttnn.get_fabric_config() is ttnn.FabricConfig.DISABLED
