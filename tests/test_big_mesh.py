"""One mesh over several processes: the same script, the same tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAM = Path(__file__).parent / "fixtures" / "ranks" / "big_mesh.py"
TT_RUN = [
    sys.executable,
    "-c",
    "from softmesh.processes.launcher.command import tt_run; tt_run(prog_name='tt-run')",
]
DEADLINE = 120  # seconds: for a hang, not for speed


def run(command: list[str], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    found = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


def told(output: str) -> list[str]:
    """What rank 0 printed, without the launcher's tags."""
    return [line.partition("<stdout>: ")[2] or line for line in output.splitlines() if line.strip()]


def bindings(folder: Path, hosts: tuple[int, int]) -> Path:
    (folder / "big.textproto").write_text(
        f"""
        mesh_descriptors {{
          name: "Big" arch: WORMHOLE_B0
          device_topology {{ dims: [ 2, 4 ] }} host_topology {{ dims: [ {hosts[0]}, {hosts[1]} ] }}
          channels {{ count: 2 policy: RELAXED }}
        }}
        top_level_instance {{ mesh {{ mesh_descriptor: "Big" mesh_id: 0 }} }}
        """
    )
    ranks = [f"  - {{ rank: {i}, mesh_id: 0, mesh_host_rank: {i} }}" for i in range(hosts[0] * hosts[1])]
    path = folder / "big.yaml"
    path.write_text("\n".join(["rank_bindings:", *ranks, "mesh_graph_desc_path: big.textproto", ""]))
    return path


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("alone")
    return told(run([sys.executable, "-m", "softmesh", "run", str(PROGRAM)], folder))


@pytest.mark.parametrize("hosts", [(1, 2), (2, 2)], ids=["2 ranks", "4 ranks"])
def test_one_process_and_several_give_the_same_tensors(alone, hosts, tmp_path):
    binding = str(bindings(tmp_path, hosts))
    command = [*TT_RUN, "--rank-binding", binding, "--", sys.executable, str(PROGRAM)]
    assert told(run(command, tmp_path)) == alone
    assert len(alone) == 20
