"""The semaphores that collectives make for themselves: a word in the L1 of every worker core, kept with the program.

They lie below what is in L1 when the program is first run, and stay there until the program cache is cleared: a large
tensor may then no longer fit. In L1_SMALL, which a mesh opened with l1_small_size has, they are out of the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softmesh.cores import CoreCoord, CoreRange, CoreRangeSet
from softmesh.hardware.enums import BufferType
from softmesh.runtime.buffers.global_buffers import page_per_core
from softmesh.runtime.buffers.mesh_buffer import MeshBuffer
from softmesh.runtime.device import MeshDevice

Kinds = list[BufferType]
_WORD = 4  # bytes


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


def semaphores_of(op: str) -> Callable[[MeshDevice, dict[str, Any]], Sequence[MeshBuffer]] | None:
    """What makes those of a program of this op; None for one that makes none."""
    kinds = _SEMAPHORES.get(op)
    if kinds is None:
        return None

    def make(device: MeshDevice, given: dict[str, Any]) -> list[MeshBuffer]:
        grid = device.compute_with_storage_grid_size()
        cores = CoreRangeSet([CoreRange(CoreCoord(0, 0), CoreCoord(grid.x - 1, grid.y - 1))])
        return [page_per_core(device, cores, _WORD, kind) for kind in kinds(device, given)]

    return make
