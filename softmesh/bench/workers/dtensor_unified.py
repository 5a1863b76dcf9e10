"""The product of `softmesh bench unified` as PyTorch DTensors, in local-tensor mode: all ranks in one process.

`python dtensor_unified.py FOLDER`; orders and answers are those of jax_unified.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from order_loop import orders_from_input, serve  # type: ignore[import-not-found]
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore


def placements(dims: Sequence[int | None]) -> list[Placement]:
    """The dim that each mesh axis splits."""
    return [Replicate() if dim is None else Shard(dim) for dim in dims]


def prepare(folder: Path, order: dict[str, Any]) -> Callable[[], Any]:
    ranks = int(np.prod(order["mesh"]))
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    mode = LocalTensorMode(ranks)
    factors = np.load(folder / "factors.npz")
    with mode:
        mesh = init_device_mesh("cpu", tuple(order["mesh"]))
        a, b = (
            distribute_tensor(torch.from_numpy(factors[name]), mesh, placements(order[name])) for name in ("a", "b")
        )
        whole = product(a, b, order["out"]).full_tensor()
    same = whole.reconcile() if isinstance(whole, LocalTensor) else whole  # on every rank
    np.save(folder / "result.npy", same.numpy())

    def call() -> DTensor:
        with mode:
            return product(a, b, order["out"])

    return call


def product(a: DTensor, b: DTensor, out: Sequence[int | None]) -> DTensor:
    made: DTensor = torch.matmul(a, b)  # type: ignore[assignment]
    return made.redistribute(placements=placements(out))


if __name__ == "__main__":
    serve(orders_from_input(f"torch {torch.__version__}, local-tensor mode"), prepare)
