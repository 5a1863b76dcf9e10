"""The C kernels through ctypes: the shared library, strided copies and sums, run on torch's OpenMP threads.

`kernel` returns None where the library was not compiled, or from other sources; then torch does the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

from softmesh.value_free import is_value_free

# Of the OpenMP that torch has loaded: they run a function on several threads.
_ENTRY_POINTS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_WORTH_A_THREAD = 1 << 16  # bytes


@cache
def kernel(name: str, form: type[ctypes.Structure]) -> Callable[..., None] | None:
    """(form, from, to, threads): what the library calls `name`; None where there is none that takes this form."""
    library = _library()
    if library is None:
        return None
    try:
        found, size = getattr(library, name), ctypes.c_int64.in_dll(library, f"{name}_form").value
    except (AttributeError, ValueError):  # it was compiled from other sources
        return None
    if size != ctypes.sizeof(form):
        return None
    found.argtypes = [ctypes.POINTER(form), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    found.restype = None
    return found


def is_compiled() -> bool:
    return _library() is not None


def is_plain(data: torch.Tensor) -> bool:
    """Whether its values are what lies in the memory of this process, and nobody asks how they came about."""
    is_memory = type(data) is torch.Tensor and data.is_cpu and not data.is_neg() and not data.is_conj()
    return is_memory and not data.requires_grad and not is_value_free(data)


def threads_for(count: int) -> int:
    """As many of torch's threads as so many bytes are worth."""
    return min(torch.get_num_threads(), count // _WORTH_A_THREAD + 1)


@cache
def _library() -> ctypes.CDLL | None:
    try:
        process = ctypes.CDLL(None)  # all that it has loaded
        entry_points = [ctypes.cast(process[name], ctypes.c_void_p) for name in _ENTRY_POINTS]
        library = ctypes.CDLL(str(_compiled()))
        library.softmesh_team(*entry_points)
    except (OSError, AttributeError, TypeError):
        return None
    return library


def _compiled() -> Path:
    here = Path(__file__)
    beside = [here.with_name(f"_kernels{suffix}") for suffix in EXTENSION_SUFFIXES]
    return next((path for path in beside if path.exists()), beside[0])


# Strided copies (copies.c): runs of bytes that lie apart, to memory without gaps.


Copy = Callable[[torch.Tensor, torch.Tensor], None]

_MOST_DIMS = 8
_LANE = 16  # bytes that are written at once past the caches
_SHORTEST_RUN = 64  # bytes: torch takes shorter ones as quickly
_SHORTEST_STREAM = 256
_LONGEST_RUN = 1 << 16  # bytes: of longer ones there may be too few for the threads


class _Runs(ctypes.Structure):
    _fields_ = [
        ("run", ctypes.c_int64),
        ("past_caches", ctypes.c_int64),
        ("dims", ctypes.c_int64),
        ("sizes", ctypes.c_int64 * _MOST_DIMS),
        ("strides", ctypes.c_int64 * _MOST_DIMS),
    ]


def native_copy(like: torch.Tensor) -> Copy | None:
    """Copies plain data, which lies as `like` does, to contiguous memory; None where torch does it as quickly."""
    copy, runs = kernel("softmesh_copy", _Runs), _runs(like)
    if copy is None or runs is None:
        return None
    count = like.numel() * like.element_size()

    def copy_into(pieces: torch.Tensor, into: torch.Tensor) -> None:
        if is_value_free(pieces):
            into.copy_(pieces)
            return
        copy(runs, pieces.data_ptr(), into.data_ptr(), threads_for(count))

    return copy_into


def copy_past_caches(pieces: torch.Tensor, into: torch.Tensor) -> bool:
    """Copies data larger than the caches to contiguous memory, past them; whether it did: it takes long runs only."""
    copy, runs = kernel("softmesh_copy", _Runs), _runs(pieces)
    if copy is None or runs is None or not is_plain(pieces) or into.data_ptr() % _LANE:
        return False
    if runs.run % _LANE or runs.run < _SHORTEST_STREAM:
        return False
    runs.past_caches = True
    copy(runs, pieces.data_ptr(), into.data_ptr(), threads_for(into.nbytes))
    return True


def _runs(pieces: torch.Tensor) -> _Runs | None:
    """How the elements lie: neighbouring dims with one stride are one dim, and the last ones a run of bytes."""
    width = pieces.element_size()
    dims = [(width, 1)]  # stride in bytes and extent, the last first
    for extent, stride in zip(reversed(pieces.shape), reversed(pieces.stride()), strict=True):
        last, n = dims[-1]
        if extent == 1:
            continue
        if stride * width == last * n:
            dims[-1] = last, n * extent
        else:
            dims.append((stride * width, extent))
    (_, elements), *outer = dims
    run = elements * width
    if run < _SHORTEST_RUN or len(outer) > _MOST_DIMS:
        return None
    if run > _LONGEST_RUN and run % _LONGEST_RUN == 0 and len(outer) < _MOST_DIMS:
        outer.insert(0, (_LONGEST_RUN, run // _LONGEST_RUN))
        run = _LONGEST_RUN
    outer.reverse()
    numbers = ctypes.c_int64 * _MOST_DIMS
    extents, strides = numbers(*(n for _, n in outer)), numbers(*(stride for stride, _ in outer))
    return _Runs(run, False, len(outer), extents, strides)


# Sums of stacks of pieces (sums.c), at the speed of memory.


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
        if is_value_free(data):
            sums.zero_()
            return
        add(stack, data.data_ptr(), sums.data_ptr(), threads_for(count))

    return add_into


def _kind(dtype: torch.dtype, elements: int) -> int | None:
    if dtype is torch.float32:
        return _FLOAT32
    if dtype is not torch.bfloat16:
        return None
    return _ODD_BFLOAT16 if elements % 2 else _BFLOAT16
