"""Pipelines from generated bindings to the last barrier, and processes that share a machine without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from softmesh.processes.presets_command import bindings

EXAMPLES = Path(__file__).parent.parent / "examples"
SIDE_BY_SIDE = Path(__file__).parent / "fixtures" / "sockets" / "side_by_side.py"
DEADLINE = 120  # seconds: for a hang, not for speed
TT_RUN = str(Path(__file__).parents[1] / "softmesh_launcher.py")


def run(*command: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    found = subprocess.run(
        [sys.executable, *command], env=clean, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
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
    printed = run(TT_RUN, *launch, "--", sys.executable, str(EXAMPLES / example))
    assert printed.count("agrees with torch: True") == agreeing_ranks, printed
    assert "False" not in printed


def test_processes_side_by_side_see_a_board_each() -> None:
    printed = run("-m", "softmesh", "run", "--system", "T3000", str(SIDE_BY_SIDE))
    assert sorted(printed.splitlines()) == [
        "board 1 of 2 devices gives 2.0",
        "board 3 of 2 devices gives 6.0",
    ]
