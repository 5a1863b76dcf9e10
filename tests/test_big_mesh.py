"""One mesh over several processes: the same script, the same tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from warm_python import warm_python, warm_tt_run

from softmesh.systems.cluster_descriptor import descriptor_text
from softmesh.systems.named_systems import load

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAMS = Path(__file__).parent / "fixtures" / "ranks"
PROGRAM = PROGRAMS / "big_mesh.py"
DEADLINE = 120  # seconds: for a hang, not for speed


def run(command: list[str], folder: Path, **environ: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    found = subprocess.run(
        command,
        cwd=folder,
        env=clean | environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


def told(output: str) -> list[str]:
    """What rank 0 printed, without the launcher's tags."""
    return [line.partition("<stdout>: ")[2] or line for line in output.splitlines() if line.strip()]


def bindings(folder: Path, hosts: tuple[int, int], rows: int = 2) -> Path:
    (folder / "big.textproto").write_text(
        f"""
        mesh_descriptors {{
          name: "Big" arch: WORMHOLE_B0
          device_topology {{ dims: [ {rows}, 4 ] }} host_topology {{ dims: [ {hosts[0]}, {hosts[1]} ] }}
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
    return told(run([*warm_python(), "-m", "softmesh", "run", str(PROGRAM)], folder))


def half_a_t3000_each(folder: Path) -> Path:
    """Two hosts, each with the mock descriptor of two boards of the four; cables join the halves."""
    t3000 = load("T3000")
    asics = {id: replace(asic, host="west.yaml" if asic.tray <= 2 else "east.yaml") for id, asic in t3000.asics.items()}
    for host in ("west.yaml", "east.yaml"):
        (folder / host).write_text(descriptor_text(replace(t3000, asics=asics), host))
    path = folder / "mocks.yaml"
    path.write_text("rank_to_cluster_mock_cluster_desc: {0: west.yaml, 1: east.yaml}")
    return path


def in_ranks(folder: Path, hosts: tuple[int, int], *options: str, **environ: str) -> list[str]:
    """What rank 0 of as many ranks as hosts tells."""
    binding = ["--rank-binding", str(bindings(folder, hosts))]
    return told(run([*warm_tt_run(), *binding, *options, "--", sys.executable, str(PROGRAM)], folder, **environ))


def test_one_process_and_four_give_the_same_tensors(alone, tmp_path):
    assert in_ranks(tmp_path, (2, 2)) == alone
    assert len(alone) == 60


def test_two_hosts_that_keep_in_step_give_the_same_tensors_and_each_drift_is_noticed(alone, tmp_path):
    mocks = str(half_a_t3000_each(tmp_path))
    *tensors, noticed = in_ranks(tmp_path, (1, 2), "--mock-cluster-rank-binding", mocks, SOFTMESH_LOCKSTEP="1")
    assert tensors == alone
    assert noticed == (
        "noticed order_of_ops order_of_allocations freed_by_one forgotten_by_one another_argument another_collective"
    )


def test_a_mesh_is_closed_while_another_on_the_same_ranks_goes_on(tmp_path):
    binding = ["--rank-binding", str(bindings(tmp_path, (1, 4), rows=4))]
    said = run([*warm_tt_run(), *binding, "--", sys.executable, str(PROGRAMS / "two_meshes.py")], tmp_path)
    assert told(said) == ["closed one after the other"]
