"""Sweeps up after a job: ends what still runs of its sessions, and removes what nobody can remove any more.

    python job_sweeper.py LINE TEMPORARY

does so when the launcher itself is gone: LINE is the file descriptor of a pipe, which tells of the sessions (the last
is that of mpirun) and closes with the launcher. Run by its path, with nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import glob
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_SECONDS_TO_END = 1.0  # for an mpirun whose launcher is gone
_SECONDS_BETWEEN_LOOKS = 0.02
_OPEN_MPI_SEGMENT = re.compile(r"/dev/shm/sm_segment\.\S*")
_OWN_SEGMENTS = "/dev/shm/softmesh_*"
_LOCK = struct.Struct("hhqqi4x")  # of the C library: type, whence, start, length, process
_OVER = b"over"


class Sweeper:
    """The process that watches over the launcher; told which sessions belong to the job."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.sessions: list[int] = []
        theirs, self._line = os.pipe()
        command = [sys.executable, "-I", "-S", __file__, str(theirs), temporary_folder(environ)]
        silent = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, pass_fds=(theirs,), stdin=silent, stdout=silent, stderr=silent, start_new_session=True
        )
        os.close(theirs)

    def watch(self, session: int) -> None:
        self.sessions.append(session)
        with suppress(BrokenPipeError):  # it was killed: the job goes on without
            os.write(self._line, b"%d\n" % session)

    def close(self) -> None:
        """The launcher has done all this itself."""
        with suppress(BrokenPipeError):
            os.write(self._line, _OVER + b"\n")
        os.close(self._line)
        self._process.wait()


@contextmanager
def swept(environ: Mapping[str, str]) -> Iterator[Sweeper]:
    sweeper = Sweeper(environ)
    try:
        yield sweeper
    finally:
        sweeper.close()


def temporary_folder(environ: Mapping[str, str]) -> str:
    """Where mpirun keeps what its ranks meet at."""
    places = (environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next(filter(None, places), "/tmp")


def remove_folder_of_mpirun(leader: int, temporary: str) -> None:
    """It removes the folder itself, unless it is killed."""
    shutil.rmtree(os.path.join(temporary, f"ompi.{leader}"), ignore_errors=True)


def members_of(sessions: Iterable[int]) -> list[int]:
    """The processes of sessions that still run; the system's process table tells."""
    found, leaders = [], set(sessions)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold anything; after it: state, parent, group, session.
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in leaders and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def segments_of(processes: Iterable[int]) -> set[str]:
    """The files of Open MPI in shared memory that processes have mapped."""
    found: set[str] = set()
    for process in processes:
        with suppress(OSError):
            found.update(_OPEN_MPI_SEGMENT.findall(Path(f"/proc/{process}/maps").read_text(errors="replace")))
    return found


def kill(processes: Sequence[int]) -> None:
    """At once, with the shared memory that they can then no longer remove themselves."""
    segments = segments_of(processes)
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    remove(segments)


def remove(segments: Iterable[str]) -> None:
    for segment in segments:
        with suppress(OSError):
            os.unlink(segment)


def remove_abandoned_segments(since: float) -> None:
    """Those of softmesh that were made after that time by processes that are gone."""
    for path in glob.glob(_OWN_SEGMENTS):
        with suppress(OSError):
            made = os.lstat(path)
            if (
                stat.S_ISREG(made.st_mode)
                and made.st_uid == os.getuid()
                and made.st_mtime >= since
                and _is_abandoned(path)
            ):
                os.unlink(path)


def _is_abandoned(path: str) -> bool:
    """Whether its maker, who locks it for as long as it lives, does so no longer."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def _sweep(sessions: Sequence[int], temporary: str, since: float) -> None:
    members = members_of(sessions)
    segments = segments_of(members)
    for mpirun in sessions[-1:]:
        with suppress(ProcessLookupError):
            os.kill(mpirun, signal.SIGTERM)  # it ends its ranks
    deadline = time.monotonic() + _SECONDS_TO_END
    while members and time.monotonic() < deadline:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        members = members_of(sessions[-1:])
    while members := members_of(sessions):
        kill(members)
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    remove(segments)
    remove_abandoned_segments(since)
    for mpirun in sessions[-1:]:
        remove_folder_of_mpirun(mpirun, temporary)


def main(line: int, temporary: str) -> None:
    since = time.time()
    said = b""
    while part := os.read(line, 4096):
        said += part
    words = said.split()
    if _OVER not in words:
        _sweep([int(word) for word in words], temporary, since)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
