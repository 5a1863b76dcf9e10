"""How many programs a collective runs on the chips, where it is more than one: what TT-NN's program cache counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmesh.runtime.device import MeshDevice
from softmesh.tensor.dtype import DataType, Layout
from softmesh.tensor.spec import TensorSpec

Count = Callable[[MeshDevice, TensorSpec, dict[str, Any]], int]


def _sizes(device: MeshDevice, axis: int | None) -> list[int]:
    """Of the groups of devices that talk, one after the other: without an axis, along all there are."""
    return [n for at, n in enumerate(device.shape) if n > 1 and axis in (None, at)]


def _is_shared_out(spec: TensorSpec, devices: int) -> bool:
    """Whether a sum is scattered and gathered: by whole tiles, along the last dim that can be."""
    if spec.layout is not Layout.TILE:
        return False
    shape = (*(1,) * (2 - len(spec.shape)), *spec.shape)  # numbers and vectors are summed as a row
    tile = (*(1,) * (len(shape) - 2), spec.tile.height, spec.tile.width)
    return any(n % (unit * devices) == 0 for n, unit in zip(shape, tile, strict=True))


def _all_reduce(device: MeshDevice, spec: TensorSpec, given: dict[str, Any]) -> int:
    """A reduce_scatter and an all_gather; or all pieces to all devices, joined and added (of fp32, turned before)."""
    if given.get("buffer_tensor") is not None:
        return 1
    joined = 4 if spec.dtype is DataType.FLOAT32 else 3
    groups = _sizes(device, given.get("cluster_axis"))
    around = 2 if spec.memory_config.is_sharded() else 0  # to interleaved memory and back
    return sum(2 if _is_shared_out(spec, n) else joined for n in groups) + around


def _all_gather(device: MeshDevice, spec: TensorSpec, given: dict[str, Any]) -> int:
    """Of rows, or along a padded dim: all pieces to all devices, joined."""
    dim = given["dim"]
    is_whole = spec.shape[dim] == spec.padded_shape[dim]
    return 1 if spec.layout is Layout.TILE and is_whole else 2


def _all_to_all_combine(device: MeshDevice, spec: TensorSpec, given: dict[str, Any]) -> int:
    """Zeros, where no output tensor is given, and the rows that come."""
    return 1 if given.get("output_tensor") is not None else 2


_COUNTS: dict[str, Count] = {
    "all_reduce": _all_reduce,
    "experimental.all_reduce_async": _all_reduce,
    "all_gather": _all_gather,
    "all_to_all_combine": _all_to_all_combine,
}


def program_count_of(op: str) -> Count | None:
    return _COUNTS.get(op)
