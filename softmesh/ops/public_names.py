"""Public names beside the registered ops: plain functions around ops, and aliases below `ttnn.experimental.quasar`.

The functions (TOP, DOTTED) bring operands to a device, write back, or return more than the op they call.
"""

from __future__ import annotations

from softmesh.dispatch.entry_point import Function
from softmesh.dispatch.operation import OPERATIONS
from softmesh.hardware import Conv2dConfig
from softmesh.hardware.enums import (
    MorehSoftmaxBackwardOp,
    MorehSoftmaxBackwardOpParallelizationStrategy,
    MorehSoftmaxOpParallelizationStrategy,
)
from softmesh.ops.conv.conv2d import conv1d, conv2d, conv_transpose2d, get_conv_output_dim
from softmesh.ops.conv.conv3d import conv3d, prepare_conv3d_weights
from softmesh.ops.conv.conv_weights import (
    prepare_conv_bias,
    prepare_conv_transpose2d_bias,
    prepare_conv_transpose2d_weights,
    prepare_conv_weights,
)
from softmesh.ops.creation.creation import composite_example_multiple_return, moreh_full, randn
from softmesh.ops.data_movement.resharding import move, reallocate
from softmesh.ops.elementwise import complex_tensors
from softmesh.ops.moreh.movement import moreh_arange
from softmesh.ops.moreh.optimizers import moreh_clip_grad_norm
from softmesh.ops.normalization.batch_norm import batch_norm
from softmesh.ops.normalization.group_norm import (
    create_group_norm_input_mask,
    create_group_norm_input_negative_mask,
    create_group_norm_reciprocals,
    create_group_norm_weight_bias_rm,
    determine_expected_group_norm_dram_grid_size,
    determine_expected_group_norm_sharded_config_and_grid_size,
    dram_group_norm_params_from_torch,
    dram_group_norm_virtual_columns,
    find_closest_largest_divisor,
    find_max_tile_span,
    get_group_norm_cores_across_channel,
)
from softmesh.ops.pool.image_sampling import golden_grid_sample, golden_upsample
from softmesh.ops.random.dropout_and_sampling import bernoulli, dropout, uniform
from softmesh.tensor.transfer import to_device

