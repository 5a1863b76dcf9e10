# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh.ops.normalization.group_norm import (
    create_group_norm_input_mask as create_group_norm_input_mask,
    create_group_norm_input_negative_mask as create_group_norm_input_negative_mask,
    create_group_norm_reciprocals as create_group_norm_reciprocals,
    create_group_norm_weight_bias_rm as create_group_norm_weight_bias_rm,
    determine_expected_group_norm_dram_grid_size as determine_expected_group_norm_dram_grid_size,
    determine_expected_group_norm_sharded_config_and_grid_size as determine_expected_group_norm_sharded_config_and_grid_size,
    dram_group_norm_params_from_torch as dram_group_norm_params_from_torch,
    dram_group_norm_virtual_columns as dram_group_norm_virtual_columns,
    find_closest_largest_divisor as find_closest_largest_divisor,
    find_max_tile_span as find_max_tile_span,
    get_group_norm_cores_across_channel as get_group_norm_cores_across_channel,
)
from softmesh import *
from softmesh.ops.device_operations import *
