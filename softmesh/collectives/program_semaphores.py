"""The semaphores that collectives make for themselves: a word in the L1 of every worker core, kept with the program.

They lie below what is in L1 when the program is first run, and stay there until the program cache is cleared: a large
tensor may then no longer fit. In L1_SMALL, which a mesh opened with l1_small_size has, they are out of the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softmesh.hardware.enums import BufferType
from softmesh.runtime.device import MeshDevice
from softmesh.runtime.memory.pool import Pool

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
