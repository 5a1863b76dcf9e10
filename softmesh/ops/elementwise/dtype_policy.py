"""Dtype rules of TT-NN's binary ops: which they take, alone and beside each other."""

from __future__ import annotations

from softmesh.dispatch.operand import Operand, Value
from softmesh.errors import MeshError
from softmesh.tensor.dtype import FACTS, DataType

_FLOATS = frozenset(dtype for dtype, known in FACTS.items() if known.is_float)
_LONG = frozenset({DataType.INT32, DataType.UINT32})
_WHOLE = _LONG | {DataType.UINT16}

_ALLOWED: dict[str, frozenset[DataType]] = {
    **dict.fromkeys(
        [
            "add",
            "subtract",
            "multiply",
            "rsub",
            "squared_difference",
            "logical_and",
            "logical_or",
            "logical_xor",
        ],
        _FLOATS | _WHOLE,
    ),
    **dict.fromkeys(["gt", "lt", "le", "ge", "eq", "ne"], _FLOATS | _WHOLE | {DataType.UINT8}),
    **dict.fromkeys(["remainder", "maximum", "minimum"], _FLOATS | _LONG),
    **dict.fromkeys(["div", "divide", "fmod", "isclose"], _FLOATS | {DataType.INT32}),
    **dict.fromkeys(
        [
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "bitwise_left_shift",
            "bitwise_right_shift",
            "logical_left_shift",
        ],
        _WHOLE,
    ),
    "logical_right_shift": _LONG,
    **dict.fromkeys(["gcd", "lcm"], frozenset({DataType.INT32})),
    **dict.fromkeys(
        ["logaddexp", "logaddexp2", "ldexp", "bias_gelu", "pow", "xlogy", "atan2", "hypot"],
        _FLOATS,
    ),
}
_MIXING = frozenset(
    [
        "add",
        "subtract",
        "multiply",
        "rsub",
        "squared_difference",
        "logical_and",
        "logical_or",
        "logical_xor",
        "gt",
        "lt",
        "le",
        "ge",
        "eq",
        "ne",
        "div",
        "divide",
    ]
)
_COMPARED = frozenset({DataType.FLOAT32, DataType.BFLOAT16, DataType.INT32})  # isclose compares them as float32
_CASTING = frozenset({"multiply", "div", "divide"})  # whole numbers beside floats become floats first


def cast_beside_float(op: str, a: Value, b: Value) -> DataType | None:
    """The float that multiply and div make of whole numbers beside a float tensor; None: nothing to do."""
    if op.removesuffix("_") not in _CASTING or not isinstance(a, Operand) or not isinstance(b, Operand):
        return None
    if a.is_float is b.is_float or not {a.dtype, b.dtype} & _LONG:
        return None
    return DataType.FLOAT32 if DataType.FLOAT32 in (a.dtype, b.dtype) else DataType.BFLOAT16


def check_dtypes(op: str, a: Value, b: Value) -> None:
    """An op without an entry takes what it is given."""
    name = op.removesuffix("_")
    allowed = _ALLOWED.get(name)
    if allowed is None or cast_beside_float(op, a, b) is not None:
        return
    for letter, operand in (("A", a), ("B", b)):
        if isinstance(operand, Operand) and operand.dtype not in allowed:
            raise MeshError(
                f"Input tensor {letter} dtype {operand.dtype} is not supported for binary operation {op}: "
                f"ttnn.typecast({operand.name}, ...) to one of {', '.join(sorted(d.name for d in allowed))}."
            )
    if not isinstance(a, Operand) or not isinstance(b, Operand) or a.dtype is b.dtype:
        return
    are_floats = a.is_float and b.is_float
    of_isclose = name == "isclose" and {a.dtype, b.dtype} <= _COMPARED
    if not (are_floats and name in _MIXING) and not of_isclose:
        raise MeshError(
            f"Mixed dtype is not supported for binary operation {op}, dtype A: {a.dtype}, dtype B: {b.dtype}: "
            "bring one to the dtype of the other with ttnn.typecast."
        )
