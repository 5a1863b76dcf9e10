"""Public names that are functions around ops: they bring operands to a device, write back, or hand back more."""

from __future__ import annotations

from softmesh.hardware import Conv2dConfig
from softmesh.ops.chance import bernoulli, dropout
from softmesh.ops.convolution import conv2d
from softmesh.ops.filling import composite_example_multiple_return, moreh_full
from softmesh.ops.residence import move, reallocate
from softmesh.ops.vision.batch_norm import batch_norm
from softmesh.ops.vision.conv1d import conv1d, get_conv_output_dim
from softmesh.ops.vision.conv3d import conv3d, prepare_conv3d_weights
from softmesh.ops.vision.conv_transpose2d import conv_transpose2d
from softmesh.ops.vision.conv_weights import (
    prepare_conv_bias,
    prepare_conv_transpose2d_bias,
    prepare_conv_transpose2d_weights,
    prepare_conv_weights,
)
from softmesh.ops.vision.goldens import golden_grid_sample, golden_upsample
from softmesh.ops.vision.group_norm_grids import (
    determine_expected_group_norm_dram_grid_size,
    determine_expected_group_norm_sharded_config_and_grid_size,
    find_closest_largest_divisor,
)
from softmesh.ops.vision.group_norm_masks import (
    create_group_norm_input_mask,
    create_group_norm_input_negative_mask,
    find_max_tile_span,
)
from softmesh.ops.vision.group_norm_params import (
    create_group_norm_weight_bias_rm,
    dram_group_norm_params_from_torch,
    dram_group_norm_virtual_columns,
    get_group_norm_cores_across_channel,
)
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
    "create_group_norm_input_negative_mask": create_group_norm_input_negative_mask,
    "create_group_norm_weight_bias_rm": create_group_norm_weight_bias_rm,
    "determine_expected_group_norm_dram_grid_size": determine_expected_group_norm_dram_grid_size,
    "determine_expected_group_norm_sharded_config_and_grid_size": (
        determine_expected_group_norm_sharded_config_and_grid_size
    ),
    "dram_group_norm_params_from_torch": dram_group_norm_params_from_torch,
    "get_group_norm_cores_across_channel": get_group_norm_cores_across_channel,
}
TOP: dict[str, object] = {
    "batch_norm": batch_norm,
    "bernoulli": bernoulli,
    "composite_example_multiple_return": composite_example_multiple_return,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d,
    "moreh_full": moreh_full,
    "move": move,
    "reallocate": reallocate,
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
    "operations.pool.golden_grid_sample": golden_grid_sample,
    "operations.pool.golden_upsample": golden_upsample,
}
