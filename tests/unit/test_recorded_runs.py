"""Recorded runs: files that give the same estimate, ranks on one clock, and two estimates beside each other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import softmesh as ttnn
from softmesh.cost.comparison import compared
from softmesh.cost.estimate_from_runs import assembled
from softmesh.cost.recorded_run import RecordedRun
from softmesh.cost.run_files import read_run, write_run
from softmesh.cost.run_recorder import RunRecorder


def recorded(products: int = 2, *, traced: bool = False, rank: int = 0) -> RecordedRun:
    """A few products and a collective, on a T3000."""
    ttnn.use_system("T3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    recorder = RunRecorder(rank=rank)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4), trace_region_size=1 << 20) as mesh, ttnn.observe(recorder):
        x = ttnn.from_torch(torch.zeros(128, 128), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ttnn.mark_step("work", tokens=1)
        for _ in range(products):
            y = ttnn.matmul(x, x)
        if traced:
            ttnn.all_gather(x, dim=0, cluster_axis=1)
            trace = ttnn.begin_trace_capture(mesh, cq_id=0)
            z = ttnn.all_gather(x, dim=0, cluster_axis=1)
            ttnn.end_trace_capture(mesh, trace, cq_id=0)
            ttnn.execute_trace(mesh, trace, cq_id=0, blocking=True)
            assert z.shape[0] == 4 * y.shape[0]
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)
    return recorder.finish()


def test_a_file_gives_the_same_estimate(tmp_path: Path) -> None:
    run = recorded(traced=True)
    write_run(run, tmp_path / "run_0.json")
    ours, theirs = assembled([run]), assembled([read_run(tmp_path / "run_0.json")])
    assert theirs.seconds == ours.seconds
    assert theirs.machine == ours.machine
    assert (theirs.links, theirs.memory, theirs.steps, theirs.meshes) == (
        ours.links,
        ours.memory,
        ours.steps,
        ours.meshes,
    )
    for one, other in zip(ours.commands, theirs.commands, strict=True):
        assert one._replace(arguments={}) == other._replace(arguments={})


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run_0.json"
    path.write_text('{"version": 99}')
    with pytest.raises(ttnn.MeshError, match="not a recorded run of this version"):
        read_run(path)


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: text.replace("matmul", "matmum", 1), lambda text: ""]
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[str], str]) -> None:
    path = tmp_path / "run_0.json"
    write_run(recorded(), path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ttnn.MeshError, match=r"run_0.json: not a whole recorded run .* Record it again"):
        read_run(path)


def test_ranks_on_the_same_chips_take_turns() -> None:
    alone = assembled([recorded(40)])
    both = assembled([recorded(40), recorded(40, rank=1)])
    assert both.ranks == 2
    assert {command.rank for command in both.commands} == {0, 1}
    assert len(both.meshes) == 2
    busy = sorted((c.start, c.end) for c in both.commands if c.name == "matmul")
    assert len(busy) == 80
    assert all(end <= start for (_, end), (start, _) in pairwise(busy))
    assert both.seconds >= alone.seconds


def test_a_comparison_names_what_changed() -> None:
    comparison = compared(assembled([recorded(2)]), assembled([recorded(3, traced=True)]))
    changes = {change.name: change for change in comparison.ops}
    assert "2 -> 3 calls" in changes["matmul"].why
    assert changes["all_gather"].why == "only in the second"
    assert changes["matmul"].seconds > 0
    assert "from_torch" not in changes
    line = next(change for change in comparison.lines if "matmul" in change.why)
    assert line.why.startswith("matmul +")


def test_equal_runs_have_nothing_to_compare() -> None:
    comparison = compared(assembled([recorded()]), assembled([recorded()]))
    assert (comparison.ops, comparison.lines, comparison.remarks) == ([], [], [])
