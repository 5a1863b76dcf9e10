"""Adding up stacks of pieces as fast as memory is read: `sums.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from softmesh.native.library import kernel, threads_for

# (data, sums): contiguous CPU data of the stack that the sum was made for, and as much memory as its sums take
AddInto = Callable[[torch.Tensor, torch.Tensor], None]

_KINDS = {torch.float32: 0, torch.bfloat16: 1}
_WORD = 4  # bytes


class _Stack(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("groups", "pieces", "words", "kind")]


def native_sum(groups: int, pieces: int, elements: int, dtype: torch.dtype) -> AddInto | None:
    """Adds to 0 piece after piece in fp32, and rounds once; None where this cannot be done here."""
    add, kind = kernel("softmesh_sum", _Stack), _KINDS.get(dtype)
    bytes_of_piece = elements * dtype.itemsize
    if add is None or kind is None or bytes_of_piece % _WORD:
        return None
    stack = _Stack(groups, pieces, bytes_of_piece // _WORD, kind)
    count = groups * pieces * bytes_of_piece

    def add_into(data: torch.Tensor, sums: torch.Tensor) -> None:
        add(stack, data.data_ptr(), sums.data_ptr(), threads_for(count))

    return add_into
