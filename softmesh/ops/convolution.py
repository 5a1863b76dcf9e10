"""Convolutions over images, channels last.

torch takes one batch dim and one set of weights. Mesh axes that only the images have are folded into
the batch, axes that both have into groups, axes that only the weights have into output channels: one
convolution for the whole mesh, with nothing copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware import Conv2dConfig, PaddingMode
from softmesh.ops.activation import activation_function
from softmesh.ops.cost import matmul_cost
from softmesh.ops.operand import Operand
from softmesh.ops.plan import Local
from softmesh.ops.registry import operation
from softmesh.placement import rules
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.convert import round_to
from softmesh.tensor.dtype import DataType
from softmesh.tensor.memory import DRAM_MEMORY_CONFIG, BufferType
from softmesh.tensor.tensor import StorageType, Tensor
from softmesh.tensor.transfer import to_device


class Geometry(NamedTuple):
    """The sizes of one convolution on each device; `padding` is top, bottom, left, right."""

    images: int
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def out_size(self) -> tuple[int, int]:
        top, bottom, left, right = self.padding
        sizes = (self.height + top + bottom, self.width + left + right)
        spans = [step * (n - 1) + 1 for n, step in zip(self.kernel, self.dilation, strict=True)]
        rows, columns = (
            (size - span) // step + 1 for size, span, step in zip(sizes, spans, self.stride, strict=True)
        )
        return rows, columns

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel)

    @property
    def products(self) -> int:
        """Products in the sum of one result."""
        return math.prod(self.weight_shape[1:])


def _pair(argument: str, values: Sequence[int], least: int) -> tuple[int, int]:
    numbers = _ints(argument, values, (2,), least)
    return numbers[0], numbers[1]


def _ints(argument: str, values: Sequence[int], counts: tuple[int, ...], least: int) -> list[int]:
    if not isinstance(values, list | tuple) or not all(isinstance(n, int) for n in values):
        raise ArgumentError(f"conv2d: {argument} must be a sequence of ints, got {values!r}")
    if len(values) not in counts or min(values) < least:
        wanted = " or ".join(map(str, counts))
        raise MeshError(f"conv2d: {argument}={list(values)} must be {wanted} numbers of {least} or more.")
    return list(values)


def _four_sides(padding: Sequence[int]) -> tuple[int, int, int, int]:
    """(height, width) or (top, bottom, left, right) as the latter."""
    sides = _ints("padding", padding, (2, 4), 0)
    top, bottom, left, right = sides if len(sides) == 4 else (sides[0], sides[0], sides[1], sides[1])
    return top, bottom, left, right


def _check(geometry: Geometry, images: Operand, weight: Operand, bias: Operand | None) -> bool:
    """Whether the images come flat, as [1, 1, N*H*W, C]; an error where an operand does not fit."""
    n, height, width, channels, out_channels = geometry[:5]
    if channels % geometry.groups or out_channels % geometry.groups:
        raise MeshError(
            f"conv2d: groups={geometry.groups} must divide in_channels={channels} and out_channels={out_channels}."
        )
    flat, apart = (1, 1, n * height * width, channels), (n, height, width, channels)
    if images.shape not in (flat, apart):
        raise MeshError(
            f"conv2d: input_tensor {list(images.shape)} must be {list(flat)} or {list(apart)} for batch_size={n}, "
            f"input_height={height}, input_width={width}, in_channels={channels}, all of them those of each device."
        )
    if weight.shape != geometry.weight_shape:
        raise MeshError(
            f"conv2d: weight_tensor {list(weight.shape)} must be {list(geometry.weight_shape)}: out_channels, "
            "in_channels / groups and kernel_size, those of each device."
        )
    if bias is not None and bias.shape != (1, 1, 1, out_channels):
        raise MeshError(f"conv2d: bias_tensor {list(bias.shape)} must be [1, 1, 1, {out_channels}].")
    if min(geometry.out_size) < 1:
        raise MeshError(
            f"conv2d: a kernel of {list(geometry.kernel)} (dilation {list(geometry.dilation)}) does not fit into "
            f"{height}x{width} images padded by {list(geometry.padding)}."
        )
    return images.shape == flat


def convolve(
    images: torch.Tensor, weight: torch.Tensor, geometry: Geometry, mode: PaddingMode
) -> torch.Tensor:
    """(*mesh, N, H, W, C) by (*mesh, out, C/groups, kh, kw) -> (*mesh, N, OH, OW, out)."""
    lead = images.dim() - 4
    axes = range(lead)
    both = [i for i in axes if images.shape[i] > 1 and weight.shape[i] > 1]
    only_weight = [i for i in axes if images.shape[i] == 1 and weight.shape[i] > 1]
    only_images = [i for i in axes if weight.shape[i] == 1]
    extents = [max(a, b) for a, b in zip(images.shape[:lead], weight.shape[:lead], strict=True)]
    padded, padding = _padded(_fold_images(images, only_images, both), geometry, mode)
    result = F.conv2d(
        padded,
        _fold_weight(weight, both, only_weight, geometry.groups),
        stride=geometry.stride,
        padding=padding,
        dilation=geometry.dilation,
        groups=math.prod(extents[i] for i in both) * geometry.groups,
    )
    return _unfold(result, extents, (only_images, both, only_weight), geometry)


def _fold_images(images: torch.Tensor, batched: Sequence[int], grouped: Sequence[int]) -> torch.Tensor:
    """(batched * N, grouped * C, H, W)"""
    lead = images.dim() - 4
    axes = [*batched, lead, *grouped, lead + 3, lead + 1, lead + 2]
    ones = [i for i in range(lead) if i not in (*batched, *grouped)]
    height, width = images.shape[lead + 1 : lead + 3]
    count = math.prod(images.shape[i] for i in batched) * images.shape[lead]
    return images.permute(*ones, *axes).reshape(count, -1, height, width)


def _fold_weight(
    weight: torch.Tensor, grouped: Sequence[int], stacked: Sequence[int], groups: int
) -> torch.Tensor:
    """(grouped * groups * stacked * out/groups, C/groups, kh, kw)"""
    lead = weight.dim() - 4
    ones = [i for i in range(lead) if i not in (*grouped, *stacked)]
    split = weight.unflatten(lead, (groups, -1))
    order = [*ones, *grouped, lead, *stacked, *range(lead + 1, lead + 5)]
    return split.permute(*order).reshape(-1, *weight.shape[lead + 1 :])


def _padded(
    images: torch.Tensor, geometry: Geometry, mode: PaddingMode
) -> tuple[torch.Tensor, tuple[int, int]]:
    """The images, and what padding is left to torch, which knows zeros alike on opposite sides."""
    top, bottom, left, right = geometry.padding
    if mode is PaddingMode.Zeros and top == bottom and left == right:
        return images, (top, left)
    kind = "replicate" if mode is PaddingMode.Replicate else "constant"
    return F.pad(images, (left, right, top, bottom), mode=kind), (0, 0)


def _unfold(
    result: torch.Tensor,
    extents: Sequence[int],
    folded: tuple[Sequence[int], Sequence[int], Sequence[int]],
    geometry: Geometry,
) -> torch.Tensor:
    """Every mesh axis back to its place in front, channels last."""
    batched, grouped, stacked = folded
    lead = len(extents)
    n, groups, each, rows, columns = range(lead, lead + 5)
    order = [*batched, n, *grouped, groups, *stacked, each, rows, columns]
    sizes = [*extents, geometry.images, geometry.groups, -1, *result.shape[2:]]
    apart = result.reshape([sizes[i] for i in order])
    wanted = [*range(lead), n, rows, columns, groups, each]
    return apart.permute([order.index(i) for i in wanted]).flatten(-2)


def _rounded_weight(weight: torch.Tensor, dtype: DataType | None) -> torch.Tensor:
    """As the chip holds it: a matrix with the output channels, along which block floats share exponents, last."""
    return weight if dtype is None else round_to(weight.transpose(-4, -1), dtype).transpose(-4, -1).float()


def _placement(flat: bool, groups: int, is_bare: bool) -> rules.Rule:
    """Images split by batch, weights by output channels, both by group or by what is summed."""
    channels = [(1, 0), (2, 3)] + ([(0, 3)] if groups > 1 else [])
    batch = {0: [(0, 0)], 1: [(0, 1)], 2: [(0, 2)]} if flat else {2: [(0, 0)]}
    table = rules.along({**batch, 3: channels})

    def rule(at: rules.Situation) -> rules.Placement | Sequence[rules.Placement]:
        if groups > 1 or at.words[:2] != (rules.Shard(3), rules.Shard(1)):
            answer = table(at)
            is_uneven = isinstance(at.word, rules.Shard) and at.word.size is not None
            return rules.LOCAL if is_uneven else answer
        if not is_bare:
            raise rules.UsesPartial(rules.UsesPartial.OWN_PRODUCT)
        return rules.Partial("sum")

    return rule


def _geometry(
    *,
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
    **others: object,
) -> Geometry:
    extents = [batch_size, input_height, input_width, in_channels, out_channels, groups]
    names = "batch_size, input_height, input_width, in_channels, out_channels, groups"
    n, height, width, channels, out, several = _ints(names, extents, (6,), 1)
    return Geometry(
        n,
        height,
        width,
        channels,
        out,
        _pair("kernel_size", kernel_size, 1),
        _pair("stride", stride, 1),
        _four_sides(padding),
        _pair("dilation", dilation, 1),
        several,
    )


@operation("conv2d", controls="dtype memory_config", tuning="compute_config slice_config")
def _conv2d(
    *,
    input_tensor: Operand,
    weight_tensor: Operand,
    bias_tensor: Operand | None = None,
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
    conv_config: Conv2dConfig | None = None,
) -> Local:
    geometry = _geometry(
        in_channels=in_channels,
        out_channels=out_channels,
        batch_size=batch_size,
        input_height=input_height,
        input_width=input_width,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    flat = _check(geometry, input_tensor, weight_tensor, bias_tensor)
    config = Conv2dConfig() if conv_config is None else conv_config
    activation = None if config.activation is None else activation_function(config.activation, "conv2d")
    sizes = (geometry.images, geometry.height, geometry.width, geometry.in_channels)

    def compute(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        apart = images.reshape(*images.shape[:-4], *sizes)
        result = convolve(apart, _rounded_weight(weight, config.weights_dtype), geometry, config.padding_mode)
        result = result.flatten(-4, -2).unsqueeze(-3).unsqueeze(-3)
        result = result if bias is None else result + bias
        return result if activation is None else activation(result)

    return Local(
        compute,
        _placement(flat, groups, is_bare=bias_tensor is None and activation is None),
        layouts=(config.output_layout,),
        memory_config=DRAM_MEMORY_CONFIG,
        cost=matmul_cost(geometry.products),
    )


def conv2d(
    *,
    input_tensor: Tensor,
    weight_tensor: Tensor,
    device: MeshDevice,
    bias_tensor: Tensor | None = None,
    conv_config: Conv2dConfig | None = None,
    return_output_dim: bool = False,
    return_weights_and_bias: bool = False,
    **arguments: Any,
) -> Any:
    """Images [1, 1, N*H*W, C] or [N, H, W, C] by weights [out, C/groups, kh, kw] -> [1, 1, N*OH*OW, out].

    `arguments`: in_channels, out_channels, batch_size, input_height, input_width, kernel_size, stride,
    padding (height, width, or top, bottom, left, right), dilation, groups, dtype, memory_config,
    compute_config, slice_config; sizes are those of each device. Operands on the host are brought to
    `device` first; `return_weights_and_bias` hands them back, to be passed next time.
    """
    if not isinstance(device, MeshDevice):
        raise ArgumentError(f"conv2d: device must be a mesh device, got {device!r}")
    images, weight, bias = (_on(device, tensor) for tensor in (input_tensor, weight_tensor, bias_tensor))
    result = _conv2d(
        input_tensor=images, weight_tensor=weight, bias_tensor=bias, conv_config=conv_config, **arguments
    )
    if conv_config is not None and conv_config.deallocate_activation:
        _free_l1(images)
    extras: list[Any] = [_geometry(**arguments).out_size] if return_output_dim else []
    extras += [(weight, bias)] if return_weights_and_bias else []
    return (result, *extras) if extras else result


def _on(device: MeshDevice, tensor: Any) -> Any:
    is_on_host = isinstance(tensor, Tensor) and tensor.storage_type() is StorageType.HOST
    return to_device(tensor, device) if is_on_host else tensor


def _free_l1(tensor: Tensor) -> None:
    if tensor.memory_config().buffer_type is BufferType.L1:
        tensor.deallocate(force=True)
