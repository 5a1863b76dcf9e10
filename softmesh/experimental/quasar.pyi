# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from collections.abc import Sequence
from softmesh.cores import CoreRange, CoreRangeSet
from softmesh.hardware.enums import DataType, TileReshapeMapMode
from softmesh.hardware.memory_config import MemoryConfig
from softmesh.tensor.tensor import Tensor
from typing import overload
from softmesh import (
    add as add,
    add_ as add_,
    addalpha as addalpha,
    addmm as addmm,
    atan2 as atan2,
    avg_pool2d as avg_pool2d,
    bias_gelu as bias_gelu,
    bias_gelu_ as bias_gelu_,
    bitwise_and as bitwise_and,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift,
    bitwise_xor as bitwise_xor,
    div_ as divide_,
    div_no_nan as div_no_nan,
    divide as div,
    divide as divide,
    eq as eq,
    eq_ as eq_,
    floor_div as floor_div,
    fmod as fmod,
    gcd as gcd,
    ge as ge,
    ge_ as ge_,
    gt as gt,
    gt_ as gt_,
    hypot as hypot,
    interleaved_to_sharded as interleaved_to_sharded,
    isclose as isclose,
    lcm as lcm,
    ldexp as ldexp,
    ldexp_ as ldexp_,
    le as le,
    le_ as le_,
    linear as linear,
    logaddexp as logaddexp,
    logaddexp2 as logaddexp2,
    logaddexp2_ as logaddexp2_,
    logaddexp_ as logaddexp_,
    logical_and as logical_and,
    logical_and_ as logical_and_,
    logical_left_shift as logical_left_shift,
    logical_or as logical_or,
    logical_or_ as logical_or_,
    logical_right_shift as logical_right_shift,
    logical_xor as logical_xor,
    logical_xor_ as logical_xor_,
    lt as lt,
    lt_ as lt_,
    matmul as matmul,
    max_pool2d as max_pool2d,
    maximum as maximum,
    minimum as minimum,
    mul as multiply,
    mul_ as multiply_,
    ne as ne,
    ne_ as ne_,
    nextafter as nextafter,
    outer as outer,
    pad as pad,
    polyval as polyval,
    pow as pow,
    prelu as prelu,
    remainder as remainder,
    reshard as reshard,
    rsub as rsub,
    rsub_ as rsub_,
    sharded_to_interleaved as sharded_to_interleaved,
    slice as slice,
    squared_difference as squared_difference,
    squared_difference_ as squared_difference_,
    sub as subtract,
    sub_ as subtract_,
    subalpha as subalpha,
    tilize as tilize,
    tilize_with_val_padding as tilize_with_val_padding,
    tilize_with_zero_padding as tilize_with_zero_padding,
    to_layout as to_layout,
    to_memory_config as to_memory_config,
    transpose as transpose,
    untilize as untilize,
    untilize_with_unpadding as untilize_with_unpadding,
    xlogy as xlogy,
)
from softmesh.ops.conv.conv2d import conv2d as conv2d
from softmesh.ops.data_movement.resharding import move as move, reallocate as reallocate
from softmesh.tensor.transfer import to_device as to_device

def fold(
    input: Tensor,
    stride_h: int,
    stride_w: int,
    use_transpose_as_fold: bool = False,
    output_shape: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    grid_size: object = None,
    override_memory_config: MemoryConfig | None = None,
    input_is_nhwc: bool = False,
) -> Tensor:
    """As `fold`; `input_is_nhwc` says that images to be transposed come with their channels last already."""
def padded_slice(
    input_tensor: Tensor,
    padded_slice_start: Sequence[int],
    padded_slice_end: Sequence[int],
    padded_slice_step: Sequence[int] | None = None,
    *,
    memory_config: MemoryConfig | None = None,
    output_tensor: Tensor | None = None,
    pad_value: object = None,
) -> Tensor:
    """input[start:end:step]; the padding up to whole shards of its memory config is not part of the values."""
@overload
def reshape(
    input_tensor: Tensor,
    shape: Sequence[int],
    padded_shape: Sequence[int] | None = None,
    *,
    reshape_tile_mode: TileReshapeMapMode = ...,
    memory_config: MemoryConfig | None = None,
    pad_value: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    skip_padding_fill: object = None,
) -> Tensor:
    """The same elements, row-major, under another shape; one extent may be -1."""
@overload
def reshape(
    input_tensor: Tensor,
    logical_shape: Sequence[int],
    padded_shape: Sequence[int] | None = None,
    *,
    reshape_tile_mode: TileReshapeMapMode = ...,
    memory_config: MemoryConfig | None = None,
    pad_value: object = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    skip_padding_fill: object = None,
) -> Tensor: ...
def slice_write(
    input_tensor: Tensor, output_tensor: Tensor, start: Sequence[int], end: Sequence[int], step: Sequence[int]
) -> Tensor:
    """Write input into output[start:end:step]; returns the output."""
@overload
def typecast(
    input_tensor: Tensor,
    dtype: DataType,
    memory_config: MemoryConfig | None = None,
    optional_output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
    *,
    input_dtype: DataType | None = None,
) -> Tensor:
    """To another dtype: `(tensor, dtype)`, or `(tensor, input_dtype, output_dtype)`."""
@overload
def typecast(
    input_tensor: Tensor,
    input_dtype: DataType | None,
    output_dtype: DataType | None,
    memory_config: MemoryConfig | None = None,
    optional_output_tensor: Tensor | None = None,
    sub_core_grids: CoreRangeSet | CoreRange | None = None,
) -> Tensor: ...
