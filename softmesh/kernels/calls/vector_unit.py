"""Vector unit (SFPU) calls: functions of the values in tile registers, in place, in float32.

Scalars come as the bits of a float, as in C++: `add_unary_tile(0, float_bits(0.5))`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softmesh.kernels.calls.kernel_arguments import float32, templated
from softmesh.kernels.calls.tile_registers import in_register
from softmesh.kernels.data_formats import DataFormat, dtype_of, pack, unpack
from softmesh.kernels.engine.scheduler import KernelThread, compute_kernel

Unary = Callable[[torch.Tensor], torch.Tensor]
WithScalar = Callable[[torch.Tensor, float], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Call = Callable[..., None]


class _Call:
    """What C++ writes in angle brackets, `exp_tile[True](0)`, changes speed and accuracy of chips, not what is here."""

    def __init__(self, name: str, function: Call) -> None:
        self.__name__ = self.__qualname__ = name
        self._function = function

    def __repr__(self) -> str:
        return f"<{self.__name__}, a call of kernels>"

    def __getitem__(self, given: object) -> Call:
        return self._function

    def __call__(self, *args: Any, **options: Any) -> None:
        self._function(*args, **options)


def _init(name: str, op: str) -> Call:
    def call(*args: object, **options: object) -> None:
        compute_kernel(name).registers.setup.vector_op = op

    return _Call(name, call)


def _check_set_up(thread: KernelThread, call: str) -> None:
    now = thread.registers.setup.vector_op
    if now != call and call not in _SERVES.get(now, ()):
        thread.complain(
            f"init of {call}",
            f"{call}: the vector unit is set up for {now or 'nothing'}. Call {call}_init() before: on a chip it works "
            "with the constants of whatever it was set up for.",
        )


def _named(call: Call, name: str) -> tuple[Call, Call]:
    return _Call(name, call), _init(f"{name}_init", name)


def _unary(name: str, apply: Unary) -> tuple[Call, Call]:
    """`name(idst)` and its init."""

    def call(idst: int, *options: object, **named: object) -> None:
        thread = compute_kernel(name)
        _check_set_up(thread, name)
        values = in_register(thread, name, idst)
        thread.registers.put(name, idst, apply(values), thread.registers.tile(idst))

    return _named(call, name)


def _with_scalar(name: str, apply: WithScalar) -> tuple[Call, Call]:
    """`name(idst, bits)`, bits being those of a float, and its init."""

    def call(idst: int, param1: int) -> None:
        thread = compute_kernel(name)
        _check_set_up(thread, name)
        values = in_register(thread, name, idst)
        thread.registers.put(name, idst, apply(values, float32(param1)), thread.registers.tile(idst))

    return _named(call, name)


def _binary(name: str, apply: Binary) -> tuple[Call, Call]:
    """`name(idst0, idst1, odst)` and its init; without `odst` the result takes the place of the first."""

    def call(idst0: int, idst1: int, odst: int | None = None) -> None:
        thread = compute_kernel(name)
        _check_set_up(thread, name)
        a, b = in_register(thread, name, idst0), in_register(thread, name, idst1)
        target = idst0 if odst is None else odst
        thread.registers.put(name, target, apply(a, b), thread.registers.tile(idst0))

    return _named(call, name)


exp_tile, exp_tile_init = _unary("exp_tile", torch.exp)
exp2_tile, exp2_tile_init = _unary("exp2_tile", torch.exp2)
expm1_tile, expm1_tile_init = _unary("expm1_tile", torch.expm1)
log_tile, log_tile_init = _unary("log_tile", torch.log)
log1p_tile, log1p_tile_init = _unary("log1p_tile", torch.log1p)
sqrt_tile, sqrt_tile_init = _unary("sqrt_tile", torch.sqrt)
rsqrt_tile, rsqrt_tile_init = _unary("rsqrt_tile", torch.rsqrt)
recip_tile, recip_tile_init = _unary("recip_tile", torch.reciprocal)
square_tile, square_tile_init = _unary("square_tile", torch.square)
sin_tile, sin_tile_init = _unary("sin_tile", torch.sin)
cos_tile, cos_tile_init = _unary("cos_tile", torch.cos)
tan_tile, tan_tile_init = _unary("tan_tile", torch.tan)
tanh_tile, tanh_tile_init = _unary("tanh_tile", torch.tanh)
sigmoid_tile, sigmoid_tile_init = _unary("sigmoid_tile", torch.sigmoid)
gelu_tile, gelu_tile_init = _unary("gelu_tile", torch.nn.functional.gelu)
silu_tile, silu_tile_init = _unary("silu_tile", torch.nn.functional.silu)
relu_tile, relu_tile_init = _unary("relu_tile", torch.relu)
erf_tile, erf_tile_init = _unary("erf_tile", torch.erf)
erfc_tile, erfc_tile_init = _unary("erfc_tile", torch.erfc)
abs_tile, abs_tile_init = _unary("abs_tile", torch.abs)
negative_tile, negative_tile_init = _unary("negative_tile", torch.neg)
sign_tile, sign_tile_init = _unary("sign_tile", torch.sign)
floor_tile, floor_tile_init = _unary("floor_tile", torch.floor)
ceil_tile, ceil_tile_init = _unary("ceil_tile", torch.ceil)
trunc_tile, trunc_tile_init = _unary("trunc_tile", torch.trunc)
eqz_tile, eqz_tile_init = _unary("eqz_tile", lambda x: (x == 0).to(x.dtype))
nez_tile, nez_tile_init = _unary("nez_tile", lambda x: (x != 0).to(x.dtype))
gtz_tile, gtz_tile_init = _unary("gtz_tile", lambda x: (x > 0).to(x.dtype))
ltz_tile, ltz_tile_init = _unary("ltz_tile", lambda x: (x < 0).to(x.dtype))
gez_tile, gez_tile_init = _unary("gez_tile", lambda x: (x >= 0).to(x.dtype))
lez_tile, lez_tile_init = _unary("lez_tile", lambda x: (x <= 0).to(x.dtype))

add_unary_tile, add_unary_tile_init = _with_scalar("add_unary_tile", lambda x, a: x + a)
sub_unary_tile, sub_unary_tile_init = _with_scalar("sub_unary_tile", lambda x, a: x - a)
rsub_unary_tile, rsub_unary_tile_init = _with_scalar("rsub_unary_tile", lambda x, a: a - x)
mul_unary_tile, mul_unary_tile_init = _with_scalar("mul_unary_tile", lambda x, a: x * a)
div_unary_tile, div_unary_tile_init = _with_scalar("div_unary_tile", lambda x, a: x / a)
leaky_relu_tile, leaky_relu_tile_init = _with_scalar("leaky_relu_tile", torch.nn.functional.leaky_relu)
elu_tile, elu_tile_init = _with_scalar("elu_tile", torch.nn.functional.elu)
relu_max_tile, relu_max_tile_init = _with_scalar("relu_max_tile", lambda x, a: x.clamp(0, a))
relu_min_tile, relu_min_tile_init = _with_scalar("relu_min_tile", lambda x, a: x.clamp(min=a))
unary_max_tile, unary_max_tile_init = _with_scalar("unary_max_tile", lambda x, a: x.clamp(min=a))
unary_min_tile, unary_min_tile_init = _with_scalar("unary_min_tile", lambda x, a: x.clamp(max=a))

# One init for arithmetic with a scalar.
binop_with_scalar_tile_init = _init("binop_with_scalar_tile_init", "binop_with_scalar_tile")
_SERVES = {
    "binop_with_scalar_tile": (
        "add_unary_tile",
        "sub_unary_tile",
        "rsub_unary_tile",
        "mul_unary_tile",
        "div_unary_tile",
    )
}

add_binary_tile, add_binary_tile_init = _binary("add_binary_tile", torch.add)
sub_binary_tile, sub_binary_tile_init = _binary("sub_binary_tile", torch.sub)
rsub_binary_tile, rsub_binary_tile_init = _binary("rsub_binary_tile", lambda a, b: b - a)
mul_binary_tile, mul_binary_tile_init = _binary("mul_binary_tile", torch.mul)
div_binary_tile, div_binary_tile_init = _binary("div_binary_tile", torch.div)
power_binary_tile, power_binary_tile_init = _binary("power_binary_tile", torch.pow)
binary_max_tile, binary_max_tile_init = _binary("binary_max_tile", torch.maximum)
binary_min_tile, binary_min_tile_init = _binary("binary_min_tile", torch.minimum)
add_int_tile, add_int_tile_init = _binary("add_int_tile", torch.add)
sub_int_tile, sub_int_tile_init = _binary("sub_int_tile", torch.sub)
mul_int_tile, mul_int_tile_init = _binary("mul_int_tile", torch.mul)

_SMALLEST_FLOAT_BITS = 1 << 23  # what is below is no bits of a normal float, so it is a number


def power_tile(idst: int, param0: int) -> None:
    """To a power: a whole number, or the bits of a float."""
    thread = compute_kernel("power_tile")
    _check_set_up(thread, "power_tile")
    exponent = float(param0) if param0 < _SMALLEST_FLOAT_BITS else float32(param0)
    values = in_register(thread, "power_tile", idst)
    thread.registers.put("power_tile", idst, values**exponent, thread.registers.tile(idst))


power_tile_init = _init("power_tile_init", "power_tile")


@templated
def where_tile(idst0: int, idst1: int, idst2: int, odst: int | None = None, *, data_format: object = None) -> None:
    """From the second register where the first is not zero, else from the third."""
    thread = compute_kernel("where_tile")
    _check_set_up(thread, "where_tile")
    condition, yes, no = (in_register(thread, "where_tile", i) for i in (idst0, idst1, idst2))
    target = idst0 if odst is None else odst
    thread.registers.put("where_tile", target, torch.where(condition != 0, yes, no), thread.registers.tile(idst0))


where_tile_init = _init("where_tile_init", "where_tile")


def fill_tile(idst: int, param0: float) -> None:
    """One value everywhere."""
    thread = compute_kernel("fill_tile")
    thread.registers.get("fill_tile", idst)  # refuses what there is not
    tile, chip = thread.registers.tile(idst), thread.core.chip
    size = (*(1,) * chip.rank, tile.height * tile.width)
    values = torch.full(size, float(param0), device=chip.mesh.torch_device)
    thread.registers.put("fill_tile", idst, values, tile)


def fill_tile_bitcast(idst: int, param0: int) -> None:
    fill_tile(idst, float32(param0))


fill_tile_init = _init("fill_tile_init", "fill_tile")


@templated
def typecast_tile(idst: int, *, IN_DTYPE: DataFormat | int, OUT_DTYPE: DataFormat | int) -> None:
    """Values as another format has them: rounded, cut off or wrapped."""
    thread = compute_kernel("typecast_tile")
    _check_set_up(thread, "typecast_tile")
    dtype = dtype_of("typecast_tile", DataFormat(OUT_DTYPE))
    tile = thread.registers.tile(idst)
    values = in_register(thread, "typecast_tile", idst)
    thread.registers.put("typecast_tile", idst, unpack(pack(values, dtype, tile), dtype, tile), tile)


typecast_tile_init = _init("typecast_tile_init", "typecast_tile")

__all__ = [_name for _name in globals() if "_tile" in _name]
