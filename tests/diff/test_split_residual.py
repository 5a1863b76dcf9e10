"""A mesh that puts some weights on its devices by other lines than one device: Llama with a split residual stream."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softmesh.cli import commands

LLAMA = Path(__file__).parents[2] / "examples" / "llama"
SPLIT = ("--mesh", "2x4", "--split-residual", "--dtype", "float32", "--tokens", "3")

pytestmark = [
    pytest.mark.usefixtures("idle_machine"),
    pytest.mark.filterwarnings("ignore::softmesh.errors.SoftmeshWarning"),
]


def diff(script: Path) -> Result:
    return CliRunner().invoke(commands, ["diff", str(script), "--system", "T3000", "--", *SPLIT])


def test_a_split_residual_raises_no_alarm() -> None:
    result = diff(LLAMA / "run.py")
    assert result.exit_code == 0, result.output
    assert "No divergence" in result.stdout


def test_a_weight_in_place_of_another_is_named(tmp_path: Path) -> None:
    shutil.copytree(LLAMA, tmp_path / "llama")
    path = tmp_path / "llama" / "tt_llama" / "mlp.py"
    right = 'weights["mlp.up_proj.weight"]'
    source = path.read_text()
    assert right in source
    wrong = 'weights["mlp.gate_proj.weight" if tp.rows > 1 else "mlp.up_proj.weight"]'
    path.write_text(source.replace(right, wrong))
    result = diff(tmp_path / "llama" / "run.py")
    assert result.exit_code == 1, result.output
    assert "First divergence: from_torch" in result.stdout
    line = 1 + source[: source.index(right)].count("\n")
    assert f"mlp.py:{line} (__init__)" in result.stdout
