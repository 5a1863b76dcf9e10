"""Pipelines over ranks: a stage each, gradients like one device's; and a stage that dies in the midst of a step."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from marked_jobs import PROGRAMS, run_job
from warm_python import warm_python, warm_tt_run

from softmesh.processes.bindings.bindings_command import bindings

EXAMPLE = Path(__file__).parent.parent / "examples" / "train_pipeline.py"
DEADLINE = 150  # seconds: for a hang, not for speed


def bound(split: str, folder: Path) -> list[str]:
    """What starts a rank on each of the meshes of a split."""
    made = CliRunner().invoke(bindings, ["--system", "elastic", "--split", split, "-o", str(folder)])
    assert made.exit_code == 0, made.output
    (binding,) = folder.glob("*_rank_binding.yaml")
    return [*warm_tt_run(), "--system", "elastic", "--rank-binding", str(binding), "--", sys.executable]


def run(command: list[str]) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    job = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout


@pytest.mark.usefixtures("mpi")
def test_four_ranks_of_two_devices_train_like_one_device(tmp_path: Path) -> None:
    printed = run([*bound("2x1,2x1,2x1,2x1", tmp_path), str(EXAMPLE), "interleaved"])
    assert printed.count("agree with one device: True") == 4, printed
    assert "False" not in printed
    assert len(re.findall(r"step \d: loss", printed)) == 2  # of the last rank only
    assert "36 of 228 units are bubbles: 3/19, 15.8%" in printed
    assert "FIFO for activations from stage 1 to stage 2: 2 messages (16384 bytes)" in printed


def test_the_same_example_has_all_stages_in_one_process() -> None:
    printed = run([*warm_python(), str(EXAMPLE), "gpipe"])
    assert "77 parameters agree with one device: True" in printed
    assert "36 of 132 units are bubbles: 3/11, 27.3%" in printed
    assert "live activations, by stage: 8, 8, 8, 8" in printed


@pytest.mark.usefixtures("mpi")
def test_a_stage_that_is_killed_in_a_step_ends_the_job_and_the_next_goes_on_with_the_same_bits(
    tmp_path: Path,
) -> None:
    program = [*bound("1x1,1x1", tmp_path), str(PROGRAMS / "killed_stage.py")]
    job = run_job([*program, str(tmp_path / "run"), "KILL"], tmp_path, SOFTMESH_TIMEOUT="300")
    assert job.traced == 2, job.output
    assert "softmesh: rank 1 died: killed by signal 9 (SIGKILL)" in job.output, job.output
    # Where, it cannot tell any more; what it did last was told some time before, or not yet after its start.
    assert re.search(r"^  rank 1 ended, last seen \w+", job.output, re.MULTILINE), job.output
    assert all(f"rank {rank} did step 0" in job.output for rank in range(2))
    assert "did step 1" not in job.output
    assert (job.code, job.left) == (128 + signal.SIGKILL, {})
    resumed, whole = (
        run_job([*program, str(tmp_path / folder)], _made(tmp_path / f"job of {folder}"), SOFTMESH_TIMEOUT="300")
        for folder in ("run", "another")
    )
    assert (resumed.code, whole.code) == (0, 0), resumed.output + whole.output
    assert "did step 0" not in resumed.output
    told = re.findall(r"rank \d (?:did step [12], loss|ends with) \S+", whole.output)
    assert len(told) == 6
    assert sorted(re.findall(r"rank \d (?:did step [12], loss|ends with) \S+", resumed.output)) == sorted(told)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
