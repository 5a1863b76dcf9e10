"""Adding up stacks of pieces as fast as memory is read: `sums.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from softmesh.native.library import kernel, threads_for

# (data, sums): contiguous CPU data of the stack that the sum was made for, and as much memory as its sums take
AddInto = Callable[[torch.Tensor, torch.Tensor], None]

_FLOAT32, _BFLOAT16, _ODD_BFLOAT16 = range(3)  # the last: pieces that are not made of whole words
_WORD = 4  # bytes


class _Stack(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("groups", "pieces", "units", "kind")]


def native_sum(groups: int, pieces: int, elements: int, dtype: torch.dtype) -> AddInto | None:
    """Adds to 0 piece after piece in fp32, and rounds once; None where this cannot be done here."""
    add, kind, bytes_of_piece = (
        kernel("softmesh_sum", _Stack),
        _kind(dtype, elements),
        elements * dtype.itemsize,
    )
    if add is None or kind is None:
        return None
    unit = dtype.itemsize if kind == _ODD_BFLOAT16 else _WORD
    stack = _Stack(groups, pieces, bytes_of_piece // unit, kind)
    count = groups * pieces * bytes_of_piece

    def add_into(data: torch.Tensor, sums: torch.Tensor) -> None:
        add(stack, data.data_ptr(), sums.data_ptr(), threads_for(count))

    return add_into


def _kind(dtype: torch.dtype, elements: int) -> int | None:
    if dtype is torch.float32:
        return _FLOAT32
    if dtype is not torch.bfloat16:
        return None
    return _ODD_BFLOAT16 if elements % 2 else _BFLOAT16
