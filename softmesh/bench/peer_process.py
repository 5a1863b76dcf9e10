"""Benchmark peers in processes of their own (JAX, Open MPI, DDP), which work on request and take turns.

A peer may run under another interpreter. It is given a folder, says {"ready": version}, then answers each
line of JSON with one of its own. No wait is longer than a deadline, and no process or file is left afterwards.
JAX's virtual devices must be asked for before jax is imported, so it never runs in this process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from softmesh.bench.harness import Peer
from softmesh.errors import SoftmeshError

_DEADLINE = 120.0  # seconds for one answer; that may include compiling
_PATIENCE = 10.0  # seconds for a worker to leave on its own


class PeerMissing(SoftmeshError):
    """The peer does not run here, or went away."""


_Process = TypeVar("_Process", bound="PeerProcess")


class PeerProcess:
    """Use as a context manager; `command` is given the folder's name as its last argument."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self: _Process) -> _Process:
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

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, **order: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerMissing(self._last_words()) from None
        return self._answer()

    def run(self, repetitions: int) -> float:
        """Seconds of one call of what it has prepared."""
        return float(self.ask(repeat=repetitions)["seconds"])

    def timed(self, seconds: float) -> Peer:
        """As `harness.timed`, with as many repetitions as fill this time."""
        repetitions = max(1, round(seconds / self.run(1)))
        return lambda: self.run(repetitions)

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


@contextmanager
def peer_or_note(
    name: str, start: Callable[[], _Process], refusal: str = "it does not run here", remedy: str = ""
) -> Iterator[tuple[_Process | None, str]]:
    """The peer where it runs, and what to say of it."""
    with ExitStack() as stack:
        try:
            process = start()
            stack.enter_context(process)
        except PeerMissing as cause:
            yield None, f"{name} is left out: {refusal} ({cause}). {remedy}".rstrip()
        else:
            yield process, f"{name}: {process.version}"


def interpreted(name: str, python: str, packages: str) -> dict[str, str]:
    """What `peer_or_note` says of a peer that the interpreter named by --NAME-python cannot run."""
    remedy = (
        f"Install it with pip install {packages}, or name an interpreter that has it: --{name.lower()}-python PATH."
    )
    return {"refusal": f"{python} does not run it", "remedy": remedy}


PROCESSES = 8
_WORKERS = Path(__file__).with_name("workers")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # containers have no other


def worker(name: str) -> str:
    return str(_WORKERS / name)


def jax_worker(python: str, name: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a worker with 8 virtual CPU devices, which jax asks for as it is imported."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={PROCESSES}"
    return [python, worker(name)], {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def bare_mpirun(python: str, processes: int, program: Sequence[str]) -> list[str]:
    # More processes than cores: none is tied to one, and who waits lets others work.
    sharing_cores = ["--oversubscribe", "--bind-to", "none"]
    return [launcher(python), "-n", str(processes), *sharing_cores, python, *program]


def launcher(python: str) -> str:
    """The mpirun that came with this interpreter's packages, else the one on the PATH."""
    found = shutil.which(python)
    if found is None:
        raise PeerMissing(f"cannot start {python}: No such file or directory")
    beside = Path(found).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise PeerMissing(f"there is no mpirun beside {python} or on the PATH")
    return mpirun
