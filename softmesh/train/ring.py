"""Every device passes its piece on to its neighbour along an axis, around the end."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.collectives.across import Across, Moved
from softmesh.collectives.groups import Group
from softmesh.collectives.labels import keeping
from softmesh.dispatch.operand import Operand
from softmesh.tensor.tensor import Tensor
from softmesh.train.own_collectives import training_collective


@training_collective()
def ring_shift(input_tensor: Operand, steps: int, *, cluster_axis: int) -> Across:
    def move(group: Group) -> Moved:
        (axis,) = group.axes

        def compute(data: torch.Tensor) -> torch.Tensor:
            return data if data.shape[axis] == 1 else torch.roll(data, steps, axis)

        is_same = group.dist.extents[axis] == 1
        return Moved(compute, (group.dist if is_same else keeping(group),))

    return Across(cluster_axis, move)


def ring_shift_forward(x: Tensor, axis: int, steps: int) -> Any:
    return ring_shift(x, steps, cluster_axis=axis)
