"""Value conversion between dtypes: into storage, out of storage, and the rounding after an op; block floats included.

Knows how each target rounds, truncates, wraps or saturates. Knows nothing of layouts, meshes or
where values come from. A tensor that needs no change is returned itself, not a copy. Blocks of block floats run along
the last dim, so a caller with mesh dims in front of a rank-0 tensor must add a dim of one behind them.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch.nn.functional import pad

from softmesh.errors import ArgumentError
from softmesh.tensor.dtype import FACTS, DataType, DtypeFacts

# Block floats: rounding to what bfloat8_b and bfloat4_b can hold. Sixteen consecutive elements of a row (one row of a
# tile face) share the largest exponent among them, so each value is a whole multiple of the group's step. Halves go to
# even in TT-NN's host code, and away from zero in the packers of a chip. Exact bit for bit on any torch device; knows
# no packed bytes and no tiles, for a face is 16 wide in every tile.


GROUP = 16


def _constant(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A number torch need not wrap anew at each call, which would double the time of a small op.

    As a CPU tensor without dims it meets tensors of any device.
    """
    return torch.tensor(value, dtype=dtype, device="cpu")


_LARGEST_DENORMAL = 2.0**-126 - 2.0**-149
_EXPONENT_MASK = _constant(0x7F800000, torch.int32)
_MANTISSA_MASK = 0x7FFFFF
_EXPONENT_ONE = _constant(1 << 23, torch.int32)
_BITS_OF_TWO_TO_MINUS_127 = _constant(1 << 22, torch.int32)  # a denormal
_TWO_TO_MINUS_22 = _constant(2.0**-22, torch.float32)
_LEAST_MOVE = 1.5 * 2.0**-24  # of itself: to the next float32 away from zero


@cache
def _rounder(dropped_bits: int) -> torch.Tensor:
    """A number beside which float32 has no bits below 2**dropped_bits.

    Adding it rounds to nearest even; subtracting it again leaves +0 where nothing remains.
    """
    return _constant(1.5 * 2.0 ** (23 + dropped_bits), torch.float32)


