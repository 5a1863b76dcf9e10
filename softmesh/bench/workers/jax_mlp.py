"""The MLP of `softmesh bench mlp` in JAX on 8 virtual CPU devices, one call at a time.

A program of its own, for an interpreter that has jax and numpy and need not have softmesh:
`python jax_mlp.py FOLDER`. Says {"ready": version}; for each line `<dtype> <form>` that comes in, runs
that MLP once and answers {"seconds": ...}. The first call of each kind reads FOLDER/<dtype>.npz, compiles,
and leaves the result in FOLDER/<dtype>.<form>.npy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DEVICES = 8
# Read when jax is first imported, below.
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

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


def prepare(folder: Path, dtype: str, form: Form) -> tuple[Callable[[], Any], np.ndarray]:
    """The compiled MLP with its operands in place, and what it gives."""
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    specs = tuple(form.split.get(name, ON_ALL) for name in NAMES)
    values = np.load(folder / f"{dtype}.npz")
    operands = [
        jax.device_put(jax.numpy.asarray(values[name], dtype), NamedSharding(mesh, spec))
        for name, spec in zip(NAMES, specs, strict=True)
    ]
    compiled = jax.jit(shard_map(form.on_each_device, mesh=mesh, in_specs=specs, out_specs=form.result))

    def run() -> Any:
        return compiled(*operands).block_until_ready()

    return run, np.asarray(run().astype("float32"))


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    prepared: dict[tuple[str, ...], Callable[[], Any]] = {}
    say(ready=jax.__version__)
    for line in sys.stdin:
        dtype, form = work = tuple(line.split())
        if work not in prepared:
            prepared[work], result = prepare(folder, dtype, FORMS[form])
            np.save(folder / f"{dtype}.{form}.npy", result)
        start = time.perf_counter()
        prepared[work]()
        say(seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
