"""One call by name of the moreh ops, of quantization and of the gradients of moves."""

from __future__ import annotations

from typing import Any

import torch
from gradient_calls import ints
from op_examples import EXAMPLES, Example, Make, like_of
from strategies import Extents

import softmesh as ttnn


def _alike(*operands: str, **options: Any) -> Make:
    """All of one shape."""
    return lambda shape: Example(dict.fromkeys(operands, like_of(shape)), options)


def _sums(shape: Extents) -> Example:
    return Example({"output_grad": like_of((*shape[:-1], 1))}, {"dim": 3, "keepdim": True, "input_grad_shape": shape})


def _whole(shape: Extents, *numbers: str) -> Example:
    return Example({"input_tensor": like_of(shape, "below 4", ttnn.int32)}, dict.fromkeys(numbers, 2))


_LOSS = {"input_tensor": like_of((4, 8)), "target_tensor": ints(0, 3, 2, 7)}
_LOSS_BACK = {"target_tensor": ints(0, 3, 2, 7), "input_grad_tensor": like_of((4, 8))}
_ADAM = ("param_in", "grad", "exp_avg_in", "exp_avg_sq_in")
_STATISTICS = ("mean", "rstd")
EXAMPLES |= {
    "concat_bw": lambda shape: Example(
        {
            "grad_tensor": like_of((2, *shape[1:])),
            **dict.fromkeys(("input_tensor_a", "input_tensor_b"), like_of(shape)),
        },
        {"dim": 0},
    ),
    "repeat_bw": lambda shape: Example(
        {"grad_tensor": like_of((2, *shape[1:])), "input_tensor": like_of(shape)}, {"shape": [2, 1, 1, 1]}
    ),
    "prod_bw": lambda shape: Example(
        {"grad_tensor": like_of((*shape[:-1], 1)), "input_tensor": like_of(shape)}, {"dim": 3}
    ),
    "quantize": lambda shape: Example({"input_tensor": like_of(shape)}, {"scale": 0.1, "zero_point": 1}),
    "dequantize": lambda shape: _whole(shape, "scale", "zero_point"),
    "requantize": lambda shape: _whole(shape, "in_scale", "in_zero_point", "out_scale", "out_zero_point"),
    **dict.fromkeys(
        ("index_fill", "index_fill_new"),
        lambda shape: Example({"input": like_of(shape), "index": ints(0)}, {"dim": 1, "value": 1.5}),
    ),
    "moreh_abs_pow": _alike("input", p=2.5),
    "moreh_norm": _alike("input", p=2.0, dim=3, keepdim=True),
    "moreh_norm_backward": lambda shape: Example(
        {"input": like_of(shape), **dict.fromkeys(("output", "output_grad"), like_of((*shape[:-1], 1)))},
        {"p": 2.0, "dim": 3, "keepdim": True},
    ),
    "moreh_adam": _alike(*_ADAM, step=1),
    "moreh_adamw": _alike(*_ADAM, step=1),
    "moreh_bmm": lambda shape: Example(dict.fromkeys(("input", "mat2"), like_of((2, 64, 64)))),
    "moreh_cumsum_backward": _alike("output_grad", dim=1),
    "moreh_dot_backward": lambda shape: Example(
        {
            "output_grad": like_of((1, 1, 1, 1)),
            **dict.fromkeys(("input", "other", "input_grad"), like_of((1, 1, 1, 64))),
        }
    ),
    "moreh_fold": lambda shape: Example({"input": like_of((1, 4, 9))}, {"output_size": [4, 4], "kernel_size": [2, 2]}),
    "moreh_getitem": lambda shape: Example(
        {"input": like_of((8, 64)), "index_tensors": [torch.arange(4, dtype=torch.int32)]}, {"index_dims": [0]}
    ),
    "moreh_layer_norm": _alike("input", normalized_dims=1),
    "moreh_layer_norm_backward": lambda shape: Example(
        {
            **dict.fromkeys(("output_grad", "input"), like_of(shape)),
            **dict.fromkeys(_STATISTICS, like_of(shape[:-1])),
        },
        {"normalized_dims": 1},
    ),
    "moreh_group_norm": _alike("input", num_groups=2),
    "moreh_group_norm_backward": lambda shape: Example(
        {
            **dict.fromkeys(("output_grad", "input"), like_of(shape)),
            **dict.fromkeys(_STATISTICS, like_of((1, 1, shape[0], 2))),
        },
        {"num_groups": 2},
    ),
    **dict.fromkeys(("moreh_softmax", "moreh_softmin", "moreh_logsoftmax"), _alike("input_tensor", dim=3)),
    **dict.fromkeys(
        ("moreh_softmax_backward", "moreh_softmin_backward", "moreh_logsoftmax_backward"),
        _alike("output_tensor", "output_grad_tensor", dim=3),
    ),
    "moreh_mean": _alike("input", dim=3, keepdim=True),
    "moreh_sum": _alike("input", dim=3, keepdim=True),
    "moreh_mean_backward": _sums,
    "moreh_sum_backward": _sums,
    "moreh_nll_loss": lambda shape: Example(_LOSS, {"reduction": "sum"}),
    "moreh_nll_loss_backward": lambda shape: Example(
        {**_LOSS_BACK, "output_grad_tensor": like_of((1,))}, {"reduction_mean": False}
    ),
    "moreh_nll_loss_unreduced_backward": lambda shape: Example({**_LOSS_BACK, "output_grad_tensor": like_of((4,))}),
}
