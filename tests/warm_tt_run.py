"""`tt-run` for the warm Python: the process that ranks are copies of is a copy itself, which need not load torch."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_STREAMS = (0, 1, 2)
_RECEIVED_AT_ONCE = 1 << 16


def serve(launcher: socket.socket) -> None:
    """Be the fork server of a job, once the launcher says of which."""
    os.setsid()
    launcher.sendall(b"!")
    text, descriptors, _, _ = socket.recv_fds(launcher, _RECEIVED_AT_ONCE, 2)
    while part := launcher.recv(_RECEIVED_AT_ONCE):
        text += part
    if not descriptors:
        return
    folder, environ = json.loads(text)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[1:1] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in _STREAMS:
        os.dup2(nowhere, stream)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (*_STREAMS, *descriptors):
            try:
                os.close(int(name))
            except OSError:
                continue  # it was that of the folder
    path = ROOT / "softmesh" / "processes" / "launcher" / "fork_server.py"
    runpy.run_path(str(path))["main"](*descriptors)


def launch(server: int, line_to_it: socket.socket) -> None:
    import softmesh_launcher

    softmesh_launcher._make_bare()
    from softmesh.processes.launcher import warm_start
    from softmesh.processes.launcher.job import Job
    from softmesh.processes.launcher.tt_run import tt_run

    def started(job: Job, environ: Mapping[str, str], listener: int, line: int) -> subprocess.Popen[bytes]:
        shared = dict(set.intersection(*(set(rank.environment.items()) for rank in job.ranks)))
        said = json.dumps([str(job.directory), {**environ, **shared}]).encode()
        line_to_it.recv(1)  # from here on it leads its session
        socket.send_fds(line_to_it, [said[:1]], [listener, line])
        line_to_it.sendall(said[1:])
        line_to_it.close()
        process = subprocess.Popen.__new__(subprocess.Popen)
        process.__dict__.update(pid=server, returncode=None, args=["fork_server.py"], _child_created=True)
        process.__dict__.update(stdin=None, stdout=None, stderr=None, _waitpid_lock=threading.Lock())
        return process

    warm_start._started = started
    tt_run(prog_name="tt-run")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    ours, theirs = socket.socketpair()
    process = os.fork()
    if process == 0:
        ours.close()
        serve(theirs)
    else:
        theirs.close()
        launch(process, ours)
