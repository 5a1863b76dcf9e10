"""The collectives of `softmesh bench collectives` in JAX on 8 virtual CPU devices.

A program of its own, for an interpreter that has jax and numpy and need not have softmesh:
`python jax_collectives.py FOLDER`. Says {"ready": version}, and takes orders on its input:

    {"prepare": collective, "dtype": ..., "devices": 8, "shape": [rows, columns]}
        reads the devices' rows from FOLDER/operand.npy, compiles, leaves the result in FOLDER/result.npy
    {"repeat": n}    answers {"seconds": ...} for one call
    {"release": true}    lets go of the operand
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
            del call  # its operand goes before a new one comes
            call = prepare(folder, order)
            say(prepared=order["prepare"])
        elif "release" in order:
            call = jax.devices
            say(released=True)
        else:
            say(seconds=seconds_of(call, order["repeat"]))


if __name__ == "__main__":
    main()
