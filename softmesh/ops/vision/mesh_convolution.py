"""One convolution for the whole mesh, with nothing copied.

torch takes one batch dim and one set of weights. Mesh axes that only the images have are folded into
the batch, axes that both have into groups, axes that only the weights have into output channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from softmesh.full_float32 import full_float32

# (images (B, C, *sizes), weights, groups) -> (B, channels, *sizes)
Convolution = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


class _Axes(NamedTuple):
    """The mesh axes by who has them; `extents` are those of the result."""

    batched: list[int]
    grouped: list[int]
    stacked: list[int]
    extents: list[int]

    def others(self, *folded: list[int]) -> list[int]:
        """Axes of extent 1 in what is folded, which go in front of it."""
        return [i for i in range(len(self.extents)) if not any(i in axes for axes in folded)]


def convolve(
    images: torch.Tensor,
    weight: torch.Tensor,
    groups: int,
    run: Convolution,
    *,
    sizes: int = 2,
    transposed: bool = False,
) -> torch.Tensor:
    """(*mesh, N, *sizes, C) by (*mesh, out, C/groups, *kernel) -> (*mesh, N, *new sizes, out).

    `sizes` counts the dims of an image. `transposed`: the weights are (*mesh, C, out/groups, *kernel).
    """
    lead = images.dim() - sizes - 2
    axes = _axes(list(images.shape[:lead]), list(weight.shape[:lead]))
    fold = _fold_transposed if transposed else _fold_weight
    with full_float32(images.device):
        result = run(
            _fold_images(images, axes),
            fold(weight, axes, groups),
            math.prod(axes.extents[i] for i in axes.grouped) * groups,
        )
    return _unfold(result, axes, images.shape[lead], groups)


def _axes(images: list[int], weight: list[int]) -> _Axes:
    both = list(zip(images, weight, strict=True))
    return _Axes(
        batched=[i for i, (_, w) in enumerate(both) if w == 1],
        grouped=[i for i, (n, w) in enumerate(both) if n > 1 and w > 1],
        stacked=[i for i, (n, w) in enumerate(both) if n == 1 and w > 1],
        extents=[max(n, w) for n, w in both],
    )


def _fold_images(images: torch.Tensor, axes: _Axes) -> torch.Tensor:
    """(batched * N, grouped * C, *sizes)"""
    lead, last = len(axes.extents), images.dim() - 1
    order = [*axes.batched, lead, *axes.grouped, last, *range(lead + 1, last)]
    count = math.prod(images.shape[i] for i in axes.batched) * images.shape[lead]
    ones = axes.others(axes.batched, axes.grouped)
    return images.permute(*ones, *order).reshape(count, -1, *images.shape[lead + 1 : last])


def _fold_weight(weight: torch.Tensor, axes: _Axes, groups: int) -> torch.Tensor:
    """(grouped * groups * stacked * out/groups, C/groups, *kernel)"""
    lead = len(axes.extents)
    split = weight.unflatten(lead, (groups, -1))
    ones = axes.others(axes.grouped, axes.stacked)
    order = [*ones, *axes.grouped, lead, *axes.stacked, *range(lead + 1, split.dim())]
    return split.permute(*order).reshape(-1, *weight.shape[lead + 1 :])


def _fold_transposed(weight: torch.Tensor, axes: _Axes, groups: int) -> torch.Tensor:
    """(grouped * C, stacked * out/groups, *kernel)"""
    lead = len(axes.extents)
    ones = axes.others(axes.grouped, axes.stacked)
    order = [*ones, *axes.grouped, lead, *axes.stacked, *range(lead + 1, weight.dim())]
    count = math.prod(weight.shape[i] for i in axes.grouped) * weight.shape[lead]
    return weight.permute(*order).reshape(count, -1, *weight.shape[lead + 2 :])


def _unfold(result: torch.Tensor, axes: _Axes, images: int, groups: int) -> torch.Tensor:
    """Every mesh axis back to its place in front, channels last."""
    lead, sizes = len(axes.extents), result.dim() - 2
    n, group, each = range(lead, lead + 3)
    spatial = list(range(lead + 3, lead + 3 + sizes))
    order = [*axes.batched, n, *axes.grouped, group, *axes.stacked, each, *spatial]
    extents = [*axes.extents, images, groups, -1, *result.shape[2:]]
    apart = result.reshape([extents[i] for i in order])
    wanted = [*range(lead), n, *spatial, group, each]
    return apart.permute([order.index(i) for i in wanted]).flatten(-2)
