"""Ranks of one mesh that make other calls than the rest are told so, by default and with both lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = Path(__file__).parent / "ranks_that_disagree.py"
TT_RUN = [sys.executable, str(Path(__file__).parents[2] / "softmesh_launcher.py")]
DEADLINE = 150  # seconds: for a hang, not for speed
DESCRIPTOR = """
mesh_descriptors {
  name: "Big" arch: WORMHOLE_B0
  device_topology { dims: [ 2, 4 ] } host_topology { dims: [ 1, 2 ] }
  channels { count: 2 policy: RELAXED }
}
top_level_instance { mesh { mesh_descriptor: "Big" mesh_id: 0 } }
"""
BINDING = """
rank_bindings:
  - { rank: 0, mesh_id: 0, mesh_host_rank: 0 }
  - { rank: 1, mesh_id: 0, mesh_host_rank: 1 }
mesh_graph_desc_path: big.textproto
"""


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "big.textproto").write_text(DESCRIPTOR)
    (folder / "big.yaml").write_text(BINDING)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TT_RUN, "--rank-binding", "big.yaml", "--", sys.executable, str(PROGRAM), *arguments],
            cwd=folder,
            env=clean | environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def said(launched) -> dict[str, set[str]]:
    """What each case of the program came to, on both ranks."""
    job = launched()
    assert job.returncode == 0, job.stderr[-3000:]
    found: dict[str, set[str]] = {}
    for rank, case, outcome in re.findall(r"^\[1,(\d)\]<stdout>: (\w+): (.*)$", job.stdout, re.MULTILINE):
        found.setdefault(case, set()).add(f"{rank} {outcome}")
    return found


def cases(kind: str) -> list[str]:
    return re.findall(rf"^@{kind}\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.mark.parametrize("case", [*cases("wrong"), "another_fabric"])
def test_ranks_that_make_other_calls_are_noticed(case, said):
    assert said[case] == {"0 noticed", "1 noticed"}


@pytest.mark.parametrize("case", cases("right"))
def test_nothing_is_said_of_ranks_that_keep_in_step(case, said):
    assert said[case] == {"0 nothing", "1 nothing"}


def test_ranks_that_share_no_memory_compare_what_they_did_by_messages(launched):
    job = launched("one_leaves_out_a_sum_of_copies", SOFTMESH_SHARED_MEMORY="0")
    report = job.stderr[job.stderr.index("softmesh: hang: rank") :]
    assert re.search(r"rank 1 in all_gather\(.*\n      at .*ranks_that_disagree\.py:\d+ in one_leaves_out", report), (
        report
    )
    assert re.search(r"rank 0 in all_reduce\(.*cluster_axis=1\).*\n      at .*ranks_that_disagree\.py:\d+", report), (
        report
    )
    assert job.returncode != 0


def test_a_call_that_one_rank_makes_before_the_program_ends_is_noticed(launched):
    job = launched("one_ends_early")
    assert "softmesh: hang: rank" in job.stderr, job.stderr
    assert "rank 1 made no more calls" in job.stderr
    assert job.returncode != 0
