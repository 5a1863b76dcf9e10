"""One rank of a job of `softmesh bench mpi`: collectives of a mesh over several ranks, sockets, and raw mpi4py.

Started by tt-run on a mesh of 4 rows that has a column for each rank. A tensor that is split along the columns only
has one device's worth of bytes on each rank; one that is split both ways has four. Rank 0 writes what was measured.

    python big_mesh_rank.py RESULTS {"sizes": [65536, ...], "rounds": 15, "seconds": 0.01, "works": ["socket", ...]}
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import softmesh as ttnn
from softmesh.bench.harness import Peer, interleave, put
from softmesh.bench.mpi import NOTE, OURS, RAW, ROWS
from softmesh.processes.rank_reporter import REPORTS

_TILE = 32
_COLUMNS = 512
_LARGEST = 8  # small integers: their sums are exact in any order
_FIFO = 1 << 26
CHECKED, UNCHECKED = "with checks", "without"
_SHORT = 0.002  # seconds of a turn with or without checks: most of such turns are not disturbed
_NOTED = 100  # calls of a turn in CPU time


@dataclass(frozen=True)
class Trial:
    """The same bytes by both ways; `is_right` is told after each was called once."""

    ours: Callable[[], object]
    raw: Callable[[], object]
    is_right: Callable[[], bool]
    is_collective: bool = True


class Ends(NamedTuple):
    """A device of this rank's own, its neighbour, and the sockets to and from that one's."""

    mesh: ttnn.MeshDevice
    neighbour: int
    to: ttnn.MeshSocket
    back: ttnn.MeshSocket


def _socket(mesh: ttnn.MeshDevice, sender: int, receiver: int) -> ttnn.MeshSocket:
    core = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, int(sender > receiver)))
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.DRAM, _FIFO)
    connections = [ttnn.SocketConnection(core, core)]
    config = ttnn.SocketConfig(connections, memory, sender_rank=sender, receiver_rank=receiver)
    return ttnn.MeshSocket(mesh, config)


def _shape(nbytes: int) -> tuple[int, int]:
    """Rows and columns of float32."""
    columns = min(_COLUMNS, nbytes // 4 // _TILE)
    return nbytes // 4 // columns, columns


class Rank:
    """This process, its part of the mesh, and its place in MPI."""

    def __init__(self) -> None:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
        self.mesh = ttnn.open_mesh_device()
        from mpi4py import MPI

        self.MPI, self.world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size

    def operand(self, nbytes: int, devices: int) -> ttnn.Tensor:
        """A tensor of which each rank holds so many bytes, on one device or on its four."""
        rows, columns = _shape(nbytes // devices)
        draw = torch.Generator().manual_seed(0)
        shape = (devices * rows, self.size * columns)
        values = torch.randint(-_LARGEST, _LARGEST, shape, generator=draw).float()
        dims = (None if devices == 1 else 0, 1)
        return put(values, "float32", self.mesh, ttnn.ShardTensor2dMesh(self.mesh, (ROWS, self.size), dims=dims))

    @cached_property
    def ends(self) -> Ends:
        """Ranks 0 and 1 are neighbours, and 2 and 3."""
        parts = [
            self.mesh.create_submesh(ttnn.MeshShape(1, 1), ttnn.MeshCoordinate(0, column))
            for column in range(self.size)
        ]
        own, other = parts[self.rank], self.rank ^ 1
        low, high = sorted((self.rank, other))
        up, down = (_socket(own, *ranks) for ranks in ((low, high), (high, low)))
        return Ends(own, other, *((up, down) if self.rank == low else (down, up)))

    def slowest(self, seconds: float) -> float:
        return float(self.world.allreduce(seconds, self.MPI.MAX))

    def timed(self, call: Callable[[], object], repetitions: int) -> Peer:
        def peer() -> float:
            self.world.Barrier()
            start = time.perf_counter()
            for _ in range(repetitions):
                call()
            return self.slowest((time.perf_counter() - start) / repetitions)

        return peer

    def without_checks(self, peer: Peer) -> Peer:
        """The same, while no rank notes its calls for the others: the mesh says that there are none."""

        def unchecked() -> float:
            ranks, self.mesh.ranks = self.mesh.ranks, None
            try:
                return peer()
            finally:
                self.mesh.ranks = ranks

        return unchecked

    def checks(self, call: Callable[[], object], peer: Peer, rounds: int) -> dict[str, float]:
        """What notes of the calls add to it, in many short turns with and without them."""
        call()
        seen = interleave({CHECKED: peer, UNCHECKED: self.without_checks(peer)}, rounds, patience=math.inf)
        more, without = seen[CHECKED].above(seen[UNCHECKED]), seen[UNCHECKED].median
        return {"microseconds": 1e6 * more, "share": more / without}

    def note(self, rounds: int) -> dict[str, float]:
        """The same in CPU time, of a collective for which nobody waits: what all devices hold is not sent."""
        values = torch.ones(_TILE, _TILE)
        x = put(values, "float32", self.mesh, ttnn.ReplicateTensorToMesh(self.mesh))

        def peer() -> float:
            start = time.process_time()
            for _ in range(_NOTED):
                ttnn.all_reduce(x, cluster_axis=1)
            return (time.process_time() - start) / _NOTED

        return self.checks(peer, peer, rounds)


def all_reduce(rank: Rank, nbytes: int, devices: int) -> Trial:
    x = rank.operand(nbytes, devices)
    piece = np.ascontiguousarray(x.view_data().numpy())
    total = np.empty_like(piece)
    axis = 1 if devices == 1 else None

    def is_right() -> bool:
        expected = total.sum((0, 1), keepdims=True)
        return bool((ttnn.all_reduce(x, cluster_axis=axis).view_data().numpy() == expected).all())

    return Trial(lambda: ttnn.all_reduce(x, cluster_axis=axis), lambda: rank.world.Allreduce(piece, total), is_right)


def all_gather(rank: Rank, nbytes: int, devices: int) -> Trial:
    x = rank.operand(nbytes, devices)
    piece = np.ascontiguousarray(x.view_data().numpy())
    pieces = np.empty((rank.size, *piece.shape), piece.dtype)
    axis = 1 if devices == 1 else None

    def is_right() -> bool:
        ranks_last = np.moveaxis(pieces[:, :, 0], 0, 1)  # (devices, ranks, rows, columns)
        expected = ranks_last.reshape(-1, piece.shape[-1])
        return bool((ttnn.all_gather(x, 0, cluster_axis=axis).view_data().numpy() == expected).all())

    return Trial(
        lambda: ttnn.all_gather(x, 0, cluster_axis=axis),
        lambda: rank.world.Allgather(piece, pieces),
        is_right,
    )


def socket(rank: Rank, nbytes: int, devices: int) -> Trial:
    """There and back, between neighbours: two transfers one after the other."""
    mesh, other, to, back = rank.ends
    values = torch.full(_shape(nbytes), float(rank.rank))
    x, y = (put(values, "float32", mesh) for _ in range(2))
    sent, got = values.numpy(), np.empty(tuple(values.shape), np.float32)
    is_first = rank.rank < other

    def send() -> None:
        ttnn.experimental.send_async(x, to)

    def receive() -> None:
        ttnn.experimental.recv_async(y, back)
        ttnn.synchronize_device(mesh)

    return Trial(
        _there_and_back(send, receive, is_first),
        _there_and_back(lambda: rank.world.Send(sent, other), lambda: rank.world.Recv(got, other), is_first),
        lambda: bool((got == other).all() and (y.view_data().numpy() == other).all()),
        is_collective=False,
    )


def _there_and_back(send: Callable[[], object], receive: Callable[[], object], is_first: bool) -> Callable[[], object]:
    first, second = (send, receive) if is_first else (receive, send)

    def both() -> None:
        first()
        second()

    return both


WORKS: dict[str, tuple[Callable[[Rank, int, int], Trial], tuple[int, ...]]] = {
    "all_reduce": (all_reduce, (1, ROWS)),
    "all_gather": (all_gather, (1, ROWS)),
    "socket": (socket, (1,)),
}


def measured(rank: Rank, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in order["works"]:
        make, device_counts = WORKS[name]
        for devices in device_counts:
            for nbytes in order["sizes"]:
                yield {
                    "work": name,
                    "devices": devices,
                    "bytes": nbytes,
                    **compared(rank, make(rank, nbytes, devices), order),
                }


def compared(rank: Rank, trial: Trial, order: dict[str, Any]) -> dict[str, Any]:
    calls = {OURS: trial.ours, RAW: trial.raw}
    peers = {}
    for name, call in calls.items():
        call()
        once = rank.timed(call, 3)()
        peers[name] = rank.timed(call, max(1, round(order["seconds"] / once)))
    right = bool(rank.world.allreduce(trial.is_right(), rank.MPI.LAND))
    seen = interleave(peers, order["rounds"], patience=math.inf)  # all ranks as often
    return {
        "is_right": right,
        "microseconds": {name: 1e6 * timing.median for name, timing in seen.items()},
        "ratio": seen[OURS].relative_to(seen[RAW]),
        "checks": checks_of(rank, trial.ours, seen[OURS].median, order) if trial.is_collective else None,
    }


def checks_of(rank: Rank, call: Callable[[], object], seconds: float, order: dict[str, Any]) -> dict[str, float]:
    """`seconds` of one call are the same on all ranks: they are those of the slowest."""
    repetitions = max(1, round(_SHORT / seconds))
    rounds = min(order["most_pairs"], max(order["rounds"], round(order["pairing"] / (2 * repetitions * seconds))))
    return rank.checks(call, rank.timed(call, repetitions), rounds)


def main(argv: Sequence[str]) -> None:
    results, order = Path(argv[0]), json.loads(argv[1])
    if order.get("plain"):
        os.environ.pop(REPORTS, None)
    rank = Rank()
    rows = [rank.note(order["most_pairs"])] if order["works"] == [NOTE] else list(measured(rank, order))
    if rank.rank == 0:
        results.write_text(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
