"""A peer in a process of its own, which works when told to: it takes turns with the others of a run.

It may run under another interpreter. It is given a folder, says {"ready": version}, then answers each
line of JSON with one of its own. No wait is longer than a deadline, and none of it is left afterwards.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from softmesh.errors import SoftmeshError

_DEADLINE = 120.0  # seconds for one answer; that may include compiling
_PATIENCE = 10.0  # seconds for a worker to leave on its own


class PeerMissing(SoftmeshError):
    """The peer does not run here, or went away."""


class PeerProcess:
    """Use as a context manager; `command` is given the folder's name as its last argument."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> PeerProcess:
        self._made = tempfile.TemporaryDirectory(prefix="softmesh-bench-")
        self.folder = Path(self._made.name)
        try:
            self._start()
        except OSError as error:
            self._made.cleanup()
            raise PeerMissing(f"cannot start {self._command[0]}: {error.strerror}") from error
        try:
            self.version: str = self._answer()["ready"]
        except PeerMissing:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, **order: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerMissing(self._last_words()) from None
        return self._answer()

    def _start(self) -> None:
        with open(self.folder / "errors", "wb") as errors:
            self._process = subprocess.Popen(
                [*self._command, str(self.folder)],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        with _killed_after(_DEADLINE, self._process):
            line = self._process.stdout.readline()
        if not line:
            raise PeerMissing(self._last_words())
        try:
            return dict(json.loads(line))
        except ValueError:
            raise PeerMissing(f"{self._command[0]} answered {line.strip()[:80]!r}") from None

    def _last_words(self) -> str:
        """The line of its complaint that names the cause; launchers add to what the program said."""
        said = (self.folder / "errors").read_text(errors="replace").splitlines()
        named = [line for line in said if re.match(r"[\w.]+(Error|Exception)\b", line)]
        spoken = named[:1] or [line.strip() for line in said if re.search(r"\w", line)][-1:]
        return spoken[0] if spoken else f"{self._command[0]} gave no answer; it has {_DEADLINE:.0f} s for one"

    def _end(self) -> None:
        """A launcher must see its workers off, so it is asked first: end of input, then SIGTERM."""
        process = self._process
        for ask in (_close_input, subprocess.Popen.terminate):
            ask(process)
            try:
                process.wait(_PATIENCE)
                break
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        self._made.cleanup()


def _close_input(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()


@contextmanager
def _killed_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
