"""The connection from a rank to its launcher: small JSON messages, sent by a thread of their own.

Nothing here can hold up or break the program: the thread that computes only leaves a message, and where no launcher
listens (SOFTMESH_REPORTS is not set, or the connection is gone) messages are dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from softmesh.processes.program_location import dump_stack_on_signal
from softmesh.processes.wait_report import LONGEST_TEXT

REPORTS = "SOFTMESH_REPORTS"
KEEP_OTHERS = "SOFTMESH_KEEP_OTHERS"  # set where a rank that raises is not to end the job
LONGEST_LINE = 64 * 1024
_CONNECT_SECONDS = 2.0
_SEND_SECONDS = 2.0
_MOST_WAITING = 64
# Ranks that give up do so at nearly the same moment, and the first one ends them all.
_OTHERS_SPEAK = 1.0

Message = dict[str, object]


def split_address(address: str) -> tuple[str, int, str]:
    """`127.0.0.1:4321#token` -> host, port, token. The token keeps strangers of the same host out."""
    place, _, token = address.partition("#")
    host, _, port = place.rpartition(":")
    return host, int(port), token


def encoded(message: Message) -> bytes:
    """One line, never longer than LONGEST_LINE."""
    line = json.dumps(message).encode() + b"\n"
    return line if len(line) <= LONGEST_LINE else b'{"state": "unclear"}\n'


class Reporter:
    """Speaks for one rank. `where` tells what the program is doing; it is asked from the thread."""

    def __init__(self, address: str, rank: int, size: int, where: Callable[[], Message]) -> None:
        self.address, self.where = address, where
        self.hello: Message = {"rank": rank, "size": size, "pid": os.getpid(), "host": socket.gethostname()}
        self._messages: deque[Message | Callable[[], Message]] = deque(maxlen=_MOST_WAITING)
        self._idle = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self.alive = True
        self._thread = threading.Thread(target=self._run, name="softmesh reports", daemon=True)
        self._thread.start()

    def send(self, message: Message | Callable[[], Message]) -> None:
        """A function is called when its turn to be sent comes."""
        self._messages.append(message)
        self._idle.clear()
        with contextlib.suppress(OSError):
            self._wake.send(b"x")

    def flush(self, seconds: float) -> None:
        """Wait until what was said is sent, but no longer than this."""
        if self.alive:
            self._idle.wait(seconds)

    def _run(self) -> None:
        try:
            self._serve()
        except Exception:  # a launcher that went away, or talks nonsense, must not disturb the program
            pass
        finally:
            self.alive = False
            self._idle.set()

    def _serve(self) -> None:
        host, port, token = split_address(self.address)
        with (
            socket.create_connection((host, port), _CONNECT_SECONDS) as line,
            selectors.DefaultSelector() as ready,
            dump_stack_on_signal(line.fileno()),
        ):
            line.settimeout(_SEND_SECONDS)
            line.sendall(encoded({**self.hello, "token": token}))
            ready.register(line, selectors.EVENT_READ)
            ready.register(self._woken, selectors.EVENT_READ)
            while True:
                self._send_all(line)
                for key, _ in ready.select():
                    if key.fileobj is line and not self._answer(line):
                        return
                    if key.fileobj is self._woken:
                        self._woken.recv(4096)

    def _send_all(self, line: socket.socket) -> None:
        while self._messages:
            message = self._messages.popleft()
            line.sendall(encoded(message() if callable(message) else message))
        self._idle.set()

    def _answer(self, line: socket.socket) -> bool:
        """Whatever the launcher sends is the question where we are; False once it is gone."""
        if not (question := line.recv(4096)):
            return False
        line.sendall(encoded({**self.where(), "asked": question.count(b"\n")}))
        return True


_reporter: Reporter | None = None


def start(rank: int, size: int, where: Callable[[], Message]) -> None:
    """Connect to the launcher, where there is one."""
    global _reporter
    if address := os.environ.get(REPORTS):
        _reporter = Reporter(address, rank, size, where)


def connected() -> bool:
    return _reporter is not None and _reporter.alive


def send(message: Message | Callable[[], Message]) -> None:
    if _reporter is not None:
        _reporter.send(message)


def send_last(message: Message) -> None:
    """Say it and give it a moment to arrive: the process is about to end.

    Where nobody listens, an error was told on stderr, as others may be about to do.
    """
    if _reporter is not None:
        _reporter.send({**_reporter.where(), **message})
        _reporter.flush(1.0)
    elif message["state"] == "raised":
        time.sleep(_OTHERS_SPEAK)


def send_anew(message: Message) -> None:
    """Say it on a connection of its own: that of the reporter was closed."""
    if _reporter is not None:
        with contextlib.suppress(OSError, ValueError):
            host, port, token = split_address(_reporter.address)
            with socket.create_connection((host, port), _CONNECT_SECONDS) as line:
                line.sendall(encoded({**_reporter.hello, "token": token}) + encoded(message))


def finished(last: str, exit: str = "", site: list[object] | None = None) -> Message:
    """`exit` is how the program ended itself, where it did: `sys.exit(3)`."""
    return {"state": "finished", "last": last[:LONGEST_TEXT], "exit": exit[:LONGEST_TEXT], "site": site or []}


def raised(error: str, site: list[object], last: str) -> Message:
    return {"state": "raised", "error": error[:LONGEST_TEXT], "site": site, "last": last[:LONGEST_TEXT]}
