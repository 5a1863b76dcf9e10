"""The launcher's hang explainer: a server that collects ranks' reports, and says why the job hangs or who ended it.

    with Explainer(ranks=8, on_verdict=end_the_job) as explainer:
        environ["SOFTMESH_REPORTS"] = explainer.address
        code = run_mpirun(environ)
        explainer.job_ended(failed=code != 0)

Listens in a thread of its own. A verdict is printed once and handed to `on_verdict`, from that thread.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from softmesh.processes import program_location
from softmesh.processes.hang_verdict import ANSWERS_WITHIN, Cause, RankState, Verdict, explained
from softmesh.processes.job_state import JobState
from softmesh.processes.program_location import is_stopped, user_site
from softmesh.processes.rank_reporter import LONGEST_LINE
from softmesh.processes.wait_report import Site, text
from softmesh.processes.waits import timeout as waiting_timeout
from softmesh.terminal_text import printable

_LOOKED_EVERY = 0.1
_ASKED_EVERY = 0.5
_STACK_WITHIN = 0.5
_MOST_FRAMES = 100
_MOST_UNIDENTIFIED = 256
_SECONDS_TO_IDENTIFY = 5.0


class _Connection:
    """One connection: what came and is no whole line yet, and whose it is once it introduced itself."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.came = time.monotonic()
        self.rank: int | None = None
        self.process = 0  # its number, where it is one of this machine
        self.stack: list[Site] | None = None  # once it was asked for
        self.partial = b""


