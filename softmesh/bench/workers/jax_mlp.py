"""The MLP of `softmesh bench mlp` in JAX on 8 virtual CPU devices, one call at a time.

A program of its own, for an interpreter that has jax and numpy and need not have softmesh:
`python jax_mlp.py FOLDER`, with the devices asked for in XLA_FLAGS. Takes the orders of order_loop.py:

    {"prepare": form, "dtype": ...}    reads FOLDER/operands.npz, compiles, leaves the result in FOLDER/result.npy
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from order_loop import orders_from_input, serve  # type: ignore[import-not-found]

try:
    from jax import shard_map
except ImportError:  # where it was before JAX 0.6
    from jax.experimental.shard_map import shard_map


def hidden_layer(x: Any, w1: Any, b1: Any) -> Any:
    return jax.nn.gelu(x @ w1 + b1, approximate=False)


def alone(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return hidden_layer(x, w1, b1) @ w2 + b2


def gathering(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    hidden = jax.lax.all_gather(hidden_layer(x, w1, b1), AXIS, axis=1, tiled=True)
    return hidden @ w2 + b2


def reducing(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return jax.lax.psum(hidden_layer(x, w1, b1) @ w2, AXIS) + b2


NAMES = ("x", "w1", "b1", "w2", "b2")
AXIS = "devices"
ON_ALL, BY_ROWS, BY_COLUMNS = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec(None, AXIS)


class Form(NamedTuple):
    """What one device does, where the operands lie (on all devices unless named), and where the result does."""

    on_each_device: Callable[..., Any]
    split: dict[str, PartitionSpec]
    result: PartitionSpec


FORMS = {
    "data": Form(alone, {"x": BY_ROWS}, BY_ROWS),
    "all_gather": Form(
        gathering,
        {"w1": BY_COLUMNS, "b1": BY_ROWS, "w2": BY_COLUMNS, "b2": BY_ROWS},
        BY_COLUMNS,
    ),
    "all_reduce": Form(reducing, {"w1": BY_COLUMNS, "b1": BY_ROWS, "w2": BY_ROWS}, ON_ALL),
}


def prepare(folder: Path, order: dict[str, Any]) -> Callable[[], Any]:
    """The compiled MLP with its operands in place."""
    form = FORMS[order["prepare"]]
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    specs = tuple(form.split.get(name, ON_ALL) for name in NAMES)
    values = np.load(folder / "operands.npz")
    operands = [
        jax.device_put(jax.numpy.asarray(values[name], order["dtype"]), NamedSharding(mesh, spec))
        for name, spec in zip(NAMES, specs, strict=True)
    ]
    compiled = jax.jit(shard_map(form.on_each_device, mesh=mesh, in_specs=specs, out_specs=form.result))
    np.save(folder / "result.npy", np.asarray(compiled(*operands).astype("float32")))
    return lambda: compiled(*operands).block_until_ready()


if __name__ == "__main__":
    serve(orders_from_input(f"{jax.__version__}, {len(jax.devices())} devices"), prepare)
