"""Transposed convolutions: each pixel spreads over a window of the result."""

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
from softmesh.errors import MeshError
from softmesh.hardware import Conv2dConfig
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG
from softmesh.ops.activation import activation_function
from softmesh.ops.convolution import check_device, free_l1, with_extras
from softmesh.ops.vision.conv_geometry import (
    Geometry,
    check_operands,
    convolution_rule,
    geometry_of,
    rounded_weight,
)
from softmesh.ops.vision.conv_weights import as_forward, from_matrix, on_mesh, to_transposed
from softmesh.ops.vision.mesh_convolution import convolve
from softmesh.ops.vision.sizes import flattened, pair
from softmesh.runtime.device import MeshDevice
from softmesh.tensor.tensor import Tensor

_OP = "conv_transpose2d"


def _out_size(geometry: Geometry, output_padding: tuple[int, int]) -> tuple[int, int]:
    top, bottom, left, right = geometry.padding
    padded = (top + bottom, left + right)
    rows, columns = (
        (n - 1) * step - cut + spread * (size - 1) + more + 1
        for n, step, cut, spread, size, more in zip(
            (geometry.height, geometry.width),
            geometry.stride,
            padded,
            geometry.dilation,
            geometry.kernel,
            output_padding,
            strict=True,
        )
    )
    if min(rows, columns) < 1:
        raise MeshError(f"{_OP}: padding {list(geometry.padding)} leaves nothing of the result.")
    return rows, columns


@operation(_OP, controls="dtype memory_config", tuning="compute_config dram_slice_config")
def _conv_transpose2d(
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
    output_padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    conv_config: Conv2dConfig | None = None,
    mirror_kernel: bool = True,
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
        op=_OP,
    )
    raw_shape = (in_channels, out_channels // geometry.groups, *geometry.kernel)
    flat = check_operands(_OP, geometry, input_tensor, weight_tensor, bias_tensor, raw_shape)
    rows, columns = _out_size(geometry, pair(_OP, "output_padding", output_padding, 0))
    config = Conv2dConfig() if conv_config is None else conv_config
    activation = None if config.activation is None else activation_function(config.activation, _OP)
    is_raw = weight_tensor.shape == raw_shape
    top, _, left, _ = geometry.padding

    def run(images: torch.Tensor, weight: torch.Tensor, several: int) -> torch.Tensor:
        whole = F.conv_transpose2d(
            images, weight, stride=geometry.stride, groups=several, dilation=geometry.dilation
        )
        missing = (0, max(0, left + columns - whole.shape[-1]), 0, max(0, top + rows - whole.shape[-2]))
        return F.pad(whole, missing)[..., top : top + rows, left : left + columns]

    def kernels(weight: torch.Tensor) -> torch.Tensor:
        forward = (
            as_forward(weight, groups, mirror_kernel)
            if is_raw
            else from_matrix(weight, geometry.weight_shape)
        )
        return to_transposed(rounded_weight(forward, config.weights_dtype), groups)

    def compute(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        apart = images.reshape(*images.shape[:-4], *geometry[:4])
        result = flattened(convolve(apart, kernels(weight), groups, run, transposed=True))
        result = result if bias is None else result + bias
        return result if activation is None else activation(result)

    is_bare = bias_tensor is None and activation is None
    raw_dims = (1, 0) if groups == 1 else (0, 1)  # input channels are dealt to groups in order
    return Local(
        compute,
        convolution_rule(flat, groups, is_bare, raw_dims if is_raw else (3, 2)),
        layouts=(config.output_layout,),
        memory_config=DRAM_MEMORY_CONFIG,
        cost=matmul_cost(geometry.products),
    )


@checked_function
def conv_transpose2d(
    *,
    input_tensor: Tensor,
    weight_tensor: Tensor,
    device: MeshDevice,
    bias_tensor: Tensor | None = None,
    conv_config: Conv2dConfig | None = None,
    return_output_dim: bool = False,
    return_weights_and_bias: bool = False,
    output_padding: Sequence[int] = (0, 0),
    **arguments: Any,
) -> Any:
    """Images [1, 1, N*H*W, C] or [N, H, W, C] by weights [C, out/groups, kh, kw] -> [1, 1, N*OH*OW, out].

    As `conv2d`, with `output_padding`: rows and columns added at the end. `mirror_kernel=False` turns the
    kernels by 180 degrees first; weights that `prepare_conv_transpose2d_weights` made are as they were made.
    """
    check_device(_OP, device)
    images, weight, bias = (on_mesh(device, tensor) for tensor in (input_tensor, weight_tensor, bias_tensor))
    result = _conv_transpose2d(
        input_tensor=images,
        weight_tensor=weight,
        bias_tensor=bias,
        conv_config=conv_config,
        output_padding=output_padding,
        **arguments,
    )
    if conv_config is not None and conv_config.deallocate_activation:
        free_l1(images)
    more = pair(_OP, "output_padding", output_padding, 0)
    size = _out_size(geometry_of(op=_OP, **arguments), more) if return_output_dim else None
    return with_extras(result, size, (weight, bias) if return_weights_and_bias else None)
