"""The MLP of `softmesh bench mlp` in JAX on 8 virtual CPU devices, one call at a time.

A program of its own, for an interpreter that has jax and numpy and need not have softmesh:
`python jax_worker.py FOLDER`. Reads FOLDER/<dtype>.npz, says {"ready": version}; for each dtype
that comes in on a line, runs the MLP once and answers {"seconds": ...}. The first call for a dtype
compiles, and leaves the result in FOLDER/<dtype>.jax.npy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEVICES = 8
# Read when jax is first imported, below.
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    hidden = jax.nn.gelu(x @ w1 + b1, approximate=False)
    return hidden @ w2 + b2


def prepare(folder: Path, dtype: str) -> Callable[[], Any]:
    """The compiled MLP with its operands in place: rows split over the devices, weights on each."""
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    by_rows, on_all = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
    values = np.load(folder / f"{dtype}.npz")
    x, *weights = (
        jax.device_put(jax.numpy.asarray(values[name], dtype), by_rows if name == "x" else on_all)
        for name in ("x", "w1", "b1", "w2", "b2")
    )
    compiled = jax.jit(mlp, out_shardings=by_rows)
    result = compiled(x, *weights).block_until_ready()
    np.save(folder / f"{dtype}.jax.npy", np.asarray(result.astype("float32")))
    return lambda: compiled(x, *weights).block_until_ready()


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    prepared: dict[str, Callable[[], Any]] = {}
    say(ready=jax.__version__)
    for line in sys.stdin:
        dtype = line.strip()
        if dtype not in prepared:
            prepared[dtype] = prepare(folder, dtype)
        start = time.perf_counter()
        prepared[dtype]()
        say(seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
