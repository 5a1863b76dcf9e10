"""Block floats: rounding float32 values to what bfloat8_b and bfloat4_b can hold.

Sixteen consecutive elements of a row (one row of a tile face) share the largest exponent among them,
so each value is a whole multiple of the group's step. Knows the rounding, bit for bit, on any torch
device; knows no packed bytes and no tiles: a face is 16 wide in every tile, so the tile size does not
matter to the values.
"""

from __future__ import annotations

from functools import cache

import torch
from torch.nn.functional import pad

GROUP = 16


def _constant(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A number torch need not wrap anew at each call, which would double the time of a small op.

    As a CPU tensor without dims it meets tensors of any device.
    """
    return torch.tensor(value, dtype=dtype, device="cpu")


_LARGEST_DENORMAL = 2.0**-126 - 2.0**-149
_EXPONENT_MASK = _constant(0x7F800000, torch.int32)
_EXPONENT_ONE = _constant(1 << 23, torch.int32)
_BITS_OF_TWO_TO_MINUS_127 = _constant(1 << 22, torch.int32)  # a denormal
_TWO_TO_MINUS_22 = _constant(2.0**-22, torch.float32)


@cache
def _rounder(dropped_bits: int) -> torch.Tensor:
    """A number beside which float32 has no bits below 2**dropped_bits.

    Adding it rounds to nearest even; subtracting it again leaves +0 where nothing remains.
    """
    return _constant(1.5 * 2.0 ** (23 + dropped_bits), torch.float32)


def round_blocks(values: torch.Tensor, mantissa_bits: int, *, pad_value: float = 0.0) -> torch.Tensor:
    """Float32 values rounded to `mantissa_bits` under one exponent per 16 elements of the last dim.

    Where the last dim is no multiple of 16, `pad_value` stands in the columns behind it and takes
    part in the shared exponent. Small neighbours of a large value vanish; NaN and infinities stay,
    and so does the sign, except that of a zero.

    >>> round_blocks(torch.tensor([-3.5, 300.7]), mantissa_bits=7)
    tensor([ -4., 300.])
    """
    width = values.shape[-1] if values.ndim else 1
    missing = -width % GROUP
    if not missing:
        return _round_groups(values.unflatten(-1, (width // GROUP, GROUP)), mantissa_bits).flatten(-2)
    rows = pad(values.reshape(*values.shape[:-1], width), (0, missing), value=pad_value)
    groups = rows.unflatten(-1, ((width + missing) // GROUP, GROUP))
    rounded = _round_groups(groups, mantissa_bits).flatten(-2)
    return rounded[..., :width].reshape(values.shape)


def _round_groups(groups: torch.Tensor, mantissa_bits: int) -> torch.Tensor:
    """`round_blocks` for a last dim of 16. Every product and quotient here is exact.

    In units of `step` an element is its 24-bit mantissa, shifted right by its distance from the
    shared exponent. The chip truncates that shift, then rounds to nearest even: hence two roundings.
    """
    dropped_bits = 24 - mantissa_bits
    rounder = _rounder(dropped_bits)
    limit = (2.0**mantissa_bits - 1) * 2.0**dropped_bits
    out = torch.empty_like(groups)
    step = _steps(groups, scratch=out)
    torch.hardshrink(groups, _LARGEST_DENORMAL, out=out)  # a denormal counts as zero
    out.div_(step, rounding_mode="trunc").add_(rounder).sub_(rounder)
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
