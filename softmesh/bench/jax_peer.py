"""JAX as a peer: a process that runs its MLP when told to, so that it can take turns with the others.

It may run under another interpreter, and its 8 virtual devices must be asked for before jax is imported.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from softmesh.errors import SoftmeshError

WORKER = Path(__file__).with_name("jax_worker.py")
_DEADLINE = 120.0  # seconds for one answer; the first of each kind includes compiling


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
        with _killed_after(_DEADLINE, self._worker):
            line = self._worker.stdout.readline()
        if not line:
            said = self._worker.stderr.read().strip().splitlines()
            raise JaxMissing(said[-1] if said else f"{self._command[0]} gave no answer in {_DEADLINE:.0f} s")
        return dict(json.loads(line))

    def _end(self) -> None:
        self._worker.kill()
        self._worker.communicate()
        self._folder.cleanup()


@contextmanager
def _killed_after(seconds: float, worker: subprocess.Popen[str]) -> Iterator[None]:
    timer = threading.Timer(seconds, worker.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
