"""The launcher's ear: collects what ranks report, and says why the job hangs or who took it down.

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
from types import TracebackType
from typing import IO, Any

from softmesh.processes import stack_sample
from softmesh.processes.board import Board
from softmesh.processes.reports import LONGEST_LINE
from softmesh.processes.verdict import Cause, Verdict
from softmesh.processes.verdict_text import explained
from softmesh.processes.wait_report import Site
from softmesh.processes.waiting import timeout as waiting_timeout
from softmesh.processes.whereabouts import users_site

_LOOKED_EVERY = 0.1
_ASKED_EVERY = 0.5
_ANSWERS_WITHIN = 2.0
_STACK_WITHIN = 0.5
_MOST_FRAMES = 100
_MOST_STRANGERS = 64


class _Caller:
    """One connection: what came and is no whole line yet, and whose it is once it introduced itself."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
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
        self._board = Board(ranks, waiting_timeout() if timeout is None else timeout)
        self._lock = threading.Lock()
        self._stream, self._on_verdict = stream, on_verdict
        self._token = secrets.token_hex(16)
        self._door = socket.create_server((host, 0), backlog=max(128, ranks))
        self._door.setblocking(False)
        self.address = f"{host}:{self._door.getsockname()[1]}#{self._token}"
        self.verdict: Verdict | None = None
        self._stacks_due = 0.0
        self._most_callers = ranks + _MOST_STRANGERS
        self._callers: dict[socket.socket, _Caller] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="softmesh explainer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Explainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def process_died(self, rank: int, how: str) -> None:
        """The launcher saw a rank end: `how` as in `exited on signal 9 (Killed)`."""
        with self._lock:
            self._board.process_died(rank, how, time.monotonic())

    def job_ended(self, *, failed: bool, how: str = "") -> Verdict | None:
        """Call once mpirun is gone; `failed` unless it ended well or the user stopped it."""
        self.close()
        if failed and self.verdict is None:
            self._announce(self._board.decide_at_end(time.monotonic(), how))
        return self.verdict

    def close(self) -> None:
        self._closing.set()
        self._thread.join(5.0)

    def _listen(self) -> None:
        asked = 0.0
        with selectors.DefaultSelector() as ready, self._door:
            ready.register(self._door, selectors.EVENT_READ)
            while not self._closing.is_set():
                self._hear_all(ready, _LOOKED_EVERY)
                now = time.monotonic()
                self._decide(now)
                if now - asked >= (_LOOKED_EVERY if self._board.suspicious else _ASKED_EVERY):
                    self._ask()
                    asked = now
            self._hear_all(ready, 0.0)  # what the ranks said last
            for line in list(self._callers):
                self._hang_up(ready, line)

    def _hear_all(self, ready: selectors.BaseSelector, seconds: float) -> None:
        for key, _ in ready.select(seconds):
            if key.fileobj is self._door:
                self._admit(ready)
            elif isinstance(key.fileobj, socket.socket):
                self._hear(ready, self._callers[key.fileobj])

    def _admit(self, ready: selectors.BaseSelector) -> None:
        with contextlib.suppress(OSError):
            line, _ = self._door.accept()
            if len(self._callers) >= self._most_callers:
                line.close()
                return
            line.setblocking(False)
            self._callers[line] = _Caller(line)
            ready.register(line, selectors.EVENT_READ)

    def _hear(self, ready: selectors.BaseSelector, caller: _Caller) -> None:
        try:
            data = caller.line.recv(LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, caller.partial = (caller.partial + data).split(b"\n")
        strange = [line for line in lines if not self._understood(caller, line)]
        if not data or strange or len(caller.partial) > LONGEST_LINE:
            self._hang_up(ready, caller.line)

    def _understood(self, caller: _Caller, line: bytes) -> bool:
        if caller.stack is not None and self._is_of_its_stack(caller, line.decode(errors="replace")):
            return True
        try:
            message = json.loads(line)
            if caller.rank is None:
                return self._introduced(caller, message)
            with self._lock:
                self._board.hear(caller.rank, message, time.monotonic())
                raised = self._board.has_raised(caller.rank)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        if raised:
            self._ask()  # where the others are while they are still there
        return True

    def _introduced(self, caller: _Caller, message: Any) -> bool:
        if not secrets.compare_digest(str(message["token"]).encode(), self._token.encode()):
            return False
        caller.rank = int(message["rank"])
        if message.get("host") == socket.gethostname():
            caller.process = int(message.get("pid", 0))
        with self._lock:
            self._board.hear(caller.rank, {"state": "computing"}, time.monotonic())
        return True

    def _is_of_its_stack(self, caller: _Caller, text: str) -> bool:
        if caller.stack is None or caller.rank is None or not stack_sample.is_part_of_a_stack(text):
            return False
        frame = stack_sample.frame_in(text)
        if frame is not None and len(caller.stack) < _MOST_FRAMES:
            caller.stack.append(frame)
            with self._lock:
                self._board.sampled(caller.rank, users_site(caller.stack))
        return True

    def _hang_up(self, ready: selectors.BaseSelector, line: socket.socket) -> None:
        caller = self._callers.pop(line)
        ready.unregister(line)
        line.close()
        if caller.rank is not None:
            with self._lock:
                self._board.line_closed(caller.rank, time.monotonic())

    def _ask(self) -> None:
        for caller in self._callers.values():
            if caller.rank is not None:
                with contextlib.suppress(OSError):
                    caller.line.send(b"where\n")

    def _decide(self, now: float) -> None:
        if self.verdict is None:
            with self._lock:
                found = self._board.decide(now)
            if found is None or not self._stacks_are_due(found, now):
                self._announce(found)

    def _stacks_are_due(self, found: Verdict, now: float) -> bool:
        """Whether the odd ranks of a deadline do not answer and were, just now, asked by other means."""
        if found.cause is Cause.DEADLINE and not self._stacks_due:
            late = [rank for rank in found.odd if found.states[rank].quiet > _ANSWERS_WITHIN]
            unheard = [caller for caller in self._callers.values() if caller.rank in late]
            asked = [caller for caller in unheard if self._asked_for_stack(caller)]
            self._stacks_due = now + _STACK_WITHIN if asked else 0.0
        return now < self._stacks_due

    def _asked_for_stack(self, caller: _Caller) -> bool:
        caller.stack = []
        return bool(caller.process) and stack_sample.ask(caller.process, self.address)

    def _announce(self, found: Verdict | None) -> None:
        if found is None:
            return
        self.verdict = found
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more: the job ends all the same
            print(explained(found), file=self._stream or sys.stderr, flush=True)
        if self._on_verdict is not None:
            self._on_verdict(found)
