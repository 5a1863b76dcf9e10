"""The tutorial's two-stage pipeline, from generated bindings to the last barrier."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("mpi")

EXAMPLE = Path(__file__).parent.parent / "examples" / "two_stage_pipeline.py"
DEADLINE = 120  # seconds: for a hang, not for speed
TT_RUN = "from softmesh.processes.launcher.command import tt_run; tt_run(prog_name='tt-run')"


def run(command: list[str], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    found = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


def test_two_halves_of_a_galaxy_run_a_pipeline_over_a_socket(tmp_path):
    run([sys.executable, "-m", "softmesh", "bindings", "--system", "Galaxy", "-o", "made"], tmp_path)
    binding = "made/4x4_multi_mesh_rank_binding.yaml"
    launch = [sys.executable, "-c", TT_RUN, "--system", "Galaxy", "--rank-binding", binding]
    assert "agrees with torch: True" in run([*launch, "--", sys.executable, str(EXAMPLE)], tmp_path)
