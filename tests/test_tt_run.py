"""`tt-run` with real processes: few ranks, small programs, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("mpi")

FIXTURES = Path(__file__).parent / "fixtures" / "bindings"
LONGEST = 120  # seconds; a launch takes two where the machine is idle
TT_RUN = [sys.executable, str(Path(__file__).parents[1] / "softmesh_launcher.py")]
REPORTING = """
import json, os, sys
names = ("TT_RUN_RANK", "TT_MESH_ID", "TT_VISIBLE_DEVICES", "TT_LOGGER_LEVEL", "SOFTMESH_REPORTS")
told = {name: os.environ.get(name) for name in names} | {"size": os.environ["OMPI_COMM_WORLD_SIZE"]}
with open(f"told{os.environ['TT_RUN_RANK']}.json", "w") as file:
    json.dump(told, file)
sys.exit(int(sys.argv[1]) if os.environ["TT_RUN_RANK"] == "1" else 0)
"""
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
with open("unfinished" + os.environ["TT_RUN_RANK"], "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(file.name, "pids" + os.environ["TT_RUN_RANK"])
time.sleep(100)
"""


ABSENT = """
import sys
from softmesh.processes import context_api
context_api.init_distributed_context()
if int(context_api.distributed_context_get_rank()) == 0:
    context_api.distributed_context_barrier()
"""


@pytest.fixture
def environ() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "SOFTMESH_"))}
    return {**kept, "TT_METAL_HOME": str(FIXTURES)}


def command(folder: Path, program: str, *arguments: str) -> list[str]:
    script = folder / "program.py"
    script.write_text(program)
    binding = ["--rank-binding", str(FIXTURES / "two_meshes.yaml")]
    return [*TT_RUN, *binding, "--", sys.executable, str(script), *arguments]


def test_every_rank_runs_in_its_own_environment_and_the_exit_code_is_the_programs(tmp_path, environ):
    line = command(tmp_path, REPORTING, "7")
    done = subprocess.run(line, cwd=tmp_path, env=environ, timeout=LONGEST, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    first, second = (json.loads((tmp_path / f"told{rank}.json").read_text()) for rank in range(2))
    assert (first["TT_MESH_ID"], second["TT_MESH_ID"]) == ("0", "1")
    assert (first["TT_VISIBLE_DEVICES"], second["TT_VISIBLE_DEVICES"]) == ("0,1", "2,3")
    assert first["TT_LOGGER_LEVEL"] == second["TT_LOGGER_LEVEL"] == "Info"
    assert first["SOFTMESH_REPORTS"] == second["SOFTMESH_REPORTS"] is not None
    assert first["size"] == second["size"] == "2"


def test_import_ttnn_means_softmesh_in_a_rank(tmp_path, environ):
    """Also for a user without a home, as services are."""
    del environ["HOME"]
    line = command(tmp_path, "import ttnn, ttnn.errors; print(ttnn.__name__, ttnn.errors.__name__)")
    done = subprocess.run(line, cwd=tmp_path, env=environ, timeout=LONGEST, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("softmesh softmesh.errors") == 2


def test_a_job_that_cannot_go_on_is_ended_with_a_report(tmp_path, environ):
    line = command(tmp_path, ABSENT)
    done = subprocess.run(line, cwd=tmp_path, env=environ, timeout=LONGEST, capture_output=True, text=True)
    assert done.returncode == 1
    assert "rank 1 is missing from barrier" in done.stderr
    assert "program.py:6" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_every_process_of_the_job(tmp_path, environ, number, code):
    launcher = subprocess.Popen(command(tmp_path, STUBBORN), cwd=tmp_path, env=environ)
    try:
        pids = [pid for rank in range(2) for pid in _pids(tmp_path / f"pids{rank}", launcher)]
        launcher.send_signal(number)
        assert launcher.wait(LONGEST) == code
    finally:
        launcher.kill()
        launcher.wait()
    assert len(pids) == 4
    _wait_until(lambda: not any(_runs(pid) for pid in pids))


def _pids(file: Path, launcher: subprocess.Popen[bytes]) -> list[int]:
    _wait_until(lambda: file.exists() or launcher.poll() is not None)
    return [int(pid) for pid in file.read_text().split()]


def _wait_until(holds) -> None:
    deadline = time.monotonic() + LONGEST
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