class Explainer:
    """`host` is the address ranks reach the launcher at: the loopback unless there are several hosts."""

    def __init__(
        self,
        ranks: int,
        *,
        host: str = "127.0.0.1",
        timeout: float | None = None,
        stream: IO[str] | None = None,
        on_verdict: Callable[[Verdict], object] | None = None,
    ) -> None:
        self._job = JobState(ranks, waiting_timeout() if timeout is None else timeout)
        self._lock = threading.Lock()
        self._stream, self._on_verdict = stream, on_verdict
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server((host, 0), backlog=max(128, ranks))
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}#{self._token}"
        self.verdict: Verdict | None = None
        self._stacks_due = 0.0
        self._connections: dict[socket.socket, _Connection] = {}
        self._processes: dict[int, int] = {}  # of ranks on this machine
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="softmesh explainer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Explainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def process_died(self, rank: int, how: str) -> None:
        """The launcher saw a rank end: `how` as in `exited on signal 9 (Killed)`."""
        with self._lock:
            self._job.process_died(rank, how, time.monotonic())

    def job_ended(self, *, failed: bool, how: str = "") -> Verdict | None:
        """Call once mpirun is gone; `failed` unless it ended well or the user stopped it."""
        self.close()
        if failed and self.verdict is None:
            self._announce(self._job.decide_at_end(time.monotonic(), how))
        return self.verdict

    def ranks(self) -> dict[int, tuple[RankState, int]]:
        """The state of each rank, and its process: 0 where it is on another machine, or never reported."""
        with self._lock:
            return {rank: (state, self._processes.get(rank, 0)) for rank, state in self._job.states.items()}

    def have_ended_with(self, cause: str) -> bool:
        """Once mpirun is gone: True if a process of a rank is known to have ended for this cause."""
        self.close()
        return cause in self._job.exits.values()

    def was_ended_from_outside(self) -> bool:
        """Once mpirun is gone: whether it ended its ranks because it was told to, and none of them failed."""
        self.close()
        return self.verdict is None and self._job.was_ended_from_outside

    def has_heard_nothing(self) -> bool:
        """Once mpirun is gone: whether no rank joined, and none was seen to end."""
        self.close()
        return self.verdict is None and self._job.has_heard_nothing

    def close(self) -> None:
        self._closing.set()
        self._thread.join(5.0)

    def _listen(self) -> None:
        asked = 0.0
        with selectors.DefaultSelector() as ready, self._listener:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._closing.is_set():
                self._receive_all(ready, _LOOKED_EVERY)
                now = time.monotonic()
                self._dismiss_unidentified(ready, now)
                self._decide(now)
                if now - asked >= (_LOOKED_EVERY if self._job.suspicious else _ASKED_EVERY):
                    self._poll_ranks()
                    asked = now
            self._receive_all(ready, 0.0)  # what the ranks said last
            for line in list(self._connections):
                self._disconnect(ready, line)

    def _receive_all(self, ready: selectors.BaseSelector, seconds: float) -> None:
        for key, _ in ready.select(seconds):
            if key.fileobj is self._listener:
                self._accept(ready)
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._connections:
                self._receive(ready, self._connections[key.fileobj])

    def _accept(self, ready: selectors.BaseSelector) -> None:
        try:
            line, _ = self._listener.accept()
        except OSError:  # gone again, or too many files are open
            self._dismiss_unidentified(ready, time.monotonic(), most=0)
            return
        line.setblocking(False)
        connection = self._connections[line] = _Connection(line)
        ready.register(line, selectors.EVENT_READ)
        self._receive(ready, connection)  # a rank introduces itself at once

    def _dismiss_unidentified(self, ready: selectors.BaseSelector, now: float, most: int = _MOST_UNIDENTIFIED) -> None:
        """No rank is kept out by connections that say nothing: those that came first go first."""
        strangers = [connection for connection in self._connections.values() if connection.rank is None]
        for number, connection in enumerate(strangers):
            if number < len(strangers) - most or now - connection.came > _SECONDS_TO_IDENTIFY:
                self._disconnect(ready, connection.line)

    def _receive(self, ready: selectors.BaseSelector, connection: _Connection) -> None:
        try:
            data = connection.line.recv(LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, connection.partial = (connection.partial + data).split(b"\n")
        strange = [line for line in lines if not self._handled(connection, line)]
        if not data or strange or len(connection.partial) > LONGEST_LINE:
            self._disconnect(ready, connection.line)

    def _handled(self, connection: _Connection, line: bytes) -> bool:
        if connection.stack is not None and self._is_stack_line(connection, line.decode(errors="replace")):
            return True
        try:
            message = json.loads(line)
            if connection.rank is None:
                return self._authenticated(connection, message)
            with self._lock:
                self._job.update(connection.rank, message, time.monotonic())
                raised = self._job.has_raised(connection.rank)
        except Exception:  # whatever a stranger sends, this thread goes on
            return False
        if raised:
            self._poll_ranks()  # where the others are while they are still there
        return True

    def _authenticated(self, connection: _Connection, message: Any) -> bool:
        if not secrets.compare_digest(str(message["token"]).encode(), self._token.encode()):
            return False
        rank = int(message["rank"])
        if "exit" in message:
            with self._lock:
                self._job.process_exited(rank, text(message["exit"]))
            return False  # it says no more
        connection.rank = rank
        if message.get("host") == socket.gethostname():
            connection.process = self._processes[rank] = int(message.get("pid", 0))
        with self._lock:
            self._job.update(connection.rank, {"state": "computing"}, time.monotonic())
        return True

    def _is_stack_line(self, connection: _Connection, said: str) -> bool:
        if connection.stack is None or connection.rank is None or not program_location.is_stack_line(said):
            return False
        frame = program_location.parse_frame(said)
        if frame is not None and len(connection.stack) < _MOST_FRAMES:
            connection.stack.append(frame)
            with self._lock:
                self._job.sampled(connection.rank, user_site(connection.stack))
        return True

    def _disconnect(self, ready: selectors.BaseSelector, line: socket.socket) -> None:
        connection = self._connections.pop(line)
        ready.unregister(line)
        line.close()
        if connection.rank is not None:
            with self._lock:
                self._job.connection_closed(connection.rank, time.monotonic())

    def _poll_ranks(self) -> None:
        for connection in self._connections.values():
            if connection.rank is not None:
                with contextlib.suppress(OSError):
                    connection.line.send(b"where\n")
                if connection.process:
                    with self._lock:
                        self._job.stopped(connection.rank, is_stopped(connection.process))

    def _decide(self, now: float) -> None:
        if self.verdict is None:
            with self._lock:
                found = self._job.decide(now)
            if found is None or not self._stacks_are_due(found, now):
                self._announce(found)

    def _stacks_are_due(self, found: Verdict, now: float) -> bool:
        """Whether the odd ranks of a deadline do not answer and were, just now, asked by other means."""
        if found.cause is Cause.DEADLINE and not self._stacks_due:
            late = [rank for rank in found.odd if found.states[rank].quiet > ANSWERS_WITHIN]
            unheard = [connection for connection in self._connections.values() if connection.rank in late]
            asked = [connection for connection in unheard if self._stack_requested(connection)]
            self._stacks_due = now + _STACK_WITHIN if asked else 0.0
        return now < self._stacks_due

    def _stack_requested(self, connection: _Connection) -> bool:
        connection.stack = []
        return bool(connection.process) and program_location.request_stack(connection.process, self.address)

    def _announce(self, found: Verdict | None) -> None:
        if found is None:
            return
        self.verdict = found
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more: the job ends all the same
            print(printable(explained(found)), file=self._stream or sys.stderr, flush=True)
        if self._on_verdict is not None:
            self._on_verdict(found)
