"""A Python that has torch loaded, for the programs that tests start: to load it is most of what a start costs.

`warm_python()` is used in place of `sys.executable`, and `warm_tt_run()` in place of `tt-run`, where loading torch is
not what a test is about.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

_LAUNCHER = Path(__file__).parents[1] / "softmesh" / "processes" / "launcher"
_SECONDS_TO_END = 30.0


class _Server:
    """A fork server of the launcher. It ends when the pipe to it closes, at the latest with this process."""

    def __init__(self) -> None:
        self.name = f"softmesh-tests-{secrets.token_hex(8)}"
        line, self._line = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind("\0" + self.name)
            listener.listen()
            self.process = subprocess.Popen(
                [sys.executable, str(_LAUNCHER / "fork_server.py"), str(listener.fileno()), str(line)],
                pass_fds=(listener.fileno(), line),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        os.close(line)

    def close(self) -> None:
        os.close(self._line)
        try:
            self.process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:  # a copy goes on; it ends with the server
            self.process.kill()
            self.process.wait()


@cache
def _server() -> _Server:
    return _Server()


def warm_python() -> list[str]:
    """Start of a command that runs a file, `-m` or `-c`. It takes no other options of Python.

    A command loads torch itself where its environment differs in what Python or torch read when they are loaded.
    """
    if not hasattr(os, "pidfd_open"):
        return [sys.executable]
    return [sys.executable, "-I", "-S", str(_LAUNCHER / "fork_client.py"), _server().name, sys.executable]


def warm_tt_run() -> list[str]:
    return [*warm_python(), str(Path(__file__).with_name("warm_tt_run.py"))]


def copies() -> list[int]:
    """The processes that run such commands now, and theirs: they do not show the environment that they were given."""
    return _children(_server().process.pid) if _server.cache_info().currsize else []


def _children(process: int) -> list[int]:
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [one for child in map(int, found) for one in (child, *_children(child))]


def end_warm_python() -> None:
    if _server.cache_info().currsize:
        _server().close()
        _server.cache_clear()
