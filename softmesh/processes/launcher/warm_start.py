"""Warm start of a job: starts the fork server, and puts a fork client in place of each rank that is local Python.

SOFTMESH_WARM_START=0 turns it off.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from softmesh.processes.launcher.console import LaunchError
from softmesh.processes.launcher.job import Job
from softmesh.processes.launcher.job_process import end_session
from softmesh.processes.launcher.mpirun import Rank

WARM_START = "SOFTMESH_WARM_START"
LOCKSTEP = "SOFTMESH_LOCKSTEP"
_FORK_SERVER, _FORK_CLIENT = (Path(__file__).with_name(name) for name in ("fork_server.py", "fork_client.py"))
_WITH_ARGUMENT = ("-m", "-c")
_LONGEST_QUEUE = 1024  # connections that wait while torch is loaded


@contextmanager
def with_fork_server(
    job: Job, environ: Mapping[str, str], started: Callable[[subprocess.Popen[bytes]], None] = lambda _: None
) -> Iterator[Job]:
    """The job with clients for its ranks; the same job where each must load everything itself.

    `started` is told the fork server, which leads a session.
    """
    if not can_warm_start(job, environ):
        yield job
        return
    name = f"softmesh-{secrets.token_hex(8)}"
    ours, theirs = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)  # in no folder, and seen by processes of this network alone
        listener.listen(_LONGEST_QUEUE)
        process = _started(job, environ, listener.fileno(), ours)
    os.close(ours)
    started(process)
    try:
        yield replace(job, ranks=tuple(_client_rank(rank, name) for rank in job.ranks))
    finally:
        os.close(theirs)
        end_session(process)


def _started(job: Job, environ: Mapping[str, str], listener: int, line: int) -> subprocess.Popen[bytes]:
    """In the environment that all ranks share."""
    shared = dict(set.intersection(*(set(rank.environment.items()) for rank in job.ranks)))
    of_mpi = {"OMPI_COMM_WORLD_LOCAL_SIZE": str(len(job.ranks))}  # by which torch chooses its number of threads
    return subprocess.Popen(
        [sys.executable, str(_FORK_SERVER), str(listener), str(line)],
        cwd=job.directory,
        env={**environ, **shared, **of_mpi},
        pass_fds=(listener, line),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _client_rank(rank: Rank, name: str) -> Rank:
    return Rank(rank.environment, (sys.executable, "-I", "-S", str(_FORK_CLIENT), name, *rank.program))


def can_warm_start(job: Job, environ: Mapping[str, str]) -> bool:
    """Several ranks, all on this machine, and each of them plainly this Python with a program.

    Copies hash alike, and so run through sets in one order, which processes of their own would not: who compares
    the ranks' steps wants to see that.
    """
    settings = {**environ, **job.ranks[0].environment}
    asked = settings.get(WARM_START, "").strip()
    if asked not in ("", "0", "1"):
        raise LaunchError(f"{WARM_START}={asked[:20]!r}: set it to 0 to let each rank load torch itself, or to 1.")
    return (
        asked != "0"
        and settings.get(LOCKSTEP, "") in ("", "0")
        and hasattr(os, "pidfd_open")
        and len(job.ranks) > 1
        and job.stays_here(environ)
        and all(is_plain_python(rank.program, rank.environment.get("PATH", "")) for rank in job.ranks)
    )


def is_plain_python(program: Sequence[str], path: str) -> bool:
    """Whether it is `python file.py ...`, `python -m ...` or `python -c ...`, of the environment of this process."""
    found = shutil.which(program[0], path=path) if program else None
    if found is None or os.path.dirname(os.path.abspath(found)) != os.path.dirname(sys.executable):
        return False
    if not os.path.samefile(found, sys.executable) or len(program) < 2:
        return False
    first = program[1]
    return len(program) > 2 if first in _WITH_ARGUMENT else os.path.isfile(first) and not first.startswith("-")
