"""Open MPI as a peer: 8 processes that sleep until told to run a collective."""

from __future__ import annotations

import shutil
from pathlib import Path

from softmesh.bench.peer_process import PeerMissing, PeerProcess

PROCESSES = 8
WORKER = Path(__file__).with_name("mpi_worker.py")
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # containers have no other


def mpi_process(python: str, processes: int = PROCESSES) -> PeerProcess:
    # More processes than cores: none is tied to one, and who waits lets others work.
    sharing_cores = ["--oversubscribe", "--bind-to", "none"]
    command = [launcher(python), "-n", str(processes), *sharing_cores, python, str(WORKER)]
    return PeerProcess(command, _AS_ROOT)


def launcher(python: str) -> str:
    """The mpirun that came with this interpreter's packages, else the one on the PATH."""
    found = shutil.which(python)
    if found is None:
        raise PeerMissing(f"cannot start {python}: No such file or directory")
    beside = Path(found).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise PeerMissing(f"there is no mpirun beside {python} or on the PATH")
    return mpirun
