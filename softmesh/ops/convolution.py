"""Convolutions over images, channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.dispatch.checked_function import checked_function
from softmesh.dispatch.cost_rules import matmul_cost
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware import Conv2dConfig, PaddingMode
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, BufferType
from softmesh.ops.activation import activation_function
from softmesh.ops.vision.conv_geometry import (
    Geometry,
    check_operands,
    convolution_rule,
    geometry_of,
    rounded_weight,
)
from softmesh.ops.vision.conv_weights import from_matrix, on_mesh
from softmesh.ops.vision.mesh_convolution import convolve
from softmesh.ops.vision.sizes import flattened
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor


def _check_kernel(geometry: Geometry) -> None:
    if min(geometry.out_size) < 1:
        raise MeshError(
            f"conv2d: a kernel of {list(geometry.kernel)} (dilation {list(geometry.dilation)}) does not fit into "
            f"{geometry.height}x{geometry.width} images padded by {list(geometry.padding)}."
        )


def _padded(
    images: torch.Tensor, geometry: Geometry, mode: PaddingMode
) -> tuple[torch.Tensor, tuple[int, int]]:
    """The images, and what padding is left to torch, which knows zeros alike on opposite sides."""
    top, bottom, left, right = geometry.padding
    if mode is PaddingMode.Zeros and top == bottom and left == right:
        return images, (top, left)
    kind = "replicate" if mode is PaddingMode.Replicate else "constant"
    return F.pad(images, (left, right, top, bottom), mode=kind), (0, 0)


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
    geometry = geometry_of(
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
    flat = check_operands("conv2d", geometry, input_tensor, weight_tensor, bias_tensor, geometry.weight_shape)
    _check_kernel(geometry)
    config = Conv2dConfig() if conv_config is None else conv_config
    activation = None if config.activation is None else activation_function(config.activation, "conv2d")
    is_raw = weight_tensor.shape == geometry.weight_shape

    def run(images: torch.Tensor, weight: torch.Tensor, several: int) -> torch.Tensor:
        padded, left_over = _padded(images, geometry, config.padding_mode)
        return F.conv2d(padded, weight, None, geometry.stride, left_over, geometry.dilation, several)

    def compute(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        apart = images.reshape(*images.shape[:-4], *geometry[:4])
        raw = weight if is_raw else from_matrix(weight, geometry.weight_shape)
        result = flattened(convolve(apart, rounded_weight(raw, config.weights_dtype), groups, run))
        result = result if bias is None else result + bias
        return result if activation is None else activation(result)

    is_bare = bias_tensor is None and activation is None
    return Local(
        compute,
        convolution_rule(flat, groups, is_bare, (0, 1) if is_raw else (3, 2)),
        layouts=(config.output_layout,),
        memory_config=DRAM_MEMORY_CONFIG,
        cost=matmul_cost(geometry.products),
    )


@checked_function
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
    `device` first; `return_weights_and_bias` hands them back, to be passed next time. Weights may also be
    those that `prepare_conv_weights` made.
    """
    check_device("conv2d", device)
    images, weight, bias = (on_mesh(device, tensor) for tensor in (input_tensor, weight_tensor, bias_tensor))
    result = _conv2d(
        input_tensor=images, weight_tensor=weight, bias_tensor=bias, conv_config=conv_config, **arguments
    )
    if conv_config is not None and conv_config.deallocate_activation:
        free_l1(images)
    size = geometry_of(**arguments).out_size if return_output_dim else None
    return with_extras(result, size, (weight, bias) if return_weights_and_bias else None)


def check_device(op: str, device: object) -> None:
    if not isinstance(device, MeshDevice):
        raise ArgumentError(f"{op}: device must be a mesh device, got {device!r}")


def with_extras(result: Tensor, size: Any, weights: tuple[Tensor, Tensor | None] | None) -> Any:
    """The result, and behind it the output size and the weights where they are asked for."""
    extras = [extra for extra in (size, weights) if extra is not None]
    return (result, *extras) if extras else result


def free_l1(tensor: Tensor) -> None:
    if tensor.memory_config().buffer_type is BufferType.L1:
        tensor.deallocate(force=True)
