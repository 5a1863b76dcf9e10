"""Layouts of images, channels last: fold, convert_to_chw and convert_to_hwc; what conv and pool ops share.

Images come flat, [1, 1, N*H*W, C], or as [N, H, W, C]. The shared part converts between these and torch's
channels first, checks height and width arguments, and says what splits become.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F

from softmesh.dispatch.cost_rules import moves_bytes
from softmesh.dispatch.operand import Operand
from softmesh.dispatch.operation import operation
from softmesh.dispatch.plan import Local
from softmesh.errors import ArgumentError, MeshError
from softmesh.hardware.enums import BufferType
from softmesh.hardware.memory_config import MemoryConfig, ShardSpec, TensorMemoryLayout
from softmesh.kinds import Kind
from softmesh.ops.golden import golden_images_and_caches as golden
from softmesh.ops.golden.golden_functions import with_reference
from softmesh.placement import dim_labels, rules
from softmesh.placement.placements import placed
from softmesh.tensor.dtype import Layout

Sides = tuple[int, int, int, int]  # top, bottom, left, right

_CHANNELS_ALIGNED = 8  # of bfloat16: 16 bytes of L1


def ints(op: str, argument: str, values: object, counts: tuple[int, ...], least: int) -> list[int]:
    """That many whole numbers, none of them below `least`."""
    if not isinstance(values, list | tuple) or not all(isinstance(n, int) for n in values):
        raise ArgumentError(f"{op}: {argument} must be a sequence of ints, got {values!r}")
    if len(values) not in counts or min(values) < least:
        wanted = " or ".join(map(str, counts))
        raise MeshError(f"{op}: {argument}={list(values)} must be {wanted} numbers of {least} or more.")
    return list(values)


def pair(op: str, argument: str, values: Sequence[int], least: int) -> tuple[int, int]:
    first, second = ints(op, argument, values, (2,), least)
    return first, second


def four_sides(op: str, padding: Sequence[int]) -> Sides:
    """(height, width) or (top, bottom, left, right) as the latter."""
    sides = ints(op, "padding", padding, (2, 4), 0)
    top, bottom, left, right = sides if len(sides) == 4 else (sides[0], sides[0], sides[1], sides[1])
    return top, bottom, left, right


def images_are_flat(op: str, images: Operand, sizes: Sequence[int]) -> bool:
    """Whether they come as [1, 1, N*H*W, C], for sizes (N, H, W, C); an error where neither so nor apart."""
    n, height, width, channels = sizes
    flat, apart = (1, 1, n * height * width, channels), (n, height, width, channels)
    if images.shape not in (flat, apart):
        raise MeshError(
            f"{op}: {images.name} {list(images.shape)} must be {list(flat)} or {list(apart)} for {n} images of "
            f"{height}x{width} with {channels} channels, all of them those of each device."
        )
    return images.shape == flat


def check_not_flattened(op: str, images: Operand) -> None:
    if images.rank != 4:
        raise MeshError(f"{op}: {images.name} {list(images.shape)} must be [N, H, W, C].")


@placed("Split by image or by channels where the input is; any other split gives Local.")
def flat_image_rule(flat: bool) -> rules.Rule:
    """Of images that come out as [1, 1, N*H*W, C]: split by image or by channel they stay so."""
    batch = {0: [(0, 0)], 1: [(0, 1)], 2: [(0, 2)]} if flat else {2: [(0, 0)]}
    table = rules.along({**batch, 3: [(0, 3)]})

    @rules.labelled_each(table.labels)
    def rule(at: rules.Situation) -> Sequence[rules.Placement]:
        """An uneven split has filler at its end, which is no image."""
        is_uneven = isinstance(at.word, rules.Shard) and at.word.size is not None and at.word.dim < 3
        answer = rules.LOCAL if is_uneven else table(at)
        word = answer if isinstance(answer, rules.Placement) else answer[0]
        return [word] * len(at.out_shapes)

    return rule


def channels_first(images: torch.Tensor) -> torch.Tensor:
    """(*mesh, N, H, W, C) as torch's (mesh * N, C, H, W)."""
    return images.reshape(-1, *images.shape[-3:]).movedim(-1, -3)


def channels_last(images: torch.Tensor, lead: Sequence[int]) -> torch.Tensor:
    """The reverse: (mesh * N, C, H, W) as (*mesh, N, H, W, C)."""
    return images.movedim(-3, -1).unflatten(0, (*lead, -1))


def flattened(images: torch.Tensor) -> torch.Tensor:
    """(..., N, H, W, C) as (..., 1, 1, N*H*W, C)."""
    return images.flatten(-4, -2).unsqueeze(-3).unsqueeze(-3)


