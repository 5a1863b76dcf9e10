"""Copies of runs of bytes that lie apart, to memory without gaps: `copies.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from softmesh.native.library import is_plain, kernel, threads_for

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
        copy(runs, pieces.data_ptr(), into.data_ptr(), threads_for(count))

    return copy_into


def streamed(pieces: torch.Tensor, into: torch.Tensor) -> bool:
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
