"""Ops of several images, whose number is an argument: each device has some of them, and is told how many."""

from __future__ import annotations

import math
from typing import Any

from softmesh.distributed.call_description import CallDescription
from softmesh.distributed.runnable_plan import SplitOptions
from softmesh.distributed.split_choices import Choice, Split, together
from softmesh.placement.placements import REPLICATE, Shard

COUNT = "batch_size"
_SIDES = ("input_height", "input_h")  # of one image
_SPLIT = "split images"
_ROWS = 2  # of what is [1, 1, images * height * width, channels]


def are_images(given: CallDescription) -> bool:
    are_told = COUNT in given.arguments and any(side in given.arguments for side in _SIDES)
    return are_told and _dim(given) is not None and given.shape[:_ROWS] == (1, 1)


def _dim(given: CallDescription) -> int | None:
    """Of the images: they come as [N, H, W, C], or as rows of pixels."""
    shape, count = given.operands[0].shape, given.arguments[COUNT]
    if len(shape) != 4 or count < 1:
        return None
    if shape[:_ROWS] == (1, 1) and shape[_ROWS] % count == 0:
        return _ROWS
    return 0 if shape[0] == count else None


def describe_images(given: CallDescription) -> SplitOptions:
    """Weights are on every device."""
    dim, count = _dim(given), int(given.arguments[COUNT])
    assert dim is not None
    others = (REPLICATE,) * (len(given.operands) - 1)
    choices = (
        together(len(given.operands)),
        Choice(_SPLIT, (Shard(dim), *others), Shard(_ROWS), takes_uneven=False),
    )

    def devices(split: Split) -> int:
        return math.prod(split.mesh[axis] for axis in split.axes(_SPLIT))

    def told(split: Split) -> dict[str, Any]:
        return {COUNT: count // devices(split)}

    return SplitOptions(
        choices,
        lambda split: given.plain(**told(split)),
        is_true=lambda split: count % devices(split) == 0,
        told=told,
    )