def in_shards_of(images: Operand, rows: Fraction, columns: int = 1) -> MemoryConfig | None:
    """Where a result lies that each core makes of its own shard: `rows` times as many sticks, so many times as wide.

    None, which leaves it to the op's default, where the images are not in shards or a shard's sticks do not come out
    whole.
    """
    config = images.spec.memory_config
    spec = config.shard_spec
    if not config.is_sharded() or spec is None:
        return None
    height, width = spec.shape[0] * rows, spec.shape[1] * columns
    if height.denominator != 1:
        return None
    shards = ShardSpec(spec.grid, [int(height), width], spec.orientation)
    return MemoryConfig(config.memory_layout, config.buffer_type, shards)


_OPTIONS: dict[str, Any] = {"kind": Kind.MOVEMENT, "cost": moves_bytes, "precision": "data"}


def _paddings(op: str, padding: Sequence[int]) -> list[int]:
    """(height, width), (top, bottom, left, right) or with channels before and after behind them, as F.pad wants it."""
    sides = ints(op, "padding", padding, (2, 4, 6), 0)
    if len(sides) == 2:
        sides = [sides[0], sides[0], sides[1], sides[1]]
    top, bottom, left, right, before, after = [*sides, 0, 0][:6]
    return [before, after, left, right, top, bottom]


def folded(images: torch.Tensor, stride_h: int, stride_w: int) -> torch.Tensor:
    """(..., N, H, W, C) -> (..., N, H/sh, W/sw, sh * sw * C): each window row by row, pixel by pixel."""
    apart = images.unflatten(-3, (-1, stride_h)).unflatten(-2, (-1, stride_w))  # H/sh, sh, W/sw, sw, C
    return apart.transpose(-4, -3).flatten(-3, -1)


