"""What softmesh says of stages that are ranks with meshes of their own: as each program ends, or by a report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import MISTAKES, RIGHT, Mistake, Told, load, of_stages, title, topic
from rank_job import MARK, name
from warm_python import warm_tt_run

load()
pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = Path(__file__).parent / "rank_job.py"
DEADLINE = 150  # seconds: for a hang, not for speed
DESCRIPTOR = """
mesh_descriptors {
  name: "Stage" arch: WORMHOLE_B0 device_topology { dims: [ 1, 2 ] } host_topology { dims: [ 1, 1 ] }
  channels { count: 2 policy: RELAXED }
}
graph_descriptors {
  name: "Pipeline" type: "FABRIC"
  instances { mesh { mesh_descriptor: "Stage" mesh_id: 0 } }
  instances { mesh { mesh_descriptor: "Stage" mesh_id: 1 } }
  connections {
    nodes { mesh { mesh_descriptor: "Stage" mesh_id: 0 } }
    nodes { mesh { mesh_descriptor: "Stage" mesh_id: 1 } }
    channels { count: 2 }
  }
}
top_level_instance { graph { graph_descriptor: "Pipeline" graph_id: 0 } }
"""
BINDING = """
rank_bindings:
  - { rank: 0, mesh_id: 0, mesh_host_rank: 0 }
  - { rank: 1, mesh_id: 1, mesh_host_rank: 0 }
mesh_graph_desc_path: pipeline.textproto
"""
WRONG = [one for one in MISTAKES if of_stages(one.program)]
NEIGHBOURS = [program for program in RIGHT if of_stages(program)]


@pytest.fixture
def launched(tmp_path):
    (tmp_path / "pipeline.textproto").write_text(DESCRIPTOR)
    (tmp_path / "pipeline.yaml").write_text(BINDING)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}

    def run(argument: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*warm_tt_run(), "--rank-binding", "pipeline.yaml", "--", sys.executable, str(PROGRAM), argument],
            cwd=tmp_path,
            env=clean | environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


@pytest.mark.parametrize(("shared", "strict"), [("0", "0"), ("1", "1")], ids=["messages", "memory, strict"])
@pytest.mark.parametrize("mistake", WRONG, ids=lambda one: title(one.program))
def test_what_is_said_of_stages_whose_messages_do_not_meet(mistake: Mistake, shared, strict, launched):
    job = launched(name(mistake.program), SOFTMESH_SHARED_MEMORY=shared, SOFTMESH_STRICT=strict)
    for words in mistake.says:
        assert words in job.stderr, job.stderr
    assert f"{topic(mistake.program)}.py:" in job.stderr
    assert (job.returncode == 0) == (mistake.told is Told.WARNING and strict == "0"), job.stderr


@pytest.mark.parametrize("shared", ["0", "1"])
def test_nothing_is_said_of_stages_whose_messages_meet(shared, launched):
    job = launched("stages", SOFTMESH_SHARED_MEMORY=shared, SOFTMESH_STRICT="1")
    assert job.returncode == 0, job.stderr[-3000:]
    said = [json.loads(line) for line in re.findall(rf"<stdout>: {MARK}(.*)$", job.stdout, re.MULTILINE)]
    assert sorted(said) == sorted([name(program), None] for program in NEIGHBOURS for _ in range(2))
    assert "Warning" not in job.stderr, job.stderr
