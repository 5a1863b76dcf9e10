"""The programs that a collective runs on the chips: how many TT-NN's program cache counts, and their semaphores in L1.

A collective makes its semaphores itself: a word in the L1 of every worker core, kept with the program. They lie below
what is in L1 when the program is first run, and stay there until the program cache is cleared: a large tensor may then
no longer fit. In L1_SMALL, which a mesh opened with l1_small_size has, they are out of the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softmesh.hardware.enums import BufferType
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.pool import Pool
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
    """How many programs it runs on the chips, where it is more than one."""
    return _COUNTS.get(op)


# -- semaphores --------------------------------------------------------------------------------------

Kinds = list[BufferType]


class ProgramSemaphore:
    """One of them: the smallest piece that each bank gives, for as long as this object is kept."""

    __slots__ = ("__weakref__", "_claim", "_op")

    def __init__(self, op: str, pool: Pool) -> None:
        self._op = op
        each = pool.region.grain
        self._claim = pool.allocate(each, each * pool.region.banks, self)

    def __str__(self) -> str:
        return f"a semaphore of {self._op}"


def _where_there_is(device: MeshDevice) -> BufferType:
    """L1_SMALL, if the mesh was opened with some."""
    return BufferType.L1_SMALL if device.options.get("l1_small_size") else BufferType.L1


def _where_asked(given: dict[str, Any]) -> BufferType:
    return BufferType.L1_SMALL if given.get("use_l1_small_for_semaphores") else BufferType.L1


def _group_size(device: MeshDevice, given: dict[str, Any]) -> int:
    axis = given.get("cluster_axis")
    return device.get_num_devices() if axis is None else device.shape[axis]


# Collectives that are given theirs make none.
_SEMAPHORES: dict[str, Callable[[MeshDevice, dict[str, Any]], Kinds]] = {
    "all_gather": lambda device, given: [_where_there_is(device)] * 2,
    "all_broadcast": lambda device, given: [_where_asked(given)] * 2,
    "broadcast": lambda device, given: [BufferType.L1] * 2,
    "reduce_scatter": lambda device, given: [_where_asked(given)] * 4,
    "all_reduce": lambda device, given: [BufferType.L1] * 4 + [_where_there_is(device)] * 2,
    "experimental.reduce_scatter_minimal_direct": lambda device, given: (
        [_where_there_is(device)] * (_group_size(device, given) + 4)
    ),
    "point_to_point": lambda device, given: [BufferType.L1],
    "all_to_all_dispatch": lambda device, given: [BufferType.L1] * 2,
    "all_to_all_combine": lambda device, given: [BufferType.L1] * 2,
    "experimental.all_to_all_async_generic": lambda device, given: [BufferType.L1] * 2,
}


def semaphores_of(op: str) -> Callable[[MeshDevice, dict[str, Any]], Sequence[ProgramSemaphore]] | None:
    """What makes those of a program of this op; None for one that makes none."""
    kinds = _SEMAPHORES.get(op)
    if kinds is None:
        return None

    def make(device: MeshDevice, given: dict[str, Any]) -> list[ProgramSemaphore]:
        pools = device.memory.pools
        return [ProgramSemaphore(op, pools[kind]) for kind in kinds(device, given)]

    return make
