"""JAX and DTensor as peers: the same product of the same factors, placed alike, prepared and then repeated."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from softmesh.bench.peer_process import PeerProcess
from softmesh.bench.timing import Peer
from softmesh.bench.unified_work import Work

_JAX_WORKER = Path(__file__).with_name("jax_unified_worker.py")
_DTENSOR_WORKER = Path(__file__).with_name("dtensor_worker.py")


class UnifiedPeer:
    """A worker that multiplies when told to."""

    def __init__(self, process: PeerProcess) -> None:
        self._process = process

    def prepare(self, work: Work, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Give it the factors, and see what it makes of them."""
        folder = self._process.folder
        np.savez(folder / "factors.npz", a=a.numpy(), b=b.numpy())
        self._process.ask(prepare=work.order())
        return torch.from_numpy(np.load(folder / "result.npy"))

    def timed(self, seconds: float) -> Peer:
        """As `timing.timed`, with as many repetitions as fill this time."""
        repetitions = max(1, round(seconds / self._run(1)))
        return lambda: self._run(repetitions)

    def _run(self, repetitions: int) -> float:
        return float(self._process.ask(repeat=repetitions)["seconds"])


def jax_process(python: str) -> PeerProcess:
    return PeerProcess([python, str(_JAX_WORKER)])


def dtensor_process() -> PeerProcess:
    return PeerProcess([sys.executable, str(_DTENSOR_WORKER)])
