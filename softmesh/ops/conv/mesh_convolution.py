"""The core of 2-D and 3-D convolutions: sizes, operand checks, the sharding rule, one torch call for the mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from softmesh.dispatch.operand import Operand
from softmesh.errors import MeshError
from softmesh.hardware.shape import roundup
from softmesh.ops.conv.conv_weights import as_matrix, from_matrix
from softmesh.ops.data_movement.image_layout import Sides, four_sides, images_are_flat, ints, pair
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.runtime.float32_precision import full_float32
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import DataType

_CHANNEL_UNITS = (8, 16, 32)


class Geometry(NamedTuple):
    """The sizes of one convolution on each device."""

    images: int
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: Sides
    dilation: tuple[int, int]
    groups: int

    @property
    def out_size(self) -> tuple[int, int]:
        top, bottom, left, right = self.padding
        sizes = (self.height + top + bottom, self.width + left + right)
        spans = [step * (n - 1) + 1 for n, step in zip(self.kernel, self.dilation, strict=True)]
        rows, columns = ((size - span) // step + 1 for size, span, step in zip(sizes, spans, self.stride, strict=True))
        return rows, columns

    @property
    def is_seamless(self) -> bool:
        """Whether windows lie side by side and fill the image, so that parts of it meet no window twice."""
        fills = not (self.height % self.stride[0] or self.width % self.stride[1] or any(self.padding))
        return fills and self.kernel == self.stride and self.dilation == (1, 1)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel)

    @property
    def products(self) -> int:
        """Products in the sum of one result."""
        return math.prod(self.weight_shape[1:])

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """Of prepared weights."""
        return (1, 1, self.products, self.out_channels)


def _filled_up(channels: int) -> tuple[int, ...]:
    """What images may have in place of so many channels: a row of memory is filled up, and the rest is not read."""
    return tuple(roundup(channels, unit) for unit in _CHANNEL_UNITS)


def check_operands(
    op: str, geometry: Geometry, images: Operand, weight: Operand, bias: Operand | None, raw: tuple[int, ...]
) -> bool:
    """Whether the images come flat, as [1, 1, N*H*W, C]; an error where an operand does not fit."""
    n, height, width, channels, out_channels = geometry[:5]
    if channels % geometry.groups or out_channels % geometry.groups:
        raise MeshError(
            f"{op}: groups={geometry.groups} must divide in_channels={channels} and out_channels={out_channels}."
        )
    given = images.shape[-1] if images.rank and images.shape[-1] in _filled_up(channels) else channels
    flat = images_are_flat(op, images, (n, height, width, given))
    if weight.shape not in (raw, geometry.matrix_shape):
        raise MeshError(
            f"{op}: weight_tensor {list(weight.shape)} must be {list(raw)}: out_channels, in_channels / groups and "
            f"kernel_size, those of each device; or {list(geometry.matrix_shape)}, as prepared for {op}."
        )
    if bias is not None and bias.shape != (1, 1, 1, out_channels):
        raise MeshError(f"{op}: bias_tensor {list(bias.shape)} must be [1, 1, 1, {out_channels}].")
    return flat


def geometry_of(
    in_channels: int,
    out_channels: int,
    batch_size: int,
    input_height: int,
    input_width: int,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    op: str = "conv2d",
    **others: object,
) -> Geometry:
    groups = 1 if type(groups) is int and groups == 0 else groups  # as TT-NN has it
    extents = [batch_size, input_height, input_width, in_channels, out_channels, groups]
    names = "batch_size, input_height, input_width, in_channels, out_channels, groups"
    n, height, width, channels, out, several = ints(op, names, extents, (6,), 1)
    return Geometry(
        n,
        height,
        width,
        channels,
        out,
        pair(op, "kernel_size", kernel_size, 1),
        pair(op, "stride", stride, 1),
        four_sides(op, padding),
        pair(op, "dilation", dilation, 1),
        several,
    )


def rounded_weight(weight: torch.Tensor, dtype: DataType | None) -> torch.Tensor:
    """As the chip holds it: a matrix with the output channels, along which block floats share exponents, last."""
    if dtype is None:
        return weight
    return from_matrix(round_to(as_matrix(weight), dtype).float(), weight.shape[-4:])


def rounded_bias(bias: torch.Tensor, dtype: DataType | None) -> torch.Tensor:
    """Round a bias as the chip holds it: in the dtype of the weights."""
    return bias if dtype is None else round_to(bias, dtype).float()


@placed("Split by image where the input is, by channels where the weight is; input channels split in both: Partial.")
def convolution_rule(flat: bool, groups: int, is_bare: bool, weight_dims: tuple[int, int]) -> rules.Rule:
    """Images split by batch, weights by output channels, both by group or by what is summed.

    `weight_dims` are the weight's output and input channels.
    """
    out, summed = weight_dims
    channels = [(1, out), (2, 3)] + ([(0, 3)] if groups > 1 else [])
    batch = {0: [(0, 0)], 1: [(0, 1)], 2: [(0, 2)]} if flat else {2: [(0, 0)]}
    table = rules.along({**batch, 3: channels})

    @rules.labelled_each(
        table.labels if groups > 1 or not is_bare else dim_labels.with_sum(table.labels, ((0, 3), (1, summed)))
    )
    def rule(at: rules.Situation) -> rules.Placement | Sequence[rules.Placement]:
        if groups > 1 or at.words[:2] != (rules.Shard(3), rules.Shard(summed)):
            answer = table(at)
            is_uneven = isinstance(at.word, rules.Shard) and at.word.size is not None
            return rules.LOCAL if is_uneven else answer
        if not is_bare:
            raise rules.UsesPartial(rules.UsesPartial.OWN_PRODUCT)
        return rules.Partial("sum")

    return rule


# -- one torch convolution for the whole mesh, with nothing copied -----------------------------------
#
# torch takes one batch dim and one set of weights. Mesh axes that only the images have are folded into
# the batch, axes that both have into groups, axes that only the weights have into output channels.


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
            fold(weight, axes, groups).contiguous(),  # prepared or not: torch sums in the order of memory
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
