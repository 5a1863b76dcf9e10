"""The collectives of `softmesh bench collectives` in JAX on 8 virtual CPU devices.

A program of its own, for an interpreter that has jax and numpy and need not have softmesh:
`python jax_collectives.py FOLDER`, with the devices asked for in XLA_FLAGS. Takes the orders of order_loop.py:

    {"prepare": collective, "dtype": ..., "devices": 8, "shape": [rows, columns]}
        reads the devices' rows from FOLDER/operand.npy, compiles, leaves the result in FOLDER/result.npy
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from order_loop import orders_from_input, serve  # type: ignore[import-not-found]

try:
    from jax import shard_map

    UNCHECKED = {"check_vma": False}  # JAX cannot tell that a gathered result is the same on all devices
except ImportError:
    from jax.experimental.shard_map import shard_map

    UNCHECKED = {"check_rep": False}

SPLIT, ON_ALL = PartitionSpec("devices"), PartitionSpec()


def all_reduce(piece: Any) -> Any:
    return jax.lax.psum(piece, "devices")


def all_gather(piece: Any) -> Any:
    return jax.lax.all_gather(piece, "devices", axis=1, tiled=True)


def reduce_scatter(piece: Any) -> Any:
    return jax.lax.psum_scatter(piece, "devices", scatter_dimension=1, tiled=True)


COLLECTIVES = {
    "all_reduce": (all_reduce, ON_ALL),
    "all_gather": (all_gather, ON_ALL),
    "reduce_scatter": (reduce_scatter, SPLIT),
}


def prepare(folder: Path, order: dict[str, Any]) -> Callable[[], Any]:
    """The compiled collective with its operand in place: rows split over the devices."""
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    bits = np.load(folder / "operand.npy")
    values = bits.view(jax.numpy.dtype(order["dtype"]))
    operand = jax.device_put(values, NamedSharding(mesh, SPLIT))
    collective, placed = COLLECTIVES[order["prepare"]]
    compiled = jax.jit(shard_map(collective, mesh=mesh, in_specs=SPLIT, out_specs=placed, **UNCHECKED))
    result = np.asarray(compiled(operand).block_until_ready())
    np.save(folder / "result.npy", result.view(bits.dtype))
    return lambda: compiled(operand).block_until_ready()


if __name__ == "__main__":
    serve(orders_from_input(f"{jax.__version__}, {len(jax.devices())} devices"), prepare)
