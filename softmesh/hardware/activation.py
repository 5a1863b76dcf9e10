"""Unary functions that a kernel can apply to its result, and the variants some of them have."""

from __future__ import annotations

from typing import Any

from softmesh.arguments import described
from softmesh.errors import ArgumentError
from softmesh.hardware.enums import NativeEnum


class GeluVariant(NativeEnum):
    Accurate = 0
    FastLut = 1
    Tanh = 2


class SigmoidMode(NativeEnum):
    FastApproximate = 0
    AccurateWithFastExp = 1
    Accurate = 2


class UnaryOpType(NativeEnum):
    """Every unary function of the vector unit, numbered as TT-NN numbers them."""

    EXP = 0
    RECIP = 1
    GELU = 2
    GELU_TANH = 3
    RELU = 4
    SQRT = 5
    SIGMOID = 6
    LOG = 7
    LOG1P = 8
    TANH = 9
    LOG2 = 10
    LOG10 = 11
    SIN = 12
    COS = 13
    COSH = 14
    SINH = 15
    ABS = 16
    ABS_INT32 = 17
    SIGN = 18
    SQUARE = 19
    EQZ = 20
    NEZ = 21
    GTZ = 22
    LTZ = 23
    GEZ = 24
    LEZ = 25
    RELU_MAX = 26
    RELU_MIN = 27
    POWER = 28
    POWER_ITERATIVE = 29
    LEAKY_RELU = 30
    ELU = 31
    EXP2 = 32
    HEAVISIDE = 33
    EXPM1 = 34
    SIGNBIT = 35
    ASIN = 36
    ACOS = 37
    ACOSH = 38
    RSQRT = 39
    RELU6 = 40
    ATAN = 41
    ASINH = 42
    ATANH = 43
    ERF = 44
    ERFC = 45
    ISINF = 46
    ISPOSINF = 47
    ISNEGINF = 48
    ISNAN = 49
    LOGICAL_NOT_UNARY = 50
    ISFINITE = 51
    ERFINV = 52
    I0 = 53
    I1 = 54
    TAN = 55
    RSUB = 56
    RDIV = 57
    SILU = 58
    SOFTPLUS = 59
    IDENTITY = 60
    NEG = 61
    ADD_UNARY_SFPU = 62
    SUB_UNARY_SFPU = 63
    MUL_UNARY_SFPU = 64
    DIV_UNARY_SFPU = 65
    UNARY_NE = 66
    UNARY_EQ = 67
    UNARY_GT = 68
    UNARY_LT = 69
    UNARY_GE = 70
    UNARY_LE = 71
    TILED_PROD = 72
    TYPECAST = 73
    BITCAST = 74
    BITWISE_XOR = 75
    BITWISE_NOT = 76
    BITWISE_AND = 77
    BITWISE_OR = 78
    RIGHT_SHIFT = 79
    FLOOR = 80
    CEIL = 81
    TRUNC = 82
    FRAC = 83
    ROUND = 84
    LEFT_SHIFT = 85
    REMAINDER = 86
    FMOD = 87
    DROPOUT = 88
    FILL = 89
    PRELU_SFPU = 90
    ZERO_POINT = 91
    ALT_COMPLEX_ROTATE90 = 92
    MISH = 93
    HARDMISH = 94
    MAXIMUM = 95
    MINIMUM = 96
    TANHSHRINK = 97
    THRESHOLD = 98
    SOFTSHRINK = 99
    HARDSHRINK = 100
    HARDTANH = 101
    HARDSIGMOID = 102
    HARDSWISH = 103
    WHERE_TSS = 104
    MAC_TSS = 105
    SOFTSIGN = 106
    CELU = 107
    CLAMP_TSS = 108
    SELU = 109
    RPOW = 110
    CBRT = 111
    LOGSIGMOID = 112
    LOGIT = 113
    XIELU = 114
    LGAMMA = 115
    DIGAMMA = 116
    POLYGAMMA = 117
    SOFTCAP = 118


class UnaryWithParam:
    """A unary function with its parameters: `UnaryWithParam(UnaryOpType.LEAKY_RELU, 0.1)`."""

    __slots__ = ("_op_type", "_params")

    def __init__(
        self, arg0: UnaryOpType | tuple[UnaryOpType, float] | list[UnaryOpType | float], *params: float
    ) -> None:
        if isinstance(arg0, tuple | list) and len(arg0) == 2 and not params:
            op_type, params = arg0[0], (arg0[1],)  # type: ignore[assignment]
        else:
            op_type = arg0  # type: ignore[assignment]
        numbers = all(isinstance(param, (int, float)) for param in params)
        if not isinstance(op_type, UnaryOpType) or not numbers or len(params) > 2:
            raise ArgumentError(
                "__init__(): incompatible function arguments. Write UnaryWithParam(UnaryOpType.X), with up "
                "to two numbers after it, or UnaryWithParam((UnaryOpType.X, number)); "
                f"got {described((arg0, *params))}"
            )
        self._op_type = op_type
        self._params = tuple(map(float, params))

    @classmethod
    def of(cls, value: Any) -> UnaryWithParam:
        """The value itself, or one made of a UnaryOpType or a pair of a UnaryOpType and a number."""
        return value if isinstance(value, UnaryWithParam) else cls(value)

    def as_json(self) -> dict[str, Any]:
        """As the JSON of a program config has it; it has no `to_json` of its own."""
        return {"op_type": self._op_type.value, "param": self.params}

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> UnaryWithParam:
        return cls(UnaryOpType(data["op_type"]), *data["param"])

    @property
    def op_type(self) -> UnaryOpType:
        return self._op_type

    @property
    def params(self) -> list[float]:
        return list(self._params)

    def __repr__(self) -> str:
        params = f", params={self.params}" if self._params else ""
        return f"UnaryWithParam(op_type={self._op_type.cpp_name}{params})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UnaryWithParam):
            return NotImplemented
        return self._op_type is other._op_type and self._params == other._params

    def __hash__(self) -> int:
        return hash((self._op_type, self._params))
