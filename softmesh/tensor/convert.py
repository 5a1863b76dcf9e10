"""Values from one dtype to another: into storage, out of storage, and rounding after an op.

Knows how each target rounds, truncates, wraps or saturates. Knows nothing of layouts, meshes or
where values come from. A tensor that needs no change is returned itself, not a copy. Blocks of
block floats run along the last dim, so a caller with mesh dims in front of a rank-0 tensor must add
a dim of one behind them.
"""

from __future__ import annotations

import torch

from softmesh.errors import ArgumentError
from softmesh.tensor.blockfloat import round_blocks
from softmesh.tensor.dtype import FACTS, DataType, DtypeFacts

_WIDE_FLOATS = (torch.float32, torch.float64)
_UINT16_MAX = 65535
_FP8_MAX = torch.finfo(torch.float8_e4m3fn).max


def to_storage(
    t: torch.Tensor, dtype: DataType, *, saturating_uint16: bool, pad_value: float = 0.0
) -> torch.Tensor:
    """Any real torch tensor as the storage of `dtype`, by TT-NN's host rules.

    `saturating_uint16` is the way of `from_torch`, which clamps float32 into uint16 where all other
    paths wrap. `pad_value` matters to block formats alone (see `round_blocks`).

    >>> to_storage(torch.tensor([300.7, -3.5]), DataType.UINT8, saturating_uint16=True)
    tensor([ 44, 253], dtype=torch.uint8)
    """
    if t.is_complex() or t.is_quantized:
        raise ArgumentError(
            f"a tensor of {t.dtype} has no counterpart on the mesh; convert it to a real type"
        )
    if saturating_uint16 and dtype is DataType.UINT16 and t.dtype in _WIDE_FLOATS:
        return t.nan_to_num(nan=0.0).clamp(0, _UINT16_MAX).to(torch.int32)
    facts = FACTS[dtype]
    if facts.mantissa_bits is not None:
        return round_blocks(t.to(torch.float32), facts.mantissa_bits, pad_value=pad_value)
    return round_to(t, dtype)


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
        return round_blocks(data.to(torch.float32), facts.mantissa_bits)
    if facts.torch is torch.float8_e4m3fn:  # some versions of torch make NaNs of what is larger
        data = data.float().clamp(-_FP8_MAX, _FP8_MAX)
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
