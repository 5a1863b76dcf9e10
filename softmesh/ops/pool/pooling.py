"""max_pool2d, avg_pool2d, adaptive and global pooling: windows over images, channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from softmesh.dispatch import part_work
from softmesh.dispatch.cost_rules import flops_per_element
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import MeshError
from softmesh.hardware import Op2DSliceConfig
from softmesh.hardware.memory_config import DRAM_MEMORY_CONFIG, TensorMemoryLayout
from softmesh.kinds import Kind
from softmesh.ops.data_movement.image_layout import (
    Sides,
    channels_first,
    channels_last,
    check_not_flattened,
    flat_image_rule,
    flattened,
    four_sides,
    images_are_flat,
    ints,
    pair,
)
from softmesh.ops.data_movement.image_memory import Extents, Sharding, memory_in_l1, stays_in_l1
from softmesh.ops.golden import golden_pool as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.ops.reduction.reduction import index_type
from softmesh.placement import rules
from softmesh.tensor.dtype import DataType, Layout

_TUNING = "deallocate_input reallocate_halo_output config_tensor_in_dram"


class _Windows(NamedTuple):
    """Where windows lie: `beyond` are rows and columns past the padding that ceil_mode lets windows reach into."""

    sizes: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: Sides
    dilation: tuple[int, int]
    out: tuple[int, int]
    beyond: tuple[int, int]

    @property
    def made(self) -> tuple[int, int, int, int]:
        """The sizes of the result, channels last."""
        return self.sizes[0], *self.out, self.sizes[3]

    @property
    def is_seamless(self) -> bool:
        """Whether windows lie side by side and fill the image, so that parts of it meet no window twice."""
        fills = not (self.sizes[1] % self.stride[0] or self.sizes[2] % self.stride[1] or any(self.padding))
        return fills and self.kernel == self.stride and self.dilation == (1, 1)

    def widths(self) -> list[int]:
        """As F.pad wants them."""
        top, bottom, left, right = self.padding
        return [left, right + self.beyond[1], top, bottom + self.beyond[0]]


def _along(size: int, kernel: int, stride: int, ends: tuple[int, int], dilation: int, ceil: bool) -> int:
    """How many windows there are; with ceil_mode one more may hang over, if it starts within image or left padding."""
    free = size + sum(ends) - dilation * (kernel - 1) - 1
    count = (-(-free // stride) if ceil else free // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size + ends[0] else count


def _windows(
    op: str,
    sizes: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> _Windows:
    n, height, width, channels = ints(op, "batch_size, input_h, input_w, channels", list(sizes), (4,), 1)
    kernel, step = pair(op, "kernel_size", kernel_size, 1), pair(op, "stride", stride, 1)
    sides, spread = four_sides(op, padding), pair(op, "dilation", dilation, 1)
    ends = ((sides[0], sides[1]), (sides[2], sides[3]))
    if any(max(end) > k // 2 for end, k in zip(ends, kernel, strict=True)):
        raise MeshError(f"{op}: padding={list(padding)} should be at most half of kernel_size={list(kernel)}.")
    rows, columns = (
        _along(size, k, s, end, d, ceil_mode)
        for size, k, s, end, d in zip((height, width), kernel, step, ends, spread, strict=True)
    )
    if min(rows, columns) < 1:
        raise MeshError(f"{op}: a window of {list(kernel)} does not fit into {height}x{width} images.")
    beyond = [
        max(0, (count - 1) * s + d * (k - 1) + 1 - size - sum(end))
        for count, size, k, s, end, d in zip((rows, columns), (height, width), kernel, step, ends, spread, strict=True)
    ]
    out = (rows, columns)
    return _Windows((n, height, width, channels), kernel, step, sides, spread, out, (beyond[0], beyond[1]))


def _placed(
    op: str,
    local: Local,
    images: Operand,
    made: tuple[int, int, int, int],
    layout: Layout,
    slices: Op2DSliceConfig | None,
    scheme: TensorMemoryLayout | None,
) -> Local:
    """In L1 where the images are, in shards; else in DRAM. `made` are the sizes of the result, channels last."""
    held = images.spec.memory_config
    if scheme is not None and held.is_sharded():
        raise MeshError(
            f"{op}: A sharding scheme should not be specified for a sharded input tensor: the input is "
            f"{held.memory_layout}, and so will the result be; leave applied_shard_scheme={scheme} out."
        )
    if not stays_in_l1(held, slices):
        return replace(local, memory_config=DRAM_MEMORY_CONFIG)
    n, height, width, channels = made
    sharding = Sharding(layout, scheme, row_step=1)
    return replace(local, memory_on=partial(memory_in_l1, held, sharding, Extents(n * height * width, channels)))


def _fold_mesh_into_batch(images: torch.Tensor, windows: _Windows) -> torch.Tensor:
    """(mesh * N, C, H, W)"""
    return channels_first(images.reshape(*images.shape[:-4], *windows.sizes))


def _unfold_mesh(result: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    return flattened(channels_last(result, images.shape[:-4]))


def _max_local(
    op: str, images: Operand, windows: _Windows, return_indices: bool, dtype: DataType, layout: Layout
) -> Local:
    flat = images_are_flat(op, images, windows.sizes)
    _, height, width, _ = windows.sizes
    left, _, top, _ = windows.widths()
    padded_width = width + sum(windows.widths()[:2])

    def compute(x: torch.Tensor) -> Any:
        padded = F.pad(_fold_mesh_into_batch(x, windows), windows.widths(), value=float("-inf"))
        values, places = F.max_pool2d(padded, windows.kernel, windows.stride, 0, windows.dilation, return_indices=True)
        if not return_indices:
            return _unfold_mesh(values, x)
        rows = places.div(padded_width, rounding_mode="floor") - top
        own = rows * width + places % padded_width - left
        return [_unfold_mesh(values, x), _unfold_mesh(own, x)]

    dtypes = (dtype, index_type(height * width)) if return_indices else (dtype,)
    seamless = windows.is_seamless and not return_indices
    return Local(compute, flat_image_rule(flat), dtypes, (layout,) * len(dtypes), is_seamless=seamless)


@operation(
    kind=Kind.POOLING,
    rule=flat_image_rule,
    cost=flops_per_element(9),
    controls="memory_config",
    tuning=_TUNING,
    floats_only=True,
    results="Tensor | Any",
)
@with_reference(golden.golden_maxpool2d)
def max_pool2d(
    input_tensor: Operand,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    *,
    return_indices: bool = False,
    dtype: DataType = DataType.BFLOAT16,
    output_layout: Layout = Layout.ROW_MAJOR,
    dram_slice_config: Op2DSliceConfig | None = None,
    applied_shard_scheme: TensorMemoryLayout | None = None,
) -> Local:
    """The largest value of each window, as [1, 1, N*OH*OW, C]; with its place in the image, y * W + x, beside it."""
    op, sizes = "max_pool2d", (batch_size, input_h, input_w, channels)
    windows = _windows(op, sizes, kernel_size, stride, padding, dilation, ceil_mode)
    local = _max_local(op, input_tensor, windows, return_indices, dtype, output_layout)
    return _placed(op, local, input_tensor, windows.made, output_layout, dram_slice_config, applied_shard_scheme)


def _divisors(windows: _Windows, count_include_pad: bool, like: torch.Tensor) -> torch.Tensor:
    """(OH, OW): how many pixels of each window count."""
    _, height, width, _ = windows.sizes
    ones = torch.ones(1, 1, height, width, device=like.device)
    top, bottom, left, right = windows.padding
    counted = F.pad(ones, [left, right, top, bottom], value=float(count_include_pad))
    counted = F.pad(counted, [0, windows.beyond[1], 0, windows.beyond[0]])
    return F.avg_pool2d(counted, windows.kernel, windows.stride, divisor_override=1)


@operation(
    kind=Kind.POOLING,
    rule=flat_image_rule,
    cost=flops_per_element(9),
    controls="memory_config",
    tuning=f"{_TUNING} compute_kernel_config",
    floats_only=True,
)
@with_reference(golden.golden_avg_pool2d)
def avg_pool2d(
    input_tensor: Operand,
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
    *,
    dtype: DataType = DataType.BFLOAT16,
    output_layout: Layout = Layout.ROW_MAJOR,
    dram_slice_config: Op2DSliceConfig | None = None,
    applied_shard_scheme: TensorMemoryLayout | None = None,
) -> Local:
    """The mean of each window, as [1, 1, N*OH*OW, C]; padding counts unless told otherwise."""
    op, sizes = "avg_pool2d", (batch_size, input_h, input_w, channels)
    windows = _windows(op, sizes, kernel_size, stride, padding, (1, 1), ceil_mode)
    flat = images_are_flat(op, input_tensor, windows.sizes)
    if divisor_override == 0:
        raise MeshError("avg_pool2d: divisor_override must not be 0.")

    def compute(x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(_fold_mesh_into_batch(x, windows), windows.widths())
        total = F.avg_pool2d(padded, windows.kernel, windows.stride, divisor_override=1)
        by = divisor_override or _divisors(windows, count_include_pad, x)
        return _unfold_mesh(total / by, x)

    seamless = windows.is_seamless
    local = Local(compute, flat_image_rule(flat), (dtype,), (output_layout,), is_seamless=seamless)
    return _placed(op, local, input_tensor, windows.made, output_layout, dram_slice_config, applied_shard_scheme)


# -- adaptive and global pooling: windows by the size of the result ----------------------------------


_ADAPTIVE_TUNING = "deallocate_input reallocate_output"
_ADAPTIVE: dict[str, Any] = {
    "kind": Kind.POOLING,
    "rule": flat_image_rule,
    "cost": flops_per_element(2),
    "controls": "memory_config",
    "floats_only": True,
}


def _register_adaptive(
    op: str,
    what: str,
    pool: Callable[[torch.Tensor, tuple[int, int]], torch.Tensor],
    reference: Callable[..., Any],
    tuning: str = _ADAPTIVE_TUNING,
) -> None:
    def define(
        input_tensor: Operand,
        batch_size: int,
        input_h: int,
        input_w: int,
        channels: int,
        output_size: Sequence[int],
        *,
        dram_slice_config: Op2DSliceConfig | None = None,
        applied_shard_scheme: TensorMemoryLayout | None = None,
    ) -> Local:
        given = [batch_size, input_h, input_w, channels]
        sizes = ints(op, "batch_size, input_h, input_w, channels", given, (4,), 1)
        size = pair(op, "output_size", output_size, 1)
        flat = images_are_flat(op, input_tensor, sizes)

        def compute(x: torch.Tensor) -> torch.Tensor:
            apart = channels_first(x.reshape(*x.shape[:-4], *sizes))
            return flattened(channels_last(pool(apart, size), x.shape[:-4]))

        local = Local(compute, flat_image_rule(flat), layouts=(Layout.ROW_MAJOR,))
        made = (batch_size, *size, channels)
        return _placed(op, local, input_tensor, made, Layout.ROW_MAJOR, dram_slice_config, applied_shard_scheme)

    with_reference(reference)(define)
    define.__doc__ = f"The {what} of `output_size` windows that cover the image, torch's windows; TT-NN's may differ."
    operation(op, **_ADAPTIVE, tuning=tuning)(define)


_register_adaptive(
    "adaptive_avg_pool2d",
    "means",
    F.adaptive_avg_pool2d,
    golden.golden_adaptive_avg_pool2d,
    f"{_ADAPTIVE_TUNING} compute_kernel_config",
)
_register_adaptive("adaptive_max_pool2d", "largest values", F.adaptive_max_pool2d, golden.golden_adaptive_max_pool2d)


@operation(
    kind=Kind.POOLING,
    rule=rules.reducing,
    part_work=part_work.UNNOTICED,
    controls="memory_config dtype",
    floats_only=True,
)
@with_reference(golden.golden_global_avg_pool2d)
def global_avg_pool2d(input_tensor: Operand) -> Local:
    """[N, H, W, C] -> [N, 1, 1, C], the mean of each channel."""
    check_not_flattened("global_avg_pool2d", input_tensor)
    return Local(lambda x: x.mean((-3, -2), keepdim=True), rules.reducing("avg", [1, 2], keepdim=True))
