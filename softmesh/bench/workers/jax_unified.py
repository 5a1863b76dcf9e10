"""The product of `softmesh bench unified` in JAX: jit over 8 virtual CPU devices, partitioned by XLA.

A program of its own, for an interpreter that has jax and numpy and need not have softmesh:
`python jax_unified.py FOLDER`, with the devices asked for in XLA_FLAGS. Takes the orders of order_loop.py:

    {"prepare": "matmul", "mesh": [2, 4], "a": [0, null], "b": [null, 1], "out": [0, 1]}
        the dim that each mesh axis splits; reads FOLDER/factors.npz, leaves the result in FOLDER/result.npy
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from order_loop import orders_from_input, serve  # type: ignore[import-not-found]

AXES = ("rows", "columns")


def sharding(mesh: Mesh, dims: Sequence[int | None]) -> NamedSharding:
    """Of a matrix whose dim dims[i] the i-th axis splits."""
    parts = [[axis for axis, at in zip(AXES, dims, strict=True) if at == dim] for dim in range(2)]
    return NamedSharding(mesh, PartitionSpec(*(tuple(axes) or None for axes in parts)))


def prepare(folder: Path, order: dict[str, Any]) -> Callable[[], Any]:
    mesh = Mesh(np.array(jax.devices()).reshape(order["mesh"]), AXES)
    factors = np.load(folder / "factors.npz")
    a, b = (jax.device_put(factors[name], sharding(mesh, order[name])) for name in ("a", "b"))
    product = jax.jit(jax.numpy.matmul, out_shardings=sharding(mesh, order["out"]))
    np.save(folder / "result.npy", np.asarray(product(a, b).block_until_ready()))
    return lambda: product(a, b).block_until_ready()


if __name__ == "__main__":
    serve(orders_from_input(f"{jax.__version__}, {len(jax.devices())} devices"), prepare)
