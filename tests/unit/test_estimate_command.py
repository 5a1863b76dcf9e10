"""`softmesh estimate` and `softmesh fit` as users call them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from warm_python import warm_python

from softmesh.estimation.estimate_command import estimate
from softmesh.estimation.fit_command import fit

PROGRAM = """
import sys
import torch
import ttnn

side = int(sys.argv[1])
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
x = ttnn.from_torch(torch.randn(128, side), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
w = ttnn.from_torch(torch.randn(side, side), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
for _ in range(2):
    ttnn.mark_step("layer", tokens=128)
    y = ttnn.all_gather(ttnn.matmul(x, w), dim=0, cluster_axis=1)
ttnn.mark_step("")
if "--fail" in sys.argv:
    raise ValueError("half-way")
ttnn.close_mesh_device(mesh)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def softmesh(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*warm_python(), "-m", "softmesh", *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.usefixtures("mpi")
def test_ranks_that_raise_are_told_up_to_there(program: str) -> None:
    """A rank that raises ends its job; what it did is kept before that."""
    ended = softmesh("estimate", "--system", "T3000", "-n", "2", program, "64", "--fail")
    assert ended.returncode == 1
    assert "half-way" in ended.stderr
    assert "on T3000" in ended.stdout
    assert "all_gather" in ended.stdout


def test_a_broken_link_is_compared_and_a_failure_is_kept(program: str) -> None:
    ours = ("--system", "Galaxy", "--json", "--against-down", "link:0/12")
    ended = softmesh("estimate", program, *ours, "512", "--fail")
    assert ended.returncode == 1
    assert "ValueError: half-way" in ended.stderr
    assert "program_estimate.py" not in ended.stderr
    found = json.loads(ended.stdout)
    assert found["error"] == "ValueError: half-way"
    assert found["system"] == "Galaxy"
    assert {op["name"]: op["calls"] for op in found["ops"]} == {"matmul": 2, "all_gather": 2, "from_torch": 2}
    assert [step["name"] for step in found["steps"]] == ["layer"]
    assert found["tokens_per_second"] > 0
    assert found["fit"]["fits"]
    assert found["low"] < found["seconds"] < found["high"]
    assert "down: chip 0 ch 12 <-> chip 16 ch 0" in found["changes"]["remarks"]
    (change,) = (one for one in found["changes"]["ops"] if one["name"] == "all_gather")
    assert change["seconds"] > 0
    assert "over links" in change["why"]


def test_a_model_that_is_too_large_does_not_fit(program: str) -> None:
    ended = softmesh("fit", program, "--system", "T3000", "131072")
    assert ended.returncode == 1
    assert "It does not fit on T3000, 8 chips: DRAM lacks" in ended.stdout
    assert "131072x131072 BFLOAT16 TILE" in ended.stdout
    assert "shard it over the 4 devices of axis 1" in ended.stdout
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--system", "T300", "{}"], "T3000"),
        (["--fabric", "FABRIC_3D", "{}"], "no fabric FABRIC_3D"),
        (["--sytem", "T3000", "{}"], "No such option"),
        (["nowhere.py"], "There is no file nowhere.py"),
        (["--calibration", "nowhere.yaml", "{}"], "nowhere.yaml"),
        (["{}", "--against", "other.py"], "There is no file other.py"),
        (["--merge", "nowhere"], "no recorded runs"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    program: str, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTMESH_SYSTEM", "")
    ended = CliRunner().invoke(estimate, [word.format(program) for word in words])
    assert ended.exit_code == 2
    assert says in ended.output


def test_help_shows_a_command_to_copy() -> None:
    for command in (estimate, fit):
        shown = CliRunner().invoke(command, ["--help"])
        assert shown.exit_code == 0
        assert f"softmesh {command.name} --system" in shown.output
