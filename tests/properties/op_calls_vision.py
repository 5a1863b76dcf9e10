"""Generated calls of ops on images; convolutions and norms have tests of their own in tests/unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from op_calls import APPROXIMATE, CALLS, TESTED_ELSEWHERE, Call, Entry, extents
from strategies import Extents, Like

import softmesh as ttnn
from softmesh.dispatch.operation import Operation

APPROXIMATE.update({"avg_pool2d", "global_avg_pool2d", "grid_sample", "batch_norm", "upsample"})
TESTED_ELSEWHERE.update(
    {
        # tests/unit/test_convolutions_more.py
        *("prepare_conv_weights", "prepare_conv_transpose2d_weights", "conv_transpose2d"),
        *("experimental.conv3d", "experimental.prepare_conv3d_weights"),
        # tests/unit/test_ops_vision.py
        *("adaptive_avg_pool2d", "adaptive_max_pool2d", "rotate", "experimental.multi_scale_deformable_attn"),
        *("experimental.quasar.fold", "experimental.convert_to_chw", "group_norm"),
        *("prim.batch_statistics", "prim.running_statistics"),
    }
)

# The sizes of each device are arguments: of whole images, those of the whole.
_SIZES: Callable[[ttnn.Tensor], list[int]] = lambda images: list(images.shape)  # noqa: E731


def _images(draw: st.DrawFn, dtype: ttnn.DataType, even: bool = False) -> Like:
    side = st.sampled_from([2, 4]) if even else st.sampled_from([2, 3, 4])
    kind = ttnn.bfloat16 if dtype is ttnn.bfloat8_b else dtype
    shape = (draw(extents), draw(side), draw(side), draw(extents))
    return Like(shape, kind, ttnn.ROW_MAJOR_LAYOUT, "whole")


def _pooling(*more: Any) -> Entry:
    def build(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
        padding = draw(st.sampled_from([[0, 0], [1, 1], [1, 0, 0, 1]]))
        ceil = draw(st.booleans())

        def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
            arguments = [*_SIZES(tensors[0]), [2, 2], [2, 1], padding, *more, ceil]
            return op(*tensors, *arguments, dtype=tensors[0].dtype)

        return Call((_images(draw, dtype),), run, {2: (0,), 3: (3,)})

    return build


def _upsample(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    scale, mode = draw(st.sampled_from([(2, "nearest"), ((1, 3), "nearest"), (2, "bilinear")]))
    run = lambda op, tensors, wanted: op(*tensors, scale, mode=mode)  # noqa: E731
    return Call((_images(draw, dtype),), run, {0: (0,), 3: (3,)})


def _fold(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    collapsed = draw(st.booleans())
    run = lambda op, tensors, wanted: op(*tensors, 2, 1, collapse_output=collapsed)  # noqa: E731
    return Call((_images(draw, dtype, even=True),), run, {2 if collapsed else 0: (0,)})


def _to_hwc(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    like = Like((1, draw(extents), draw(extents), draw(extents)), ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        if tensors[0].shape[0] == 1:
            return op(*tensors)
        several = [op(part) for part in ttnn.split(tensors[0], 1, 0)]  # whole values may stand one behind the other
        return ttnn.concat(several, 0)

    return Call((like,), run, {3: (2,)})


def _grid_sample(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    images = _images(draw, ttnn.float32)
    points = (images.shape[0], draw(extents), draw(extents), 2 * draw(st.integers(1, 2)))
    grid = Like(points, ttnn.float32, ttnn.ROW_MAJOR_LAYOUT, "unit")
    return Call((images, grid), splits={0: (0, 0), 1: (None, 1), 2: (None, 2), 3: (3, None)})


def _batch_norm(draw: st.DrawFn, dtype: ttnn.DataType) -> Call:
    shape = tuple(draw(extents) for _ in range(4))
    channels = (1, shape[1], 1, 1)
    likes = (Like(shape, dtype), *(Like(channels, dtype, values="positive") for _ in range(3)))

    def run(op: Operation, tensors: Sequence[ttnn.Tensor], wanted: Extents) -> Any:
        return op(*tensors[:3], weight=tensors[3], eps=0.5)

    splits = {d: (d, *(1 if d == 1 else None for _ in range(3))) for d in range(4)}
    return Call(likes, run, splits)


CALLS["max_pool2d"] = _pooling([1, 1])
CALLS["avg_pool2d"] = _pooling()
CALLS["upsample"] = _upsample
CALLS["fold"] = _fold
CALLS["experimental.convert_to_hwc"] = _to_hwc
CALLS["grid_sample"] = _grid_sample
CALLS["global_avg_pool2d"] = lambda draw, dtype: Call((_images(draw, dtype),), splits={0: (0,), 3: (3,)})
CALLS["batch_norm"] = _batch_norm
