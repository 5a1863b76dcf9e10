"""Golden functions of pooling, by the names that TT-NN exports: channels last, all images of a batch in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def _images(rows: Tensor, batch: int, height: int, width: int, channels: int) -> Tensor:
    return rows.reshape(batch, height, width, channels).permute(0, 3, 1, 2).float()


def _row(images: Tensor, like: Tensor) -> Tensor:
    """[1, 1, N * H * W, C]"""
    return images.permute(0, 2, 3, 1).reshape(1, 1, -1, images.shape[1]).to(like.dtype)


def _sides(padding: Sequence[int]) -> tuple[int, int, int, int]:
    """Left, right, top, bottom."""
    top, bottom, left, right = padding if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
    return left, right, top, bottom


def golden_maxpool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    return_indices: bool = False,
    dtype: object = None,
    **_: object,
) -> Any:
    x, sides = _images(input_tensor, batch_size, input_h, input_w, channels), _sides(padding)
    within = (sides[2], sides[0])
    if (sides[0], sides[2]) != (sides[1], sides[3]):
        x, within = F.pad(x, sides, value=-torch.inf), (0, 0)
    found, places = F.max_pool2d(
        x, tuple(kernel_size), tuple(stride), within, tuple(dilation), ceil_mode, return_indices=True
    )
    made = _row(found, input_tensor)
    return (made, _row(places, places)) if return_indices else made


def golden_avg_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dtype: object = None,
    **_: object,
) -> Tensor:
    x, sides = _images(input_tensor, batch_size, input_h, input_w, channels), _sides(padding)
    windows = tuple(kernel_size), tuple(stride)
    if (sides[0], sides[2]) == (sides[1], sides[3]):
        within = (sides[2], sides[0])
        found = F.avg_pool2d(x, *windows, within, ceil_mode, count_include_pad, divisor_override)
        return _row(found, input_tensor)
    found = F.avg_pool2d(F.pad(x, sides), *windows, 0, ceil_mode, divisor_override=divisor_override)
    if not count_include_pad and divisor_override is None:
        found = found / F.avg_pool2d(F.pad(torch.ones_like(x), sides), *windows, 0, ceil_mode)
    return _row(found, input_tensor)


def golden_adaptive_avg_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    output_size: Sequence[int],
    **_: object,
) -> Tensor:
    x = _images(input_tensor, batch_size, input_h, input_w, channels)
    return _row(F.adaptive_avg_pool2d(x, (output_size[0], output_size[1])), input_tensor)


def golden_adaptive_max_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    output_size: Sequence[int],
    **_: object,
) -> Tensor:
    x = _images(input_tensor, batch_size, input_h, input_w, channels)
    return _row(F.adaptive_max_pool2d(x, tuple(output_size)), input_tensor)


def golden_global_avg_pool2d(input_tensor: Tensor) -> Tensor:
    return input_tensor.float().mean((1, 2), keepdim=True).to(input_tensor.dtype)


def golden_rotate(
    input_tensor: Tensor,
    angle: float,
    center: Sequence[float] | None = None,
    fill: float = 0.0,
    expand: bool = False,
    interpolation_mode: str = "nearest",
    **_: object,
) -> Tensor:
    """Each pixel of [N, H, W, C] from where it was before the turn against the clock, around (x, y)."""
    height, width = input_tensor.shape[1:3]
    x0, y0 = (width / 2, height / 2) if center is None else (float(center[0]), float(center[1]))
    turn = torch.deg2rad(torch.tensor(float(angle), dtype=torch.float64))
    cos, sin = torch.cos(turn), torch.sin(turn)
    rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    dx, dy = columns - x0, rows - y0
    x, y = cos * dx - sin * dy + x0, sin * dx + cos * dy + y0
    grid = torch.stack([2 * x / width - 1, 2 * y / height - 1], -1).float().expand(len(input_tensor), -1, -1, -1)
    images = input_tensor.permute(0, 3, 1, 2).float()
    options: dict[str, Any] = {"mode": interpolation_mode, "align_corners": False}
    turned = F.grid_sample(images, grid, **options)
    covered = F.grid_sample(torch.ones_like(images[:, :1]), grid, **options)
    return (turned + fill * (1 - covered)).permute(0, 2, 3, 1).to(input_tensor.dtype)
