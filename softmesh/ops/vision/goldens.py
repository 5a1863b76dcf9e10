"""torch references of ops on images, as suites call them: NHWC in, NHWC out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softmesh.dispatch.checked_function import checked_function
from softmesh.ops.vision.grid_sampling import sampled_together
from softmesh.ops.vision.upsampling import scales, upsampled


@checked_function
def golden_upsample(
    input_tensor: torch.Tensor, scale_factor: float | Sequence[float], mode: str = "nearest", **_: object
) -> torch.Tensor:
    return upsampled(input_tensor, scales("golden_upsample", scale_factor), mode)


@checked_function
def golden_grid_sample(
    input_tensor: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    use_precomputed_grid: bool = False,
    batch_output_channels: bool = False,
    grid_batching_factor: int | None = None,
    **_: object,
) -> torch.Tensor:
    """`grid_batching_factor` points in a row, where the grid does not have them in its last dim already."""
    several = grid_batching_factor or 1
    together = grid.unflatten(-2, (-1, several)).flatten(-2) if grid.shape[-1] == 2 else grid
    found = sampled_together(
        input_tensor.float(), together.float(), mode, align_corners, batch_output_channels
    )
    return found.to(input_tensor.dtype)
