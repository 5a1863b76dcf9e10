"""`FusionSemaphoreBank`: the semaphores of programs that run as one, side by side in the L1 of their cores."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.arguments import checked_all, checked_ints
from softmesh.cores import CoreRangeSet
from softmesh.errors import MeshError
from softmesh.hardware.enums import BufferType, DataType
from softmesh.hardware.memory_config import MemoryConfig, ShardOrientation, ShardSpec, TensorMemoryLayout
from softmesh.runtime.device import MeshDevice, checked_open
from softmesh.tensor.from_torch_values import from_torch
from softmesh.tensor.tensor import Tensor

_WORDS = 4  # of a semaphore: its value, and what fills up 16 bytes
_WORD_BYTES = 4


class FusionSemaphoreBank:
    """`tensor` holds the semaphores of every core, one behind the other; they are at `addresses` on all cores."""

    def __init__(self, device: MeshDevice, core_ranges: Sequence[CoreRangeSet], initial_values: Sequence[int]) -> None:
        where = "FusionSemaphoreBank"
        mesh = checked_open(where, "device", device)
        grids = checked_all(where, "core_ranges", core_ranges, (CoreRangeSet,), "ttnn.CoreRangeSets")
        values = checked_ints(where, "initial_values", initial_values)
        if len(grids) != len(values):
            raise MeshError(f"{where}: the {len(grids)} core ranges must match the {len(values)} initial values.")
        if not values:
            raise MeshError(f"{where} needs at least one semaphore.")
        self.tensor: Tensor = _filled(mesh, _all_of(grids), values)
        first, step = self.tensor.buffer_address(), _WORDS * _WORD_BYTES
        self.addresses = [first + step * number for number in range(len(values))]


def _all_of(grids: Sequence[CoreRangeSet]) -> CoreRangeSet:
    whole = grids[0]
    for grid in grids[1:]:
        whole = whole.merge(grid)
    return whole


def _filled(mesh: MeshDevice, cores: CoreRangeSet, values: Sequence[int]) -> Tensor:
    row = torch.zeros(len(values), _WORDS, dtype=torch.int64)
    row[:, 0] = torch.tensor(values)
    rows = row.reshape(1, -1).expand(cores.num_cores(), -1)
    shards = ShardSpec(cores, [1, rows.shape[1]], ShardOrientation.ROW_MAJOR)
    config = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1, shards)
    made: Tensor = from_torch(rows, DataType.UINT32, device=mesh, memory_config=config)
    return made
