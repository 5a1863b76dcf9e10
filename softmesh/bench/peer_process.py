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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

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


PROCESSES = 8
MPI_WORKER = Path(__file__).with_name("workers") / "mpi_collectives.py"
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # containers have no other


def mpi_process(python: str, processes: int = PROCESSES) -> PeerProcess:
    # More processes than cores: none is tied to one, and who waits lets others work.
    sharing_cores = ["--oversubscribe", "--bind-to", "none"]
    command = [launcher(python), "-n", str(processes), *sharing_cores, python, str(MPI_WORKER)]
    return PeerProcess(command, _AS_ROOT)


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


JAX_MLP_WORKER = Path(__file__).with_name("workers") / "jax_mlp.py"
_JAX_DEADLINE = 120.0  # seconds for one answer; the first of each kind includes compiling


class JaxMissing(SoftmeshError):
    """The interpreter that was to run JAX cannot."""


class JaxPeer:
    """Use as a context manager; ends the worker on leaving.

    `command` starts the worker and is given the folder with the operands; `operands[dtype]` are its
    float32 arrays by name.
    """

    def __init__(self, command: Sequence[str], operands: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        self._command = command
        self._operands = operands

    def __enter__(self) -> JaxPeer:
        self._folder = tempfile.TemporaryDirectory(prefix="softmesh-bench-")
        for dtype, arrays in self._operands.items():
            np.savez(Path(self._folder.name) / f"{dtype}.npz", **arrays)  # type: ignore[arg-type]
        try:
            self._worker = subprocess.Popen(
                [*self._command, self._folder.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            self._folder.cleanup()
            raise JaxMissing(f"cannot start {self._command[0]}: {error.strerror}") from error
        try:
            self.version: str = self._answer()["ready"]
        except JaxMissing:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, dtype: str, form: str) -> float:
        """Seconds of one call."""
        assert self._worker.stdin is not None
        self._worker.stdin.write(f"{dtype} {form}\n")
        self._worker.stdin.flush()
        return float(self._answer()["seconds"])

    def result(self, dtype: str, form: str) -> np.ndarray:
        """What the MLP gave, once it has run."""
        return np.load(Path(self._folder.name) / f"{dtype}.{form}.npy")

    def _answer(self) -> dict[str, Any]:
        assert self._worker.stdout is not None
        assert self._worker.stderr is not None
        with _jax_killed_after(_JAX_DEADLINE, self._worker):
            line = self._worker.stdout.readline()
        if not line:
            said = self._worker.stderr.read().strip().splitlines()
            raise JaxMissing(
                said[-1] if said else f"{self._command[0]} gave no answer in {_JAX_DEADLINE:.0f} s"
            )
        return dict(json.loads(line))

    def _end(self) -> None:
        self._worker.kill()
        self._worker.communicate()
        self._folder.cleanup()


@contextmanager
def _jax_killed_after(seconds: float, worker: subprocess.Popen[str]) -> Iterator[None]:
    timer = threading.Timer(seconds, worker.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
