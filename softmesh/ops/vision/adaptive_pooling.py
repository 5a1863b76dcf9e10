"""Pooling by the size of the result: windows that cover the image, or the whole image as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.ops.vision.sizes import (
    channels_first,
    channels_last,
    check_apart,
    flat_results,
    flattened,
    images_are_flat,
    ints,
    pair,
)
from softmesh.placement import rules
from softmesh.tensor.dtype import Layout

_TUNING = "dram_slice_config applied_shard_scheme compute_kernel_config deallocate_input reallocate_output"
_ADAPTIVE: dict[str, Any] = {
    "cost": flops_per_element(2),
    "controls": "memory_config",
    "tuning": _TUNING,
    "floats_only": True,
}


def _adaptive(
    op: str, images: Operand, sizes: tuple[int, ...], output_size: Sequence[int], pool: Any
) -> Local:
    n, height, width, channels = ints(op, "batch_size, input_h, input_w, channels", list(sizes), (4,), 1)
    size = pair(op, "output_size", output_size, 1)
    flat = images_are_flat(op, images, (n, height, width, channels))

    def compute(x: torch.Tensor) -> torch.Tensor:
        apart = channels_first(x.reshape(*x.shape[:-4], n, height, width, channels))
        return flattened(channels_last(pool(apart, size), x.shape[:-4]))

    return Local(compute, flat_results(flat), layouts=(Layout.ROW_MAJOR,))


@operation(**_ADAPTIVE)
def adaptive_avg_pool2d(
    input_tensor: Operand,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    output_size: Sequence[int],
) -> Local:
    """The means of `output_size` windows that cover the image, torch's windows; TT-NN's may differ."""
    sizes = (batch_size, input_h, input_w, channels)
    return _adaptive("adaptive_avg_pool2d", input_tensor, sizes, output_size, F.adaptive_avg_pool2d)


@operation(**_ADAPTIVE)
def adaptive_max_pool2d(
    input_tensor: Operand,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    output_size: Sequence[int],
) -> Local:
    """The largest values of `output_size` windows that cover the image, torch's windows; TT-NN's may differ."""
    sizes = (batch_size, input_h, input_w, channels)
    return _adaptive("adaptive_max_pool2d", input_tensor, sizes, output_size, F.adaptive_max_pool2d)


@operation(controls="memory_config dtype", floats_only=True)
def global_avg_pool2d(input_tensor: Operand) -> Local:
    """[N, H, W, C] -> [N, 1, 1, C], the mean of each channel."""
    check_apart("global_avg_pool2d", input_tensor)
    return Local(lambda x: x.mean((-3, -2), keepdim=True), rules.reducing("avg", [1, 2], keepdim=True))
