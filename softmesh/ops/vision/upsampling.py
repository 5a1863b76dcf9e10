"""Images made larger, by repeating pixels or between them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentValueError, MeshError
from softmesh.ops.vision.sizes import channels_first, channels_last, check_apart
from softmesh.placement import rules

_MODES = ("nearest", "bilinear")


def upsampled(images: torch.Tensor, scale: tuple[float, float], mode: str) -> torch.Tensor:
    """(..., N, H, W, C) -> (..., N, H * scale, W * scale, C)"""
    if images.dim() < 4:
        raise MeshError(f"upsample: images of shape {list(images.shape)} must be [N, H, W, C].")
    apart = channels_first(images)
    larger = F.interpolate(
        apart,
        scale_factor=scale,
        mode=mode,
        align_corners=False if mode == "bilinear" else None,
        recompute_scale_factor=False,
    )
    return channels_last(larger, images.shape[:-4])


def scales(op: str, scale_factor: float | Sequence[float]) -> tuple[float, float]:
    """Those of height and width."""
    both = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor, scale_factor]
    if len(both) != 2 or min(both) <= 0:
        raise MeshError(f"{op}: scale_factor={scale_factor} must be one or two numbers above 0.")
    return float(both[0]), float(both[1])


@operation(
    cost=flops_per_element(4), controls="memory_config", tuning="compute_kernel_config", floats_only=True
)
def upsample(input_tensor: Operand, scale_factor: float | Sequence[float], *, mode: str = "nearest") -> Local:
    """[N, H, W, C] -> [N, H * scale, W * scale, C]; one scale, or one for height and one for width."""
    check_apart("upsample", input_tensor)
    if mode not in _MODES:
        raise ArgumentValueError(f"upsample: mode must be one of {_MODES}, got {mode!r}")
    by = scales("upsample", scale_factor)

    def rule(at: rules.Situation) -> rules.Placement:
        if isinstance(at.word, rules.Partial) and mode == "bilinear" and at.word.op not in rules.LINEAR_OPS:
            raise rules.UsesPartial(0)
        return rules.resizing([1, 2])(at)

    return Local(lambda x: upsampled(x, by, mode), rule)
