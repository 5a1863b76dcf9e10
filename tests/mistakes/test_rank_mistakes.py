"""What softmesh says of each mistake of several ranks: one job for each mode, and one for each that ends its job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from catalogue import MISTAKES, RIGHT, Mistake, Program, Told, load, of_corners, of_ranks, title, topic
from rank_job import MARK, name
from warm_python import warm_tt_run

load()
pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = Path(__file__).parent / "rank_job.py"
DEADLINE = 150  # seconds: for a hang, not for speed
DESCRIPTOR = """
mesh_descriptors {{
  name: "Big" arch: WORMHOLE_B0
  device_topology {{ dims: [ 2, 4 ] }} host_topology {{ dims: [ {rows}, 2 ] }}
  channels {{ count: 2 policy: RELAXED }}
}}
top_level_instance {{ mesh {{ mesh_descriptor: "Big" mesh_id: 0 }} }}
"""
TOGETHER = [one for one in MISTAKES if one.told is not Told.REPORT]
REPORTED = [one for one in MISTAKES if of_ranks(one.program) and one.told is Told.REPORT]


@pytest.fixture
def launched(tmp_path):
    for rows in (1, 2):
        ranks = [f"  - {{ rank: {rank}, mesh_id: 0, mesh_host_rank: {rank} }}" for rank in range(2 * rows)]
        lines = ["rank_bindings:", *ranks, f"mesh_graph_desc_path: rows{rows}.textproto"]
        (tmp_path / f"rows{rows}.yaml").write_text("\n".join(lines))
        (tmp_path / f"rows{rows}.textproto").write_text(DESCRIPTOR.format(rows=rows))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}

    def run(*arguments: str, rows: int = 1, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*warm_tt_run(), "--rank-binding", f"rows{rows}.yaml", "--", sys.executable, str(PROGRAM), *arguments],
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
    said = said_of(launched(SOFTMESH_LOCKSTEP=lockstep))
    wrong = [one for one in TOGETHER if of_ranks(one.program)]
    told = [one for one in wrong if one.told is (Told.LOCKSTEP if lockstep == "1" else Told.ERROR)]
    missed = {name(one.program): said[name(one.program)] for one in told if not is_told(one, said[name(one.program)])}
    passed = {name(one.program) for one in wrong if lockstep == "1" and None in said[name(one.program)].values()}
    assert (missed, passed, false_alarms(of_ranks, said)) == ({}, set(), {})


@pytest.mark.parametrize("lockstep", ["0", "1"])
def test_of_four_ranks_those_that_concern_each_other_are_compared(lockstep, launched):
    said = said_of(launched("corners", rows=2, SOFTMESH_LOCKSTEP=lockstep))
    wrong = [one for one in TOGETHER if of_corners(one.program)]
    told = [one for one in wrong if lockstep == "1" or one.told is Told.ERROR]
    by_mistake = [(one, said[name(one.program)].values()) for one in told]
    missed = {name(one.program) for one, texts in by_mistake if not any(is_said(one, text) for text in texts)}
    assert (missed, false_alarms(of_corners, said)) == (set(), {})


def said_of(job: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str | None]]:
    """By program, and of that by rank."""
    assert job.returncode == 0, job.stderr[-3000:]
    said: dict[str, dict[str, str | None]] = {}
    for rank, line in re.findall(rf"^\[1,(\d)\]<stdout>: {MARK}(.*)$", job.stdout, re.MULTILINE):
        case, words = json.loads(line)
        said.setdefault(case, {})[rank] = words
    return said


def false_alarms(wanted: Callable[[Program], bool], said: dict[str, dict[str, str | None]]) -> dict[str, object]:
    by_name = {name(program): said[name(program)] for program in RIGHT if wanted(program)}
    return {one: words for one, words in by_name.items() if any(text is not None for text in words.values())}


def is_told(mistake: Mistake, said: dict[str, str | None]) -> bool:
    """On both ranks, with its words, and with a line of the program."""
    return len(said) == 2 and all(is_said(mistake, text) for text in said.values())


def is_said(mistake: Mistake, text: str | None) -> bool:
    line = f"{topic(mistake.program)}.py:"
    return text is not None and line in text and all(words in text for words in mistake.says)


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
