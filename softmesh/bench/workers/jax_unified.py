"""The product of `softmesh bench unified` in JAX: jit over 8 virtual CPU devices, partitioned by XLA.

A program of its own, for an interpreter that has jax and numpy and need not have softmesh:
`python jax_unified.py FOLDER`. Says {"ready": version}, and takes orders on its input:

    {"prepare": {"mesh": [2, 4], "a": [0, null], "b": [null, 1], "out": [0, 1]}}
        the dim that each mesh axis splits; reads FOLDER/factors.npz, leaves the result in FOLDER/result.npy
    {"repeat": n}    answers {"seconds": ...} for one call
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
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


def seconds_of(call: Callable[[], Any], repetitions: int) -> float:
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    call: Callable[[], Any] = jax.devices
    say(ready=f"{jax.__version__}, {len(jax.devices())} devices")
    for line in sys.stdin:
        order = json.loads(line)
        if "prepare" in order:
            call = prepare(folder, order["prepare"])
            say(prepared=True)
        else:
            say(seconds=seconds_of(call, order["repeat"]))


if __name__ == "__main__":
    main()
