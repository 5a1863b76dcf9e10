"""Runs that are killed and taken up again, and checkpoints of meshes that several processes hold."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from fixtures.training import two_ranks
from warm_python import warm_python, warm_tt_run

import softmesh as ttnn
from softmesh.runtime.device_lifecycle import open_meshes
from softmesh.train import parameter
from softmesh.train.checkpoints import load

PROGRAMS = Path(__file__).parent / "fixtures" / "training"
DEADLINE = 240  # seconds: for a hang, not for speed
SAVES = [
    "half a file",
    "before the index is safe",
    "before it has its name",
    "when it has its name",
    "while older ones go",
]


def run(command: list[str], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    found = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("killed")
    return json.loads(run([*warm_python(), str(PROGRAMS / "crashing.py"), str(folder)], folder))


@pytest.mark.parametrize("point", ["backward", *SAVES])
def test_a_run_that_was_killed_goes_on_with_the_bits_of_one_that_was_not(killed, point):
    unbroken, broken = killed["never"], killed[point]
    assert (unbroken["ended"], broken["ended"], broken["again"]) == (0, -signal.SIGKILL, 0)
    assert broken["losses"] == unbroken["losses"]
    assert broken["steps"] == [1, 2, 3, 4, 5, 6]
    assert broken["digest"] == unbroken["digest"]


@pytest.mark.parametrize("point", ["backward", *SAVES])
def test_the_last_good_checkpoint_survives_and_nothing_unfinished_stays(killed, point):
    is_named = point in ("when it has its name", "while older ones go")
    last = 4 if is_named else 3
    assert killed[point]["between"][-1] == f"step-0000000{last}"
    assert killed[point]["at"] == last
    assert killed[point]["left"] == killed["never"]["left"] == ["step-00000005", "step-00000006"]


class Ranks(NamedTuple):
    told: list[dict[str, Any]]
    output: str
    folder: Path
    run: Path  # of two steps on 2x4, which the ranks took up
    losses: list[float]  # of the same steps in one process


def bindings(folder: Path) -> Path:
    """One mesh of 1x16, the left half for one process, the right half for another."""
    (folder / "big.textproto").write_text(
        """
        mesh_descriptors {
          name: "Big" arch: WORMHOLE_B0
          device_topology { dims: [ 1, 16 ] } host_topology { dims: [ 1, 2 ] }
          channels { count: 2 policy: RELAXED }
        }
        top_level_instance { mesh { mesh_descriptor: "Big" mesh_id: 0 } }
        """
    )
    ranks = [f"  - {{ rank: {i}, mesh_id: 0, mesh_host_rank: {i} }}" for i in range(2)]
    path = folder / "big.yaml"
    path.write_text("\n".join(["rank_bindings:", *ranks, "mesh_graph_desc_path: big.textproto", ""]))
    return path


@pytest.fixture(scope="module")
def mesh() -> Iterator[ttnn.MeshDevice]:
    for other in open_meshes():
        other.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mesh.axis_names = ("dp", "tp")
        yield mesh
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttnn.use_system(None)


@pytest.fixture(scope="module")
def ranks(mpi, mesh, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("ranks")
    trained = two_ranks.trainer(mesh, 0, folder / "run", metrics=folder / "alone.jsonl")
    trained.train(2)
    shutil.copytree(folder / "run", folder / "taken up")
    losses = trained.train(4)
    command = [*warm_tt_run(), "--rank-binding", str(bindings(folder)), "--"]
    program = [sys.executable, str(PROGRAMS / "two_ranks.py"), str(folder / "taken up"), str(folder)]
    output = run([*command, *program], folder)
    told = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
    return Ranks(told, output, folder, folder / "run" / "step-00000002", losses)


def test_each_of_two_ranks_reads_only_its_bytes(ranks):
    split = 32 * 64 + 64 + 64 * 32  # of which a rank has half
    shared = 32 + 32 * 16 + 16
    own = 3 * 4 * (split // 2 + shared)  # the parameters and two moments, four bytes each
    assert [told["read"] for told in ranks.told] == [own, own]


def test_a_rank_does_not_open_the_file_of_another(ranks):
    first, second = (told["half"] for told in ranks.told)
    assert first is None
    assert "part-00001-of-00002.safetensors is missing" in second


def test_two_ranks_save_what_one_process_saved(ranks, mesh):
    (path,) = {told["saved"] for told in ranks.told}
    assert sorted(file.name for file in Path(path).iterdir()) == [
        "index.json",
        "part-00000-of-00002.safetensors",
        "part-00001-of-00002.safetensors",
    ]
    found = []
    for source in (ranks.run, Path(path)):
        trained = two_ranks.trainer(mesh, 5, None)
        load(source, trained.model, trained.optimizer)
        state = trained.optimizer.state_dict()["state"]
        values = [tensor.view_data().detach() for tensor in trained.model.parameters()]
        found.append([*values, *(moment for slots in state.values() for moment in slots.values())])
    assert len(found[0]) == 3 * 6
    assert all(map(torch.equal, *found))


def test_two_ranks_take_up_a_run_of_one_process(ranks):
    assert [told["resumed at"] for told in ranks.told] == [2, 2]
    assert ranks.told[0]["losses"] == ranks.told[1]["losses"] == pytest.approx(ranks.losses, rel=1e-5)
    alone, together = (
        [json.loads(line)["grad_norm"] for line in (ranks.folder / name).read_text().splitlines()]
        for name in ("alone.jsonl", "metrics.jsonl")
    )
    assert together == pytest.approx(alone[2:], rel=1e-5)


def test_only_the_first_rank_tells_of_steps(ranks):
    assert [line.count("Step: ") for line in ranks.output.splitlines() if "Step: " in line] == [1, 1]


def test_stages_of_a_model_make_one_checkpoint(ranks, mesh):
    model = [(f"stage {rank}", parameter(torch.full((8, 8), -1.0), mesh)) for rank in range(2)]
    load(ranks.folder / "stages", model)
    assert [tensor.view_data().unique().tolist() for _, tensor in model] == [[0.0], [1.0]]


def test_two_stages_that_say_the_same_name_are_refused_by_both(ranks):
    assert all("both have 'model/stage'" in told["same name"] for told in ranks.told)
    assert not [path for path in (ranks.folder / "same").iterdir() if not path.name.startswith(".")]
