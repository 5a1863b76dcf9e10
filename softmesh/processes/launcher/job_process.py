"""Runs mpirun to its end, or until a signal or a hang verdict ends it, and never leaves a process behind.

mpirun leads a session of its own. Its ranks are in process groups of theirs, but in that session, by which they are
found when mpirun itself can no longer end them.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from softmesh.processes.launcher import job_sweeper
from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.job_sweeper import Sweeper

SECONDS_TO_END = 3.0  # mpirun takes less than one where it is well
_SECONDS_BETWEEN_LOOKS = 0.1
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Outcome(NamedTuple):
    code: int
    was_stopped: bool  # by a signal to the launcher
    killed_by: int = 0  # the signal that ended mpirun itself


def run(
    command: Sequence[str],
    directory: Path,
    environ: Mapping[str, str],
    verdict: Callable[[], int | None] = lambda: None,
    sweeper: Sweeper | None = None,
) -> Outcome:
    """The exit code of the job: mpirun's own, or 128 + n where signal n stopped it (130 for Ctrl-C).

    `verdict` is asked all the while; a number that it returns ends the job with that code. `sweeper` is told
    the session of mpirun, and knows those of the job that there are besides.
    """
    began = time.time()
    with _signals_noted() as noted:
        process = _started(command, directory, environ)
        if sweeper is not None:
            sweeper.watch(process.pid)
        sessions = [process.pid] if sweeper is None else sweeper.sessions
        try:
            code, killed_by = _watched(process, noted, verdict)
        finally:
            _end(process, noted, environ, sessions)
            job_sweeper.remove_abandoned_segments(began)
    return Outcome(code, bool(noted), killed_by)


def _started(command: Sequence[str], directory: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(command), cwd=directory, env=dict(environ), start_new_session=True)
    except OSError as error:
        raise LaunchError(f"Error launching mpirun: {error.strerror or error}") from None


def _watched(process: subprocess.Popen[bytes], noted: list[int], verdict: Callable[[], int | None]) -> tuple[int, int]:
    """The exit code, and the signal that killed mpirun, or 0."""
    while True:
        try:
            code = process.wait(_SECONDS_BETWEEN_LOOKS)
            return (code, 0) if code >= 0 else (128 - code, -code)
        except subprocess.TimeoutExpired:
            pass
        if noted:
            return 128 + noted[0], 0
        judged = verdict()
        if judged is not None:
            return judged, 0


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Signals that ask for the end are written down instead; `run` looks at the list."""
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)

    before = {ending: signal.signal(ending, note) for ending in _ENDING}
    try:
        yield noted
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)


def _end(
    process: subprocess.Popen[bytes], noted: list[int], environ: Mapping[str, str], sessions: Sequence[int]
) -> None:
    """Ask mpirun to end its ranks; what is still there after a while, or at a second Ctrl-C, is killed."""
    segments = job_sweeper.segments_of(job_sweeper.members_of(sessions))
    if process.poll() is None:
        process.terminate()
        asked = len(noted)
        deadline = time.monotonic() + SECONDS_TO_END
        while process.poll() is None and time.monotonic() < deadline and len(noted) == asked:
            time.sleep(_SECONDS_BETWEEN_LOOKS / 4)
    has_cleaned_up = process.poll() is not None and process.returncode >= 0
    end_session(process)
    if not has_cleaned_up:
        job_sweeper.remove(segments)
        job_sweeper.remove_folder_of_mpirun(process.pid, job_sweeper.temporary_folder(environ))


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill what still runs of the session that this process leads."""
    job_sweeper.kill(job_sweeper.members_of([process.pid]))
    process.wait()
