"""Golden functions of convolutions, group norms, folds and KV caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.cores import CoreGrid
from softmesh.ops.golden.golden_elementwise import get_golden_function_for_activation

Tensor = torch.Tensor


def conv2d(
    input_tensor: Tensor,
    weight_tensor: Tensor,
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
    bias_tensor: Tensor | None = None,
    conv_config: Any = None,
) -> Tensor:
    """Channels last, as [1, 1, N * H * W, C]; weights as they are or as they were prepared."""
    groups = groups or 1
    images = input_tensor.reshape(batch_size, input_height, input_width, -1)[..., :in_channels].permute(0, 3, 1, 2)
    shape = (out_channels, in_channels // groups, *kernel_size)
    weight = weight_tensor if weight_tensor.shape == shape else weight_tensor.reshape(-1, out_channels).T.reshape(shape)
    top, bottom, left, right = padding if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
    padded = F.pad(images, (left, right, top, bottom)).to(weight.dtype)
    bias = None if bias_tensor is None else bias_tensor.reshape(-1).to(weight.dtype)
    made = F.conv2d(padded, weight, bias, tuple(stride), 0, tuple(dilation), groups)
    activation = None if conv_config is None else conv_config.activation
    made = made if activation is None else get_golden_function_for_activation(activation)(made)
    return made.permute(0, 2, 3, 1).reshape(1, 1, -1, out_channels)


def group_norm(
    input_tensor: Tensor,
    num_groups: int,
    epsilon: float = 1e-5,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    core_grid: CoreGrid | None = None,
) -> Tensor:
    """[N, 1, H * W, C]; weights as they are, or spread over the columns of a grid of cores, each share padded."""
    channels = input_tensor.shape[-1]

    def row(values: Tensor | None) -> Tensor | None:
        if values is None or values.numel() == channels:
            return None if values is None else values.reshape(-1).to(input_tensor.dtype)
        columns = 1 if core_grid is None else core_grid.x
        return values.reshape(columns, -1)[:, : channels // columns].reshape(-1).to(input_tensor.dtype)

    made = F.group_norm(input_tensor.permute(0, 3, 1, 2), num_groups, row(weight), row(bias), epsilon)
    return made.permute(0, 2, 3, 1)


def fold(
    input: Tensor,
    stride_h: int,
    stride_w: int,
    use_transpose_as_fold: bool = False,
    output_shape: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    collapse_output: bool = False,
) -> Tensor:
    """[N, H, W, C] -> [N, H / sh, W / sw, sh * sw * C]"""
    x = input.permute(0, 2, 3, 1) if use_transpose_as_fold else input
    sides = [padding[0], padding[0], padding[1], padding[1]] if len(padding) == 2 else list(padding)
    top, bottom, left, right, before, after = [*sides, 0, 0][:6]
    x = F.pad(x, (before, after, left, right, top, bottom))
    n, height, width, channels = x.shape
    windows = x.reshape(n, height // stride_h, stride_h, width // stride_w, stride_w, channels)
    made = windows.permute(0, 1, 3, 2, 4, 5).reshape(n, height // stride_h, width // stride_w, -1)
    if output_shape is not None:
        made = made[tuple(slice(0, end) for end in output_shape)]
    return made.reshape(1, 1, -1, made.shape[-1]) if collapse_output else made


def fill_cache(cache_tensor: Tensor, input_tensor: Tensor, batch_idx: int, update_idx: int = 0) -> Tensor:
    made = cache_tensor.clone()
    made[batch_idx, :, update_idx : update_idx + input_tensor.shape[2]] = input_tensor[0].to(made.dtype)
    return made


def update_cache(cache: Tensor, input: Tensor, update_idx: int, batch_offset: int = 0) -> Tensor:
    made = cache.clone()
    tokens = input[0, :, batch_offset : batch_offset + cache.shape[0]]
    made[:, :, update_idx] = tokens.transpose(0, 1).to(made.dtype)
    return made


def plus_one(input_tensor: Tensor, skip_negative_entries: bool = False) -> Tensor:
    return torch.where(input_tensor < 0, input_tensor, input_tensor + 1) if skip_negative_entries else input_tensor + 1
