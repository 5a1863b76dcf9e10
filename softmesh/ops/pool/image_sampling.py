"""upsample, grid_sample, rotate and deformable attention: values of images between their pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
import torch.nn.functional as F

from softmesh.arguments import checked_function
from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentValueError, MeshError, NotModelled
from softmesh.kinds import Kind
from softmesh.ops.data_movement.image_layout import channels_first, channels_last, check_not_flattened, in_shards_of
from softmesh.ops.golden import golden_pool as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.tensor.broadcasting import expand_mesh_dims

# -- upsample: images made larger, by repeating pixels or between them -------------------------------


_UPSAMPLE_MODES = ("nearest", "bilinear")


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
    kind=Kind.POOLING,
    rule=rules.repeating_each,
    cost=flops_per_element(4),
    controls="memory_config",
    tuning="compute_kernel_config",
    floats_only=True,
)
def upsample(input_tensor: Operand, scale_factor: float | Sequence[float], *, mode: str = "nearest") -> Local:
    """[N, H, W, C] -> [N, H * scale, W * scale, C]; one scale, or one for height and one for width."""
    check_not_flattened("upsample", input_tensor)
    if mode not in _UPSAMPLE_MODES:
        raise ArgumentValueError(f"upsample: mode must be one of {_UPSAMPLE_MODES}, got {mode!r}")
    by = scales("upsample", scale_factor)
    is_repeating = mode == "nearest" and by[0].is_integer() and by[1].is_integer()
    moving = rules.repeating_each([1, 2]) if is_repeating else rules.resizing([1, 2])

    @rules.labelled(moving.labels)
    def rule(at: rules.Situation) -> rules.Placement:
        if isinstance(at.word, rules.Partial) and mode == "bilinear" and at.word.op not in rules.LINEAR_OPS:
            raise rules.UsesPartial(0)
        return moving(at)

    own = in_shards_of(input_tensor, Fraction(by[0]) * Fraction(by[1]))
    return Local(lambda x: upsampled(x, by, mode), rule, memory_config=own)


_MODES = ("bilinear", "nearest")
_CHANNELS = 16  # that deformable attention reads at a time


def sampled(
    images: torch.Tensor, points: torch.Tensor, mode: str = "bilinear", align_corners: bool = False
) -> torch.Tensor:
    """(*mesh, N, H, W, C) at (*mesh, N, GH, GW, 2) -> (*mesh, N, GH, GW, C); 0 outside of the images."""
    images, points = expand_mesh_dims(4, images, points)
    found = F.grid_sample(
        channels_first(images),
        points.reshape(-1, *points.shape[-3:]),
        mode=mode,
        padding_mode="zeros",
        align_corners=align_corners,
    )
    return channels_last(found, images.shape[:-4])


def sampled_together(
    images: torch.Tensor, grid: torch.Tensor, mode: str, align_corners: bool, as_channels: bool
) -> torch.Tensor:
    """As `sampled`, for grids of several points (..., GW, 2K): K times as many columns, or as many channels."""
    several = grid.shape[-1] // 2
    found = sampled(images, grid.unflatten(-1, (several, 2)).flatten(-3, -2), mode, align_corners)
    return found.unflatten(-2, (-1, several)).flatten(-2) if as_channels else found


@operation(
    kind=Kind.POOLING,
    rule=rules.along,
    cost=flops_per_element(12),
    controls="memory_config",
    tuning="compute_kernel_config",
    floats_only=True,
)
def grid_sample(
    input_tensor: Operand,
    grid: Operand,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    use_precomputed_grid: bool = False,
    batch_output_channels: bool = False,
) -> Local:
    """[N, H, W, C] at points [N, GH, GW, 2], x and y from -1 to 1: [N, GH, GW, C].

    A grid [N, GH, GW, 2K] has K points in a row: the result is [N, GH, GW * K, C], or [N, GH, GW, C * K] with
    `batch_output_channels`.
    """
    check_not_flattened("grid_sample", input_tensor)
    if use_precomputed_grid:
        raise NotModelled(
            "grid_sample: use_precomputed_grid is not modelled: pass the grid of x and y itself, which gives the same."
        )
    if mode not in _MODES or padding_mode != "zeros":
        raise ArgumentValueError(
            f'grid_sample: mode must be one of {_MODES} and padding_mode "zeros", got {mode!r} and {padding_mode!r}'
        )
    if grid.rank != 4 or grid.shape[0] != input_tensor.shape[0] or grid.shape[-1] % 2 or not grid.shape[-1]:
        raise MeshError(
            f"grid_sample: grid {list(grid.shape)} must be [{input_tensor.shape[0]}, GH, GW, 2K], K points in a row."
        )
    several = grid.shape[-1] // 2

    def compute(images: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        return sampled_together(images, points, mode, align_corners, batch_output_channels)

    channels = [] if batch_output_channels and several > 1 else [(0, 3)]
    table = rules.along({0: [(0, 0), (1, 0)], 1: [(1, 1)], 2: [(1, 2)], 3: channels})

    @rules.labelled_each(table.labels)
    def rule(at: rules.Situation) -> rules.Placement | Sequence[rules.Placement]:
        """Filler at the end of an uneven split is several columns for each that it counts."""
        word = at.words[1]
        multiplied = isinstance(word, rules.Shard) and word.size is not None and word.dim == 2 and several > 1
        return rules.LOCAL if multiplied and not batch_output_channels else table(at)

    return Local(compute, rule)


def _turned(height: int, width: int, angle: float, centre: tuple[float, float]) -> torch.Tensor:
    """(1, H, W, 2): where each pixel of the turned image comes from, from -1 to 1; pixels are at n + 1/2."""
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    y, x = torch.meshgrid(
        torch.arange(height, dtype=torch.float64) + 0.5 - centre[1],
        torch.arange(width, dtype=torch.float64) + 0.5 - centre[0],
        indexing="ij",
    )
    across, down = cosine * x - sine * y + centre[0], sine * x + cosine * y + centre[1]
    return torch.stack((2 * across / width - 1, 2 * down / height - 1), -1).unsqueeze(0).float()


@operation(kind=Kind.POOLING, cost=flops_per_element(12), controls="memory_config", floats_only=True)
@with_reference(golden.golden_rotate)
def rotate(
    input_tensor: Operand,
    angle: float,
    *,
    center: Sequence[float] | None = None,
    fill: float = 0.0,
    expand: bool = False,
    interpolation_mode: str = "nearest",
) -> Local:
    """[N, H, W, C] turned by `angle` degrees against the clock, around (x, y) or the middle; `fill` in the corners."""
    check_not_flattened("rotate", input_tensor)
    if interpolation_mode not in _MODES:
        raise ArgumentValueError(f"rotate: interpolation_mode must be one of {_MODES}, got {interpolation_mode!r}")
    if center is not None and len(center) != 2:
        raise MeshError(f"rotate: center={center} must be two numbers, x and y.")
    if expand:
        raise MeshError("rotate: expand=True is not supported: pad the images with ttnn.pad before turning them.")
    _, height, width, _ = input_tensor.shape
    middle = (width / 2, height / 2) if center is None else (float(center[0]), float(center[1]))
    points = _turned(height, width, angle, middle)

    def compute(images: torch.Tensor) -> torch.Tensor:
        where = points.to(images.device).expand(images.shape[-4], -1, -1, -1)
        turned = sampled(images, where, interpolation_mode)
        if not fill:
            return turned
        covered = sampled(torch.ones_like(images[..., :1]), where, interpolation_mode)
        return turned + fill * (1 - covered)

    @rules.labelled(dim_labels.moved({0: 0, 3: 3}.get, passes="" if fill else dim_labels.FIRST))
    def rule(at: rules.Situation) -> rules.Placement:
        if isinstance(at.word, rules.Partial) and (fill or at.word.op not in rules.LINEAR_OPS):
            raise rules.UsesPartial(0)
        return rules.resizing([1, 2])(at)

    return Local(compute, rule)


@operation(
    "experimental.multi_scale_deformable_attn",
    kind=Kind.POOLING,
    rule=rules.along,
    part_work=part_work.UNNOTICED,
    cost=flops_per_element(16),
    controls="memory_config",
)
def multi_scale_deformable_attn(value: Operand, grid: Operand, attn: Operand, *, align_corners: bool = False) -> Local:
    """Values [N, H, W, D] at points [N, Q * P, 1, 2], weighted by [N, Q, P] and summed over P: [N, Q, D].

    N are batches times heads, D a multiple of 16.
    """
    op = "experimental.multi_scale_deformable_attn"
    check_not_flattened(op, value)
    if not value.shape[3] or value.shape[3] % _CHANNELS:
        raise MeshError(
            f"value's last dim (D) must be a positive multiple of {_CHANNELS}, got {value.shape[3]}: {op} of "
            f"{list(value.shape)}."
        )
    if attn.rank != 3 or attn.shape[0] != value.shape[0]:
        raise MeshError(f"{op}: attn {list(attn.shape)} must be [{value.shape[0]}, Q, P].")
    queries, points = attn.shape[1:]
    if grid.shape != (value.shape[0], queries * points, 1, 2):
        raise MeshError(
            f"{op}: grid {list(grid.shape)} must be {[value.shape[0], queries * points, 1, 2]}, a point for each "
            f"weight of attn {list(attn.shape)}."
        )

    def compute(images: torch.Tensor, where: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        found = sampled(images, where, align_corners=align_corners).squeeze(-2).unflatten(-2, (queries, points))
        return (found * weights.unsqueeze(-1)).sum(-2)

    return Local(compute, rules.along({0: [(0, 0), (1, 0), (2, 0)], 2: [(0, 3)]}))


# -- golden functions as TT-NN's suites call them: torch tensors NHWC in, NHWC out -------------------


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
    found = sampled_together(input_tensor.float(), together.float(), mode, align_corners, batch_output_channels)
    return found.to(input_tensor.dtype)
