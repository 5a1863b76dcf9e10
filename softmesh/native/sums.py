"""Adding up stacks of pieces at the speed of memory, by `sums.c`, where that could be compiled."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

# (data, sums): contiguous CPU data of the stack that the sum was made for, and as much memory as its sums take
AddInto = Callable[[torch.Tensor, torch.Tensor], None]

_KINDS = {torch.float32: 0, torch.bfloat16: 1}
_WORD = 4  # bytes
_WORTH_A_THREAD = 1 << 16  # bytes


class _Stack(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("groups", "pieces", "words", "kind")]


def native_sum(groups: int, pieces: int, elements: int, dtype: torch.dtype) -> AddInto | None:
    """Adds to 0 piece after piece in fp32, and rounds once; None where this cannot be done here."""
    add, kind = _kernel(), _KINDS.get(dtype)
    bytes_of_piece = elements * dtype.itemsize
    if add is None or kind is None or bytes_of_piece % _WORD:
        return None
    stack = _Stack(groups, pieces, bytes_of_piece // _WORD, kind)
    shares = max(1, groups * pieces * bytes_of_piece // _WORTH_A_THREAD)

    def add_into(data: torch.Tensor, sums: torch.Tensor) -> None:
        add(stack, data.data_ptr(), sums.data_ptr(), min(torch.get_num_threads(), shares))

    return add_into


@cache
def _kernel() -> Callable[..., None] | None:
    """The function of the shared library; None without it, or without the threads of torch that it runs on."""
    try:
        library, here = ctypes.CDLL(str(_compiled())), ctypes.CDLL(None)
        team = [here.GOMP_parallel, here.omp_get_thread_num, here.omp_get_num_threads]
        add, choose = library.softmesh_sum, library.softmesh_team
    except (OSError, AttributeError, TypeError):
        return None
    choose(*(ctypes.cast(entry, ctypes.c_void_p) for entry in team))
    add.argtypes = [ctypes.POINTER(_Stack), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    add.restype = None
    return add


def _compiled() -> Path:
    beside = (Path(__file__).with_name(f"_sums{suffix}") for suffix in EXTENSION_SUFFIXES)
    return next((path for path in beside if path.exists()), Path(__file__).with_name("_sums.so"))
