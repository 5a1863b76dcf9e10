"""The jobs of `softmesh bench mpi`: a mesh over several ranks, started by tt-run, and processes by bare mpirun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softmesh.bench.mpi_peer import launcher
from softmesh.bench.peer_process import PeerMissing

OURS, RAW = "softmesh", "mpi4py"
ROWS = 4  # devices of each rank
WORKER = Path(__file__).with_name("mpi_ranks.py")
STARTER = Path(__file__).with_name("mpi_start.py")
_TT_RUN = Path(__file__).parents[2] / "softmesh_launcher.py"
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_DEADLINE = 900.0  # seconds of one job


def check_engine() -> None:
    """Raise PeerMissing, with the reason, where no job can be started."""
    launcher(sys.executable)
    try:
        import mpi4py  # noqa: F401
    except ImportError as error:
        raise PeerMissing(f"mpi4py cannot be imported: {error}") from error


def descriptor(ranks: int) -> str:
    """A mesh with a column for each rank."""
    return (
        'mesh_descriptors {\n  name: "M" arch: WORMHOLE_B0\n'
        f"  device_topology {{ dims: [ {ROWS}, {ranks} ] }} host_topology {{ dims: [ 1, {ranks} ] }}\n"
        "  channels { count: 2 policy: RELAXED }\n}\n"
        'top_level_instance { mesh { mesh_descriptor: "M" mesh_id: 0 } }\n'
    )


def binding(ranks: int, graph: Path) -> str:
    rows = [f"  - {{ rank: {i}, mesh_id: 0, mesh_host_rank: {i} }}" for i in range(ranks)]
    return "\n".join(["rank_bindings:", *rows, f"mesh_graph_desc_path: {graph}", ""])


def tt_run(ranks: int, folder: Path, program: Sequence[str]) -> list[str]:
    """The command of a job in which each rank holds a column of the mesh."""
    graph, bound = folder / f"mesh{ranks}.textproto", folder / f"ranks{ranks}.yaml"
    graph.write_text(descriptor(ranks))
    bound.write_text(binding(ranks, graph))
    return [sys.executable, str(_TT_RUN), "--rank-binding", str(bound), "--", *program]


def bare_mpirun(ranks: int, program: Sequence[str]) -> list[str]:
    sharing_cores = ["--oversubscribe", "--bind-to", "none"]
    return [launcher(sys.executable), "-n", str(ranks), *sharing_cores, *program]


def measured_by_ranks(ranks: int, folder: Path, order: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the ranks of one job have measured."""
    results = folder / "results.json"
    _run(tt_run(ranks, folder, [sys.executable, str(WORKER), str(results), json.dumps(order)]))
    found: list[dict[str, Any]] = json.loads(results.read_text())
    results.unlink()
    return found


def seconds_to_start(ranks: int, folder: Path, kind: str) -> float:
    """From the command until all ranks are there."""
    told = folder / "started"
    program = [sys.executable, str(STARTER), str(told), kind]
    command = tt_run(ranks, folder, program) if kind == "softmesh" else bare_mpirun(ranks, program)
    begun = time.time()
    _run(command)
    seconds = float(told.read_text()) - begun
    told.unlink()
    return seconds


def _run(command: Sequence[str]) -> None:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "TT_"))
    }
    try:
        job = subprocess.run(
            command, env=environ | _AS_ROOT, capture_output=True, text=True, timeout=_DEADLINE, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise PeerMissing(f"a job did not end within {_DEADLINE:.0f} s") from late
    if job.returncode != 0:
        raise PeerMissing(f"a job failed:\n{job.stderr[-2000:]}")
