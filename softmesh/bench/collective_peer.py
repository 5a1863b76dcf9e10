"""What JAX and MPI have in common as peers: one collective at a time, prepared, checked, then repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch

from softmesh.bench.collectives_work import Work
from softmesh.bench.peer_process import PeerMissing, PeerProcess
from softmesh.bench.timing import Peer

JAX_WORKER = Path(__file__).with_name("jax_collectives_worker.py")
_BITS = {"float32": torch.float32, "bfloat16": torch.uint16}  # numpy has no bfloat16


class CollectivePeer:
    """Runs the collective of a `Work` on as many workers of its own as the work has devices."""

    def __init__(self, process: PeerProcess) -> None:
        self._process = process

    def prepare(self, work: Work, operand: torch.Tensor) -> torch.Tensor:
        """Give it the devices' pieces, and see what it makes of them."""
        bits = _BITS[work.dtype]
        folder = self._process.folder
        np.save(folder / "operand.npy", operand.view(bits).numpy())
        self._process.ask(
            prepare=work.collective, dtype=work.dtype, devices=work.devices, shape=[work.rows, work.columns]
        )
        return torch.from_numpy(np.load(folder / "result.npy")).view(operand.dtype)

    def timed(self, seconds: float) -> Peer:
        """As `timing.timed`, with as many repetitions as fill this time."""
        repetitions = max(1, round(seconds / self._run(1)))
        return lambda: self._run(repetitions)

    def release(self) -> None:
        """Let go of the memory of the last work; its files go too."""
        self._process.ask(release=True)
        for name in ("operand.npy", "result.npy"):
            (self._process.folder / name).unlink(missing_ok=True)

    def _run(self, repetitions: int) -> float:
        return float(self._process.ask(repeat=repetitions)["seconds"])


@contextmanager
def peer_or_note(
    name: str, python: str, packages: str, start: Callable[[], PeerProcess]
) -> Iterator[tuple[CollectivePeer | None, str]]:
    """The peer where `python` runs it, and what to say of it."""
    with ExitStack() as stack:
        try:
            process = stack.enter_context(start())
        except PeerMissing as cause:
            yield (
                None,
                (
                    f"{name} is left out: {python} does not run it ({cause}). Install it with pip install {packages}, "
                    f"or name an interpreter that has it: --{name.lower()}-python PATH."
                ),
            )
        else:
            yield CollectivePeer(process), f"{name}: {process.version}"


def jax_process(python: str) -> PeerProcess:
    return PeerProcess([python, str(JAX_WORKER)])
