"""Every device passes its piece on to its neighbour along an axis, around the end."""

from __future__ import annotations

from typing import Any

import torch

from softmesh.collectives.collective import Across, Collective, Moved
from softmesh.collectives.groups import Group
from softmesh.collectives.labels import keeping
from softmesh.ops.cost import moves_bytes
from softmesh.ops.definition import Definition
from softmesh.ops.operand import Operand
from softmesh.ops.signature import Signature
from softmesh.tensor.tensor import Tensor


def _ring_shift(input_tensor: Operand, steps: int, *, cluster_axis: int) -> Across:
    def move(group: Group) -> Moved:
        (axis,) = group.axes

        def compute(data: torch.Tensor) -> torch.Tensor:
            return data if data.shape[axis] == 1 else torch.roll(data, steps, axis)

        is_same = group.dist.extents[axis] == 1
        return Moved(compute, (group.dist if is_same else keeping(group),))

    return Across(cluster_axis, move)


_SHIFT = Collective(
    Definition(
        "train.ring_shift",
        _ring_shift,  # type: ignore[arg-type]
        Signature("train.ring_shift", _ring_shift, ["memory_config"], [], []),
        moves_bytes,
        "data",
    )
)


def ring_shift_forward(x: Tensor, axis: int, steps: int) -> Any:
    return _SHIFT(x, steps, cluster_axis=axis)
