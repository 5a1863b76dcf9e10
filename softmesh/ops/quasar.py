"""`ttnn.experimental.quasar`: the ops under the names they have for that chip. They compute the same."""

from __future__ import annotations

from softmesh.dispatch.operation import OPERATIONS

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


def register() -> None:
    """After all others: each name stands for an op that is there."""
    for name, meant in {**dict(zip(_SAME, _SAME, strict=True)), **_UNDER_OTHER_NAMES}.items():
        OPERATIONS[_PREFIX + name] = OPERATIONS[meant]
