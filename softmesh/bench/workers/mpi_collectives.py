"""The collectives of `softmesh bench collectives` in MPI, one process for each device.

A program of its own, for an interpreter that has mpi4py and numpy and need not have softmesh:
`mpirun -n 8 python mpi_collectives.py FOLDER`. Rank 0 takes the orders of order_loop.py:

    {"prepare": collective, "dtype": ..., "devices": 8, "shape": [rows, columns]}
        reads each rank's rows from FOLDER/operand.npy, leaves the result in FOLDER/result.npy

A rank that waits inside MPI keeps a core busy, so orders go from rank 0 to the others through named pipes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import order_loop  # type: ignore[import-not-found]
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h

Result = Callable[[], "np.ndarray | None"]  # in the order of `Work`, on rank 0


def all_reduce(piece: np.ndarray) -> tuple[Callable[[], object], Result]:
    total = np.empty_like(piece)
    return lambda: WORLD.Allreduce(piece, total), lambda: total


def all_gather(piece: np.ndarray) -> tuple[Callable[[], object], Result]:
    pieces = np.empty((WORLD.size, *piece.shape), piece.dtype)

    def joined() -> np.ndarray | None:
        return np.concatenate(list(pieces), axis=1) if WORLD.rank == 0 else None

    return lambda: WORLD.Allgather(piece, pieces), joined


def reduce_scatter(piece: np.ndarray) -> tuple[Callable[[], object], Result]:
    """MPI deals out consecutive chunks: the columns of each rank are laid together beforehand."""
    packed = np.stack(np.split(piece, WORLD.size, axis=1))
    own = np.empty_like(packed[0])

    def stacked() -> np.ndarray | None:
        dealt = WORLD.gather(own)
        return None if dealt is None else np.concatenate(dealt)

    return lambda: WORLD.Reduce_scatter_block(packed, own), stacked


COLLECTIVES = {"all_reduce": all_reduce, "all_gather": all_gather, "reduce_scatter": reduce_scatter}


def prepare(folder: Path, order: dict[str, Any]) -> Callable[[], object]:
    whole = np.load(folder / "operand.npy", mmap_mode="r")
    piece = np.array(np.split(whole, WORLD.size)[WORLD.rank]).reshape(order["shape"])
    call, result = COLLECTIVES[order["prepare"]](piece)
    call()
    found = result()
    if WORLD.rank == 0:
        assert found is not None
        np.save(folder / "result.npy", found)
    WORLD.Barrier()
    return call


def seconds_of_slowest(call: Callable[[], object], repetitions: int) -> float:
    WORLD.Barrier()
    return float(WORLD.allreduce(order_loop.seconds_of(call, repetitions), MPI.MAX))


def say(**answer: object) -> None:
    if WORLD.rank == 0:
        order_loop.say(**answer)


def orders_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The same orders on every rank."""
    pipes = [folder / f"orders-{rank}" for rank in range(1, WORLD.size)]
    if WORLD.rank == 0:
        for pipe in pipes:
            os.mkfifo(pipe)
    WORLD.Barrier()
    if WORLD.rank > 0:
        with open(pipes[WORLD.rank - 1]) as lines:
            yield from map(json.loads, lines)
        return
    others: list[TextIO] = [open(pipe, "w", buffering=1) for pipe in pipes]  # noqa: SIM115
    say(ready=f"{MPI.Get_library_version().split(',')[0]}, {WORLD.size} processes")
    for line in sys.stdin:
        for other in others:
            other.write(line)
        yield json.loads(line)
    for other in others:
        other.close()


def end_with_launcher() -> None:
    """A launcher that is killed takes us with it."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    end_with_launcher()
    order_loop.serve(orders_of(Path(sys.argv[1])), prepare, seconds_of_slowest, say)
