"""Pipelines from generated bindings to the last barrier, and processes that share a machine without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from warm_python import warm_python, warm_tt_run

from softmesh.processes.bindings.bindings_command import bindings

EXAMPLES = Path(__file__).parent.parent / "examples"
SIDE_BY_SIDE = Path(__file__).parent / "fixtures" / "sockets" / "side_by_side.py"
DEADLINE = 120  # seconds: for a hang, not for speed


def started(*command: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=DEADLINE, check=False)


def run(*command: str) -> str:
    found = started(*command)
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


@pytest.fixture(scope="module")
def galaxy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rank bindings of a Galaxy, as `softmesh bindings` writes them."""
    folder = tmp_path_factory.mktemp("galaxy")
    made = CliRunner().invoke(bindings, ["--system", "Galaxy", "-o", str(folder)])
    assert made.exit_code == 0, made.output
    return folder


@pytest.mark.usefixtures("mpi")
@pytest.mark.parametrize(
    ("example", "binding", "agreeing_ranks"),
    [
        ("two_stage_pipeline.py", "4x4_multi_mesh", 1),
        ("four_stage_pipeline.py", "4x2_multi_mesh", 1),
        ("big_mesh_pipeline.py", "4x4_multi_big_mesh", 2),
    ],
)
def test_a_pipeline_over_the_parts_of_a_galaxy_agrees_with_torch(
    example: str, binding: str, agreeing_ranks: int, galaxy: Path
) -> None:
    launch = ["--system", "Galaxy", "--rank-binding", str(galaxy / f"{binding}_rank_binding.yaml")]
    printed = run(*warm_tt_run(), *launch, "--", sys.executable, str(EXAMPLES / example))
    assert printed.count("agrees with torch: True") == agreeing_ranks, printed
    assert "False" not in printed


@pytest.mark.usefixtures("mpi")
def test_a_pipeline_that_computes_something_else_says_so_and_fails(galaxy: Path, tmp_path: Path) -> None:
    text = (EXAMPLES / "two_stage_pipeline.py").read_text(encoding="utf-8")
    line = "send_async(ttnn.relu(x), socket)"
    assert line in text
    broken = tmp_path / "two_stage_pipeline.py"
    broken.write_text(text.replace(line, "send_async(x, socket)"), encoding="utf-8")
    launch = ["--system", "Galaxy", "--rank-binding", str(galaxy / "4x4_multi_mesh_rank_binding.yaml")]
    found = started(*warm_tt_run(), *launch, "--", sys.executable, str(broken))
    assert found.returncode != 0
    assert "is not torch's" in found.stdout + found.stderr


@pytest.mark.parametrize(
    ("example", "told", "binding"),
    [
        ("two_stage_pipeline.py", "Two processes", "4x4_multi_mesh"),
        ("four_stage_pipeline.py", "Four processes", "4x2_multi_mesh"),
        ("big_mesh_pipeline.py", "Four processes", "4x4_multi_big_mesh"),
    ],
)
def test_a_pipeline_that_is_started_alone_says_how_to_start_it(example: str, told: str, binding: str) -> None:
    found = started(*warm_python(), "-m", "softmesh", "run", str(EXAMPLES / example))
    assert found.returncode == 1
    assert found.stderr.startswith(f"{told} run this file together, not 1. Start them with tt-run:")
    assert f"tt-run --system Galaxy --rank-binding bindings/{binding}_rank_binding.yaml" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_stage_of_the_gpt_that_is_started_alone_says_who_starts_it(tmp_path: Path) -> None:
    stage = str(EXAMPLES / "char_gpt" / "stage.py")
    found = started(
        *warm_python(), "-m", "softmesh", "run", stage, "--steps", "1", "--losses", str(tmp_path / "losses.json")
    )
    assert found.returncode == 2
    assert "4 processes run this file together, not 1; run.py starts them with tt-run" in found.stderr


def test_processes_side_by_side_see_a_board_each() -> None:
    printed = run(*warm_python(), "-m", "softmesh", "run", "--system", "T3000", str(SIDE_BY_SIDE))
    assert sorted(printed.splitlines()) == [
        "board 1 of 2 devices gives 2.0",
        "board 3 of 2 devices gives 6.0",
    ]
