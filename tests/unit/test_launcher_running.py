"""Running a job: its exit code, its end at a signal or a verdict, and what is swept up after it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from softmesh.processes.launcher import job_process
from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.job_process import Outcome, run
from softmesh.processes.launcher.job_sweeper import members_of

# Starts a process in a group of its own, as mpirun does; both would sleep for long, and neither minds SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", sleep], preexec_fn=os.setpgrp)
with open("unfinished", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("unfinished", "pids")
time.sleep(60)
"""


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.fixture
def quick_end(monkeypatch):
    monkeypatch.setattr(job_process, "SECONDS_TO_END", 0.2)


@pytest.mark.parametrize(
    ("program", "code"),
    [("", 0), ("raise SystemExit(7)", 7), ("raise SystemExit(137)", 137)],
)
def test_the_exit_code_is_that_of_the_command(tmp_path, program, code):
    assert run(python(program), tmp_path, os.environ) == Outcome(code, was_stopped=False)


def test_the_signal_that_killed_the_command_is_told_apart_from_its_exit_code(tmp_path):
    outcome = run(python("import os; os.kill(os.getpid(), 9)"), tmp_path, os.environ)
    assert outcome == Outcome(137, was_stopped=False, killed_by=9)


def test_the_command_runs_where_and_as_it_is_told(tmp_path):
    run(python("import os; open('told', 'w').write(os.environ['WORD'])"), tmp_path, {"WORD": "hello"})
    assert (tmp_path / "told").read_text() == "hello"


def test_a_command_that_cannot_start_is_an_error_of_the_launch(tmp_path):
    with pytest.raises(LaunchError, match="Error launching mpirun: "):
        run([str(tmp_path / "none")], tmp_path, os.environ)


def test_a_verdict_ends_the_job_and_everything_in_it(tmp_path, quick_end):
    outcome = run(python(STUBBORN), tmp_path, os.environ, lambda: 3 if (tmp_path / "pids").exists() else None)
    assert outcome == Outcome(3, was_stopped=False)
    assert_gone(tmp_path)


def test_a_signal_to_the_launcher_ends_the_job_and_everything_in_it(tmp_path, quick_end):
    def interrupt() -> None:
        wait_until(lambda: (tmp_path / "pids").exists())
        os.kill(os.getpid(), signal.SIGTERM)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    assert run(python(STUBBORN), tmp_path, os.environ) == Outcome(143, was_stopped=True)
    interrupter.join()
    assert_gone(tmp_path)


def test_a_process_that_outlives_the_job_is_swept_up(tmp_path):
    orphaning = STUBBORN.rpartition("time.sleep")[0]
    assert run(python(orphaning), tmp_path, os.environ).code == 0
    assert_gone(tmp_path)


def test_shared_memory_of_a_killed_process_is_removed(tmp_path, quick_end):
    segment = Path(f"/dev/shm/softmesh_test_{os.getpid()}")
    opened = f"import mmap; file = open('{segment}', 'w+b'); file.truncate(4096)"
    mapping = f"{opened}; kept = mmap.mmap(file.fileno(), 4096)\n"
    try:
        run(
            python(mapping + STUBBORN),
            tmp_path,
            os.environ,
            lambda: 1 if (tmp_path / "pids").exists() else None,
        )
        assert not segment.exists()
    finally:
        segment.unlink(missing_ok=True)


def test_what_mpirun_keeps_for_its_ranks_is_removed_where_it_had_to_be_killed(tmp_path, quick_end):
    keeping = "import os; os.makedirs(f'ompi.{os.getpid()}/1/0')\n"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    run(python(keeping + STUBBORN), tmp_path, environ, lambda: 1 if (tmp_path / "pids").exists() else None)
    assert [path.name for path in tmp_path.iterdir()] == ["pids"]


def test_signals_are_the_programs_own_again_afterwards(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    run(python(""), tmp_path, os.environ)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_session_that_nobody_is_in_has_no_members():
    assert members_of([2**22 + 1]) == []


def assert_gone(folder: Path) -> None:
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert len(pids) == 2
    wait_until(lambda: not any(runs(pid) for pid in pids))


def wait_until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