_CONVOLUTION: dict[str, object] = {
    "get_conv_output_dim": get_conv_output_dim,
    "prepare_conv_bias": prepare_conv_bias,
    "prepare_conv_transpose2d_bias": prepare_conv_transpose2d_bias,
    "prepare_conv_transpose2d_weights": prepare_conv_transpose2d_weights,
    "prepare_conv_weights": prepare_conv_weights,
}
_NORMALIZATION: dict[str, object] = {
    "create_group_norm_input_mask": create_group_norm_input_mask,
    "create_group_norm_reciprocals": create_group_norm_reciprocals,
    "create_group_norm_input_negative_mask": create_group_norm_input_negative_mask,
    "create_group_norm_weight_bias_rm": create_group_norm_weight_bias_rm,
    "determine_expected_group_norm_dram_grid_size": determine_expected_group_norm_dram_grid_size,
    "determine_expected_group_norm_sharded_config_and_grid_size": (
        determine_expected_group_norm_sharded_config_and_grid_size
    ),
    "dram_group_norm_params_from_torch": dram_group_norm_params_from_torch,
    "get_group_norm_cores_across_channel": get_group_norm_cores_across_channel,
}
_COMPLEX = "angle angle_bw complex_tensor conj conj_bw imag imag_bw is_imag is_real polar polar_bw real real_bw"
TOP: dict[str, object] = {
    **{name: Function(getattr(complex_tensors, name), name) for name in _COMPLEX.split()},
    "batch_norm": batch_norm,
    "bernoulli": bernoulli,
    "composite_example_multiple_return": composite_example_multiple_return,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d,
    "moreh_arange": moreh_arange,
    "moreh_clip_grad_norm": moreh_clip_grad_norm,
    "moreh_full": moreh_full,
    "move": move,
    "randn": randn,
    "reallocate": reallocate,
    "uniform": uniform,
    **_CONVOLUTION,
    **_NORMALIZATION,
}
DOTTED: dict[str, object] = {
    "experimental.conv3d": conv3d,
    "experimental.dropout": dropout,
    "experimental.prepare_conv3d_weights": prepare_conv3d_weights,
    "experimental.quasar.conv2d": conv2d,
    "experimental.quasar.move": move,
    "experimental.quasar.reallocate": reallocate,
    "experimental.quasar.to_device": to_device,
    "operations.conv2d.Conv2dConfig": Conv2dConfig,
    **{f"operations.conv2d.{name}": function for name, function in _CONVOLUTION.items()},
    **{f"operations.normalization.{name}": function for name, function in _NORMALIZATION.items()},
    "operations.normalization.dram_group_norm_virtual_columns": dram_group_norm_virtual_columns,
    "operations.normalization.find_closest_largest_divisor": find_closest_largest_divisor,
    "operations.normalization.find_max_tile_span": find_max_tile_span,
    "operations.moreh.SoftmaxBackwardOp": MorehSoftmaxBackwardOp,
    "operations.moreh.SoftmaxBackwardOpParallelizationStrategy": MorehSoftmaxBackwardOpParallelizationStrategy,
    "operations.moreh.SoftmaxOp": MorehSoftmaxOpParallelizationStrategy,  # as TT-NN has it
    "operations.moreh.SoftmaxOpParallelizationStrategy": MorehSoftmaxOpParallelizationStrategy,
    "operations.pool.golden_grid_sample": golden_grid_sample,
    "operations.pool.golden_upsample": golden_upsample,
}


# -- `ttnn.experimental.quasar`: the ops under the names they have for that chip; they compute the same


_PREFIX = "experimental.quasar."
_SAME = (
    *("add", "add_", "addalpha", "addmm", "atan2", "avg_pool2d", "bias_gelu", "bias_gelu_", "bitwise_and"),
    *(
        "bitwise_left_shift",
        "bitwise_or",
        "bitwise_right_shift",
        "bitwise_xor",
        "div",
        "div_no_nan",
        "divide",
    ),
    *("divide_", "eq", "eq_", "floor_div", "fmod", "gcd", "ge", "ge_", "gt", "gt_", "hypot"),
    *("interleaved_to_sharded", "isclose", "lcm", "ldexp", "ldexp_", "le", "le_", "linear", "logaddexp"),
    *("logaddexp2", "logaddexp2_", "logaddexp_", "logical_and", "logical_and_", "logical_left_shift"),
    *(
        "logical_or",
        "logical_or_",
        "logical_right_shift",
        "logical_xor",
        "logical_xor_",
        "lt",
        "lt_",
        "matmul",
    ),
    *("max_pool2d", "maximum", "minimum", "multiply", "multiply_", "ne", "ne_", "nextafter", "outer", "pad"),
    *("polyval", "pow", "prelu", "remainder", "reshard", "rsub", "rsub_", "sharded_to_interleaved", "slice"),
    *("squared_difference", "squared_difference_", "subalpha", "subtract", "subtract_", "tilize"),
    *("tilize_with_val_padding", "tilize_with_zero_padding", "to_layout", "to_memory_config", "transpose"),
    *("untilize", "untilize_with_unpadding", "xlogy"),
)
_UNDER_OTHER_NAMES = {"padded_slice": "experimental.padded_slice", "slice_write": "experimental.slice_write"}


def register_quasar_names() -> None:
    """After all others: each name stands for an op that is there."""
    for name, meant in {**dict(zip(_SAME, _SAME, strict=True)), **_UNDER_OTHER_NAMES}.items():
        OPERATIONS[_PREFIX + name] = OPERATIONS[meant]
