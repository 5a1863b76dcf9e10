"""The workload of `softmesh bench collectives`: on a mesh, as a torch expression, as a bare copy, and in JAX and MPI.

Each device holds rows x columns of small integers, so that a sum is exact in any order and every peer's
result is checked bit for bit. Gathering and scattering go along the columns: along the rows, what
`all_gather` gives is the memory of its operand, and there is nothing to time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import softmesh as ttnn
from softmesh.bench.harness import DTYPES, put
from softmesh.bench.peer_process import AS_ROOT, PROCESSES, PeerProcess, bare_mpirun, jax_worker, worker

_TILE = 32
_COLUMNS = 1024
_LARGEST = 8  # 32 of these sum to 256, the last integer up to which bfloat16 has them all
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Work:
    collective: str
    devices: int
    bytes_per_device: int
    dtype: str

    @property
    def columns(self) -> int:
        return min(_COLUMNS, self._elements // _TILE)

    @property
    def rows(self) -> int:
        return self._elements // self.columns

    @property
    def _elements(self) -> int:
        return self.bytes_per_device // DTYPES[self.dtype][1].itemsize

    @property
    def bytes_read(self) -> int:
        return self.devices * self.bytes_per_device

    @property
    def bytes_written(self) -> int:
        """Each distinct element of the result once: a sum, however many devices hold it, is one piece."""
        return self.bytes_read if self.collective == "all_gather" else self.bytes_per_device

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written

    def operand(self) -> torch.Tensor:
        """The devices' pieces, one below the other."""
        draw = torch.Generator().manual_seed(0)
        shape = (self.devices * self.rows, self.columns)
        return torch.randint(-_LARGEST, _LARGEST + 1, shape, dtype=DTYPES[self.dtype][1], generator=draw)

    def expected(self, operand: torch.Tensor) -> torch.Tensor:
        """What every device gets, or the devices' results one below the other."""
        pieces = operand.chunk(self.devices)
        if self.collective == "all_gather":
            return torch.cat(pieces, dim=1)
        total = torch.zeros(self.rows, self.columns)
        for piece in pieces:
            total += piece
        rounded = total.to(operand.dtype)
        if self.collective == "all_reduce":
            return rounded
        return torch.cat(rounded.chunk(self.devices, dim=1))


class MeshWork:
    """The collective as a TT-NN program has it."""

    def __init__(self, work: Work, mesh: ttnn.MeshDevice, operand: torch.Tensor) -> None:
        self._work = work
        self._mesh = mesh
        self._x = put(operand, work.dtype, mesh, ttnn.ShardTensorToMesh(mesh, dim=0))
        self.call = self._calls()[work.collective]

    def _calls(self) -> dict[str, Callable[[], ttnn.Tensor]]:
        x = self._x
        return {
            "all_reduce": lambda: ttnn.all_reduce(x),
            "all_gather": lambda: ttnn.all_gather(x, dim=1),
            "reduce_scatter": lambda: ttnn.reduce_scatter(x, dim=1),
        }

    @property
    def stacked(self) -> torch.Tensor:
        """The operand as it lies in memory: (1, devices, rows, columns)."""
        return self._x.view_data()

    def gives(self, expected: torch.Tensor) -> bool:
        """Whether the devices hold what they should; of a result that all hold, the first and the last."""
        result = self.call()
        if self._work.collective == "reduce_scatter":
            composer = ttnn.ConcatMeshToTensor(self._mesh, dim=0)
            return torch.equal(ttnn.to_torch(result, mesh_composer=composer), expected)
        shards = ttnn.get_device_tensors(result)
        return all(torch.equal(ttnn.to_torch(shards[i]), expected) for i in (0, -1))

    def bytes_stored(self) -> int:
        """How much memory the result takes."""
        return self.call().view_data().untyped_storage().nbytes()


def by_hand(work: Work, stacked: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The torch expression for the same result from the same memory."""
    expressions: dict[str, Callable[[], torch.Tensor]] = {
        "all_reduce": lambda: stacked.sum(1, keepdim=True),
        "all_gather": lambda: stacked.transpose(1, 2).reshape(1, 1, work.rows, -1),
        "reduce_scatter": lambda: stacked.sum(1).unflatten(-1, (work.devices, -1)).transpose(1, 2),
    }
    return expressions[work.collective]


def copying(bytes_moved: int) -> Callable[[], object]:
    """A call that reads one half of these bytes and writes the other, into memory it has used before.

    So it touches as much memory as the work it stands beside, and is served by the same caches.
    """
    source = torch.ones(bytes_moved // 2, dtype=torch.uint8)
    target = source.clone()
    return lambda: target.copy_(source)


# JAX and MPI as peers: a collective is prepared, its result is checked, then it is repeated.


_BITS = {"float32": torch.float32, "bfloat16": torch.uint16}  # numpy has no bfloat16


class CollectivePeer(PeerProcess):
    """Runs the collective of a `Work` on as many workers of its own as the work has devices."""

    def prepare(self, work: Work, operand: torch.Tensor) -> torch.Tensor:
        """Give it the devices' pieces, and see what it makes of them."""
        np.save(self.folder / "operand.npy", operand.view(_BITS[work.dtype]).numpy())
        self.ask(prepare=work.collective, dtype=work.dtype, devices=work.devices, shape=[work.rows, work.columns])
        return torch.from_numpy(np.load(self.folder / "result.npy")).view(operand.dtype)

    def release(self) -> None:
        """Let go of the memory of the last work; its files go too."""
        self.ask(release=True)
        for name in ("operand.npy", "result.npy"):
            (self.folder / name).unlink(missing_ok=True)


def jax_process(python: str) -> CollectivePeer:
    return CollectivePeer(*jax_worker(python, "jax_collectives.py"))


def mpi_process(python: str) -> CollectivePeer:
    return CollectivePeer(bare_mpirun(python, PROCESSES, [worker("mpi_collectives.py")]), AS_ROOT)