def _fold_local(
    op: str,
    images: Operand,
    stride: tuple[int, int],
    padding: Sequence[int],
    channels_first: bool,
    output_shape: Sequence[int] | None,
    is_flat: bool,
    memory_config: MemoryConfig | None,
) -> Local:
    if images.rank != 4:
        raise MeshError(f"{op}: input {list(images.shape)} must have 4 dims.")
    n, height, width, channels = [images.shape[d] for d in (0, 2, 3, 1)] if channels_first else list(images.shape)
    before, after, left, right, top, bottom = _paddings(op, padding)
    height, width, channels = height + top + bottom, width + left + right, channels + before + after
    if min(stride) < 1 or height % stride[0] or width % stride[1]:
        raise MeshError(f"{op}: strides of {list(stride)} must divide the padded images of {height}x{width}.")
    made = [n, height // stride[0], width // stride[1], channels * stride[0] * stride[1]]
    shape = _cut_to(op, made, output_shape)

    def compute(x: torch.Tensor) -> torch.Tensor:
        last = x.movedim(-3, -1) if channels_first else x
        result = folded(F.pad(last, [before, after, left, right, top, bottom]), *stride)
        result = result[..., : shape[1], : shape[2], : shape[3]]
        return flattened(result) if is_flat else result

    @rules.labelled(dim_labels.moved({0: 2 if is_flat else 0}.get))
    def rule(at: rules.Situation) -> rules.Placement:
        word = at.word
        if not isinstance(word, rules.Shard):
            return word
        if word.dim != 0 or (is_flat and word.size is not None):
            return rules.LOCAL
        return word.at(2) if is_flat else word

    is_plain = not (channels_first or any(padding) or output_shape)
    window = stride[0] * stride[1]
    own = in_shards_of(images, Fraction(1, window), window) if is_plain else None
    return Local(compute, rule, layouts=(Layout.ROW_MAJOR,), memory_config=memory_config or own)


def _cut_to(op: str, made: list[int], wanted: Sequence[int] | None) -> list[int]:
    """What is folded, or the first part of it that is asked for."""
    if wanted is None:
        return made
    asked = [int(n) for n in wanted]
    if len(asked) != 4 or asked[0] != made[0] or any(n > m for n, m in zip(asked, made, strict=True)):
        raise MeshError(f"{op}: output_shape={asked} is not part of what is folded, {made}.")
    return asked


@operation(
    **_OPTIONS,
    controls="",
    tuning="grid_size",
    positional="grid_size override_memory_config collapse_output",
)
@with_reference(golden.fold)
def fold(
    input: Operand,
    stride_h: int,
    stride_w: int,
    use_transpose_as_fold: bool = False,
    output_shape: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    *,
    override_memory_config: MemoryConfig | None = None,
    collapse_output: bool = False,
) -> Local:
    """[N, H, W, C] -> [N, H/sh, W/sw, C * sh * sw]: windows become channels, row by row, pixel by pixel.

    With `use_transpose_as_fold` the images come as [N, C, H, W]. `padding` is (height, width), (top, bottom, left,
    right), or those and channels before and after; `collapse_output` gives [1, 1, N*H*W, C].
    """
    stride = (stride_h, stride_w)
    layout = (use_transpose_as_fold, output_shape, collapse_output, override_memory_config)
    return _fold_local("fold", input, stride, padding, *layout)


@operation(
    "experimental.quasar.fold",
    **_OPTIONS,
    controls="",
    tuning="grid_size",
    positional="grid_size override_memory_config input_is_nhwc",
)
def quasar_fold(
    input: Operand,
    stride_h: int,
    stride_w: int,
    use_transpose_as_fold: bool = False,
    output_shape: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    *,
    override_memory_config: MemoryConfig | None = None,
    input_is_nhwc: bool = False,
) -> Local:
    """As `fold`; `input_is_nhwc` says that images to be transposed come with their channels last already."""
    op, stride = "experimental.quasar.fold", (stride_h, stride_w)
    first = use_transpose_as_fold and not input_is_nhwc
    return _fold_local(op, input, stride, padding, first, output_shape, False, override_memory_config)


def _check_matrices(op: str, operand: Operand) -> None:
    if operand.rank != 4 or operand.shape[0] != 1:
        raise MeshError(f"{op}: input {list(operand.shape)} must be [1, N, rows, columns].")


@operation("experimental.convert_to_chw", **_OPTIONS, controls="dtype", rule=rules.permuting)
def convert_to_chw(input: Operand) -> Local:
    """[1, 1, H*W, C] -> [1, 1, C, H*W], row-major."""
    _check_matrices("experimental.convert_to_chw", input)
    return Local(lambda x: x.transpose(-2, -1), rules.permuting([0, 1, 3, 2]), layouts=(Layout.ROW_MAJOR,))


@operation("experimental.convert_to_hwc", **_OPTIONS, controls="dtype")
def convert_to_hwc(input: Operand, *, memory_config: MemoryConfig | None = None) -> Local:
    """[1, N, C, H*W] -> [1, 1, N*H*W, C], row-major; TT-NN also pads C in memory, which the values do not show.

    Columns of pixels on cores become rows of them on the same cores, unless a memory config says where.
    """
    op = "experimental.convert_to_hwc"
    _check_matrices(op, input)
    config = _in_rows_of_pixels(op, input, memory_config)

    @rules.labelled(dim_labels.moved({0: 0, 1: 2, 2: 3, 3: 2 if input.shape[1] == 1 else None}.get))
    def rule(at: rules.Situation) -> rules.Placement:
        word = at.word
        if not isinstance(word, rules.Shard):
            return word
        by_image = word.dim == 1 and word.size is None
        by_pixel = word.dim == 3 and at.shape[1] == 1
        target = {0: 0, 2: 3}.get(word.dim, 2 if by_image or by_pixel else None)
        return rules.LOCAL if target is None else word.at(target)

    def compute(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(-2, -1).flatten(-3, -2).unsqueeze(-3)

    return Local(compute, rule, layouts=(Layout.ROW_MAJOR,), memory_config=config)


def _in_rows_of_pixels(op: str, input: Operand, given: MemoryConfig | None) -> MemoryConfig | None:
    """Where the result of convert_to_hwc lies: in shards whose rows are the channels, padded to whole 16 bytes."""
    before = input.spec.memory_config
    shards, channels = before.shard_spec, input.shape[2]
    padded = -(-channels // _CHANNELS_ALIGNED) * _CHANNELS_ALIGNED
    if given is not None:
        if given.shard_spec is not None and given.shard_spec.shape[1] != padded:
            raise MeshError(
                f"{op}: rows of the output's shards hold {padded} channels, {channels} and padding up to a multiple of "
                f"{_CHANNELS_ALIGNED}; those of memory_config hold {given.shard_spec.shape[1]}."
            )
        return given
    if shards is None or before.memory_layout is not TensorMemoryLayout.WIDTH_SHARDED:
        return None
    if before.buffer_type is BufferType.DRAM:
        raise MeshError(
            "When input tensor is in DRAM, output memory_config must be explicitly specified: "
            f"{op} puts its result on cores, and the banks of DRAM say nothing of which."
        )
    rows = ShardSpec(shards.grid, [input.shape[1] * shards.shape[1], padded], shards.orientation)
    return MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, before.buffer_type, rows)
