"""What softmesh says of each mistake of several ranks: one job for each mode, and one for each that ends its job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import MISTAKES, RIGHT, Mistake, Told, load, of_ranks, title, topic
from rank_job import MARK, name

load()
pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = Path(__file__).parent / "rank_job.py"
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
TOGETHER = [one for one in MISTAKES if of_ranks(one.program) and one.told is not Told.REPORT]
REPORTED = [one for one in MISTAKES if of_ranks(one.program) and one.told is Told.REPORT]
NEIGHBOURS = [program for program in RIGHT if of_ranks(program)]


@pytest.fixture
def launched(tmp_path):
    (tmp_path / "big.textproto").write_text(DESCRIPTOR)
    (tmp_path / "big.yaml").write_text(BINDING)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TT_RUN, "--rank-binding", "big.yaml", "--", sys.executable, str(PROGRAM), *arguments],
            cwd=tmp_path,
            env=clean | environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


@pytest.mark.parametrize("lockstep", ["0", "1"])
def test_ranks_that_make_other_calls_are_noticed_and_others_are_not(lockstep, launched):
    job = launched(SOFTMESH_LOCKSTEP=lockstep)
    assert job.returncode == 0, job.stderr[-3000:]
    said: dict[str, dict[str, str | None]] = {}
    for rank, line in re.findall(rf"^\[1,(\d)\]<stdout>: {MARK}(.*)$", job.stdout, re.MULTILINE):
        case, words = json.loads(line)
        said.setdefault(case, {})[rank] = words
    told = [one for one in TOGETHER if one.told is (Told.LOCKSTEP if lockstep == "1" else Told.ERROR)]
    missed = {name(one.program): said[name(one.program)] for one in told if not is_told(one, said[name(one.program)])}
    passed = {name(one.program) for one in TOGETHER if lockstep == "1" and None in said[name(one.program)].values()}
    alarmed = {name(one): said[name(one)] for one in NEIGHBOURS if said[name(one)] != {"0": None, "1": None}}
    assert (missed, passed, alarmed) == ({}, set(), {})


def is_told(mistake: Mistake, said: dict[str, str | None]) -> bool:
    """On both ranks, with its words, and with a line of the program."""
    line = f"{topic(mistake.program)}.py:"
    return len(said) == 2 and all(
        text is not None and line in text and all(words in text for words in mistake.says) for text in said.values()
    )


@pytest.mark.parametrize("mistake", REPORTED, ids=lambda one: title(one.program))
def test_what_is_reported_of_a_job(mistake: Mistake, launched):
    job = launched(name(mistake.program))
    assert job.returncode != 0
    for words in mistake.says:
        assert words in job.stderr, job.stderr


def test_ranks_that_share_no_memory_compare_what_they_did_by_messages(launched):
    job = launched("ranks.one_leaves_out_a_sum_of_copies", SOFTMESH_SHARED_MEMORY="0")
    report = job.stderr[job.stderr.index("softmesh: hang: rank") :]
    assert re.search(r"rank 1 in all_gather\(.*\n      at .*ranks\.py:\d+ in one_leaves_out", report), report
    assert re.search(r"rank 0 in all_reduce\(.*cluster_axis=1\).*\n      at .*ranks\.py:\d+", report), report
    assert job.returncode != 0