def round_blocks(
    values: torch.Tensor, mantissa_bits: int, *, pad_value: float = 0.0, on_chip: bool = False
) -> torch.Tensor:
    """Float32 values rounded to `mantissa_bits` under one exponent per 16 elements of the last dim.

    Where the last dim is no multiple of 16, `pad_value` stands in the columns behind it and takes
    part in the shared exponent. Small neighbours of a large value vanish; NaN and infinities stay,
    and so does the sign, except that of a zero.

    >>> round_blocks(torch.tensor([-2.0, 7.0, 300.7]), mantissa_bits=7)
    tensor([  0.,   8., 300.])
    >>> round_blocks(torch.tensor([-2.0, 7.0, 300.7]), mantissa_bits=7, on_chip=True)
    tensor([ -4.,   8., 300.])
    """
    width = values.shape[-1] if values.ndim else 1
    missing = -width % GROUP
    if not missing:
        return _round_groups(values.unflatten(-1, (width // GROUP, GROUP)), mantissa_bits, on_chip).flatten(-2)
    rows = pad(values.reshape(*values.shape[:-1], width), (0, missing), value=pad_value)
    groups = rows.unflatten(-1, ((width + missing) // GROUP, GROUP))
    rounded = _round_groups(groups, mantissa_bits, on_chip).flatten(-2)
    return rounded[..., :width].reshape(values.shape)


def _round_groups(groups: torch.Tensor, mantissa_bits: int, on_chip: bool) -> torch.Tensor:
    """`round_blocks` for a last dim of 16. Every product and quotient here is exact.

    In units of `step` an element is its 24-bit mantissa, shifted right by its distance from the
    shared exponent. That shift truncates, then the rest is rounded to nearest even: hence two roundings.
    Where halves go away from zero the last of the 24 bits tells nothing: without it there is room
    to move each value by the least that float32 knows, and no half is left.
    """
    dropped_bits = (23 if on_chip else 24) - mantissa_bits
    rounder = _rounder(dropped_bits)
    limit = (2.0**mantissa_bits - 1) * 2.0**dropped_bits
    out = torch.empty_like(groups)
    step = _steps(groups, scratch=out)
    if on_chip:
        step.mul_(2.0)
    torch.hardshrink(groups, _LARGEST_DENORMAL, out=out)  # a denormal counts as zero
    out.div_(step, rounding_mode="trunc")
    if on_chip:
        out.add_(out, alpha=_LEAST_MOVE)
    out.add_(rounder).sub_(rounder)
    return out.clamp_(-limit, limit).mul_(step)


def _steps(groups: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
    """Per group 2**(E - 150), E being its largest biased exponent, at least 1.

    As float32, 2**(E - 127) would overflow at E = 255 and 2**(E - 150) is a denormal below E = 24,
    so 2**(E - 128) is put together from bits and scaled. Integer maxima are several times faster in
    torch than float ones, and they rank a NaN above all.
    """
    torch.abs(groups, out=scratch)
    bits = scratch.view(torch.int32).amax(-1, keepdim=True)
    bits.bitwise_and_(_EXPONENT_MASK).sub_(_EXPONENT_ONE)
    torch.maximum(bits, _BITS_OF_TWO_TO_MINUS_127, out=bits)
    return bits.view(torch.float32).mul_(_TWO_TO_MINUS_22)


_WIDE_FLOATS = (torch.float32, torch.float64)
_FP8_MAX = torch.finfo(torch.float8_e4m3fn).max
_FP8_SMALLEST = 2.0**-6  # smaller ones are zero: the host knows no denormals
_LOWEST_INT32 = -(2**31)
# What TT-NN's host code reads itself; torch converts anything else first.
_HOST_DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.bool,
)


def to_storage(
    t: torch.Tensor, dtype: DataType, *, pad_value: float = 0.0, torch_converts: bool = False
) -> torch.Tensor:
    """Any real torch tensor as the storage of `dtype`, by TT-NN's host rules.

    torch brings what the host code cannot read, or all with `torch_converts`, to the target, to bfloat16 for block
    formats. `pad_value` matters to block formats alone (see `round_blocks`), in the type the host code reads.

    >>> to_storage(torch.tensor([300.7, -3.5]), DataType.UINT8)
    tensor([255,   0], dtype=torch.uint8)
    """
    if t.is_complex() or t.is_quantized:
        raise ArgumentError(f"a tensor of {t.dtype} has no counterpart on the mesh; convert it to a real type")
    facts = FACTS[dtype]
    torch_first = torch_converts or t.dtype not in _HOST_DTYPES
    if facts.mantissa_bits is not None:
        host = t.to(torch.bfloat16) if torch_first else t
        filler = _cast(pad_value, host.dtype)
        values = _rounded_nans(host.to(torch.float32), facts.mantissa_bits)
        return round_blocks(values, facts.mantissa_bits, pad_value=filler).to(facts.storage)
    if t.is_floating_point() and not facts.is_float and not torch_first:
        return to_integers(t, dtype)
    made = round_to(t, dtype)
    return _plain_nans(made) if dtype is DataType.BFLOAT16 and made is not t else made


def _plain_nans(made: torch.Tensor) -> torch.Tensor:
    """Whatever a NaN was, the host makes one of it: positive, with the first bit of the mantissa."""
    if made.sum().isnan():  # most tensors have none, and a sum is the cheapest way to know
        made.masked_fill_(made.isnan(), math.nan)
    return made


def _rounded_nans(values: torch.Tensor, mantissa_bits: int) -> torch.Tensor:
    """Block formats round a NaN as they round a number: one with no bits left is an infinity."""
    if not values.is_floating_point() or not values.sum().isnan():
        return values
    half = 1 << (23 - mantissa_bits)
    vanishes = values.isnan() & ((values.view(torch.int32) & _MANTISSA_MASK) <= half)
    return torch.where(vanishes, torch.full_like(values, math.inf).copysign(values), values)


def to_integers(values: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """Floats truncated to integers as the host code does, and bounded by what the type can hold.

    They go through int32, where what does not fit, infinities and NaN are the lowest number.

    >>> to_integers(torch.tensor([-1.5, 70000.0, torch.inf]), DataType.UINT16)
    tensor([    0, 65535,     0], dtype=torch.int32)
    """
    facts = FACTS[dtype]
    wide = values.to(torch.float64)
    highest = 2.0**32 if dtype is DataType.UINT32 else 2.0**31
    fits = (wide > _LOWEST_INT32 - 1) & (wide < highest)
    whole = torch.where(fits, wide, _LOWEST_INT32).to(torch.int64)
    if dtype is DataType.UINT32:
        return whole.bitwise_and(2**32 - 1)
    low, high = (0, 2**facts.bits - 1) if dtype in _UNSIGNED else (-(2 ** (facts.bits - 1)), 2 ** (facts.bits - 1) - 1)
    return whole.clamp_(low, high).to(facts.storage)


_UNSIGNED = (DataType.UINT8, DataType.UINT16, DataType.UINT32)


def _cast(number: float, dtype: torch.dtype) -> float:
    """A number as C++ casts it to a type: integers keep the low bits of what they cannot hold."""
    if dtype.is_floating_point:
        return torch.tensor(number, dtype=torch.float64).to(dtype).item()
    info = torch.iinfo(torch.uint8 if dtype is torch.bool else dtype)
    if not math.isfinite(number) or abs(number) >= 2.0**63:
        return info.min if info.bits == 32 and info.min else 0
    return (int(number) - info.min) % 2**info.bits + info.min


def from_storage(data: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """Storage as the torch type that `to_torch` gives."""
    return data.to(FACTS[dtype].torch)


def round_to(data: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """What an op computed, as the storage of `dtype`: floats round, integers truncate and wrap.

    >>> round_to(torch.tensor([-2.2]), DataType.UINT16)
    tensor([65534], dtype=torch.int32)
    """
    facts = FACTS[dtype]
    if facts.exact_storage and data.dtype is facts.storage:
        return data
    return _round_float(data, facts) if facts.is_float else _wrap_integer(data, dtype, facts)


def _round_float(data: torch.Tensor, facts: DtypeFacts) -> torch.Tensor:
    if facts.mantissa_bits is not None:
        return round_blocks(data.to(torch.float32), facts.mantissa_bits, on_chip=True).to(facts.storage)
    if facts.torch is torch.float8_e4m3fn:  # some versions of torch make NaNs of what is larger
        data = data.float().clamp(-_FP8_MAX, _FP8_MAX)
        data = data.masked_fill(data.abs() < _FP8_SMALLEST, 0.0)
    return data.to(facts.torch).to(facts.storage)


def _wrap_integer(data: torch.Tensor, dtype: DataType, facts: DtypeFacts) -> torch.Tensor:
    if data.is_floating_point():
        data = _truncate(data, dtype, facts.bits)
    data = data.to(facts.storage)
    return data if facts.exact_storage else data.bitwise_and(2**facts.bits - 1)


def _truncate(data: torch.Tensor, dtype: DataType, bits: int) -> torch.Tensor:
    """Floats as int64, equal modulo 2**bits to what truncation gives.

    The remainder is taken first because a float beyond int64 becomes one number on a CPU and
    another on a GPU.
    """
    if data.dtype not in _WIDE_FLOATS:
        data = data.to(torch.float32)
    not_a_number = -(2.0**31) if dtype is DataType.INT32 else 0.0
    return data.fmod(2.0**bits).nan_to_num(nan=not_a_number).to(torch.int64)
