"""Fork client: started by mpirun as a rank, it lets the fork server make the rank, and forwards signals and exit.

    python fork_client.py NAME PYTHON [ARGUMENTS]

asks at the socket of that name for `python arguments`, hands over its standard streams, and becomes that program
itself where nobody answers. Run by its path, with nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType

_LENGTH = struct.Struct("<I")
_PEER = struct.Struct("iII")  # process, user, group
WITH_ITS_SERVER = "ended with the warm process, of which it was a copy"
_SECONDS = 60.0  # a machine with many ranks may be slow to load torch
_SECONDS_TO_REPORT = 1.0
_SECONDS_BETWEEN_TRIES = 0.02
_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")


def request_fork(name: str, argv: list[str]) -> tuple[socket.socket, int] | None:
    """The line to the warm process, and the process that was made; None where there is none."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(_SECONDS)
    mask = os.umask(0)
    os.umask(mask)
    order = {
        "argv": argv,
        "environ": dict(os.environ),
        "folder": os.getcwd(),
        "mask": mask,
        "cores": sorted(os.sched_getaffinity(0)),
    }
    text = json.dumps(order).encode()
    try:
        _connect(line, "\0" + name)
        if _PEER.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1] != os.getuid():
            return None  # the name is free once the server has ended, and others can read it
        socket.send_fds(line, [_LENGTH.pack(len(text))], [0, 1, 2])
        line.sendall(text)
        answer = _next_line(line)
    except OSError:
        return None
    return (line, int(answer)) if answer else None


def _connect(line: socket.socket, place: str) -> None:
    """Also where many want to at once: a queue that is full is not waited for by itself."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return line.connect(place)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_SECONDS_BETWEEN_TRIES)


def _next_line(line: socket.socket) -> bytes:
    found = bytearray()
    while not found.endswith(b"\n"):
        part = line.recv(1)
        if not part:
            return b""
        found += part
    return bytes(found)


class Signals:
    """Noted until it is known which process they are for."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._noted: list[int] = []
        for name in _FORWARDED:
            signal.signal(getattr(signal, name), self._received)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._process is None:
            self._noted.append(number)
        else:
            _signal(self._process, number)

    def forward_to(self, process: int) -> None:
        self._process = process
        for number in self._noted:
            _signal(process, number)

    def keep(self) -> None:
        """They were for this process itself."""
        for name in _FORWARDED:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        for number in self._noted:
            os.kill(os.getpid(), number)


def _signal(process: int, number: int) -> None:
    for kill in (os.killpg, os.kill):  # it leads a group as soon as it runs
        try:
            kill(process, number)
            return
        except ProcessLookupError:
            continue


def report_exit(how: str, environ: Mapping[str, str]) -> None:
    """Tell the launcher how the rank ended: one that ends at once, as by `os._exit`, cannot do so itself."""
    place, _, token = environ.get("SOFTMESH_REPORTS", "").partition("#")
    host, _, port = place.rpartition(":")
    rank = environ.get("OMPI_COMM_WORLD_RANK", "")
    with suppress(OSError, ValueError), socket.create_connection((host, int(port)), _SECONDS_TO_REPORT) as line:
        line.sendall(json.dumps({"token": token, "rank": int(rank), "exit": how}).encode() + b"\n")


def how_it_ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)} ({signal.Signals(os.WTERMSIG(status)).name})"
    return f"exit code {os.WEXITSTATUS(status)} without the end of its program, as by os._exit"


def exit_like(status: int) -> None:
    """As the other process ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def main(name: str, command: list[str]) -> None:
    signals = Signals()
    made = request_fork(name, command[1:])
    if made is None:
        signals.keep()
        os.execvp(command[0], command)
    line, process = made
    signals.forward_to(process)
    line.settimeout(None)
    answer = _next_line(line)
    report_exit(how_it_ended(int(answer)) if answer else WITH_ITS_SERVER, os.environ)
    exit_like(int(answer) if answer else signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
