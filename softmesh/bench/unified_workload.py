"""The workload of `softmesh bench unified`: a matmul whose factors are placed in one of four forms, on 8 or 32 devices.

On a mesh, and with JAX and DTensor as peers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import softmesh as ttnn
from softmesh.bench.harness import put
from softmesh.bench.peer_process import PeerProcess, jax_worker, worker
from softmesh.distributed.linear_and_embedding import matmul
from softmesh.distributed.placement_requests import wanted_layout

_LARGEST = 8
Dims = tuple[int | None, int | None]  # the dim that each mesh axis splits
MESHES = {8: {1: (1, 8), 2: (2, 4)}, 32: {1: (1, 32), 2: (4, 8)}}  # by devices, and axes that are used


@dataclass(frozen=True)
class Form:
    """Where the factors lie and the result is asked for, and the same plan with the collectives written out."""

    axes: int
    a: Dims
    b: Dims
    out: Dims
    by_hand: Callable[[ttnn.Tensor, ttnn.Tensor], ttnn.Tensor]
    inserts: tuple[str, ...]


def _row_parallel(a: ttnn.Tensor, b: ttnn.Tensor) -> ttnn.Tensor:
    total: ttnn.Tensor = ttnn.all_reduce(ttnn.matmul(a, b), cluster_axis=1)
    return total


def _two_dimensional(a: ttnn.Tensor, b: ttnn.Tensor) -> ttnn.Tensor:
    rows = ttnn.all_gather(a, 1, cluster_axis=1)
    columns = ttnn.all_gather(b, 0, cluster_axis=0)
    product: ttnn.Tensor = ttnn.matmul(rows, columns)
    return product


FORMS = {
    "replicated": Form(1, (None, None), (None, None), (None, None), ttnn.matmul, ()),
    "column": Form(1, (None, None), (None, 1), (None, 1), ttnn.matmul, ()),
    "row": Form(1, (None, 1), (None, 0), (None, None), _row_parallel, ("all_reduce",)),
    "2-D": Form(2, (0, 1), (0, 1), (0, 1), _two_dimensional, ("all_gather", "all_gather")),
}


@dataclass(frozen=True)
class Work:
    form: str
    devices: int
    rows: int
    inner: int
    columns: int

    @property
    def mesh(self) -> tuple[int, int]:
        return MESHES[self.devices][FORMS[self.form].axes]

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inner * self.columns

    def factors(self) -> tuple[torch.Tensor, torch.Tensor]:
        draw = torch.Generator().manual_seed(0)
        shapes = (self.rows, self.inner), (self.inner, self.columns)
        a, b = (torch.randint(-_LARGEST, _LARGEST + 1, s, generator=draw).float() for s in shapes)
        return a, b

    def order(self) -> dict[str, object]:
        """What a peer must know."""
        form = FORMS[self.form]
        return {"mesh": self.mesh, "a": form.a, "b": form.b, "out": form.out}


class MeshWork:
    """The product as a unified op and by hand, on the same tensors."""

    def __init__(self, work: Work, mesh: ttnn.MeshDevice, a: torch.Tensor, b: torch.Tensor) -> None:
        form = FORMS[work.form]
        x, y = (
            put(values, "float32", mesh, ttnn.ShardTensor2dMesh(mesh, work.mesh, dims))
            for values, dims in ((a, form.a), (b, form.b))
        )
        self._form, self._x, self._y, self._mesh = form, x, y, mesh
        words = [ttnn.Replicate() if dim is None else ttnn.Shard(dim) for dim in form.out]
        self._words = tuple(words)
        by_hand = form.by_hand
        self.unified: Callable[[], ttnn.Tensor] = lambda: matmul(x, y, output_topology=words)
        self.by_hand: Callable[[], ttnn.Tensor] = lambda: by_hand(x, y)

    def is_the_same_plan(self) -> bool:
        """Whether the planner inserts what was written by hand."""
        plan = matmul.planned((self._x, self._y), {}, self._words)[0].plan
        return tuple(step.kind for _, step in plan.inserted) == self._form.inserts

    def gives(self, expected: torch.Tensor) -> bool:
        """Whether both compute it, and leave it where it was asked for."""
        results = self.unified(), self.by_hand()
        wanted = wanted_layout("bench", self._words, 2, self._mesh)
        placed = all(ttnn.placements(result) == wanted for result in results)
        return placed and all(torch.equal(ttnn.compose(result), expected) for result in results)


# JAX and DTensor as peers: the same product of the same factors, placed alike, prepared and then repeated.


class UnifiedPeer(PeerProcess):
    """A worker that multiplies when told to."""

    def prepare(self, work: Work, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Give it the factors, and see what it makes of them."""
        np.savez(self.folder / "factors.npz", a=a.numpy(), b=b.numpy())
        self.ask(prepare="matmul", **work.order())
        return torch.from_numpy(np.load(self.folder / "result.npy"))


def jax_process(python: str) -> UnifiedPeer:
    return UnifiedPeer(*jax_worker(python, "jax_unified.py"))


def dtensor_process() -> UnifiedPeer:
    return UnifiedPeer([sys.executable, worker("dtensor_unified.py")])
