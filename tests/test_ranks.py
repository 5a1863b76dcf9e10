"""Real jobs over MPI: few and small, each bounded in time, none leaving a process or memory behind."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from marked_jobs import MARK, SECONDS_TO_VANISH, Segments, once_gone
from warm_python import copies, warm_python

from softmesh.processes.explainer import Explainer
from softmesh.processes.hang_verdict import Cause

pytestmark = pytest.mark.usefixtures("mpi")

PROGRAMS = Path(__file__).parent / "fixtures" / "ranks"
MPIRUN = Path(sys.executable).with_name("mpirun")
SECONDS = 150.0  # of a job that takes a few, on a machine that may be busy


class Job:
    """One run of mpirun, and what came of it."""

    def __init__(self, ranks, program, *arguments, environ=None, parts=None):
        apart = [[*part, *warm_python(), str(PROGRAMS / program), *arguments] for part in parts or [["-n", str(ranks)]]]
        self.command = [str(MPIRUN), "--oversubscribe", "--bind-to", "none"]
        for index, part in enumerate(apart):
            self.command += [*([":"] if index else []), *part]
        self.verdict = None
        self.mark = uuid.uuid4().hex
        self.told = threading.Event()
        with Explainer(ranks, timeout=SECONDS, on_verdict=lambda _: self.told.set()) as explainer:
            with Segments(self.mark) as segments:
                self._run({"SOFTMESH_REPORTS": explainer.address, MARK: self.mark, **(environ or {})})
            self.left += once_gone(segments.left)
            self.verdict = explainer.job_ended(failed=self.code != 0)

    def _run(self, environ):
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "TT_"))}
        process = subprocess.Popen(
            self.command,
            env=clean | allowed | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        reader = threading.Thread(target=lambda: setattr(self, "output", process.stdout.read()))
        reader.start()
        try:
            self._watch(process)
        finally:
            for member in members_of_job(process.pid):
                os.kill(member, signal.SIGKILL)
            reader.join()
            process.stdout.close()
        self.code = process.wait()

    def _watch(self, process):
        end = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < end:
            if self.told.wait(0.05):
                process.terminate()
                break
        process.wait(SECONDS_TO_VANISH)
        self.left = list(once_gone(lambda: members_of_job(process.pid)))


def members_of_job(leader):
    """The processes of its session, and the ranks, which are copies."""
    found = copies()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def test_three_ranks_use_everything_a_context_offers():
    job = Job(3, "context_functions.py")
    assert "3 ranks agree" in job.output, job.output
    assert (job.code, job.verdict, job.left) == (0, None, [])


def test_a_job_is_split_into_sub_contexts():
    sizes = ["-x", "TT_RUN_SUBCONTEXT_SIZES=1,2"]
    parts = [["-n", str(n), *sizes, "-x", f"TT_RUN_SUBCONTEXT_ID={id}"] for id, n in enumerate((1, 2))]
    job = Job(3, "subcontexts.py", parts=parts)
    assert "both parts agree" in job.output, job.output
    assert (job.code, job.left) == (0, [])


def test_crossed_messages_are_found_as_a_cycle():
    job = Job(2, "mishaps.py", "crossed_messages")
    assert job.verdict is not None, job.output
    assert (job.verdict.cause, job.verdict.odd) == (Cause.CYCLE, (0, 1))
    assert (job.code != 0, job.left) == (True, [])


def test_messages_of_one_size_that_are_for_different_calls_are_told_apart():
    job = Job(3, "mishaps.py", "other_collective_of_the_same_size")
    assert job.verdict is not None, job.output
    assert (job.verdict.cause, job.verdict.odd) == (Cause.MISMATCH, (2,))
    assert "nobody noticed" not in job.output
    assert (job.code != 0, job.left) == (True, [])
