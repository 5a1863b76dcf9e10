"""Training on a mesh that several processes hold comes to what it comes to in one, whatever part of it each holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from warm_python import warm_python, warm_tt_run

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = Path(__file__).parent / "fixtures" / "ranks" / "training.py"
DEADLINE = 120  # seconds: for a hang, not for speed


def told(command: list[str], folder: Path) -> list[str]:
    """What rank 0 printed, without the launcher's tags."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    job = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert job.returncode == 0, job.stderr[-3000:]
    return [line.partition("<stdout>: ")[2] or line for line in job.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("mesh", "hosts"),
    [((2, 4), (1, 2)), ((1, 2), (1, 2)), ((2, 2), (2, 1))],
    ids=["several devices each", "one device each", "a row each"],
)
def test_gradients_are_those_of_one_process(mesh, hosts, tmp_path):
    ranks = [f"  - {{ rank: {i}, mesh_id: 0, mesh_host_rank: {i} }}" for i in range(2)]
    (tmp_path / "mesh.yaml").write_text("\n".join(["rank_bindings:", *ranks, "mesh_graph_desc_path: mesh.textproto"]))
    (tmp_path / "mesh.textproto").write_text(
        f"""
        mesh_descriptors {{
          name: "Mesh" arch: WORMHOLE_B0
          device_topology {{ dims: {list(mesh)} }} host_topology {{ dims: {list(hosts)} }}
          channels {{ count: 2 policy: RELAXED }}
        }}
        top_level_instance {{ mesh {{ mesh_descriptor: "Mesh" mesh_id: 0 }} }}
        """
    )
    program = ["-m", "softmesh", str(PROGRAM), *map(str, mesh)]
    alone = told([*warm_python(), *program], tmp_path)
    assert len(alone) >= 4
    command = [*warm_tt_run(), "--rank-binding", "mesh.yaml", "--", sys.executable, *program]
    assert told(command, tmp_path) == alone
