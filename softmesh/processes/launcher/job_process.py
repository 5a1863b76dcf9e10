"""Runs mpirun to its end, or until a signal or a hang verdict ends it, and never leaves a process behind.

mpirun leads a session of its own. Its ranks are in process groups of theirs, but in that session, by which they are
found when mpirun itself can no longer end them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from softmesh.processes.launcher.console import LaunchError

SECONDS_TO_END = 3.0  # mpirun takes less than one where it is well
_SECONDS_BETWEEN_LOOKS = 0.1
_SEGMENT = re.compile(r"/dev/shm/(?:sm_segment\.|softmesh)\S*")
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Outcome(NamedTuple):
    code: int
    was_stopped: bool  # by a signal to the launcher


def run(
    command: Sequence[str],
    directory: Path,
    environ: Mapping[str, str],
    verdict: Callable[[], int | None] = lambda: None,
) -> Outcome:
    """The exit code of the job: mpirun's own, or 128 + n where signal n stopped it (130 for Ctrl-C).

    `verdict` is asked all the while; a number that it returns ends the job with that code.
    """
    with _signals_noted() as noted:
        process = _started(command, directory, environ)
        try:
            code = _watched(process, noted, verdict)
        finally:
            _end(process, noted, environ)
    return Outcome(code, was_stopped=bool(noted))


def _started(command: Sequence[str], directory: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(command), cwd=directory, env=dict(environ), start_new_session=True)
    except OSError as error:
        raise LaunchError(f"Error launching mpirun: {error.strerror or error}") from None


def _watched(process: subprocess.Popen[bytes], noted: list[int], verdict: Callable[[], int | None]) -> int:
    while True:
        try:
            code = process.wait(_SECONDS_BETWEEN_LOOKS)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            pass
        if noted:
            return 128 + noted[0]
        judged = verdict()
        if judged is not None:
            return judged


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


def _end(process: subprocess.Popen[bytes], noted: list[int], environ: Mapping[str, str]) -> None:
    """Ask mpirun to end its ranks; what is still there after a while, or at a second Ctrl-C, is killed."""
    if process.poll() is None:
        process.terminate()
        asked = len(noted)
        deadline = time.monotonic() + SECONDS_TO_END
        while process.poll() is None and time.monotonic() < deadline and len(noted) == asked:
            time.sleep(_SECONDS_BETWEEN_LOOKS / 4)
    has_cleaned_up = process.poll() is not None
    end_session(process)
    if not has_cleaned_up:
        shutil.rmtree(_folder_of_mpirun(process.pid, environ), ignore_errors=True)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill what still runs of the session that this process leads."""
    _kill(members_of_session(process.pid))
    process.wait()


def _folder_of_mpirun(leader: int, environ: Mapping[str, str]) -> Path:
    """Where it keeps what its ranks meet at; it removes the folder itself, unless it is killed."""
    places = (environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return Path(next(filter(None, places), "/tmp"), f"ompi.{leader}")


def _kill(members: Sequence[int]) -> None:
    """At once, with the shared memory that they can then no longer remove themselves."""
    segments = {segment for member in members for segment in _segments_of(member)}
    for member in members:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    for segment in segments:
        with suppress(OSError):
            os.unlink(segment)


def _segments_of(process: int) -> set[str]:
    """The files of Open MPI and softmesh in shared memory that a process has mapped."""
    try:
        maps = Path(f"/proc/{process}/maps").read_text(errors="replace")
    except OSError:
        return set()
    return set(_SEGMENT.findall(maps))


def members_of_session(leader: int) -> list[int]:
    """The processes of a session that still run; the system's process table tells."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold anything; after it: state, parent, group, session.
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found
